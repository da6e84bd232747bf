"""Keyed records into a compacted topic: after compaction the newest record of each key is there."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from kvorum.chaos.experiment_file.workloads import KeyedPlan
from kvorum.chaos.history import FAIL, INFO, INVOKE, OK, SEND, HistoryWriter, Send, Type
from kvorum.chaos.workloads.clients import open_producer
from kvorum.chaos.workloads.produce import CERTAIN_FAILURES
from kvorum.chaos.workloads.record_values import encode, offset_of
from kvorum.chaos.workloads.worker import LoadThread

#: Topic settings that let the cleaner run within an experiment of some seconds.
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "2000",
}
_RECORD_BYTES = 64
_TICK_S = 0.01
_DELIVERY_TIMEOUT_MS = 30_000


def partition_of(key: int, partitions: int) -> int:
    """A key stays in one partition, so its records have an order."""
    return key % partitions


class KeyedLoad(LoadThread):
    """Writes rising values under keys that are drawn at random."""

    def __init__(
        self, *, bootstrap: str, plan: KeyedPlan, history: HistoryWriter, rng: random.Random
    ) -> None:
        super().__init__(f"{plan.topic}-keyed", self._write)
        self._servers = bootstrap
        self._plan = plan
        self._history = history
        self._rng = rng
        self._next_value = 0
        self.acknowledged = 0

    def _write(self, stop: threading.Event) -> None:
        settings = {"linger.ms": 5, "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS}
        producer = open_producer(self._servers, settings)
        began = time.monotonic()
        sent = 0
        while not stop.is_set():
            due = int((time.monotonic() - began) * self._plan.records_per_second)
            # Records late by more than a second are left out: healing must not cause a burst.
            sent = max(sent, due - self._plan.records_per_second)
            while sent < due:
                self._send(producer)
                sent += 1
            producer.poll(_TICK_S)
        producer.flush(_DELIVERY_TIMEOUT_MS / 1000 + 5)

    def _send(self, producer: Any) -> None:
        key = self._rng.randrange(self._plan.keys)
        partition = partition_of(key, self._plan.partitions)
        send = Send(self._plan.topic, partition, self._next_value, key=str(key))
        self._next_value += 1
        invoked_ms = self._history.append(process=self.name, type=INVOKE, f=SEND, ops=(send,))
        try:
            producer.produce(
                send.topic,
                key=str(key).encode(),
                value=encode(send.value, _RECORD_BYTES),
                partition=partition,
                on_delivery=self._outcome(send, invoked_ms),
            )
        except BufferError:
            self._note(FAIL, send, invoked_ms, "_QUEUE_FULL")

    def _outcome(self, send: Send, invoked_ms: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                kind: Type = FAIL if error.name() in CERTAIN_FAILURES else INFO
                self._note(kind, send, invoked_ms, error.name())
                return
            self.acknowledged += 1
            written = Send(send.topic, send.partition, send.value, offset_of(message), send.key)
            self._note(OK, written, invoked_ms, None)

        return delivered

    def _note(self, kind: Type, send: Send, invoked_ms: float, error: str | None) -> None:
        self._history.append(
            process=self.name, type=kind, f=SEND, ops=(send,), invoked_ms=invoked_ms, error=error
        )
