"""The partition core, rule by rule. Time and brokers are arguments."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.broker.partition.core.isr import Committed, PendingExpand, PendingShrink, Reaction
from kvorum.broker.partition.core.partition import Partition
from kvorum.metadata.image.image import PartitionImage
from kvorum.metadata.image.records import RECOVERING
from kvorum.runtime.errors import ErrorCode
from tests.test_broker.led_partition import LAG_MS, answer, broker_image, fetch, make


def test_high_watermark_is_the_least_end_of_the_isr() -> None:
    partition = make()
    assert not partition.on_append(8, 0)
    assert not fetch(partition, 2, 8)
    assert fetch(partition, 3, 6)
    assert partition.high_watermark == 6


def test_the_watermark_does_not_wait_for_a_follower_whose_directory_is_offline() -> None:
    # The follower fetched a moment ago and would be let in again if its directory were online
    # (KIP-858).
    partition = make()
    fetch(partition, 3, 0)
    partition.on_append(8, 0)
    fetch(partition, 2, 8)
    gone = PartitionImage((1, 2, 3), (1, 2), 1, 5, 8, directories=(bytes(16), bytes(16), b"x" * 16))
    brokers = dict(partition.peer_brokers.brokers)
    brokers[3] = dataclasses.replace(brokers[3], log_dirs=(b"x" * 16, b"y" * 16))
    partition.peer_brokers.brokers = brokers
    partition.become_leader(gone, 1)
    fetch(partition, 3, 0, 1)
    assert not partition.raise_high_watermark(1)
    partition.peer_brokers.brokers = {
        **brokers,
        3: dataclasses.replace(brokers[3], log_dirs=(b"y" * 16,)),
    }
    assert partition.raise_high_watermark(1)
    assert partition.high_watermark == 8
    assert partition.low_watermark(0) == 0
    assert partition.propose_expand(2) is None


def test_whom_the_metadata_took_out_is_not_waited_for_until_it_is_heard_of() -> None:
    # The controller takes a dead broker out of thousands of partitions chunk by chunk, and fences
    # it with the last chunk.
    partition = make()
    fetch(partition, 3, 0)
    partition.on_append(8, 10)
    fetch(partition, 2, 8, 10)
    fetch(partition, 3, 8, 10)
    partition.on_append(9, 11)
    fetch(partition, 2, 9, 11)
    assert partition.high_watermark == 8
    partition.become_leader(PartitionImage((1, 2, 3), (1, 2), 1, 5, 8), 12)
    assert partition.raise_high_watermark(12)
    assert partition.high_watermark == 9
    fetch(partition, 2, 9, 13)
    assert partition.propose_expand(13) is None
    fetch(partition, 3, 9, 14)  # it was not dead
    proposal = partition.propose_expand(14)
    assert proposal is not None and [b for b, _ in proposal.new_isr] == [1, 2, 3]


def test_whom_the_metadata_took_out_is_proposed_once_it_is_registered_anew_or_unfenced() -> None:
    partition = make()
    fetch(partition, 3, 0, 5)
    partition.become_leader(PartitionImage((1, 2, 3), (1, 2), 1, 5, 8), 12)
    assert partition.propose_expand(13) is None
    brokers = partition.peer_brokers.brokers
    partition.peer_brokers.brokers = {**brokers, 3: dataclasses.replace(brokers[3])}
    assert partition.propose_expand(13) is not None


def test_high_watermark_round_trip_takes_the_second_fetch() -> None:
    partition = make(end_offset=5)
    fetch(partition, 2, 5)
    fetch(partition, 3, 5)
    assert partition.high_watermark == 5
    assert not partition.on_append(8, 1)
    assert partition.high_watermark == 5
    assert not fetch(partition, 2, 8, 2)
    assert fetch(partition, 3, 8, 2)
    assert partition.high_watermark == 8


def test_a_member_that_has_not_fetched_from_this_leader_blocks_the_watermark() -> None:
    partition = make()
    partition.on_append(4, 0)
    fetch(partition, 2, 4)
    assert partition.high_watermark == 0


def test_a_lone_leader_commits_at_once() -> None:
    partition = make(isr=(1,))
    assert partition.on_append(3, LAG_MS * 5)
    assert partition.high_watermark == 3


def test_high_watermark_never_falls() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(5, 0)
    fetch(partition, 2, 5)
    assert partition.high_watermark == 5
    assert not fetch(partition, 2, 2)
    assert partition.high_watermark == 5


def test_high_watermark_stands_still_under_min_isr() -> None:
    partition = make(isr=(1,), min_isr=2)
    assert not partition.on_append(3, 0)
    assert partition.high_watermark == 0
    assert partition.check_produce(-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.check_produce(1) is ErrorCode.NONE


def test_min_isr_never_exceeds_the_number_of_replicas() -> None:
    partition = make(isr=(1, 2, 3), min_isr=5)
    assert partition.min_isr_effective == 3
    assert partition.check_produce(-1) is ErrorCode.NONE


def test_a_returning_follower_holds_the_watermark_back() -> None:
    partition = make(isr=(1,))
    partition.on_append(5, 0)
    fetch(partition, 2, 5, 0)
    partition.on_append(9, 1)
    assert partition.high_watermark == 5, "a lone leader must not outrun it"
    assert fetch(partition, 2, 9, 2)
    assert partition.high_watermark == 9


def test_a_laggard_outside_the_isr_does_not_hold_the_watermark_back() -> None:
    partition = make(isr=(1,))
    partition.on_append(5, 0)
    fetch(partition, 2, 1, 0)
    assert partition.on_append(9, LAG_MS * 3)
    assert partition.high_watermark == 9


def test_a_fenced_follower_does_not_hold_the_watermark_back() -> None:
    partition = make(isr=(1,))
    partition.on_append(5, 0)
    fetch(partition, 2, 5, 0)
    partition.peer_brokers.brokers = {1: broker_image(1), 2: broker_image(2, is_fenced=True)}
    assert partition.on_append(9, 1)
    assert partition.high_watermark == 9


def test_an_expanding_replica_counts_before_the_controller_agrees() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(5, 0)
    fetch(partition, 2, 5)
    fetch(partition, 3, 5)
    proposal = partition.propose_expand()
    assert proposal is not None
    assert proposal.new_isr == ((1, 10), (2, 10), (3, 10))
    assert partition.isr_state == PendingExpand(frozenset({1, 2}), frozenset({3}))
    partition.on_append(9, 1)
    fetch(partition, 2, 9)
    assert partition.high_watermark == 5
    assert partition.propose_expand() is None, "one proposal in flight"
    # It counts even when it lags too far for a follower that merely catches up: the controller may
    # have put it into the ISR already.
    fetch(partition, 2, 9, LAG_MS * 9)
    assert not partition.raise_high_watermark(LAG_MS * 9)
    assert partition.high_watermark == 5


def test_a_refused_expansion_lets_the_watermark_go_on() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(5, 0)
    fetch(partition, 2, 5)
    fetch(partition, 3, 5)
    proposal = partition.propose_expand()
    assert proposal is not None
    partition.on_append(9, 1)
    fetch(partition, 2, 9)
    refused = answer((), -1, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.on_isr_answer(proposal, refused) is Reaction.ROLLED_BACK
    assert partition.isr_state == Committed(frozenset({1, 2}))
    assert partition.raise_high_watermark(LAG_MS * 9)
    assert partition.high_watermark == 9


def test_a_leader_that_was_elected_uncleanly_tells_that_it_has_recovered() -> None:
    # A leader alone in its ISR makes no other proposal; without this one it would stay in recovery
    # for ever.
    partition = make(isr=(1,))
    assert partition.propose_recovered() is None
    image = PartitionImage((1,), (1,), 1, 6, 8, leader_recovery_state=RECOVERING)
    partition.become_leader(image, 0)
    proposal = partition.propose_recovered()
    assert proposal is not None
    assert proposal.new_isr == ((1, 10),)
    assert partition.propose_recovered() is None, "one proposal at a time"
    told = dataclasses.replace(answer((1,), 9), leader_epoch=6)
    assert partition.on_isr_answer(proposal, told) is Reaction.APPLIED
    assert partition.propose_recovered() is None


def test_a_shrinking_replica_counts_until_the_metadata_has_it_so() -> None:
    partition = make()
    partition.on_append(5, 0)
    fetch(partition, 2, 5, LAG_MS + 1)
    proposal = partition.propose_shrink(LAG_MS + 1)
    assert proposal is not None
    assert [r for r, _ in proposal.new_isr] == [1, 2]
    assert partition.isr_state == PendingShrink(frozenset({1, 2, 3}), frozenset({3}))
    assert partition.high_watermark == 0
    # The controller agreed, but an earlier raise of min.insync.replicas, which this leader does not
    # know yet, may have made the replica eligible (ELR). Bad sequence: the leader acknowledges
    # records alone, that replica is elected, and they are lost. The metadata log has both changes
    # in order.
    told = partition.on_isr_answer(proposal, answer((1, 2), 8))
    assert told is Reaction.WAIT_FOR_METADATA
    assert not partition.raise_high_watermark(LAG_MS + 1)
    partition.min_insync_replicas = 3
    partition.become_leader(PartitionImage((1, 2, 3), (1, 2), 1, 5, 8, elr=(3,)), LAG_MS + 1)
    assert not partition.raise_high_watermark(LAG_MS + 1)
    partition.min_insync_replicas = 2
    assert partition.raise_high_watermark(LAG_MS + 1)
    assert partition.high_watermark == 5


def test_an_eligible_replica_that_has_what_is_committed_may_lead_cleanly() -> None:
    partition = make(isr=(1, 2), min_isr=3, end_offset=5)
    assert partition.may_lead_cleanly(2, 0)  # It is in the ISR.
    assert not partition.may_lead_cleanly(3, 5)
    partition.high_watermark = 4
    partition.become_leader(PartitionImage((1, 2, 3), (1,), 1, 5, 8, elr=(2, 3)), 0)
    assert partition.may_lead_cleanly(3, 4)
    assert not partition.may_lead_cleanly(3, 3)
    # The answer of AlterPartition names the ISR alone. With the new ISR the high watermark may pass
    # the eligible replicas, so they count no longer.
    fetch(partition, 2, 5)
    proposal = partition.propose_expand()
    assert proposal is not None
    assert partition.on_isr_answer(proposal, answer((1, 2), 9)) is Reaction.APPLIED
    assert not partition.may_lead_cleanly(3, 5)


def test_a_member_with_the_leaders_end_is_in_sync_however_long_it_is_silent() -> None:
    partition = make()
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    assert partition.propose_shrink(LAG_MS * 100) is None


def test_an_append_after_an_idle_hour_is_not_an_hour_of_lag() -> None:
    partition = make()
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    hour_ms = 3_600_000
    # Broker 2 went on fetching other partitions; broker 3 died long ago.
    partition.peer_brokers.last_fetch_ms[2] = hour_ms - 1
    partition.on_append(1, hour_ms)
    proposal = partition.propose_shrink(hour_ms)
    assert proposal is not None
    assert [r for r, _ in proposal.new_isr] == [1, 2]


def test_keeping_up_with_where_the_leader_was_is_enough() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(10, 0)
    fetch(partition, 2, 0, 100)
    partition.on_append(20, 200)
    fetch(partition, 2, 10, 900)  # has all the leader had at its fetch of 100
    assert partition.followers[2].last_caught_up_ms == 100
    assert partition.propose_shrink(100 + LAG_MS) is None
    assert partition.propose_shrink(101 + LAG_MS) is not None


def test_expansion_needs_the_start_of_the_leaders_epoch() -> None:
    # Broker 3 has not fetched from this leader, so the high watermark stays below the epoch's
    # start.
    partition = make(isr=(1, 3), end_offset=10)
    partition.high_watermark = 4
    fetch(partition, 2, 6)
    assert partition.high_watermark == 4
    assert partition.propose_expand() is None
    fetch(partition, 2, 10)
    assert partition.propose_expand() is not None


def test_who_joins_has_told_where_the_log_begins() -> None:
    # Bad sequence: 1. Records are deleted while the follower is away. 2. It joins the ISR before it
    # has written the new log start to its disk. 3. The power fails, and it is elected: the deleted
    # records are back.
    partition = make(isr=(1,), end_offset=10)
    partition.deleted_records_offset = 4
    partition.on_follower_fetch(2, 10, 3, 10, 0)
    assert partition.propose_expand() is None
    assert partition.propose_expand(1) is None
    partition.on_follower_fetch(2, 10, 4, 10, 2)
    assert partition.propose_expand() is not None


def test_who_is_about_to_join_counts_for_what_is_deleted_though_it_is_away() -> None:
    # 1. The leader proposes a follower for the ISR. 2. The follower is fenced. 3. Records are
    #    deleted. 4. The follower returns, as the same process, and the controller accepts the
    #    proposal: the follower has not reported its new log start.
    partition = make(isr=(1,), end_offset=10)
    partition.on_follower_fetch(2, 10, 0, 10, 0)
    proposal = partition.propose_expand()
    assert proposal is not None
    partition.peer_brokers.brokers = {1: broker_image(1), 2: broker_image(2, is_fenced=True)}
    assert partition.low_watermark(4) == 0
    partition.on_isr_answer(proposal, answer((1,), 8, ErrorCode.INELIGIBLE_REPLICA))
    assert partition.low_watermark(4) == 4


@pytest.mark.parametrize("epoch", [9, 11])
def test_a_rebooted_broker_may_not_join_with_another_epoch(epoch: int) -> None:
    partition = make(isr=(1,))
    fetch(partition, 2, 0, epoch=epoch)
    assert partition.propose_expand() is None


def test_a_fetch_of_an_older_process_changes_nothing() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(5, 0)
    assert not fetch(partition, 2, 5, epoch=9)
    assert partition.followers[2].end_offset == -1


def test_a_fenced_broker_may_not_join() -> None:
    partition = make(isr=(1,))
    partition.peer_brokers.brokers = {1: broker_image(1), 2: broker_image(2, is_fenced=True)}
    fetch(partition, 2, 0)
    assert partition.propose_expand() is None


def test_stale_images_are_ignored() -> None:
    partition = make()
    before = partition.summary()
    assert not partition.become_leader(PartitionImage((1, 2), (1, 2), 1, 4, 9), 0)
    assert not partition.become_follower(PartitionImage((1, 2), (1, 2), 2, 6, 7))
    assert partition.summary() == before


def test_the_image_of_a_known_partition_epoch_does_not_cancel_a_proposal() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(1, 0)
    fetch(partition, 3, 1)
    proposal = partition.propose_expand()
    partition.become_leader(PartitionImage((1, 2, 3), (1, 2), 1, 5, 7), 0)
    assert partition.proposal_in_flight() == proposal


def test_a_proposal_is_sent_again_as_it_was_made() -> None:
    # Broker 3 lost its disk meanwhile and registered again: the controller refuses the proposal
    # because of its old broker epoch.
    partition = make(isr=(1, 2), end_offset=9)
    fetch(partition, 2, 9)
    fetch(partition, 3, 9)
    proposal = partition.propose_expand()
    assert proposal is not None and dict(proposal.new_isr)[3] == 10
    partition.peer_brokers.brokers = {
        **partition.peer_brokers.brokers,
        3: broker_image(3, epoch=11),
    }
    fetch(partition, 3, 0, epoch=11)
    assert partition.proposal_in_flight() == proposal
    refused = answer((), -1, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.on_isr_answer(proposal, refused) is Reaction.ROLLED_BACK
    assert partition.proposal_in_flight() is None
    assert partition.propose_expand() is None


def test_a_newer_image_replaces_a_proposal() -> None:
    partition = make(isr=(1, 2))
    partition.on_append(1, 0)
    fetch(partition, 3, 1)
    proposal = partition.propose_expand()
    assert proposal is not None
    assert not partition.become_leader(PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 8), 0)
    assert partition.isr_state == Committed(frozenset({1, 2, 3}))
    assert partition.followers[3].end_offset == 1, "same epoch: positions stay"
    late = partition.on_isr_answer(proposal, answer((1, 2, 3), 8))
    assert late is Reaction.WAIT_FOR_METADATA


def test_a_new_epoch_forgets_positions() -> None:
    partition = make()
    partition.on_append(3, 0)
    fetch(partition, 2, 3)
    assert partition.become_leader(PartitionImage((1, 2, 3), (1, 2, 3), 1, 6, 8), 0)
    assert partition.followers[2].end_offset == -1
    assert partition.epoch_start_offset == 3


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (ErrorCode.NOT_CONTROLLER, Reaction.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, Reaction.RETRY),
        (ErrorCode.STALE_BROKER_EPOCH, Reaction.RETRY),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.WAIT_FOR_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, Reaction.WAIT_FOR_METADATA),
        (ErrorCode.NEW_LEADER_ELECTED, Reaction.WAIT_FOR_METADATA),
        (ErrorCode.INELIGIBLE_REPLICA, Reaction.ROLLED_BACK),
        (ErrorCode.INVALID_REQUEST, Reaction.ROLLED_BACK),
    ],
)
def test_reactions_to_refused_proposals(error: ErrorCode, reaction: Reaction) -> None:
    partition = make(isr=(1, 2))
    fetch(partition, 3, 0)
    proposal = partition.propose_expand()
    assert proposal is not None
    assert partition.on_isr_answer(proposal, answer((), -1, error)) is reaction
    still_pending = partition.proposal_in_flight() == proposal
    assert still_pending == (reaction is not Reaction.ROLLED_BACK)


def test_requests_are_fenced_by_leader_epoch() -> None:
    partition = make()
    assert partition.check_leader(5) is ErrorCode.NONE
    assert partition.check_leader(-1) is ErrorCode.NONE
    assert partition.check_leader(4) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.check_leader(6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.become_follower(PartitionImage((1, 2, 3), (1, 2, 3), 2, 6, 8))
    assert partition.check_leader(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_produce(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acknowledgement_fails_when_the_isr_shrank_meanwhile() -> None:
    partition = make(isr=(1, 2), min_isr=2)
    partition.on_append(1, 0)
    fetch(partition, 2, 1)
    assert partition.check_acknowledged() is ErrorCode.NONE
    partition.become_leader(PartitionImage((1, 2, 3), (1,), 1, 5, 8), 0)
    assert partition.check_acknowledged() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_new_leader_does_not_know_the_latest_offset_yet() -> None:
    partition = make(end_offset=10)
    assert not partition.is_latest_known
    fetch(partition, 2, 10)
    fetch(partition, 3, 10)
    assert partition.is_latest_known


def test_a_followers_watermark_is_bounded_by_its_log() -> None:
    partition = make()
    partition.become_follower(PartitionImage((1, 2, 3), (1, 2, 3), 2, 6, 8))
    partition.on_follower_append(5, 9)
    assert partition.high_watermark == 5
    partition.on_follower_append(7, 6)
    assert partition.high_watermark == 6
    partition.on_follower_append(8, 4)  # a new leader may know a lower high watermark
    assert partition.high_watermark == 6
    partition.on_truncated(3)
    assert (partition.end_offset, partition.high_watermark) == (3, 3)


# --- the nearest replica (KIP-392) -----------------------------------------------------------


def with_racks(partition: Partition, **racks: str) -> Partition:
    partition.peer_brokers.brokers = {
        b: dataclasses.replace(broker_image(b), rack=racks.get(f"b{b}")) for b in (1, 2, 3)
    }
    return partition


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    partition = with_racks(make(), b1="a", b2="b", b3="c")
    partition.on_append(3, 0)
    for replica in (2, 3):
        fetch(partition, replica, 3)
    assert partition.nearest_replica("b", 3) == 2
    assert partition.nearest_replica("c", 3) == 3
    assert partition.nearest_replica("a", 3) == -1, "the leader's own"
    assert partition.nearest_replica("d", 3) == -1, "nobody's"


def test_no_consumer_is_sent_to_a_replica_that_is_out_of_sync() -> None:
    partition = with_racks(make(isr=(1, 3)), b1="a", b2="b", b3="c")
    partition.on_append(3, 0)
    fetch(partition, 2, 3)
    assert partition.nearest_replica("b", 3) == -1


def test_no_consumer_is_sent_to_a_fenced_replica() -> None:
    partition = with_racks(make(), b1="a", b2="b", b3="c")
    fetch(partition, 2, 0)
    known = partition.peer_brokers.brokers
    partition.peer_brokers.brokers = {**known, 2: dataclasses.replace(known[2], is_fenced=True)}
    assert partition.nearest_replica("b", 0) == -1


@pytest.mark.parametrize(("offset", "replica"), [(1, -1), (2, 2), (3, 2), (4, -1)])
def test_a_replica_is_near_only_for_what_it_holds(offset: int, replica: int) -> None:
    partition = with_racks(make(), b1="a", b2="b", b3="c")
    partition.on_append(5, 0)
    partition.on_follower_fetch(2, 3, 2, 10, 0)
    assert partition.nearest_replica("b", offset) == replica


def test_of_two_replicas_in_a_rack_the_one_that_holds_most_is_nearest() -> None:
    partition = with_racks(make(), b1="a", b2="b", b3="b")
    partition.on_append(5, 0)
    fetch(partition, 2, 3)
    fetch(partition, 3, 4)
    assert partition.nearest_replica("b", 0) == 3
    fetch(partition, 2, 4)
    assert partition.nearest_replica("b", 0) == 2


def test_a_replica_that_a_reassignment_adds_does_not_make_it_under_replicated() -> None:
    partition = make()
    partition.become_leader(
        PartitionImage((1, 2, 3, 4), (1, 2, 3), 1, 5, 8, adding_replicas=(4,)), 1
    )
    assert not partition.is_under_replicated
    partition.become_leader(PartitionImage((1, 2, 3, 4), (1, 2), 1, 5, 9, adding_replicas=(4,)), 1)
    assert partition.is_under_replicated
    partition.become_leader(PartitionImage((1, 2, 3, 4), (1, 2, 3), 1, 5, 10), 1)
    assert partition.is_under_replicated
