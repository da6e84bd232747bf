"""DeleteRecords: the log start moves, followers follow, the answer waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode as KioError

from kvorum.runtime.disk import OsDisk
from kvorum.storage.files.checkpoints import LOG_START_OFFSET
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, QUIET, Harness
from tests.test_broker.raw_client import RawClient, fetch_values

RECORDS = 30


class GatedDisk(OsDisk):
    """A disk on which the test decides when the log-start checkpoint is written."""

    def __init__(self) -> None:
        self.is_asked, self.may_write = threading.Event(), threading.Event()
        self.may_write.set()

    def write_atomic(self, path: str, data: bytes) -> None:
        if path.endswith(LOG_START_OFFSET) and b"deletion" in data:
            self.is_asked.set()
            self.may_write.wait(DEADLINE_S)
        super().write_atomic(path, data)


@pytest.fixture(scope="module")
def gated() -> GatedDisk:
    """The disk of broker 3."""
    return GatedDisk()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, gated: GatedDisk) -> Iterator[Harness]:
    directory = tmp_path_factory.mktemp("deletion")
    harness = Harness(directory, count=3, config=QUIET, disks={3: gated})
    yield harness
    harness.close()


_names = iter(range(1000))


def made(harness: Harness, **configs: str) -> str:
    """A topic led by broker 1 that holds RECORDS records, replicated."""
    name = f"deletion-{next(_names)}"
    named = {key.replace("_", "."): value for key, value in configs.items()}
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2, 3)], named))
    produced(harness, name, RECORDS)
    for broker_id in (1, 2, 3):
        core = harness.cluster.replica(broker_id, name).core
        eventually(lambda c=core: c.high_watermark == RECORDS, "all is replicated")
    return name


def produced(harness: Harness, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "acks": "all"})
    for at in range(count):
        producer.produce(name, b"v%d" % at, b"k")
        if at % 10 == 9:
            producer.flush(DEADLINE_S)
    producer.flush(DEADLINE_S)


def deleted(client: RawClient, topic: str, offset: int, *, version: int = 2, timeout: int = 9000):
    partition = {"partition_index": 0, "offset": offset}
    answer = client.call(
        "delete_records",
        version,
        {"topics": [{"name": topic, "partitions": [partition]}], "timeout": timeout},
    )
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


def starts(harness: Harness, topic: str) -> list[int]:
    return [harness.cluster.replica(b, topic).log.start_offset for b in (1, 2, 3)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_when_the_answer_comes_all_replicas_have_moved_and_it_is_on_disk(
    harness: Harness, client: RawClient, version: int
) -> None:
    topic = made(harness)
    assert deleted(client, topic, 7, version=version) == (KioError.none, 7)
    assert starts(harness, topic) == [7, 7, 7]
    for broker_id in (1, 2, 3):
        path = Path(harness.cluster.directory) / f"broker-{broker_id}" / LOG_START_OFFSET
        assert f"{topic} 0 7\n" in path.read_text()
    fetched = client.call("fetch", 12, fetch_values(topic, 6)).responses[0].partitions[0]
    assert fetched.error_code is KioError.offset_out_of_range
    assert fetched.log_start_offset == -1
    # Going back changes nothing and is no error.
    assert deleted(client, topic, 3) == (KioError.none, 7)


def test_minus_one_is_the_high_watermark(harness: Harness, client: RawClient) -> None:
    topic = made(harness)
    assert deleted(client, topic, -1) == (KioError.none, RECORDS)
    assert starts(harness, topic) == [RECORDS] * 3


def test_what_cannot_be_deleted_gets_kafkas_codes(harness: Harness, client: RawClient) -> None:
    topic = made(harness)
    compacted = made(harness, cleanup_policy="compact")
    both = made(harness, cleanup_policy="compact,delete")
    kept = made(harness, cleanup_policy="")
    assert deleted(client, topic, RECORDS + 1) == (KioError.offset_out_of_range, -1)
    assert deleted(client, topic, -2) == (KioError.offset_out_of_range, -1)
    assert deleted(client, "nowhere", 1) == (KioError.unknown_topic_or_partition, -1)
    assert deleted(client, compacted, 1) == (KioError.policy_violation, -1)
    assert deleted(client, both, 1) == (KioError.none, 1)
    assert deleted(client, kept, 1) == (KioError.none, 1)
    follower = RawClient(harness.cluster.brokers[2].port)
    assert deleted(follower, topic, 1) == (KioError.not_leader_or_follower, -1)
    follower.close()
    assert starts(harness, topic) == [0, 0, 0]


def test_one_bad_partition_spoils_no_other(harness: Harness, client: RawClient) -> None:
    good, bad = made(harness), "nowhere"
    rows = [{"partition_index": 0, "offset": 2}, {"partition_index": 5, "offset": 2}]
    topics = [{"name": bad, "partitions": rows[:1]}, {"name": good, "partitions": rows}]
    answer = client.call("delete_records", 2, {"topics": topics, "timeout": 9000})
    found = [[(p.error_code, p.low_watermark) for p in t.partitions] for t in answer.topics]
    unknown = (KioError.unknown_topic_or_partition, -1)
    assert found == [[unknown], [(KioError.none, 2), unknown]]


def test_segments_below_the_start_go_at_the_next_look_at_retention(
    harness: Harness, client: RawClient
) -> None:
    topic = made(harness, segment_bytes="300", retention_ms="-1")
    replica = harness.cluster.replica(1, topic)
    assert replica.log.segments.bases[0] == 0
    deleted(client, topic, 25)
    assert replica.log.segments.bases[0] == 0

    def look() -> bool:
        replica.apply_retention(0)
        return replica.log.segments.bases[0] > 0

    eventually(lambda: harness.call(look), "what is flushed has gone")
    assert replica.log.segments.bases[0] <= 25


def test_a_follower_that_does_not_follow_makes_it_time_out_and_a_dead_one_does_not(
    harness: Harness, client: RawClient
) -> None:
    topic = made(harness)
    fetchers = harness.cluster.brokers[3].manager.fetchers
    key = (harness.cluster.controller.image.topic_ids[topic], 0)
    harness.call(lambda: fetchers.unfollow(key))
    assert deleted(client, topic, 5, timeout=50) == (KioError.request_timed_out, 0)
    client.send(
        "delete_records",
        2,
        {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 6}]}],
            "timeout": 15_000,
        },
    )
    eventually(
        lambda: harness.cluster.replica(1, topic).pending_deletions, "the request is waiting"
    )
    harness.run(harness.cluster.stop_broker(3))
    row = client.answer("delete_records", 2).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (KioError.none, 6)
    assert harness.cluster.replica(1, topic).pending_deletions == []
    harness.run(harness.cluster.start_broker(3))
    eventually(lambda: starts(harness, topic) == [6, 6, 6], "the returned broker follows")


def test_a_lost_leadership_ends_the_wait(harness: Harness, client: RawClient) -> None:
    topic = made(harness)
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    fetchers = harness.cluster.brokers[3].manager.fetchers
    harness.call(lambda: fetchers.unfollow((topic_id, 0)))
    values = {
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 6}]}],
        "timeout": 15_000,
    }
    client.send("delete_records", 2, values)
    eventually(
        lambda: harness.cluster.replica(1, topic).pending_deletions, "the request is waiting"
    )
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (1, 2)))
    row = client.answer("delete_records", 2).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (KioError.not_leader_or_follower, -1)


def test_a_start_survives_a_crash_right_behind_the_answer(harness: Harness) -> None:
    topic = made(harness)
    client = RawClient(harness.cluster.brokers[1].port)
    assert deleted(client, topic, 11) == (KioError.none, 11)
    client.close()
    harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1))
    assert harness.cluster.replica(1, topic).log.start_offset == 11


def test_the_leader_hears_of_a_follower_s_start_once_that_is_on_its_disk(
    harness: Harness, client: RawClient, gated: GatedDisk
) -> None:
    topic = made(harness)
    gated.is_asked.clear()
    gated.may_write.clear()
    try:
        partition = {"partition_index": 0, "offset": 8}
        asked = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": 15_000}
        client.send("delete_records", 2, asked)
        assert gated.is_asked.wait(DEADLINE_S)
        leader = harness.cluster.replica(1, topic)
        eventually(lambda: leader.core.followers[2].start_offset == 8, "broker 2 has told it")
        produced(harness, topic, 1)
        eventually(lambda: leader.core.followers[3].end_offset == RECORDS + 1, "3 fetches on")
        assert leader.core.followers[3].start_offset == 0
        assert leader.pending_deletions
    finally:
        gated.may_write.set()
    row = client.answer("delete_records", 2).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (KioError.none, 8)
    assert starts(harness, topic) == [8, 8, 8]


def test_what_was_deleted_stays_so_when_all_brokers_are_killed(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, count=3, config=QUIET)
    try:
        topic = made(harness)
        client = RawClient(harness.cluster.brokers[1].port)
        assert deleted(client, topic, 11) == (KioError.none, 11)
        client.close()
        for broker_id in (1, 2, 3):
            harness.run(harness.cluster.crash_broker(broker_id))
        for broker_id in (3, 2):  # the leader stays away
            harness.run(harness.cluster.start_broker(broker_id))
            assert harness.cluster.replica(broker_id, topic).log.start_offset == 11
    finally:
        harness.close()


def test_librdkafkas_admin_client_deletes_records(harness: Harness) -> None:
    topic = made(harness)
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    asked = TopicPartition(topic, 0, 9)
    (future,) = admin.delete_records([asked]).values()
    assert future.result(DEADLINE_S).low_watermark == 9
    (future,) = admin.delete_records([TopicPartition(topic, 0, 99)]).values()
    assert "OFFSET_OUT_OF_RANGE" in str(future.exception(DEADLINE_S))
