"""The load against librdkafka's mock brokers: real sockets and protocol, no cluster of ours."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kvorum.chaos.checks import run_checks_of
from kvorum.chaos.experiment_file.experiment import WorkloadPlan
from kvorum.chaos.history import HistoryWriter, read_history
from kvorum.chaos.live.observe import TopicWatch
from kvorum.chaos.live.systems.protocol import NotObservable
from kvorum.chaos.workloads.consume import ConsumeLoad, end_offsets, final_read
from kvorum.chaos.workloads.produce import ProduceLoad
from tests.polling import eventually

pytestmark = pytest.mark.live

PARTITIONS = 4


@pytest.fixture
def bootstrap():
    """Addresses of three mock brokers, which live as long as their client."""
    client = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = client.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del client


def plan(**changes) -> WorkloadPlan:
    fields = {
        "records_per_second": 2000, "record_bytes": 50, "delivery_timeout_ms": 5000, "linger_ms": 1,
        "topic_creations_per_second": 0, **changes,
    }  # fmt: skip
    return WorkloadPlan(**fields)


def test_load_writes_reads_and_proves_itself_clean(bootstrap, tmp_path):
    path = str(tmp_path / "history.jsonl")
    topic = "orders"
    with HistoryWriter(path) as history:
        common = {"bootstrap": bootstrap, "topic": topic, "partitions": PARTITIONS}
        load = ProduceLoad(**common, plan=plan(), history=history)
        consumer = ConsumeLoad(**common, history=history)
        load.start()
        consumer.start()
        eventually(lambda: load.acknowledged >= 1000, "a thousand records are acknowledged")
        load.stop()
        ends = end_offsets(**common, timeout_ms=10_000)
        assert sum(ends.values()) == load.acknowledged
        eventually(
            lambda: all(consumer.next_offsets[n] >= end for n, end in ends.items()),
            "the consumer reaches the end",
        )
        consumer.stop(timeout_ms=10_000)
        assert final_read(**common, history=history, timeout_ms=10_000)
        assert (load.failure, consumer.failure) == (None, None)
    results = run_checks_of(read_history(path))
    assert [result for result in results if result.count] == []
    examined = {result.check: result.examined for result in results}
    assert examined["lost-write"] == examined["unseen"] == load.acknowledged


def test_records_that_nobody_answers_for_are_unknown_and_never_failed(tmp_path):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:
        load = ProduceLoad(
            bootstrap="127.0.0.1:1",
            topic="orders",
            partitions=2,
            plan=plan(records_per_second=50, delivery_timeout_ms=1000),
            history=history,
        )
        load.start()
        eventually(lambda: load.unknown >= 5, "records time out")
        load.stop()
        assert load.failure is None
    outcomes = {event.type for event in read_history(path) if event.ops}
    assert outcomes == {"invoke", "info"}


def test_abandoned_load_ends_at_once(tmp_path):
    with HistoryWriter(str(tmp_path / "history.jsonl")) as history:
        load = ProduceLoad(
            bootstrap="127.0.0.1:1",
            topic="orders",
            partitions=1,
            plan=plan(records_per_second=10, delivery_timeout_ms=600_000),
            history=history,
        )
        load.start()
        load.abandon()
        assert not load.is_alive()


def test_final_read_that_reaches_nobody_is_incomplete(tmp_path):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:
        is_complete = final_read(
            bootstrap="127.0.0.1:1", topic="orders", partitions=1, history=history, timeout_ms=100
        )
    assert not is_complete
    unread = next(r for r in run_checks_of(read_history(path)) if r.check == "unread")
    assert unread.count == 1


def test_watch_sees_leaders_and_isr(bootstrap):
    watch = TopicWatch(bootstrap=bootstrap, topic="orders")
    eventually(lambda: len(watch.state().leaders) == PARTITIONS, "the topic is there")
    state = watch.state()
    assert (state.offline_partitions, state.under_replicated_partitions) == (0, 0)
    assert state.live_brokers == (1, 2, 3)


def test_watch_without_a_broker_says_so():
    with pytest.raises(NotObservable):
        TopicWatch(bootstrap="127.0.0.1:1", topic="orders").state()
