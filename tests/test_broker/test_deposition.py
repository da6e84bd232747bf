"""A leader that the controllers cannot tell hears from its followers that another one leads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from kio.schema.errors import ErrorCode as KioError

from broker.config import BrokerConfig
from broker.deposition import Successors, may_be_unaware
from broker.fetcher import LeaderFetcher
from broker.isr import Committed
from broker.partition import BrokerFacts, Partition
from broker.start_checkpoints import StartCheckpoints
from broker.suspects import Suspects
from broker.throttle import ReplicationQuota
from metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from runtime.clock import SYSTEM_CLOCK
from storage.batch import build_batch
from tests.test_broker.harness import Harness, wait_until
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_broker.test_partition import TOPIC_ID, broker_image, fetch, make
from tests.test_broker.test_replica_session import answer, fail, replica_of, session_of

QUIET = BrokerConfig(log_flush_offset_checkpoint_interval_ms=3_600_000)
KEY = (TOPIC_ID, 0)


def step_down(partition: Partition, epoch: int = 6) -> bool:
    return partition.step_down(2, epoch, replica_id=2, broker_epoch=10)


# --- the leader ------------------------------------------------------------------------------


def test_who_hears_of_a_later_epoch_leads_no_more() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(1, 0)
    fetch(partition, 3, 1)
    assert partition.propose_expand() is not None
    assert step_down(partition)
    assert not partition.is_leader
    assert (partition.leader, partition.leader_epoch, partition.newest_epoch) == (2, 5, 6)
    assert partition.isr_state == Committed(frozenset({1, 2})), "nothing is in flight any more"
    assert partition.proposal_in_flight() is None
    assert not step_down(partition, 7), "once"


@pytest.mark.parametrize(
    ("epoch", "replica", "broker_epoch"), [(5, 2, 10), (4, 2, 10), (6, 4, 10), (6, 2, 9)]
)
def test_neither_an_old_epoch_nor_a_stranger_nor_an_old_process_deposes(
    epoch: int, replica: int, broker_epoch: int
) -> None:
    partition = make()
    assert not partition.step_down(2, epoch, replica_id=replica, broker_epoch=broker_epoch)
    assert partition.is_leader


def test_what_the_metadata_said_before_does_not_give_the_lead_back() -> None:
    # It reads on behind a cut, and comes by its own ISR changes first.
    partition = make()
    step_down(partition)
    assert not partition.become_leader(PartitionImage((1, 2, 3), (1, 2), 1, 5, 8), 0)
    assert not partition.become_follower(PartitionImage((1, 2, 3), (1, 2), -1, 5, 9))
    assert not partition.is_leader
    assert partition.become_follower(PartitionImage((1, 2, 3), (2, 3), 2, 6, 9))
    assert (partition.leader, partition.leader_epoch) == (2, 6)


def test_who_was_deposed_leads_again_when_the_metadata_say_so() -> None:
    partition = make()
    step_down(partition)
    assert partition.become_leader(PartitionImage((1, 2, 3), (1, 2, 3), 1, 7, 9), 0)
    assert partition.is_leader


def whole(partition: PartitionImage) -> ClusterImage:
    topic = TopicImage("t", TOPIC_ID, Map({0: partition}))
    return dataclasses.replace(
        EMPTY_IMAGE, topics=Map({TOPIC_ID: topic}), topic_ids=Map({"t": TOPIC_ID})
    )


def test_clients_are_told_of_the_successor_until_the_metadata_know_as_much() -> None:
    known = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 7)
    before, later = whole(known), whole(dataclasses.replace(known, partition_epoch=8))
    successors = Successors()
    assert successors.over(before) is before
    successors.tell(KEY, 2, 6)
    shown = successors.over(before)
    partition = shown.partition(*KEY)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (2, 6)
    assert successors.over(before) is shown, "answers are kept for as long as it is"
    partition = successors.over(later).partition(*KEY)
    assert partition is not None
    assert (partition.leader, partition.partition_epoch) == (2, 8)
    newest = whole(image(3, (2, 3)))
    assert successors.over(newest) is newest
    assert successors.over(before) is before, "and it is over"
    successors.tell(KEY, 2, 6)
    assert successors.over(EMPTY_IMAGE) is EMPTY_IMAGE, "the topic is gone"


# --- the follower ----------------------------------------------------------------------------


def image(leader: int, isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage((1, 2, 3), isr, leader, 6, 9)


@pytest.mark.parametrize(
    ("now", "is_told"),
    [
        (image(2, (2, 3)), True),
        (image(-1, (1,)), True),  # the last member stays in the ISR
        (image(2, (1, 2, 3)), False),  # a preferred leader was elected
    ],
)
def test_whom_the_metadata_took_out_is_told(now: PartitionImage, is_told: bool) -> None:
    facts = BrokerFacts()
    assert may_be_unaware(1, now, facts) is is_told, "a broker that is forgotten may run on"
    facts.brokers = {1: broker_image(1)}
    assert may_be_unaware(1, now, facts) is is_told, "fenced after its partitions have moved"
    facts.brokers = {1: dataclasses.replace(broker_image(1), in_controlled_shutdown=True)}
    assert not may_be_unaware(1, now, facts), "who asked to go knows"


def test_the_epoch_is_told_once_and_the_partition_forgotten_after_that() -> None:
    session = session_of()
    session.add(KEY, replica_of())
    session.next_request()
    session.remove(KEY, image(3, (3,)))
    assert session.has_changes
    ((topic_id, (asked,)),), forgotten = session.next_request()
    assert (topic_id, asked.partition_id, asked.current_leader_epoch) == (TOPIC_ID, 0, 6)
    assert (asked.bytes_max, asked.fetch_offset) == (0, 3)
    assert forgotten == []
    assert session.next_request() == ([], [(TOPIC_ID, [0])])
    assert session.next_request() == ([], [])


def test_nothing_is_told_to_who_is_followed_again_or_connected_anew() -> None:
    session = session_of()
    session.remove(KEY, image(3, (3,)))
    assert not session.has_changes, "it was not followed"
    session.add(KEY, replica_of())
    session.remove(KEY, image(3, (3,)))
    session.add(KEY, replica_of())
    ((_, (asked,)),), _ = session.next_request()
    assert asked.bytes_max > 0
    session.remove(KEY, image(3, (3,)))
    session.begin()
    assert session.next_request() == ([], [])


def test_the_last_partition_is_told_of_too() -> None:
    # Nothing is in the session then, and nothing else would be asked.
    sent = []
    fetcher = LeaderFetcher(
        leader=2, broker_id=1, config=QUIET, controller=SimpleNamespace(broker_epoch=1),
        peer_address=lambda _: None, quota=ReplicationQuota(0), clock=SYSTEM_CLOCK, connect=None,
        starts=StartCheckpoints(fail), suspects=Suspects(SYSTEM_CLOCK.monotonic_ms),
    )  # fmt: skip
    fetcher._sock = SimpleNamespace()
    fetcher._lost = SimpleNamespace(done=lambda: False)
    fetcher._flush = lambda: sent.append(bytes(fetcher._output))
    fetcher.session.add(KEY, replica_of())
    fetcher.on_partitions_changed()
    fetcher.session.take_answer(answer(7), memoryview(b""))
    fetcher.session.remove(KEY, image(3, (3,)))
    fetcher.on_partitions_changed()
    assert len(sent) == 2


# --- both ------------------------------------------------------------------------------------


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=QUIET)
    yield harness
    harness.close()


def send(client: RawClient, value: bytes, *, acks: int = -1) -> None:
    batch = bytes(build_batch([(None, value)], timestamp_ms=1000))
    client.send("produce", 10, produce_values("t", batch, acks=acks))


def row_of(client: RawClient) -> Any:
    return client.answer("produce", 10).responses[0].partition_responses[0]


def core_of(harness: Harness, broker_id: int) -> Partition:
    return harness.cluster.replica(broker_id, "t").core


def cut_off_from_the_metadata(harness: Harness) -> Any:
    """Broker 1 goes on leading "t", and hears of nothing."""
    return harness.call(lambda: harness.cluster.controller.managers.pop(1))


def test_a_leader_that_is_cut_off_answers_who_waits_and_who_comes(harness: Harness) -> None:
    controller = harness.cluster.controller
    topic_id = harness.call(lambda: controller.create("t", [(1, 2, 3)]))
    client = RawClient(harness.cluster.ports[1])
    send(client, b"a")
    assert row_of(client).error_code is KioError.none
    first = cut_off_from_the_metadata(harness)
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(True))
    send(client, b"never committed")
    wait_until(lambda: harness.cluster.replica(1, "t").pending_acks, "it waits for 3")
    harness.call(lambda: controller.lead(topic_id, 0, 2, (2,)))
    assert row_of(client).error_code is KioError.not_leader_or_follower
    assert not core_of(harness, 1).is_leader
    epoch = core_of(harness, 2).leader_epoch
    for acks in (1, -1):
        send(client, b"refused", acks=acks)
        row = row_of(client)
        assert row.error_code is KioError.not_leader_or_follower
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, epoch)
    answer = client.call("metadata", 9, {"topics": [{"name": "t"}]})
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (2, epoch)
    # The metadata reaches it again: it follows, and drops what was never committed.
    other = RawClient(harness.cluster.ports[2])
    send(other, b"b")
    assert row_of(other).error_code is KioError.none
    other.close()
    client.close()
    controller.managers[1] = first
    harness.call(lambda: first.publish(None, controller.image))
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(False))
    logs = [harness.cluster.replica(broker_id, "t").log for broker_id in (1, 2)]
    wait_until(lambda: logs[0].last_epoch == logs[1].last_epoch, "it follows")
    wait_until(lambda: logs[0].end_offset == logs[1].end_offset, "it has caught up")


def test_a_leader_goes_on_where_its_followers_only_hear_of_an_epoch_sooner(
    harness: Harness,
) -> None:
    # Of its own: a move has taken a replica away. What waits is in its log, and stays.
    controller = harness.cluster.controller
    topic_id = harness.call(lambda: controller.create("t", [(1, 2, 3)]))
    client = RawClient(harness.cluster.ports[1])
    first = cut_off_from_the_metadata(harness)
    harness.call(lambda: controller.lead(topic_id, 0, 1, (1, 2)))
    epoch = core_of(harness, 1).leader_epoch
    changed = dataclasses.replace(
        controller.image.partition(topic_id, 0), leader_epoch=epoch + 1, partition_epoch=99
    )
    second = harness.cluster.brokers[2].manager
    harness.call(lambda: second._follow((topic_id, 0), "t", changed))
    assert core_of(harness, 2).leader_epoch == epoch + 1
    followed = second.fetchers._by_leader[1].session._partitions[topic_id, 0]
    wait_until(lambda: followed.failures, "it is told that its epoch is unknown")
    send(client, b"a", acks=1)
    assert row_of(client).error_code is KioError.none
    assert core_of(harness, 1).is_leader
    controller.managers[1] = first
    client.close()
