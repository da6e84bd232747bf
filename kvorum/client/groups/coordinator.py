"""Requests to the coordinator of a group or of a transactional id."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kvorum.client.cluster.brokers import RETRY_PAUSE_S, Brokers, Unavailable
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import CommandFailed, refusal
from kvorum.client.rights import Right
from kvorum.runtime.errors import ErrorCode

GROUP, TRANSACTION = 0, 1
_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
MOVING = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of a coordinator that is being created or is moving: the request is sent again."""


def ask_loaded(
    brokers: Brokers, broker_id: int, request: tuple[str, int, int], values: Mapping[str, Any]
) -> Any:
    """A broker's answer about all that it coordinates, once that is loaded; an answer with an error
    at the brokers' timeout. request: name, key and version. Raises BrokerGone."""
    deadline_s = time.monotonic() + brokers.timeout_s
    while True:
        reply = brokers.to(broker_id).call(*request, values, flexible=True)
        if reply.error_code not in MOVING or time.monotonic() > deadline_s:
            return reply
        time.sleep(RETRY_PAUSE_S)


class Coordinator:
    """The coordinator of one key, looked up again when it moves. kind: GROUP or TRANSACTION.

    retried: errors after which a request is sent again. operation: that the requests need.
    """

    def __init__(
        self,
        brokers: Brokers,
        kind: int,
        key: str,
        *,
        retried: frozenset[ErrorCode] = MOVING,
        operation: str = "DESCRIBE",
    ) -> None:
        self._brokers = brokers
        self._kind = kind
        self._key = key
        self._retried = retried
        self._operation = operation
        self._broker_id: int | None = None

    @property
    def broker_id(self) -> int | None:
        """The broker that answered last."""
        return self._broker_id

    def call(
        self,
        name: str,
        key: int,
        version: int,
        values: Mapping[str, Any],
        *,
        error_of: Callable[[Any], int],
        flexible: bool = True,
        read: Callable[[bytes], Any] | None = None,
    ) -> Any:
        """The coordinator's answer. Raises Unavailable or BrokerGone after the brokers' timeout.

        error_of: the code in an answer that says whether the coordinator has moved. read: parses an
        answer, tagged fields of its header included, that kio's schema cannot.
        """
        deadline_s = time.monotonic() + self._brokers.timeout_s
        while True:
            is_last = time.monotonic() > deadline_s
            try:
                connection = self._brokers.to(self._find())
                if read is None:
                    reply = connection.call(name, key, version, values, flexible=flexible)
                else:
                    reply = read(connection.ask(name, key, version, values, flexible=flexible))
            except (BrokerGone, Unavailable):
                self._lose()
                if is_last:
                    raise
            else:
                error = error_of(reply)
                if error not in self._retried:
                    return reply
                self._broker_id = None
                if is_last:
                    raise self._unavailable(error, None)
            time.sleep(RETRY_PAUSE_S)

    def _lose(self) -> None:
        if self._broker_id is not None:
            self._brokers.forget(self._broker_id)
            self._broker_id = None

    def _unavailable(self, error: int, message: str | None) -> Unavailable:
        said = self._refusal(error, message)
        return Unavailable(str(said), said.exit_code)

    def _refusal(self, error: int, message: str | None) -> CommandFailed:
        kind = _KINDS[self._kind]
        right = Right(self._operation, kind.replace(" ", "-"), self._key)
        return refusal(error, message, f"coordinator of {kind} {self._key}", right)

    def _find(self) -> int:
        """The broker id of the coordinator. Raises Unavailable if there is none now, BrokerGone,
        CommandFailed."""
        if self._broker_id is None:
            values = {"key_type": self._kind, "coordinator_keys": [self._key]}
            found = self._brokers.call("find_coordinator", 10, 4, values).coordinators[0]
            if found.error_code in self._retried:
                raise self._unavailable(found.error_code, found.error_message)
            if found.error_code != ErrorCode.NONE:
                raise self._refusal(found.error_code, found.error_message)
            if self._brokers.address(found.node_id) is None:
                self._brokers.topics([])  # learns every broker's address
            self._broker_id = int(found.node_id)
        return self._broker_id
