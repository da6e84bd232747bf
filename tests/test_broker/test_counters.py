"""The numbers that a broker counts while it works."""

from __future__ import annotations

import asyncio

from kvorum.broker.metrics.counters import BrokerMetrics, RequestMetrics
from kvorum.broker.network.purgatory import Deadlines
from tests.polling import DEADLINE_S


def test_an_answer_by_its_handler_has_no_remote_time():
    metrics = RequestMetrics("Produce")
    metrics.note_sent(1.0, 1.002, 0.0, 1.003, 0.0)
    assert metrics.total_s.sum == 1.003 - 1.0
    assert metrics.local_s.sum == 1.002 - 1.0
    assert metrics.remote_s.sum == 0.0
    assert metrics.remote_s.count == 1
    assert metrics.send_s.sum == 1.003 - 1.002


def test_the_parts_of_an_answer_that_waited_add_up():
    metrics = RequestMetrics("Produce")
    metrics.note_sent(1.0, 1.25, 1.75, 2.0, 0.5)
    parts = (metrics.local_s, metrics.remote_s, metrics.send_s)
    assert [part.sum for part in parts] == [0.25, 0.5, 0.25]
    assert metrics.total_s.sum == sum(part.sum for part in parts)
    assert metrics.throttle_s.sum == 0.5
    assert all(part.count == 1 for part in (*parts, metrics.total_s, metrics.throttle_s))


def test_apis_have_the_names_of_kafka():
    metrics = BrokerMetrics()
    for key, name in ((22, "init_producer_id"), (1, "fetch"), (0, "produce")):
        metrics.of_api(key, name).requests += 1
    assert [one.name for one in metrics.all_requests()] == [
        "FetchConsumer", "InitProducerId", "Produce",
    ]  # fmt: skip


def test_the_counters_of_a_topic_go_with_its_last_replica_and_the_sum_stays():
    metrics = BrokerMetrics()
    first, second = metrics.opened(b"t", "t"), metrics.opened(b"t", "t")
    assert first is second
    first.note_appended(3, 300)
    metrics.closed(b"t")
    assert metrics.topics[b"t"].messages_in == 3
    metrics.closed(b"t")
    assert not metrics.topics
    again = metrics.opened(b"u", "t")
    assert (again.messages_in, metrics.all_topics.messages_in) == (0, 3)


def test_fetches_count_for_consumers_or_followers():
    topic = BrokerMetrics().opened(b"t", "t")
    topic.note_fetched(10, is_follower=False, is_failed=False)
    topic.note_fetched(20, is_follower=True, is_failed=False)
    topic.note_fetched(0, is_follower=False, is_failed=True)
    for one in (topic, topic.everywhere):
        assert (one.bytes_out, one.replication_bytes_out) == (10, 20)
        assert (one.fetch_requests, one.failed_fetch_requests) == (3, 1)


def test_a_change_of_the_isr_counts_once():
    topic = BrokerMetrics().opened(b"t", "t")
    one, two = frozenset({1}), frozenset({1, 2})
    for before, after in ((one, two), (two, two), (two, one), (frozenset({2}), one)):
        topic.note_isr(before, after)
    assert (topic.everywhere.isr_expands, topic.everywhere.isr_shrinks) == (2, 2)


class Item:
    def __init__(self) -> None:
        self.deadline_bucket = -1
        self.is_expired = asyncio.Event()

    def expire(self) -> None:
        self.is_expired.set()


def test_the_size_of_the_purgatory_counts_each_item_once():
    async def run():
        deadlines = Deadlines(lambda: 0)
        kept, removed = Item(), Item()
        deadlines.add(kept, 1)
        deadlines.add(removed, 1_000)
        sizes = [deadlines.sizes[Item]]
        for _ in range(2):
            deadlines.remove(removed)
            sizes.append(deadlines.sizes[Item])
        deadlines._now_ms = lambda: 100
        async with asyncio.timeout(DEADLINE_S):
            await kept.is_expired.wait()
        sizes.append(deadlines.sizes[Item])
        deadlines.remove(kept)
        return [*sizes, deadlines.sizes[Item]]

    assert asyncio.run(run()) == [2, 1, 1, 0, 0]
