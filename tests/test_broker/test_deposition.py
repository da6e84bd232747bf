"""A leader that the controllers cannot tell hears from its followers that another one leads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from kio.schema.errors import ErrorCode as KioError

from broker.config import BrokerConfig
from broker.deposition import Successors
from broker.isr import Committed
from broker.partition import Partition
from metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from runtime.errors import ErrorCode
from storage.batch import build_batch
from tests.test_broker.harness import Harness, wait_until
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values
from tests.test_broker.test_partition import TOPIC_ID, fetch, make

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
    assert not step_down(partition), "once"


def test_who_was_deposed_hears_of_later_successors() -> None:
    partition = make()
    assert step_down(partition)
    assert partition.step_down(3, 7, replica_id=3, broker_epoch=10)
    assert (partition.leader, partition.leader_epoch, partition.newest_epoch) == (3, 5, 7)
    assert not step_down(partition), "that is of before"
    assert (partition.leader, partition.newest_epoch) == (3, 7)


def test_a_follower_hears_it_from_the_metadata_alone() -> None:
    partition = make()
    partition.become_follower(PartitionImage((1, 2, 3), (2, 3), 2, 6, 8))
    assert not step_down(partition, 7)
    assert partition.leader == 2


@pytest.mark.parametrize("epoch", [4, 5, 6, -1])
def test_nobody_reads_where_the_leader_was_deposed(epoch: int) -> None:
    # The old epoch is not fenced by a later one here: it would be served, and wait for ever.
    partition = make()
    step_down(partition)
    assert partition.check_epoch(epoch) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.become_follower(PartitionImage((1, 2, 3), (2, 3), 2, 6, 9))
    assert partition.check_epoch(6) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "replica", "broker_epoch"),
    [(5, 2, 10), (4, 2, 10), (6, 4, 10), (6, 2, 9), (6, 2, -1)],
)
def test_neither_an_old_epoch_nor_a_stranger_nor_an_old_process_deposes(
    epoch: int, replica: int, broker_epoch: int
) -> None:
    partition = make()
    assert not partition.step_down(2, epoch, replica_id=replica, broker_epoch=broker_epoch)
    assert partition.is_leader


@pytest.mark.parametrize("leader", [1, 4, -1, -5, 1 << 40])
def test_who_leads_instead_is_another_broker(leader: int) -> None:
    partition = make()
    assert not partition.step_down(leader, 6, replica_id=2, broker_epoch=10)
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


def test_clients_are_told_of_the_successor_until_the_metadata_know_as_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.run(_clients_are_told())
    (record,) = caplog.records
    assert "as broker 2 says, others lead t-0 (broker 2, epoch 6)" in record.getMessage()


async def _clients_are_told() -> None:
    known = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 7)
    before, later = whole(known), whole(dataclasses.replace(known, partition_epoch=8))
    successors = Successors()
    replica: Any = SimpleNamespace(core=make())
    assert successors.over(before) is before
    assert step_down(replica.core)
    successors.tell(replica, 2)
    shown = successors.over(before)
    partition = shown.partition(*KEY)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 6, (2, 3))
    assert successors.over(before) is shown, "answers are kept for as long as it is"
    partition = successors.over(later).partition(*KEY)
    assert partition is not None
    assert (partition.leader, partition.partition_epoch) == (2, 8)
    newest = whole(PartitionImage((1, 2, 3), (2, 3), 3, 6, 9))
    assert successors.over(newest) is newest
    assert successors.over(before) is before, "and it is over"
    assert successors._base is None, "no image is kept"
    successors.tell(replica, 2)
    assert successors.over(EMPTY_IMAGE) is EMPTY_IMAGE, "the topic is gone"
    await asyncio.sleep(0)


def test_thousands_of_partitions_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        successors = Successors()
        for partition_id in range(2_000):
            core = make()
            core.partition_id = partition_id
            step_down(core)
            replica: Any = SimpleNamespace(core=core)
            successors.tell(replica, 3)
        await asyncio.sleep(0)

    asyncio.run(tell())
    (record,) = caplog.records
    assert "t-4 (broker 2, epoch 6) and 1995 more" in record.getMessage()


# --- both ------------------------------------------------------------------------------------


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=QUIET)
    yield harness
    for broker_id, broker in harness.cluster.brokers.items():
        harness.cluster.controller.managers[broker_id] = broker.manager
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
    harness.call(lambda: controller.create("t", [(1, 2, 3)]))
    client = RawClient(harness.cluster.ports[1])
    send(client, b"a")
    assert row_of(client).error_code is KioError.none
    first = cut_off_from_the_metadata(harness)
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(True))
    send(client, b"never committed")
    wait_until(lambda: harness.cluster.replica(1, "t").pending_acks, "it waits for 3")
    harness.call(lambda: harness.cluster.fence(1))
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
    for value in (b"0", b"1"):  # they ask from 2 on, which is a broker's id
        send(client, value)
        assert row_of(client).error_code is KioError.none
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


def deposed(harness: Harness, *, then_fence: bool = True) -> tuple[RawClient, bytes]:
    """A client of broker 1, which has led "t", of one record, until it lost the controllers."""
    topic_id = harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)]))
    client = RawClient(harness.cluster.ports[1])
    send(client, b"a")
    assert row_of(client).error_code is KioError.none
    cut_off_from_the_metadata(harness)
    if then_fence:
        harness.call(lambda: harness.cluster.fence(1))
        wait_until_deposed(harness)
    return client, topic_id


def wait_until_deposed(harness: Harness) -> None:
    wait_until(lambda: not core_of(harness, 1).is_leader, "it is deposed")


def leader_told(client: RawClient) -> int:
    answer = client.call("metadata", 9, {"topics": [{"name": "t"}]})
    return int(answer.topics[0].partitions[0].leader_id)


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize("epoch", [0, -1])
def test_who_reads_is_sent_to_the_new_leader(harness: Harness, version: int, epoch: int) -> None:
    client, _ = deposed(harness)
    values = fetch_values("t", 1, max_wait_ms=60_000, leader_epoch=epoch)
    if version < 12:
        values["topics"][0]["partitions"][0].pop("last_fetched_epoch")
    if version < 11:
        values.pop("rack_id")
    row = client.call("fetch", version, values).responses[0].partitions[0]
    assert row.error_code is KioError.not_leader_or_follower
    if version == 12:
        assert row.current_leader.leader_id == 2
    client.close()


def test_who_waits_for_records_is_answered(harness: Harness) -> None:
    client, _ = deposed(harness, then_fence=False)
    client.send("fetch", 12, fetch_values("t", 1, max_wait_ms=60_000, leader_epoch=0))
    replica = harness.cluster.replica(1, "t")
    wait_until(lambda: any(not w.state.is_replica for w in replica.watchers), "it waits")
    harness.call(lambda: harness.cluster.fence(1))
    row = client.answer("fetch", 12).responses[0].partitions[0]
    assert row.error_code is KioError.not_leader_or_follower
    client.close()


def test_who_was_moved_away_first_and_fenced_afterwards_is_told(harness: Harness) -> None:
    # It was in sync, and had a session, for all that anybody knew.
    client, topic_id = deposed(harness, then_fence=False)
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (1, 2, 3)))
    assert core_of(harness, 1).is_leader
    harness.call(lambda: harness.cluster.fence(1))
    wait_until_deposed(harness)
    client.close()


def test_every_successor_is_named(harness: Harness) -> None:
    client, topic_id = deposed(harness)
    assert leader_told(client) == 2
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 3, (3,)))
    wait_until(lambda: leader_told(client) == 3, "it has heard of the next one")
    client.close()


def test_where_nobody_leads_it_goes_on_until_somebody_does(harness: Harness) -> None:
    client, topic_id = deposed(harness, then_fence=False)
    controller = harness.cluster.controller
    harness.call(lambda: controller.lead(topic_id, 0, 1, (1,)))
    harness.call(lambda: harness.cluster.fence(1))
    harness.call(lambda: controller.lead(topic_id, 0, -1, (1,)))
    send(client, b"b", acks=1)
    assert row_of(client).error_code is KioError.none
    harness.call(lambda: controller.lead(topic_id, 0, 3, (3,)))  # an unclean election
    wait_until_deposed(harness)
    assert leader_told(client) == 3
    client.close()


def test_who_cannot_be_reached_is_told_once_it_can(harness: Harness) -> None:
    client, _ = deposed(harness, then_fence=False)
    cluster = harness.cluster
    cluster.unreachable |= {(2, 1), (3, 1)}
    asked: list[int] = []
    for broker_id in (2, 3):
        manager = cluster.brokers[broker_id].manager
        known = manager.peer_address

        def ask(peer: int, known: Any = known) -> Any:
            asked.append(peer)
            return known(peer)

        manager.peer_address = ask
        harness.call(lambda manager=manager: manager.fetchers._by_leader[1]._lose("reset"))
    harness.call(lambda: cluster.fence(1))
    wait_until(lambda: len(asked) >= 6, "each has tried, and tries again")
    assert core_of(harness, 1).is_leader
    cluster.unreachable.clear()
    wait_until_deposed(harness)
    client.close()


@pytest.mark.parametrize("version", [10, 12])
@pytest.mark.parametrize("offset", [2, 777, 1 << 40, -5])
def test_a_client_deposes_nobody(harness: Harness, version: int, offset: int) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)]))
    client = RawClient(harness.cluster.ports[1])
    row = fetch_partition(offset, leader_epoch=(1 << 31) - 1, bytes_max=0)
    values = {**fetch_values("t", 0, partitions=[row]), "replica_id": 2}
    if version < 12:
        row.pop("last_fetched_epoch")
    if version < 11:
        values.pop("rack_id")
    answer = client.call("fetch", version, values).responses[0].partitions[0]
    assert answer.error_code is KioError.unknown_leader_epoch
    assert leader_told(client) == 1
    send(client, b"a")
    assert row_of(client).error_code is KioError.none
    client.close()


def test_a_coordinator_that_was_deposed_sends_its_groups_on(harness: Harness) -> None:
    controller = harness.cluster.controller
    harness.call(lambda: controller.create("__consumer_offsets", [(1, 2, 3)]))
    harness.call(lambda: controller.create("t", [(2, 3)]))
    client = RawClient(harness.cluster.ports[1])

    def commit(offset: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        return {
            "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
            "group_instance_id": None, "topics": [{"name": "t", "partitions": [partition]}],
        }  # fmt: skip

    def code(answer: Any) -> Any:
        return answer.topics[0].partitions[0].error_code

    wait_until(
        lambda: code(client.call("offset_commit", 8, commit(5))) is KioError.none, "it is loaded"
    )
    cut_off_from_the_metadata(harness)
    harness.call(lambda: harness.cluster.brokers[3].manager.fetchers.pause(True))
    client.send("offset_commit", 8, commit(6))
    offsets = harness.cluster.replica(1, "__consumer_offsets")
    wait_until(lambda: offsets.log.end_offset > offsets.core.high_watermark, "it waits for 3")
    harness.call(lambda: harness.cluster.fence(1))
    assert code(client.answer("offset_commit", 8)) is KioError.not_coordinator
    assert code(client.call("offset_commit", 8, commit(7))) is KioError.not_coordinator
    found = client.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    assert found.coordinators[0].node_id == 2
    client.close()
