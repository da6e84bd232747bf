"""Setting and removing client quotas (KIP-546)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvorum.metadata.configs.quotas import canonical, entity_problem, quota_problem
from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX, Decision
from kvorum.metadata.image.features import METADATA_VERSION, REASSIGNMENT_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import ClientQuota, QuotaEntity, Record
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlteredQuota,
    QuotaAlteration,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def alter_client_quotas(
    image: ClusterImage, request: AlterClientQuotas, *, records_max: int = RECORDS_PER_REQUEST_MAX
) -> Decision[tuple[AlteredQuota, ...]]:
    """Change the quotas of each entity that can be changed; nothing is written if validate_only is
    set."""
    level = level_of(image.features, METADATA_VERSION)
    if level < REASSIGNMENT_LEVEL:
        message = (
            f"client quotas need {METADATA_VERSION} {REASSIGNMENT_LEVEL}, it is {level}; "
            "upgrade it with `kvorum features upgrade`"
        )
        refused = tuple(
            AlteredQuota(entity=entry.entity, error=ErrorCode.UNSUPPORTED_VERSION, message=message)
            for entry in request.entries
        )
        return Decision((), refused)
    asked = Counter(canonical(entry.entity) for entry in request.entries)
    records: list[Record] = []
    results: list[AlteredQuota] = []
    for entry in request.entries:
        entity = canonical(entry.entity)
        outcome: list[ClientQuota] | Rejected
        if asked[entity] > 1:
            outcome = Rejected(
                ErrorCode.INVALID_REQUEST, "each entity may stand in a request only once"
            )
        else:
            outcome = _alter_one(image, entity, entry)
        if not isinstance(outcome, Rejected) and len(records) + len(outcome) > records_max:
            outcome = Rejected(
                ErrorCode.POLICY_VIOLATION,
                f"more than {records_max} changes in one request; send several",
            )
        if isinstance(outcome, Rejected):
            results.append(
                AlteredQuota(entity=entry.entity, error=outcome.code, message=outcome.message)
            )
            continue
        records.extend(outcome)
        results.append(AlteredQuota(entity=entry.entity))
    return Decision(() if request.validate_only else tuple(records), tuple(results))


def _alter_one(
    image: ClusterImage, entity: QuotaEntity, entry: QuotaAlteration
) -> list[ClientQuota] | Rejected:
    refused = entity_problem(entity)
    if refused is not None:
        return refused
    counts = Counter(operation.key for operation in entry.operations)
    current: Mapping[str, float] = image.client_quotas.get(entity, {})
    records = []
    for operation in entry.operations:
        if counts[operation.key] > 1:
            return Rejected(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {operation.key}")
        refused = quota_problem(entity, operation.key, operation.value)
        if refused is not None:
            return refused
        if operation.value != current.get(operation.key):
            records.append(ClientQuota(entity, operation.key, operation.value))
    return records
