"""A load on the active controller: small topics, created one after the other.

Each creation is a write to the metadata log. The longest gap between two acknowledged creations is
the controller's unavailability from the view of an administrator.
"""

from __future__ import annotations

import threading
from typing import Any

from kvorum.chaos.addresses import client_of
from kvorum.chaos.history import (
    CREATE_TOPIC,
    FAIL,
    INFO,
    INVOKE,
    OK,
    HistoryWriter,
    Type,
)

_REQUEST_TIMEOUT_S = 10.0
_TOPICS_MAX = 5_000
PROCESS = "topic-creator"
#: Errors after which the topic certainly does not exist.
_CERTAIN_FAILURES = ("INVALID_REPLICATION_FACTOR", "POLICY_VIOLATION", "INVALID_TOPIC_EXCEPTION")


class CreateTopicsLoad(threading.Thread):
    """Creates topics named `prefix-N` with one partition each."""

    def __init__(
        self,
        *,
        bootstrap: str,
        prefix: str,
        replication_factor: int,
        per_second: int,
        history: HistoryWriter,
    ) -> None:
        super().__init__(name="chaos-create-topics", daemon=True)
        self._servers = bootstrap
        self._prefix = prefix
        self._replication_factor = replication_factor
        self._interval_s = 1 / per_second
        self._history = history
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(
            {
                **client_of(self._servers),
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "log_level": 2,
            }
        )
        for number in range(_TOPICS_MAX):
            if self._stop_wanted.wait(self._interval_s):
                return
            self._create(admin, number)

    def stop(self) -> None:
        """Ask the thread to end and wait for the request in flight."""
        self._stop_wanted.set()
        self.join(_REQUEST_TIMEOUT_S + 5)

    def _create(self, admin: Any, number: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        name = f"{self._prefix}-{number}"
        topic = NewTopic(name, num_partitions=1, replication_factor=self._replication_factor)
        invoked_ms = self._history.append(process=PROCESS, type=INVOKE, f=CREATE_TOPIC, topic=name)
        kind: Type = OK
        reason = None
        try:
            admin.create_topics(
                [topic],
                operation_timeout=_REQUEST_TIMEOUT_S - 1,
                request_timeout=_REQUEST_TIMEOUT_S,
            )[name].result()
        except KafkaException as error:
            reason = error.args[0].name()
            # A retried request may find the topic that its first try created.
            kind = FAIL if reason in _CERTAIN_FAILURES else INFO
            if reason == "TOPIC_ALREADY_EXISTS":
                kind = OK
        self._history.append(
            process=PROCESS,
            type=kind,
            f=CREATE_TOPIC,
            topic=name,
            invoked_ms=invoked_ms,
            error=reason,
        )
