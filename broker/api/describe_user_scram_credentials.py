"""DescribeUserScramCredentials (50). Served: v0 (KIP-554): nobody has any, as there is no SASL.

kafka-configs asks for them beside a user's quotas. All users (null or empty): none. Errors of a
named user: 91, or 92 if it is named twice. AlterUserScramCredentials (51) is not served.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.context import RequestContext
from runtime.errors import ErrorCode
from wire.versions import Api

API = Api(
    key=50, name="describe_user_scram_credentials", min_version=0, max_version=0, first_flexible=0
)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    named = Counter(user.name for user in request.users or ())
    return {
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "results": [_refused(name, times) for name, times in named.items()],
    }


def _refused(user: str, times_named: int) -> dict[str, Any]:
    """In Kafka's words, which its tools print."""
    if times_named > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    else:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return {"user": user, "error_code": error, "error_message": message, "credential_infos": ()}
