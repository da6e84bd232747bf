"""Setting and removing users' SCRAM credentials (KIP-554). Error codes and messages are Apache
Kafka's."""

from __future__ import annotations

from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX, Decision
from kvorum.metadata.image.features import METADATA_VERSION, SCRAM_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import Record, RemoveScramCredential, ScramCredential
from kvorum.metadata.requests.scram_requests import (
    HASHES,
    AlteredScramUser,
    AlterScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from kvorum.runtime.errors import ErrorCode, Rejected

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
_NAMED_TWICE = Rejected(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


def alter_scram_credentials(
    image: ClusterImage,
    request: AlterScramCredentials,
    *,
    records_max: int = RECORDS_PER_REQUEST_MAX,
) -> Decision[tuple[AlteredScramUser, ...]]:
    """Change the credentials of each user for whom it is possible. Each user has one result: the
    first problem, in the order of deletions and then upsertions. A user whose first change is
    possible, and who is named again, is refused."""
    asked: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    done: dict[str, Record] = {}
    refused: dict[str, Rejected] = {}
    for item in asked:
        if item.user in refused:
            continue
        if done.pop(item.user, None) is not None:
            problem: Rejected | None = _NAMED_TWICE
        else:
            problem = _problem(image, item)
        if problem is None and len(done) == records_max:
            problem = Rejected(
                ErrorCode.POLICY_VIOLATION,
                f"more than {records_max} changes in one request; send several",
            )
        if problem is not None:
            refused[item.user] = problem
            continue
        done[item.user] = _record(item)
    results = [AlteredScramUser(user=user) for user in done]
    results += [
        AlteredScramUser(user=user, error=problem.code, message=problem.message)
        for user, problem in refused.items()
    ]
    return Decision(tuple(done.values()), tuple(results))


def _record(item: ScramDeletion | ScramUpsertion) -> Record:
    if isinstance(item, ScramDeletion):
        return RemoveScramCredential(item.user, item.mechanism)
    return ScramCredential(
        item.user, item.mechanism, item.iterations, item.salt, item.stored_key, item.server_key
    )


def _problem(image: ClusterImage, item: ScramDeletion | ScramUpsertion) -> Rejected | None:
    level = level_of(image.features, METADATA_VERSION)
    if level < SCRAM_LEVEL:
        return Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            f"SCRAM credentials need {METADATA_VERSION} {SCRAM_LEVEL}, it is {level}; "
            "upgrade it with `kvorum features upgrade`",
        )
    if not item.user:
        return Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if item.mechanism not in HASHES:
        return Rejected(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(item, ScramDeletion):
        if item.mechanism in image.scram_credentials.get(item.user, {}):
            return None
        return Rejected(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    if item.iterations < ITERATIONS_MIN:
        return Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > ITERATIONS_MAX:
        return Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None
