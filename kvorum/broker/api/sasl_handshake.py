"""SaslHandshake (17). Served: v0-1. A client names the mechanism of its authentication (KIP-43).

After version 0, the tokens come in frames without a header. Errors, after which the connection is
closed when connection.failed.authentication.delay.ms are over: UNSUPPORTED_SASL_MECHANISM with the
listener's mechanisms, ILLEGAL_SASL_STATE. The latter closes nothing for a client that is
authenticated: it may authenticate again once a second, if its session ends at all. One that names
another mechanism then is disconnected at once.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.sasl_authenticate import close_late
from kvorum.runtime.errors import ErrorCode, WireError
from kvorum.wire.versions import Api

API = Api(key=17, name="sasl_handshake", min_version=0, max_version=1, first_flexible=2)
ACCESS = ()
"""Served before a client has logged in."""

_REASONS = {
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the mechanism is not one of this login: {}",
    ErrorCode.ILLEGAL_SASL_STATE: "a handshake is not possible in this state of the login",
}
"""In the audit log; the place is for the listener's mechanisms."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    connection = context.slot.connection
    if connection.authentication is None:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()}
    authentication = connection.authentication
    try:
        answer = authentication.handshake(
            request.mechanism, context.api_version, connection.now_ms()
        )
    except WireError:
        connection.note_login(is_again=True, is_allowed=False)
        raise
    if answer.error != ErrorCode.NONE and not authentication.is_settled:
        connection.note_login(is_again=authentication.is_done, is_allowed=False)
        context.services.audit.note_login(
            authentication.user,
            connection.address,
            request.mechanism,
            is_allowed=False,
            reason=_REASONS[answer.error].format(", ".join(answer.mechanisms)),
        )
        close_late(connection, f"SASL handshake: {answer.error.name}")
    return {"error_code": answer.error, "mechanisms": answer.mechanisms}
