"""The counters behind the metrics of a broker."""

from __future__ import annotations

import asyncio

from kvorum.broker.metrics.counters import (
    BrokerMetrics,
    RequestMetrics,
    RequestTiming,
    TopicMetrics,
)
from kvorum.broker.purgatory.deadlines import Deadlines


def timed(began_s, handled_s, ready_s, sent_s, throttle_s=0.0):
    metrics = RequestMetrics("Produce")
    timing = RequestTiming(metrics, began_s)
    timing.handled_s, timing.ready_s = handled_s, ready_s
    timing.end(sent_s, throttle_s)
    return metrics


def test_an_answer_by_its_handler_has_no_remote_time():
    metrics = timed(1.0, 1.5, 1.25, 1.75)
    assert (metrics.total_s.sum, metrics.local_s.sum, metrics.send_s.sum) == (0.75, 0.5, 0.25)
    assert (metrics.remote_s.sum, metrics.remote_s.count) == (0.0, 1)


def test_the_parts_of_an_answer_that_waited_add_up():
    metrics = timed(1.0, 1.25, 1.75, 2.0, 0.5)
    parts = (metrics.local_s, metrics.remote_s, metrics.send_s)
    assert [part.sum for part in parts] == [0.25, 0.5, 0.25]
    assert metrics.total_s.sum == sum(part.sum for part in parts)
    assert metrics.throttle_s.sum == 0.5
    assert all(part.count == 1 for part in (*parts, metrics.total_s, metrics.throttle_s))


def test_apis_have_the_names_of_kafka():
    metrics = BrokerMetrics()
    assert metrics.of_api(22, "init_producer_id").name == "InitProducerId"
    assert metrics.of_api(1, "fetch").name == "Fetch"


def test_the_counters_of_a_topic_go_with_its_last_replica_and_stay_in_the_sum():
    metrics = BrokerMetrics()
    first, second = metrics.opened(b"t", "t"), metrics.opened(b"t", "t")
    assert first is second
    first.messages_in += 3
    metrics.closed(b"t")
    assert metrics.topics[b"t"].messages_in == 3
    metrics.closed(b"t")
    assert not metrics.topics
    assert (metrics.opened(b"u", "t").messages_in, metrics.departed.messages_in) == (0, 3)


def test_a_change_of_the_isr_counts_once():
    topic = TopicMetrics("t")
    one, two = frozenset({1}), frozenset({1, 2})
    for before, after in ((one, two), (two, two), (two, one), (frozenset({2}), one)):
        topic.note_isr(before, after)
    assert (topic.isr_expands, topic.isr_shrinks) == (2, 2)


class Item:
    deadline_bucket = -1


def test_the_purgatory_is_counted_bucket_by_bucket():
    async def run():
        deadlines = Deadlines(lambda: 0)
        items = [Item() for _ in range(3)]
        for item, deadline_ms in zip(items, (1_000, 1_001, 9_000), strict=True):
            deadlines.add(item, deadline_ms)
        found = [list(deadlines.count())]
        deadlines.remove(items[0])
        found.append(list(deadlines.count()))
        deadlines.close()
        return found

    assert asyncio.run(run()) == [[{Item: 2}, {Item: 1}], [{Item: 1}, {Item: 1}]]
