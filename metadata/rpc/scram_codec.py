"""Between requests about SCRAM credentials and their protobuf form. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.requests.scram_requests import (
    AlteredScramUser,
    AlterScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from kvorum.rpc import configs_pb2 as pb
from kvorum.runtime.errors import ErrorCode


def encode_alter_scram(request: AlterScramCredentials) -> pb.AlterScramCredentialsRequest:
    return pb.AlterScramCredentialsRequest(
        deletions=[pb.ScramDeletion(user=d.user, mechanism=d.mechanism) for d in request.deletions],
        upsertions=[
            pb.ScramUpsertion(
                user=u.user,
                mechanism=u.mechanism,
                iterations=u.iterations,
                salt=u.salt,
                stored_key=u.stored_key,
                server_key=u.server_key,
            )
            for u in request.upsertions
        ],
    )


def decode_alter_scram(message: pb.AlterScramCredentialsRequest) -> AlterScramCredentials:
    return AlterScramCredentials(
        deletions=tuple(
            ScramDeletion(user=d.user, mechanism=d.mechanism) for d in message.deletions
        ),
        upsertions=tuple(
            ScramUpsertion(
                user=u.user,
                mechanism=u.mechanism,
                iterations=u.iterations,
                salt=u.salt,
                stored_key=u.stored_key,
                server_key=u.server_key,
            )
            for u in message.upsertions
        ),
    )


def encode_altered_scram(results: Iterable[AlteredScramUser]) -> list[pb.AlteredScramUser]:
    return [pb.AlteredScramUser(user=r.user, error=r.error, message=r.message) for r in results]


def decode_altered_scram(
    messages: Iterable[pb.AlteredScramUser],
) -> tuple[AlteredScramUser, ...]:
    return tuple(
        AlteredScramUser(user=m.user, error=ErrorCode(m.error), message=m.message) for m in messages
    )
