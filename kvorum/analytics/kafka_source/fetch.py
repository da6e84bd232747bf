"""A task: reads one range of offsets of one partition to its end.

The end is reached by position, not by a count of records: transaction markers, aborted records and
compaction leave gaps. The events that tell the position are a record at or above the end, and
librdkafka's end-of-partition event.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from kvorum.analytics.kafka_source.clients import open_consumer
from kvorum.analytics.kafka_source.columns import BatchBuilder
from kvorum.analytics.kafka_source.errors import ReadFailed
from kvorum.analytics.kafka_source.options import ReadOptions
from kvorum.analytics.kafka_source.plan import OffsetRange
from kvorum.analytics.kafka_source.resolve import report_loss

BATCH_RECORDS_MAX = 10_000
"""Records of one Arrow batch; larger batches leave the processor's caches."""
BATCH_BYTES = 8 << 20
"""Approximate size of one Arrow batch: Python and the JVM hold a few of them each."""

#: consume() waits this long for its last record; a gap at the end of a range costs one such wait.
_CONSUME_S = 0.05
_WATERMARKS_S = 30.0
_LOST = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def read_range(wanted: OffsetRange, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """Arrow batches of the records of a range, in the order of offsets.

    Raises DataLoss if records of the range are gone and failOnDataLoss is set, ReadFailed if the
    partition gives nothing for kafkaConsumer.pollTimeoutMs, or an error that no waiting mends.
    """
    consumer = open_consumer(options)
    try:
        yield from _RangeReader(consumer, wanted, columns, options).batches()
    finally:
        consumer.close()


class _RangeReader:
    """Reads one range. _position: the next offset to read; all records of the range below it have
    been yielded to Spark, or are in the batch that is being made."""

    def __init__(
        self, consumer: Any, wanted: OffsetRange, columns: Sequence[str], options: ReadOptions
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._options = options
        self._builder = BatchBuilder(columns, wanted.topic, wanted.partition)
        self._position = wanted.start_offset
        self._size = 500

    def batches(self) -> Iterator[Any]:
        self._seek(self._position)
        end_offset = self._wanted.end_offset
        deadline = self._deadline()
        while self._position < end_offset:
            before = self._position
            with _no_garbage_collection():
                batch = self._next()
            if batch is not None:
                self._size = _next_size(batch)
                yield batch
            if self._position > before:
                # Only progress moves the deadline, so repeated errors still time out. Moved after
                # the yield, it does not count the time that Spark needs for a batch.
                deadline = self._deadline()
            elif time.monotonic() > deadline:
                self._end_of_waiting()
                deadline = self._deadline()

    def _next(self) -> Any:
        """The batch of the records that have come; None without one.

        The messages end with this call, before the garbage collector would look at them.
        """
        count = min(self._size, self._wanted.end_offset - self._position)
        messages = self._consumer.consume(count, _CONSUME_S)
        records = self._records(messages) if messages else []
        return self._builder.build(records) if records else None

    def _records(self, messages: list[Any]) -> list[Any]:
        """The records of the range. Moves the position behind everything that the messages tell."""
        events: list[Any] = []
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        end_offset = self._wanted.end_offset
        if messages:
            last_offset = messages[-1].offset()
            if last_offset >= end_offset:
                messages = [message for message in messages if message.offset() < end_offset]
            self._position = min(last_offset + 1, end_offset)
        for event in events:
            self._take_event(event)
        return messages

    def _take_event(self, event: Any) -> None:
        error = event.error()
        if error.code() == KafkaError._PARTITION_EOF:
            # Below the end, the event says only that the high watermark is not there yet, as after
            # a change of leaders.
            self._position = max(self._position, min(event.offset(), self._wanted.end_offset))
        elif error.code() in _LOST:
            self._lost(error.str())
        elif not error.retriable():
            raise ReadFailed(
                f"{self._where()} cannot be read: {error.str()}; mend the cause and run the query "
                "again"
            )

    def _lost(self, reason: str) -> None:
        """Records at the position are gone: read on at the log's start, or end the range."""
        low, high = self._watermarks(reason)
        position, end_offset = self._position, self._wanted.end_offset
        if position < low:
            then = min(low, end_offset)
            gone = f"offsets {position} to {then} are gone, since its log starts at {low}"
        elif high < end_offset:
            then = end_offset
            gone = f"offsets {max(position, high)} to {then} are gone, since its log ends at {high}"
        else:
            # The log has the range again: another leader may have it, and this one had not yet.
            self._seek(position)
            return
        report_loss(f"{self._where()}: {gone}", fails_on_data_loss=self._options.fails_on_data_loss)
        self._position = then
        if then < end_offset:
            self._seek(then)

    def _watermarks(self, reason: str) -> tuple[int, int]:
        """Start and end of the log; (0, 0) for a partition that no longer exists."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._wanted.topic, self._wanted.partition), timeout=_WATERMARKS_S
            )
        except KafkaException as error:
            if error.args[0].code() in _LOST:
                return 0, 0
            raise ReadFailed(
                f"{self._where()} cannot be read ({reason}), and its log's ends are not known: "
                f"{error.args[0].str()}; check that the partition has a leader"
            ) from error
        return low, high

    def _end_of_waiting(self) -> None:
        """Nothing came for the whole time-out: the log was cut or removed, or nobody leads it."""
        waited_s = self._options.poll_timeout_ms / 1000
        low, high = self._watermarks(f"no record for {waited_s:g} s")
        if self._position < low or high < self._wanted.end_offset:
            self._lost(f"no record for {waited_s:g} s")
            return
        raise ReadFailed(
            f"{self._where()} gave no record for {waited_s:g} s at offset {self._position}; check "
            "the partition's leader, or raise kafkaConsumer.pollTimeoutMs"
        )

    def _seek(self, offset: int) -> None:
        # assign, not seek: it also drops what was fetched from the old position.
        self._consumer.assign([TopicPartition(self._wanted.topic, self._wanted.partition, offset)])

    def _deadline(self) -> float:
        return time.monotonic() + self._options.poll_timeout_ms / 1000

    def _where(self) -> str:
        return f"partition {self._wanted.topic}-{self._wanted.partition}"


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python's collector looks through living objects whenever enough new ones have been made.

    10,000 messages are enough for many looks, which took two thirds of the time of a read. Messages
    are in no cycles: counting their references frees them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _next_size(batch: Any) -> int:
    """How many records make BATCH_BYTES, if the next ones are like these."""
    bytes_each: int = max(1, batch.nbytes // batch.num_rows)
    return max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES // bytes_each))
