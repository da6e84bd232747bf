"""How long a task waits for a consumer that gives nothing but errors, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kvorum.analytics.kafka_source import fetch
from kvorum.analytics.kafka_source.errors import ReadFailed
from kvorum.analytics.kafka_source.options import parse_read_options
from kvorum.analytics.kafka_source.plan import OffsetRange

WANTED = OffsetRange(topic="t", partition=0, start_offset=3, end_offset=9)


class Consumer:
    """Each consume() takes a second and gives the next of `turns`, the last one for ever."""

    def __init__(self, *turns: list[Message]) -> None:
        self.now_s = 0.0
        self._turns = list(turns)

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.now_s += 1
        assert self.now_s < 1_000, "the task waits without end"
        return self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, 20

    def assign(self, partitions: Any) -> None:
        pass


def failed(code: int) -> Message:
    return Message(topic="t", partition=0, offset=3, error=KafkaError(code, "again", False, True))


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, key=b"k", value=b"v", timestamp=(1, 1))


def read(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of records that came until the range was read."""
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=lambda: consumer.now_s))
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t",
        "kafkaconsumer.polltimeoutms": "60000",
    }  # fmt: skip
    reader = fetch._RangeReader(consumer, WANTED, ("offset",), parse_read_options(given))
    return sum(batch.num_rows for batch in reader.batches())


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._PARTITION_EOF,
    ],
)
def test_errors_that_come_again_and_again_are_no_progress(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was told that the log has the range, but the partition's leader refuses to send
    it."""
    consumer = Consumer([failed(code)])
    with pytest.raises(ReadFailed, match="gave no record for 60 s at offset 3"):
        read(consumer, monkeypatch)
    assert 60 <= consumer.now_s < 65


def test_records_and_gaps_begin_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[list[Message]] = [[]] * 50
    end = Message(topic="t", partition=0, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))
    gap = Message(topic="t", partition=0, offset=6, error=KafkaError(KafkaError._PARTITION_EOF))
    consumer = Consumer(*waits, [record(3)], *waits, [gap], *waits, [end])
    assert read(consumer, monkeypatch) == 1
