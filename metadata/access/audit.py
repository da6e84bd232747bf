"""The audit log: who did what, or was refused, as JSON lines of the logger `kvorum.audit`.

As in Kafka, refusals are logged at INFO, and what was allowed at DEBUG. A line is the message of
the log record, so that any format of the log keeps it whole.
"""

from __future__ import annotations

import json
import logging

from kvorum.metadata.access.model import USER_PREFIX, AclOperation, ResourceType

LOGGER_NAME = "kvorum.audit"


class AuditLog:
    """logger: another one than `kvorum.audit`, for tests."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logging.getLogger(LOGGER_NAME) if logger is None else logger

    def notes(self, is_allowed: bool) -> bool:
        """True if such an event is logged. Asked first: most of what is allowed is not."""
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
    ) -> None:
        """An operation was allowed or refused. method: the call, for those of gRPC."""
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
    ) -> None:
        """A client logged in, or failed to. user: as far as it is known. reason: of a failure.
        is_token: by a delegation token of that user."""
        self._write(
            is_allowed,
            event="login",
            principal=USER_PREFIX + user if user else None,
            host=host,
            mechanism=mechanism,
            allowed=is_allowed,
            **({"delegation_token": True} if is_token else {}),
            **({"reason": reason} if reason else {}),
        )

    def _write(self, is_allowed: bool, **fields: object) -> None:
        level = logging.DEBUG if is_allowed else logging.INFO
        self._logger.log(level, "%s", json.dumps(fields))
