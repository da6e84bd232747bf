"""The delegation tokens of a cluster, reached through a broker (Kafka protocol).

Works against Apache Kafka as well.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.failures import check
from kvorum.client.rights import Right
from kvorum.runtime.errors import ErrorCode

USER = "User"
_WAYS_OUT: dict[int, str] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the broker has no tokens; set delegation.token.secret.key, the same on every broker and "
        "controller, and restart them"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "only a user with a password or a certificate may ask; give --command-config FILE with "
        "such a login, and without tokenauth in sasl.jaas.config"
    ),
}
_ERROR_CODE = struct.Struct(">h")
_AFTER_HEADER = 1
"""Bytes of an answer's header that remain: its tagged fields, which are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundToken:
    """A token as the cluster describes it. Principals are `User:NAME`, times ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes = field(repr=False)


class BrokerTokens(BrokerBackend):
    """Requests through any broker. All raise CommandFailed for a refusal."""

    def create(
        self, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
    ) -> FoundToken:
        """Create a token. owner: a user's name, None for the client's own."""
        values = {
            "owner_principal_type": USER if owner else None,
            "owner_principal_name": owner,
            "renewers": [{"principal_type": USER, "principal_name": name} for name in renewers],
            "max_lifetime": max_lifetime_ms,
        }
        subject = f"a token of {USER}:{owner}" if owner else "a token"
        # Only a token of another user needs a right.
        rights = (Right("CREATE_TOKENS", "user", f"{USER}:{owner}"),) if owner else ()
        reply = self._call("create_delegation_token", 38, 3, values, subject, *rights)
        return FoundToken(
            token_id=reply.token_id,
            owner=f"{reply.principal_type}:{reply.principal_name}",
            requester=(
                f"{reply.token_requester_principal_type}:{reply.token_requester_principal_name}"
            ),
            renewers=tuple(f"{USER}:{name}" for name in renewers),
            issue_timestamp_ms=_milliseconds(reply.issue_timestamp),
            expiration_timestamp_ms=_milliseconds(reply.expiry_timestamp),
            max_timestamp_ms=_milliseconds(reply.max_timestamp),
            hmac=bytes(reply.hmac),
        )

    def find(self, owners: Sequence[str] = ()) -> list[FoundToken]:
        """The tokens that the client may see, by id. owners: users' names; all by default."""
        named = [{"principal_type": USER, "principal_name": name} for name in owners]
        reply = self._call("describe_delegation_token", 41, 3, {"owners": named or None}, "tokens")
        found = [
            FoundToken(
                token_id=token.token_id,
                owner=f"{token.principal_type}:{token.principal_name}",
                requester=(
                    f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
                ),
                renewers=tuple(
                    f"{renewer.principal_type}:{renewer.principal_name}"
                    for renewer in token.renewers
                ),
                issue_timestamp_ms=_milliseconds(token.issue_timestamp),
                expiration_timestamp_ms=_milliseconds(token.expiry_timestamp),
                max_timestamp_ms=_milliseconds(token.max_timestamp),
                hmac=bytes(token.hmac),
            )
            for token in reply.tokens
        ]
        return sorted(found, key=lambda token: token.token_id)

    def renew(self, token: FoundToken, period_ms: int) -> FoundToken:
        """The token, which now expires after a period; -1 for the cluster's default."""
        values = {"hmac": token.hmac, "renew_period": period_ms}
        return self._changed(token, "renew_delegation_token", 39, values)

    def expire(self, token: FoundToken, period_ms: int) -> FoundToken:
        """The token, which now expires after a period; -1 to remove it now."""
        values = {"hmac": token.hmac, "expiry_time_period": period_ms}
        return self._changed(token, "expire_delegation_token", 40, values)

    def _changed(
        self, token: FoundToken, name: str, key: int, values: dict[str, Any]
    ) -> FoundToken:
        reply = self._call(name, key, 2, values, f"token {token.token_id}")
        expires_ms = _milliseconds(reply.expiry_timestamp)
        return dataclasses.replace(token, expiration_timestamp_ms=expires_ms)

    def _call(
        self,
        name: str,
        key: int,
        version: int,
        values: dict[str, Any],
        subject: str,
        *rights: Right,
    ) -> Any:
        from kvorum.wire.kio_codec import read_response

        answer = self.connection.ask(name, key, version, values, flexible=True)
        if name != "describe_delegation_token":
            # The error is checked first: in Kafka's refusals the timestamps are -1, which kio
            # cannot read.
            code = _ERROR_CODE.unpack_from(answer, _AFTER_HEADER)[0]
            check(code, _WAYS_OUT.get(code), subject, *rights)
        reply = read_response(name, version, memoryview(answer)[_AFTER_HEADER:])
        code = int(reply.error_code)
        check(code, _WAYS_OUT.get(code), subject, *rights)
        return reply


def _milliseconds(time: datetime | int) -> int:
    """A time as kio reads it: as a datetime where Kafka's schema says that it is a timestamp."""
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else int(time)
