"""Changes between two samples, in sentences."""

from __future__ import annotations

from kvorum.console.core.news import SENTENCES_MAX, news_between
from kvorum.console.core.sample import Answer
from kvorum.metadata.image.records import PartitionChange, RemoveTopic
from tests.test_console.samples import (
    ORDERS,
    cluster_records,
    image_with,
    sample_with,
    topic_records,
    unfenced,
)

BASE = image_with(*cluster_records())


def texts(before, after):
    return [item.text for item in news_between(before, after)]


def of_records(*records):
    return texts(sample_with(BASE), sample_with(image_with(*records, base=BASE)))


def test_nothing_new_is_no_news():
    assert texts(sample_with(BASE), sample_with(BASE)) == []


def test_isr_that_shrinks_and_grows():
    change = PartitionChange(topic_id=ORDERS, partition_id=1, isr=(101,))
    assert of_records(change) == ["brokers 102, 103 left the ISR of orders-1"]
    shrunk = image_with(change, base=BASE)
    back = PartitionChange(topic_id=ORDERS, partition_id=1, isr=(101, 103))
    assert texts(sample_with(shrunk), sample_with(image_with(back, base=shrunk))) == [
        "broker 103 joined the ISR of orders-1"
    ]


def test_leaders_of_partitions():
    assert of_records(PartitionChange(topic_id=ORDERS, partition_id=0, leader=102)) == [
        "broker 102 leads orders-0"
    ]
    assert of_records(PartitionChange(topic_id=ORDERS, partition_id=0, leader=-1)) == [
        "no broker leads orders-0"
    ]


def test_topics_that_come_and_go():
    other = topic_records(name="clicks", topic_id=bytes([9] * 16))
    assert of_records(*other) == ["topic clicks is created"]
    assert of_records(RemoveTopic(topic_id=ORDERS)) == ["topic orders is deleted"]


def test_broker_that_is_fenced():
    news = news_between(
        sample_with(BASE), sample_with(image_with(unfenced(102, is_fenced=True), base=BASE))
    )
    assert [(item.kind, item.text) for item in news] == [("bad", "broker 102 is fenced")]


def test_leader_of_the_quorum():
    before = sample_with(BASE)
    assert texts(before, sample_with(BASE, leader_id=-1)) == ["the quorum has no leader"]
    later = sample_with(BASE, leader_id=1, leader_epoch=6)
    assert texts(before, later) == ["controller 1 leads in epoch 6"]
    assert texts(sample_with(BASE, leader_id=-1), before) == ["controller 2 leads in epoch 5"]


def test_controller_that_stops_answering():
    answers = {2: Answer(role="leader", epoch=5, leaderless_ms=0)}
    assert texts(sample_with(BASE), sample_with(BASE, answers=answers)) == [
        "controller 1 does not answer"
    ]


def test_same_change_of_many_partitions_is_one_sentence():
    topic = list(topic_records(name="big", topic_id=bytes([9] * 16), partitions=100))
    base = image_with(*cluster_records(), *topic)
    changes = [
        PartitionChange(topic_id=bytes([9] * 16), partition_id=n, isr=(101, 102))
        for n in range(100)
    ]
    assert texts(sample_with(base), sample_with(image_with(*changes, base=base))) == [
        "broker 103 left the ISR of 100 partitions of big"
    ]


def test_many_changes_are_counted():
    topics = [
        record
        for n in range(50)
        for record in topic_records(name=f"t{n}", topic_id=bytes([n + 10] * 16))
    ]
    found = of_records(*topics)
    assert len(found) == SENTENCES_MAX + 1
    assert found[-1] == "and 30 more changes"


def test_another_cluster_is_told_once():
    assert texts(sample_with(BASE), sample_with(cluster_id="other")) == [
        "another cluster answers: other"
    ]


def test_a_right_that_is_given_or_taken_is_no_news_of_the_quorum():
    hidden = {"quorum": "DESCRIBE on the cluster"}
    without = sample_with(BASE, cluster_id="", leader_id=-1, answers={}, hidden=hidden)
    assert texts(sample_with(BASE), without) == texts(without, sample_with(BASE)) == []
