"""AlterUserScramCredentials (51). Served: v0; any broker forwards it to the controller (KIP-554).

The broker derives stored key and server key (RFC 5802), and does not keep the salted password.
Errors of a user: UNSUPPORTED_SASL_MECHANISM, UNSUPPORTED_VERSION, RESOURCE_NOT_FOUND,
DUPLICATE_RESOURCE (named twice, with any mechanisms), UNACCEPTABLE_CREDENTIAL (also for an empty
salted password, for which Apache Kafka answers UNKNOWN_SERVER_ERROR).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, error_fields
from kvorum.broker.sasl.core.scram import derived_keys
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.scram_requests import (
    HASHES,
    AlteredScramUser,
    AlterScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from kvorum.metadata.rpc.calls import ALTER_SCRAM_CREDENTIALS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=51,
    name="alter_user_scram_credentials",
    min_version=0,
    max_version=0,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    empty = dict.fromkeys(item.name for item in request.upsertions if not item.salted_password)
    asked = AlterScramCredentials(
        deletions=tuple(
            ScramDeletion(user=item.name, mechanism=item.mechanism)
            for item in request.deletions
            if item.name not in empty
        ),
        upsertions=tuple(_upsertion(item) for item in request.upsertions if item.name not in empty),
    )
    reply = await context.ask_controller(ALTER_SCRAM_CREDENTIALS, asked, needs=AclOperation.ALTER)
    if isinstance(reply, Rejected):
        users = dict.fromkeys(item.name for item in (*request.deletions, *request.upsertions))
        reply = tuple(
            AlteredScramUser(user=user, error=reply.code, message=reply.message) for user in users
        )
    else:
        reply += tuple(
            AlteredScramUser(
                user=user,
                error=ErrorCode.UNACCEPTABLE_CREDENTIAL,
                message="The salted password must not be empty",
            )
            for user in empty
        )
    return {
        "results": [
            {
                "user": item.user,
                **error_fields(item),
            }
            for item in reply
        ]
    }


def _upsertion(item: Any) -> ScramUpsertion:
    stored_key = server_key = b""
    hash_name = HASHES.get(item.mechanism)
    if hash_name is not None:
        stored_key, server_key = derived_keys(hash_name, item.salted_password)
    return ScramUpsertion(
        user=item.name,
        mechanism=item.mechanism,
        iterations=item.iterations,
        salt=item.salt,
        stored_key=stored_key,
        server_key=server_key,
    )
