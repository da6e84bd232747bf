"""Administrators who create and delete the same few topics at once.

Each name is a register, absent or present, and every answer says which it was: the history must be
linearizable by name. Requests go through brokers to the active controller, which decides alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from kvorum.chaos.experiment_file.workloads import TopicsPlan
from kvorum.chaos.history import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    FAIL,
    INFO,
    INVOKE,
    OK,
    Function,
    HistoryWriter,
    Type,
)
from kvorum.chaos.workloads.clients import open_admin
from kvorum.chaos.workloads.worker import LoadThread

_REQUEST_TIMEOUT_S = 5.0
#: A refusal that took longer may answer a second try of the client, after its first one had an
#: effect: its meaning is unknown then.
_FIRST_TRY_MS_MAX = 40.0
_REFUSALS = {CREATE_TOPIC: "TOPIC_ALREADY_EXISTS", DELETE_TOPIC: "UNKNOWN_TOPIC_OR_PART"}


class TopicsLoad(LoadThread):
    """One administrator."""

    def __init__(
        self,
        *,
        bootstrap: str,
        plan: TopicsPlan,
        replication_factor: int,
        number: int,
        history: HistoryWriter,
        rng: random.Random,
    ) -> None:
        super().__init__(f"{plan.prefix}-admin-{number}", self._work)
        self._servers = bootstrap
        self._plan = plan
        self._replication_factor = replication_factor
        self._process = f"{plan.prefix}-admin-{number}"
        self._history = history
        self._rng = rng
        self.answered = 0

    def _work(self, stop: threading.Event) -> None:
        admin = open_admin(self._servers)
        interval_s = self._plan.clients / self._plan.operations_per_second
        while not stop.wait(interval_s * self._rng.uniform(0.2, 1.8)):
            name = f"{self._plan.prefix}-{self._rng.randrange(self._plan.names)}"
            if self._rng.random() < 0.5:
                self._ask(CREATE_TOPIC, name, lambda name=name: self._create(admin, name))  # type: ignore[misc]
            else:
                self._ask(DELETE_TOPIC, name, lambda name=name: self._delete(admin, name))  # type: ignore[misc]

    def _create(self, admin: Any, name: str) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        topic = NewTopic(name, num_partitions=1, replication_factor=self._replication_factor)
        admin.create_topics(
            [topic], operation_timeout=_REQUEST_TIMEOUT_S - 1, request_timeout=_REQUEST_TIMEOUT_S
        )[name].result()

    def _delete(self, admin: Any, name: str) -> None:
        admin.delete_topics(
            [name], operation_timeout=_REQUEST_TIMEOUT_S - 1, request_timeout=_REQUEST_TIMEOUT_S
        )[name].result()

    def _ask(self, function: Function, name: str, act: Callable[[], None]) -> None:
        from confluent_kafka import KafkaException

        began = time.monotonic()
        invoked_ms = self._history.append(
            process=self._process, type=INVOKE, f=function, topic=name
        )
        kind: Type = OK
        reason: str | None = None
        try:
            act()
        except KafkaException as error:
            reason = error.args[0].name()
            took_ms = (time.monotonic() - began) * 1000
            is_certain = reason == _REFUSALS[function] and took_ms <= _FIRST_TRY_MS_MAX
            kind = FAIL if is_certain else INFO
        self.answered += kind != INFO
        self._history.append(
            process=self._process,
            type=kind,
            f=function,
            topic=name,
            invoked_ms=invoked_ms,
            error=reason,
        )
