"""CreateDelegationToken (38). Served: v1-3.

The answer is DELEGATION_TOKEN_AUTH_DISABLED, since no broker has a token key. The request's form is
checked and its values are ignored: they may hold a duration that `read_request` refuses.
"""

from __future__ import annotations

from kvorum.broker.api.context import RequestContext
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import check_request
from kvorum.wire.versions import Api

API = Api(key=38, name="create_delegation_token", min_version=1, max_version=3, first_flexible=2)
ACCESS = ()
"""Always refused."""


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    check_request(API.name, context.api_version, view[position:end])
    values = {
        "error_code": ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        "principal_type": "",
        "principal_name": "",
        "token_requester_principal_type": "",
        "token_requester_principal_name": "",
        "issue_timestamp": 0,
        "expiry_timestamp": 0,
        "max_timestamp": 0,
        "token_id": "",
        "hmac": b"",
    }
    context.answer(API, values)
