"""The audit log: who did what, or was refused, as JSON lines of the logger `kvorum.audit`.

As in Kafka, refusals are logged at INFO, and what was allowed at DEBUG. A line is the message of
the log record, so that any format of the log keeps it whole. A client that is refused again and
again must not fill the disk: beyond REFUSALS_PER_SECOND_MAX, its refusals of a second are only
counted. The next refusal of any client in a later second logs that count in one line.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable

from kvorum.metadata.image.acl import USER_PREFIX, AclOperation, ResourceType
from kvorum.runtime.clock import monotonic_ms

LOGGER_NAME = "kvorum.audit"
REFUSALS_PER_SECOND_MAX = 100
"""Refusals of one principal from one host that are logged in a second."""

CLIENTS_CHARACTERS_MAX = 256
"""Characters of a name that a client without a login sent. The line is JSON, which escapes control
characters, and all characters outside ASCII."""


class AuditLog:
    """Writes the audit log.

    logger: for tests, in place of `kvorum.audit`.
    now_ms: a clock that never goes back.
    """

    def __init__(
        self, logger: logging.Logger | None = None, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._logger = logging.getLogger(LOGGER_NAME) if logger is None else logger
        self._now_ms = now_ms
        self._second = 0
        self._refusals: Counter[tuple[object, object]] = Counter()

    def notes(self, is_allowed: bool) -> bool:
        """True if such an event is logged. Callers ask first, because most allowed operations are
        not logged."""
        return self._logger.isEnabledFor(logging.DEBUG if is_allowed else logging.INFO)

    def note_access(
        self,
        user: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed: bool,
        method: str = "",
        reason: str = "",
    ) -> None:
        """An operation was allowed or refused.

        method: the call, for those of gRPC.
        reason: of a refusal that is not for want of an ACL.
        """
        self._write(
            is_allowed,
            event="access",
            principal=USER_PREFIX + user,
            host=host,
            operation=operation.name,
            resource_type=resource_type.name,
            resource=name,
            allowed=is_allowed,
            **({"method": method} if method else {}),
            **({"reason": reason} if reason else {}),
        )

    def note_login(
        self,
        user: str,
        host: str,
        mechanism: str,
        *,
        is_allowed: bool,
        reason: str = "",
        is_token: bool = False,
        claimed: str = "",
    ) -> None:
        """A client logged in, or failed to.

        user: the one that is proved, "" for none.
        reason: of a failure.
        is_token: by a delegation token of that user.
        claimed: the user that a client which failed named. Texts of the client are cut at
            CLIENTS_CHARACTERS_MAX.
        """
        claimed = claimed[:CLIENTS_CHARACTERS_MAX]
        self._write(
            is_allowed,
            event="login",
            principal=USER_PREFIX + user if user else None,
            host=host,
            mechanism=mechanism[:CLIENTS_CHARACTERS_MAX],
            allowed=is_allowed,
            **({"claimed_principal": USER_PREFIX + claimed} if claimed else {}),
            **({"delegation_token": True} if is_token else {}),
            **({"reason": reason} if reason else {}),
        )

    def _write(self, is_allowed: bool, **fields: object) -> None:
        if not is_allowed and not self._has_room(fields["principal"], fields["host"]):
            return
        level = logging.DEBUG if is_allowed else logging.INFO
        self._logger.log(level, "%s", json.dumps(fields))

    def _has_room(self, principal: object, host: object) -> bool:
        """Count a refusal; False if it is one too many in this second."""
        second = self._now_ms() // 1_000
        if second != self._second:
            counts, self._refusals, self._second = self._refusals, Counter(), second
            for (whose, where), count in counts.items():
                if count > REFUSALS_PER_SECOND_MAX:
                    more = count - REFUSALS_PER_SECOND_MAX
                    told = {"event": "more refusals", "principal": whose, "host": where}
                    self._logger.info("%s", json.dumps({**told, "count": more}))
        self._refusals[principal, host] += 1
        return self._refusals[principal, host] <= REFUSALS_PER_SECOND_MAX
