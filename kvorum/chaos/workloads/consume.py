"""Reads records: a consumer that keeps reading during the faults, and one final read after them.

Both assign every partition by hand, from offset 0, without a group. With `auto.offset.reset=error`
an offset out of range appears in the history, and the client never jumps silently.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvorum.chaos.history import FINAL_READ, INFO, OBSERVE, OK, POLL, HistoryWriter, Poll
from kvorum.chaos.workloads.clients import open_consumer
from kvorum.chaos.workloads.record_values import decode
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import KvorumError

CONSUMER = "consumer-1"

_POLL_S = 0.1
_BATCH_RECORDS_MAX = 2_000
_WATERMARK_TIMEOUT_S = 2.0


class ConsumeLoad(threading.Thread):
    """The reading thread. `next_offsets` shows its progress to threads that wait for it."""

    def __init__(
        self, *, bootstrap: str, topic: str, partitions: int, history: HistoryWriter
    ) -> None:
        super().__init__(name="chaos-consume", daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._stop_wanted = threading.Event()
        self._watermarks = [-1] * partitions
        self.next_offsets = [0] * partitions
        self.failure: BaseException | None = None

    def run(self) -> None:
        from confluent_kafka import KafkaException

        consumer = _open(self._servers, {})
        try:
            consumer.assign(_assignment(self._topic, dict.fromkeys(range(self._partitions), 0)))
            while not self._stop_wanted.is_set():
                messages = consumer.consume(_BATCH_RECORDS_MAX, timeout=_POLL_S)
                if messages:
                    polls = _note(self._history, CONSUMER, messages)
                    for poll in polls:
                        self.next_offsets[poll.partition] = poll.offsets[-1] + 1
                    self._note_watermarks(consumer, polls)
        except (KvorumError, KafkaException, OSError, ValueError, RuntimeError) as error:
            # Reported by the runner.
            self.failure = error
        finally:
            consumer.close()

    def stop(self, *, timeout_ms: int) -> None:
        """Ask the thread to end and wait for it."""
        self._stop_wanted.set()
        self.join(timeout_ms / 1000)

    def _note_watermarks(self, consumer: Any, polls: list[Poll]) -> None:
        from confluent_kafka import TopicPartition

        for partition in (poll.partition for poll in polls):
            place = TopicPartition(self._topic, partition)
            _, high_watermark = consumer.get_watermark_offsets(place, cached=True)
            if high_watermark > self._watermarks[partition]:
                self._watermarks[partition] = high_watermark
                self._history.append(
                    process=CONSUMER,
                    type=OK,
                    f=OBSERVE,
                    topic=self._topic,
                    partition=partition,
                    details={"what": "watermark", "high_watermark": high_watermark},
                )


@dataclass(slots=True)
class _Batch:
    values: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def final_read(
    *, bootstrap: str, topic: str, partitions: int, history: HistoryWriter, timeout_ms: int
) -> bool:
    """Read every partition from its start to its present high watermark, into the history.

    Returns True if everything was read in time. The history gets the progress of each partition in
    any case, so that the checks can distinguish a lost record from one that was not read.
    """
    deadline_ms = monotonic_ms() + timeout_ms
    consumer = _open(bootstrap, {"enable.partition.eof": True})
    try:
        bounds = _bounds(consumer, topic, partitions, deadline_ms)
        reached = {partition: start for partition, (start, _) in bounds.items()}
        consumer.assign(_assignment(topic, reached))
        while monotonic_ms() < deadline_ms and _is_behind(reached, bounds):
            messages = consumer.consume(_BATCH_RECORDS_MAX, timeout=_POLL_S)
            for poll in _note(history, FINAL_READ, messages):
                reached[poll.partition] = poll.offsets[-1] + 1
            for message in messages:
                # The last offsets may be those of aborted records and transaction markers, which
                # are never delivered.
                if _is_end(message) and message.partition() in reached:
                    at = message.partition()
                    reached[at] = max(reached[at], message.offset())
    finally:
        consumer.close()
    for partition in range(partitions):
        start_offset, end_offset = bounds.get(partition, (0, -1))
        details: dict[str, object] = {
            "what": FINAL_READ,
            "start_offset": start_offset,
            "end_offset": end_offset,
            "next_offset": reached.get(partition, start_offset),
        }
        history.append(
            process=FINAL_READ,
            type=OK,
            f=OBSERVE,
            topic=topic,
            partition=partition,
            details=details,
        )
    return len(bounds) == partitions and not _is_behind(reached, bounds)


def end_offsets(*, bootstrap: str, topic: str, partitions: int, timeout_ms: int) -> dict[int, int]:
    """The high watermark of each partition that answers in time."""
    consumer = _open(bootstrap, {})
    try:
        bounds = _bounds(consumer, topic, partitions, monotonic_ms() + timeout_ms)
    finally:
        consumer.close()
    return {partition: end for partition, (_, end) in bounds.items()}


def _bounds(
    consumer: Any, topic: str, partitions: int, deadline_ms: int
) -> dict[int, tuple[int, int]]:
    """Start offset and high watermark of each partition that answers before the deadline."""
    from confluent_kafka import KafkaException, TopicPartition

    bounds: dict[int, tuple[int, int]] = {}
    while len(bounds) < partitions and monotonic_ms() < deadline_ms:
        for partition in range(partitions):
            if partition in bounds:
                continue
            try:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_WATERMARK_TIMEOUT_S
                )
            except KafkaException:
                # Retried until the deadline; a partition that never answers is left out.
                continue
            bounds[partition] = (low, high)
    return bounds


def _is_behind(reached: dict[int, int], bounds: dict[int, tuple[int, int]]) -> bool:
    return any(reached[partition] < end for partition, (_, end) in bounds.items())


def _open(bootstrap: str, settings: Mapping[str, Any]) -> Any:
    # librdkafka requires a group id even if no group is used.
    own = {"group.id": "chaos-reader", "auto.offset.reset": "error"}
    return open_consumer(bootstrap, {**own, **settings})


def _assignment(topic: str, offsets: dict[int, int]) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]


def polls_of(messages: list[Any]) -> list[Poll]:
    """Messages without errors as polls, one of each partition, in the order of the partitions."""
    found: dict[tuple[str, int], _Batch] = {}
    for message in messages:
        batch = found.setdefault((message.topic(), message.partition()), _Batch())
        batch.values.append(decode(message.value()))
        batch.offsets.append(message.offset())
    return [
        Poll(topic, partition, tuple(batch.offsets), tuple(batch.values))
        for (topic, partition), batch in sorted(found.items())
    ]


def _is_end(message: Any) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    return error is not None and bool(error.code() == KafkaError._PARTITION_EOF)


def _note(history: HistoryWriter, process: str, messages: list[Any]) -> list[Poll]:
    """Write what one call of consume returned. Returns the polls."""
    polls = polls_of([message for message in messages if message.error() is None])
    if polls:
        history.append(process=process, type=OK, f=POLL, ops=polls)
    for message in messages:
        if message.error() is not None and not _is_end(message):
            history.append(process=process, type=INFO, f=POLL, error=str(message.error()))
    return polls
