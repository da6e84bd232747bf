"""SaslAuthenticate (36). Served: v0-2. The next token of an exchange (KIP-152, KIP-368).

Errors, after which the connection is closed: SASL_AUTHENTICATION_FAILED, delayed by
connection.failed.authentication.delay.ms so that guessing is slow; ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.network.connection import Connection, Slot
from kvorum.broker.sasl.core.authentication import TokenAnswer
from kvorum.metadata.access.audit import AuditLog
from kvorum.runtime.errors import ErrorCode, WireError, required
from kvorum.wire.versions import Api

API = Api(key=36, name="sasl_authenticate", min_version=0, max_version=2, first_flexible=2)
ACCESS = ()
"""Served before a client has logged in."""


def handle(
    context: RequestContext, request: Any
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    connection = context.slot.connection
    if connection.authentication is None:
        return _values(
            TokenAnswer(
                error=ErrorCode.ILLEGAL_SASL_STATE,
                message="SaslAuthenticate request received after successful authentication",
            )
        )
    answer = _answer(connection, request.auth_bytes, context.services.audit)
    if answer.error == ErrorCode.NONE:
        return _values(answer)
    return _refused(connection, answer)


def take_bare_token(slot: Slot, token: bytes, audit: AuditLog) -> None:
    """Handle a token without a request header, after a handshake of version 0. Raises WireError for
    a failure: there is no way to answer it."""
    connection = slot.connection
    answer = _answer(connection, token, audit)
    if answer.error != ErrorCode.NONE:
        raise WireError(_said(answer))
    slot.fill((struct.pack(">i", len(answer.token)), answer.token))


def _answer(connection: Connection, token: bytes, audit: AuditLog) -> TokenAnswer:
    authentication = required(connection.authentication, "a SASL listener")
    is_again = authentication.is_done
    answer = authentication.token(token, connection.now_ms())
    is_allowed = answer.error == ErrorCode.NONE
    if not is_allowed or authentication.is_settled:
        connection.note_login(is_again=is_again, is_allowed=is_allowed)
    if (not is_allowed or authentication.is_settled) and audit.notes(is_allowed):
        audit.note_login(
            authentication.user,
            connection.address,
            authentication.mechanism,
            is_allowed=is_allowed,
            is_token=is_allowed and authentication.is_token,
            claimed="" if is_allowed else authentication.claimed,
            reason=answer.reason or answer.message or "",
        )
    if answer.reason and answer.error == ErrorCode.NONE:
        connection.host.on_protocol_error(connection, WireError(f"SASL: {answer.reason}"))
    if authentication.is_done:
        connection.allow_whole_requests()
    return answer


async def _refused(connection: Connection, answer: TokenAnswer) -> dict[str, Any]:
    delay_ms = connection.host.config.connection_failed_authentication_delay_ms
    connection.host.on_protocol_error(connection, WireError(_said(answer)))
    if answer.error == ErrorCode.SASL_AUTHENTICATION_FAILED:
        connection.mute(2 * delay_ms)
        await asyncio.sleep(delay_ms / 1000)
    close_late(connection, _said(answer))
    return _values(answer)


def close_late(connection: Connection, reason: str) -> None:
    """Close the connection of a client that was refused, but not at once: one that finds the answer
    and the end of the connection together may report only that it was disconnected."""
    delay_ms = connection.host.config.connection_failed_authentication_delay_ms
    asyncio.get_running_loop().call_later(delay_ms / 1000, connection.close, reason)


def _said(answer: TokenAnswer) -> str:
    """The refusal as text for the broker's log."""
    reason = f" ({answer.reason})" if answer.reason else ""
    return f"SASL: {answer.message}{reason}"


def _values(answer: TokenAnswer) -> dict[str, Any]:
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "auth_bytes": answer.token,
        "session_lifetime": answer.session_lifetime_ms,
    }
