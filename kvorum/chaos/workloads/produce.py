"""Writes records at a steady rate with an idempotent acks=all producer.

This one thread writes the values 0, 1, 2, .. to each partition, so a value is unique in its
partition and offsets must rise with values. A record that timed out is `info`: it may be in the
log. Only errors that certainly kept the record out of the log are `fail`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kvorum.chaos.experiment_file.experiment import WorkloadPlan
from kvorum.chaos.history import FAIL, INFO, INVOKE, OK, SEND, HistoryWriter, Send
from kvorum.chaos.workloads.clients import open_producer
from kvorum.chaos.workloads.record_values import encode, offset_of
from kvorum.runtime.errors import KvorumError

#: Records in the client's queue before the load waits: 30 s of the fastest load are 600,000.
_QUEUE_RECORDS_MAX = 500_000
#: The load catches up on at most this much of a stall, so that healing causes no burst.
_BACKLOG_MS_MAX = 1_000
_TICK_S = 0.005
_REOPENINGS_MAX = 100
_FLUSH_SLICE_S = 0.5
_ABANDON_TIMEOUT_S = 5.0

#: Errors that are decided before a record leaves the client, or that refuse the batch for good.
CERTAIN_FAILURES = ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE", "_QUEUE_FULL", "_PURGE_QUEUE")


class ProduceLoad(threading.Thread):
    """The producing thread. `stop` ends the load and waits until every outcome is known."""

    def __init__(
        self,
        *,
        bootstrap: str,
        topic: str,
        partitions: int,
        plan: WorkloadPlan,
        history: HistoryWriter,
    ) -> None:
        super().__init__(name="chaos-produce", daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._plan = plan
        self._history = history
        self._stop_wanted = threading.Event()
        self._abandoned = threading.Event()
        self._next_value = [0] * partitions
        self._openings = 0
        self._fatal = False
        self.acknowledged = 0
        #: Partitions that have acknowledged a record.
        self.partitions_written: set[int] = set()
        self.unknown = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._loop()
        except (KvorumError, KafkaException, OSError, ValueError, RuntimeError) as error:
            # The runner reports it and ends the experiment, which is meaningless without load.
            self.failure = error

    def stop(self) -> None:
        """Send no more records; returns when each has its outcome or its delivery timeout is
        over."""
        self._stop_wanted.set()
        self.join(self._plan.delivery_timeout_ms / 1000 + 10)
        if self.is_alive():
            self.failure = KvorumError("the producer did not end after its delivery time-out")

    def abandon(self) -> None:
        """End at once; the outcome of records in flight stays unknown. For runs that are
        aborted."""
        self._abandoned.set()
        self._stop_wanted.set()
        self.join(_ABANDON_TIMEOUT_S)

    def _loop(self) -> None:
        while not self._stop_wanted.is_set():
            self._openings += 1
            if self._openings > _REOPENINGS_MAX:
                raise KvorumError(f"the producer failed fatally {_REOPENINGS_MAX} times")
            self._fatal = False
            self._write_until_stopped(f"producer-{self._openings}")

    def _write_until_stopped(self, process: str) -> None:
        producer = self._open()
        per_ms = self._plan.records_per_second / 1000
        began = time.monotonic()
        sent = 0
        while not self._stop_wanted.is_set() and not self._fatal:
            due = int((time.monotonic() - began) * 1000 * per_ms)
            sent = max(sent, due - int(_BACKLOG_MS_MAX * per_ms) - 1)
            while sent < due and len(producer) < _QUEUE_RECORDS_MAX:
                partition = sent % self._partitions
                self._send(producer, process, partition)
                sent += 1
            producer.poll(_TICK_S)
        if self._fatal:
            # Purged records were never sent, or their outcome is unknown; the callbacks say which.
            producer.purge(in_queue=True, in_flight=True, blocking=True)
        deadline = time.monotonic() + self._plan.delivery_timeout_ms / 1000 + 5
        while producer.flush(_FLUSH_SLICE_S) and time.monotonic() < deadline:
            if self._abandoned.is_set():
                producer.purge(in_queue=True, in_flight=True, blocking=True)
                producer.flush(_FLUSH_SLICE_S)
                return
        if len(producer):
            left = len(producer)
            raise KvorumError(f"{left} records have no outcome after their delivery time-out")

    def _open(self) -> Any:
        timeout_ms = min(5_000, self._plan.delivery_timeout_ms)
        settings = {
            "linger.ms": self._plan.linger_ms,
            "delivery.timeout.ms": self._plan.delivery_timeout_ms,
            "request.timeout.ms": timeout_ms,
            "socket.timeout.ms": timeout_ms,
            "queue.buffering.max.messages": _QUEUE_RECORDS_MAX,
            "error_cb": self._on_error,
        }
        return open_producer(self._servers, settings)

    def _send(self, producer: Any, process: str, partition: int) -> None:
        value = self._next_value[partition]
        self._next_value[partition] += 1
        send = Send(self._topic, partition, value)
        invoked_ms = self._history.append(process=process, type=INVOKE, f=SEND, ops=(send,))
        try:
            producer.produce(
                self._topic,
                value=encode(value, self._plan.record_bytes),
                partition=partition,
                on_delivery=self._outcome(process, send, invoked_ms),
            )
        except BufferError:
            self._failed(process, send, invoked_ms, "_QUEUE_FULL")

    def _outcome(self, process: str, send: Send, invoked_ms: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged += 1
                self.partitions_written.add(send.partition)
                written = Send(send.topic, send.partition, send.value, offset_of(message))
                self._history.append(
                    process=process, type=OK, f=SEND, ops=(written,), invoked_ms=invoked_ms
                )
            else:
                self._failed(process, send, invoked_ms, error.name())

        return delivered

    def _failed(self, process: str, send: Send, invoked_ms: float, error: str) -> None:
        is_certain = error in CERTAIN_FAILURES
        self.unknown += not is_certain
        self._history.append(
            process=process,
            type=FAIL if is_certain else INFO,
            f=SEND,
            ops=(send,),
            invoked_ms=invoked_ms,
            error=error,
        )

    def _on_error(self, error: Any) -> None:
        # A fatal error (such as a sequence gap) closes this producer for good: a new one replaces
        # it.
        if error.fatal():
            self._fatal = True
            self._history.append(
                process=f"producer-{self._openings}", type=INFO, f=SEND, error=error.str()
            )
