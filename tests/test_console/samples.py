"""Samples and images made without a cluster, and a source that serves them."""

from __future__ import annotations

import dataclasses

from kvorum.console.core.sample import Answer, QuorumNode, Sample, TimelineLine
from kvorum.console.core.topics_summary import TopicBook
from kvorum.console.core.views import Facts
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.records import (
    BrokerRegistrationChange,
    Config,
    Endpoint,
    Partition,
    RegisterBroker,
    Topic,
)
from kvorum.metadata.inspect.history import MetadataCopy, MetadataHistory, history_of
from kvorum.storage.format.batch import build_batch

ORDERS = bytes([5] * 16)
NOW_MS = 1_800_000_000_000


def registration(broker_id, *, port=9092, rack=None):
    return RegisterBroker(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=bytes(15) + bytes([broker_id % 256]),
        endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", port),),
        rack=rack,
    )


def unfenced(broker_id, *, is_fenced=False):
    return BrokerRegistrationChange(
        broker_id=broker_id, broker_epoch=broker_id, is_fenced=is_fenced
    )


def topic_records(name="orders", topic_id=ORDERS, partitions=3, isr=(101, 102, 103), leader=101):
    yield Topic(name=name, topic_id=topic_id)
    for number in range(partitions):
        yield Partition(
            topic_id=topic_id,
            partition_id=number,
            replicas=(101, 102, 103),
            isr=isr,
            leader=leader,
        )


def cluster_records():
    for broker_id in (101, 102, 103):
        yield registration(broker_id, port=9092 + broker_id - 101)
        yield unfenced(broker_id)
    yield from topic_records()


def image_with(*records, base=EMPTY_IMAGE) -> ClusterImage:
    delta = Delta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(end_offset=base.end_offset + len(records), epoch=1)


def history_with(*records) -> MetadataHistory:
    """A log with one record in each batch, a millisecond apart."""
    batches = [
        build_batch(
            [(None, encode_record(record))],
            timestamp_ms=NOW_MS + at,
            base_offset=at,
            leader_epoch=1,
        )
        for at, record in enumerate(records)
    ]
    copy = MetadataCopy(records=b"".join(map(bytes, batches)), high_watermark=len(records))
    return history_of(copy, name="the cluster")


def sample_with(image=None, **changes) -> Sample:
    """Three voters, led by 2, and three brokers that observe."""
    sample = Sample(
        taken_ms=NOW_MS,
        cluster_id="abc",
        leader_id=2,
        leader_epoch=5,
        high_watermark=90,
        nodes=(
            *(QuorumNode(node_id=n, kind="voter", end_offset=100, last_fetch_ms=NOW_MS - 100,
                         last_caught_up_ms=NOW_MS - 100) for n in (1, 2)),
            QuorumNode(node_id=3, kind="voter", end_offset=60, last_fetch_ms=NOW_MS - 9_000,
                       last_caught_up_ms=-1),
            QuorumNode(node_id=101, kind="observer", end_offset=99, last_fetch_ms=NOW_MS - 50),
            QuorumNode(node_id=102, kind="observer", end_offset=99, last_fetch_ms=NOW_MS - 8_000),
        ),
        answers={
            1: Answer(role="follower", epoch=5, leaderless_ms=0),
            2: Answer(role="leader", epoch=5, leaderless_ms=0),
        },
        addresses={1: "127.0.0.1:9192", 2: "127.0.0.1:9193", 3: "127.0.0.1:9194"},
        timeline=(TimelineLine(at_ms=NOW_MS - 5, node_id=2, text="epoch=5 leader=2"),),
        image=image_with(*cluster_records()) if image is None else image,
    )  # fmt: skip
    return dataclasses.replace(sample, **changes)


def facts_with(sample=None, **changes) -> Facts:
    sample = sample_with() if sample is None else sample
    return Facts(sample=sample, summaries=TopicBook().read(sample.image), **changes)


class StandingSource:
    """A source that always returns `sample`, or raises it if it is an error."""

    def __init__(self, sample=None, error=None, history=None):
        self.sample = sample_with() if sample is None else sample
        self.error = error
        self.looks = 0
        self.history = history_with(*cluster_records()) if history is None else history

    def read(self):
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.sample

    def broker_addresses(self):
        return [("127.0.0.1", 1)]


def password(value):
    return Config(4, "", "ssl.key.password", value)
