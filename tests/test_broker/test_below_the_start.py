"""Records below a log's start: a diverged history is dropped; the producer states of the replica's
own history stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.partition.replica import Replica
from kvorum.storage.files.leader_epochs import LeaderEpochCache
from tests.polling import eventually
from tests.test_broker.harness import QUIET, Harness
from tests.test_broker.raw_client import RawClient, batch, deleted, produced

LOOSE = {"min.insync.replicas": "1"}
FIRST_TEN = batch(10, producer_id=7, producer_epoch=0, base_sequence=0)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=QUIET)
    yield harness
    harness.close()


def made(harness: Harness) -> bytes:
    """The id of a topic of one partition, which broker 1 leads."""
    return harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)], LOOSE))


def pause(harness: Harness, broker_id: int, is_paused: bool = True) -> None:
    manager = harness.cluster.brokers[broker_id].manager
    harness.call(lambda: manager.fetchers.pause(is_paused))


def lead(harness: Harness, topic_id: bytes, broker_id: int, isr: tuple[int, ...]) -> Replica:
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, broker_id, isr))
    replica = harness.cluster.replica(broker_id, "t")
    eventually(lambda: replica.core.is_leader, "it leads")
    return replica


def wait_in_sync(harness: Harness, topic_id: bytes) -> None:
    controller = harness.cluster.controller
    eventually(lambda: controller.image.partition(topic_id, 0).isr == (1, 2), "both are in sync")


def retire(harness: Harness, *replicas: Replica) -> None:
    """Run retention, which deletes the segments below the log start of each replica."""

    def take() -> None:
        for replica in replicas:
            replica.log.roll(now_ms=1)
            replica.log.flush()
            replica.apply_retention(10_000)

    harness.call(take)


def repeat(client: RawClient) -> None:
    again = produced(client, FIRST_TEN)
    assert (again.error_code, again.base_offset) == (KioError.none, 0), "it is there already"


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_lost_history_that_ends_where_the_leaders_log_begins_goes(
    harness: Harness, client: RawClient, is_deleted: bool
) -> None:
    # Bug: the leader's first batch begins below both log starts and did not fit behind the lost
    # history, so the follower was never in sync again. is_deleted: the lost history lies below the
    # follower's own log start too, but is still in its file.
    topic_id = made(harness)
    second = lead(harness, topic_id, 2, (2,))
    pause(harness, 1)
    with closing(RawClient(harness.cluster.ports[2])) as other:
        assert produced(other, batch(4), acks=1).error_code is KioError.none
    if is_deleted:
        harness.call(lambda: second.move_start(4))
    harness.run(harness.cluster.stop_broker(2))
    first = lead(harness, topic_id, 1, (1,))
    assert produced(client, batch(2)).base_offset == 0
    assert produced(client, batch(4)).base_offset == 2
    harness.call(lambda: first.move_start(4))
    pause(harness, 1, False)
    harness.run(harness.cluster.start_broker(2, is_clean=True))
    wait_in_sync(harness, topic_id)
    log = harness.cluster.replica(2, "t").log
    # Below the start lies only the leader's batch that contains the start.
    assert (log.start_offset, log.end_offset, log.segments.bases) == (4, 6, [2])


@pytest.mark.parametrize("is_retired", [True, False])
def test_a_member_of_the_isr_that_is_cut_down_to_its_start_knows_its_producers(
    harness: Harness, client: RawClient, is_retired: bool
) -> None:
    # is_retired: retention has also deleted the file.
    topic_id = made(harness)
    assert produced(client, FIRST_TEN).base_offset == 0
    assert deleted(client, 10) is KioError.none
    first, second = harness.cluster.replica(1, "t"), harness.cluster.replica(2, "t")

    if is_retired:
        retire(harness, first, second)
        assert first.log.segments.bases == [10]
    pause(harness, 2)
    assert produced(client, batch(1), acks=1).base_offset == 10  # and that is lost
    lead(harness, topic_id, 2, (1, 2))
    pause(harness, 2, False)
    eventually(lambda: first.log.end_offset == 10, "it is cut")
    lead(harness, topic_id, 1, (1, 2))
    repeat(client)
    assert first.log.end_offset == 10


def test_who_was_away_while_all_was_deleted_that_it_has_knows_its_producers(
    harness: Harness, client: RawClient
) -> None:
    # The leader's epoch history begins at its log start. It remembers the epoch before, which is
    # that of the follower's last batch: so the histories agree.
    topic_id = made(harness)
    assert produced(client, FIRST_TEN).base_offset == 0
    second = harness.cluster.replica(2, "t")
    eventually(lambda: second.log.end_offset == 10, "it has all")
    pause(harness, 2)
    first = lead(harness, topic_id, 1, (1,))
    harness.call(lambda: first.move_start(10))
    pause(harness, 2, False)
    wait_in_sync(harness, topic_id)
    lead(harness, topic_id, 2, (1, 2))
    with closing(RawClient(harness.cluster.ports[2])) as other:
        repeat(other)


def test_who_was_away_and_has_nothing_left_knows_its_producers(
    harness: Harness, client: RawClient
) -> None:
    # The topic was idle until all records expired. The leader restarted since, and does not know
    # the epoch below its log start.
    topic_id = made(harness)
    assert produced(client, FIRST_TEN).base_offset == 0
    assert deleted(client, 10) is KioError.none
    first, second = harness.cluster.replica(1, "t"), harness.cluster.replica(2, "t")
    eventually(lambda: second.log.start_offset == 10, "it is deleted")
    retire(harness, first, second)
    lead(harness, topic_id, 2, (2,))
    pause(harness, 2)
    harness.call(lambda: setattr(first.log.epochs, "epoch_before_start", -1))
    lead(harness, topic_id, 1, (1,))
    pause(harness, 2, False)
    wait_in_sync(harness, topic_id)
    assert len(second.log.producers) == 1


def test_who_was_away_joins_once_it_has_told_of_what_was_deleted(
    harness: Harness, client: RawClient
) -> None:
    topic_id = made(harness)
    assert produced(client, batch(10)).base_offset == 0
    harness.run(harness.cluster.stop_broker(2))
    first = lead(harness, topic_id, 1, (1,))
    assert deleted(client, 4) is KioError.none
    assert first.core.deleted_records_offset == 4
    harness.run(harness.cluster.start_broker(2, is_clean=True))
    wait_in_sync(harness, topic_id)
    assert first.core.followers[2].start_offset >= 4
    # A new leader has the same bound for followers that may join the ISR.
    second = lead(harness, topic_id, 2, (1, 2))
    assert second.core.deleted_records_offset == 4


@pytest.mark.parametrize(
    ("epoch", "is_known"),
    [(0, False), (1, False), (2, True), (3, True), (4, False)],
)
def test_epochs_reach_a_log_that_ends_at_their_start(epoch: int, is_known: bool) -> None:
    cache = LeaderEpochCache([(1, 0), (2, 5), (3, 10), (4, 20)])
    cache.truncate_from_start(10)
    assert cache.matches_at(epoch, 10) is is_known
    assert cache.matches_at(2, 10)
    cache.clear()
    assert not cache.matches_at(epoch, 10)


def test_epochs_that_were_cut_at_the_same_start_again_reach_as_far() -> None:
    cache = LeaderEpochCache([(1, 0), (2, 5)])
    cache.truncate_from_start(5)
    cache.truncate_from_start(5)
    assert cache.matches_at(1, 5)
    cache.truncate_from_start(7)
    assert not cache.matches_at(1, 7)
