"""The producer of `kvorum produce` at a cluster that cannot take its records."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.cli.produce import _run
from kvorum.cli.records.producer import Producer, ProducerSettings, StoppedEarly
from kvorum.cli.records.text_input import BadRecord, NewRecord, Template
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed
from kvorum.runtime.errors import ErrorCode

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
NOT_IDEMPOTENT = ProducerSettings(is_idempotent=False)


class NoLeaders:
    """Brokers that know a topic of one partition, and let no user read configs."""

    timeout_s = 1.0

    def existing(self, names: list[str], *, operation: str = "") -> dict[str, Any]:
        return {name: SimpleNamespace(leaders={0: -1}) for name in names}

    topics = existing

    def call(self, name: str, key: int, version: int, values: Any) -> Any:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return SimpleNamespace(error_code=refused, results=[SimpleNamespace(configs=[])])


def producer_of(topic: str, settings: ProducerSettings = NOT_IDEMPOTENT) -> Producer:
    return Producer(NoLeaders(), NOBODY, topic, settings)  # type: ignore[arg-type]


def test_a_producer_that_is_stopped_tells_the_records_without_an_acknowledgement():
    producer = producer_of("orders")
    producer.add(NewRecord(None, b"sent"))
    producer.send()
    producer.add(NewRecord(None, b"read"))
    producer.stop_at(time.monotonic())
    with pytest.raises(StoppedEarly):
        producer.finish()
    assert (producer.records, producer.unacknowledged) == (0, 2)
    producer.close()


def test_a_record_that_nobody_takes_is_named_with_the_reason():
    producer = producer_of("orders", ProducerSettings(is_idempotent=False, delivery_timeout_s=0.1))
    producer.add(NewRecord(None, b"sent", (), 0))
    with pytest.raises(CommandFailed) as failed:
        producer.finish()
    assert str(failed.value) == (
        "orders-0: not acknowledged within 0.1 s: the partition has no leader; 0 records were "
        "acknowledged"
    )
    producer.close()


@pytest.mark.parametrize("values", ["plain", "json"])
def test_a_record_for_a_partition_that_is_not_there_is_named_by_its_line(values, monkeypatch):
    producer = producer_of("one")
    sent: list[int] = []
    monkeypatch.setattr(producer, "finish", lambda: sent.append(producer.unacknowledged))
    json = [b'{"value":"1"}', b'{"value":"2","partition":5}', b'{"value":"3"}']
    form, template, lines, at, before = "json", Template(), json, 2, 1
    if values == "plain":
        form, template, lines, at, before = "text", Template(partition=5), [b"1", b"2"], 1, 0
    entries = iter([("stdin, line ", 1, lines)])
    with pytest.raises(CommandFailed) as refused:
        _run(producer, template, entries, {"form": form}, SimpleNamespace(show=lambda: None))  # type: ignore[arg-type]
    reason = "one-5: there is no such partition; one has 1"
    assert str(refused.value) == f"stdin, line {at}: {reason}"
    assert sent == [before], "the lines before it are sent"
    producer.close()


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (NewRecord(None, b"v", ((b"\xff", b"1"),)), "the name of a header must be UTF-8"),
        (NewRecord(None, b"v", timestamp_ms=0), "1 is the earliest"),
    ],
)
def test_a_record_that_librdkafka_would_change_is_refused(record, words):
    producer = producer_of("orders")
    with pytest.raises(BadRecord, match=words):
        producer.add(record)
    assert producer.unacknowledged == 0
    producer.close()


def test_a_producer_without_an_id_is_told_the_right_to_its_topic():
    with pytest.raises(CommandFailed) as refused:
        producer_of("orders", ProducerSettings())
    assert "the user needs WRITE on topic orders" in str(refused.value)
    assert "--operation write --topic orders" in str(refused.value)
    assert refused.value.exit_code == EXIT_NOT_AUTHORIZED
