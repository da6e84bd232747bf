"""DescribeUserScramCredentials (50). Served: v0 (KIP-554): mechanisms and iterations, no secrets.

A null or empty list means all users that have credentials. Errors of a named user:
RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if it is named twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(
    key=50, name="describe_user_scram_credentials", min_version=0, max_version=0, first_flexible=0
)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.DESCRIBE):
        return {**refusal_fields(CLUSTER_REFUSED), "results": ()}
    image = context.services.image()
    named = Counter(user.name for user in request.users or ()) or dict.fromkeys(
        sorted(image.scram_credentials), 1
    )
    return {
        **refusal_fields(None),
        "results": [_described(image, name, times) for name, times in named.items()],
    }


def _described(image: ClusterImage, user: str, times_named: int) -> dict[str, Any]:
    """The result for one user. Messages are Kafka's, which its tools print."""
    credentials: Mapping[int, ScramCredential] = image.scram_credentials.get(user, {})
    error, message = ErrorCode.NONE, None
    if times_named > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not credentials:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    infos = [
        {"mechanism": mechanism, "iterations": credential.iterations}
        for mechanism, credential in sorted(credentials.items())
    ]
    return {
        "user": user,
        "error_code": error,
        "error_message": message,
        "credential_infos": infos if error == ErrorCode.NONE else (),
    }
