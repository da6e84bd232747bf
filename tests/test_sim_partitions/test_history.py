"""Every check of partitions fires on a bad history, and on no good one."""

from __future__ import annotations

import pytest

from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.chaos.sim.partitions.compaction import CompactedHistory, CompactedRecord, CompactedView
from kvorum.chaos.sim.partitions.history import HeldBatch, PartitionHistory, ReplicaView, Told
from kvorum.chaos.sim.partitions.watch import _completes_a_move
from kvorum.metadata.image.image import PartitionImage
from kvorum.metadata.image.records import RECOVERING


def log_of(*epochs, first=0, crc=100):
    """One batch of one record for each of these epochs."""
    return [
        HeldBatch(first + at, first + at, epoch, crc + first + at)
        for at, epoch in enumerate(epochs)
    ]


def view(broker, batches, *, epoch=1, is_leader=False, hw=0, process=1, durable=0, start=0, **kind):
    def read(begin, end):
        return [b for b in batches if b.last_offset >= begin and b.base_offset < end]

    def epoch_of(offset):
        return next((b.epoch for b in batches if b.base_offset <= offset <= b.last_offset), -1)

    values = {
        "broker_id": broker, "process": process, "is_leader": is_leader, "leader_epoch": epoch,
        "start_offset": start, "high_watermark": hw, "durable_end_offset": durable, "read": read,
        "end_offset": batches[-1].last_offset + 1 if batches else 0, "epoch_of": epoch_of,
    }  # fmt: skip
    return ReplicaView(**{**values, **kind})


def history(isr=(1, 2), eligible=(), epoch=1, kind=PartitionHistory):
    made = kind(name="t-0")
    note(made, isr=isr, eligible=eligible, epoch=epoch)
    return made


def note(made, *, isr, eligible=(), epoch=1, is_unclean=False):
    made.on_image(
        replicas=(1, 2, 3), isr=isr, eligible=eligible, leader_epoch=epoch, is_unclean=is_unclean
    )


def committed(made, batches, isr=(1, 2)):
    """Broker 1 leads epoch 1 and has committed the whole log; the others hold it and know its high
    watermark."""
    for broker in isr[1:]:
        made.observe(view(broker, batches), 1)
    made.observe(view(1, batches, is_leader=True, hw=len(batches)), 2)
    for broker in isr[1:]:
        made.observe(view(broker, batches, hw=len(batches)), 3)


def fails(name):
    return pytest.raises(CheckFailed, match=name)


def test_a_history_as_it_should_be_passes():
    made = history()
    committed(made, log_of(1, 1, 1))
    note(made, isr=(2,), epoch=2)
    made.observe(view(2, log_of(1, 1, 1, 2), epoch=2, is_leader=True, hw=4), 5)
    made.check_acknowledged("p", 1, 101, Told(2, 1), "AcknowledgedNeverLost")
    made.check_read("c", log_of(1, 1, 1)[2], Told(2, 1))
    assert made.end_offset == 4


def test_two_leaders_of_one_epoch():
    made = history()
    committed(made, log_of(1))
    with fails("OneLeaderAnEpoch"):
        made.observe(view(2, log_of(1), is_leader=True, hw=1), 4)


def test_a_leader_without_what_is_committed():
    made = history()
    committed(made, log_of(1, 1, 1))
    with fails("CommittedNeverLost"):
        made.observe(view(2, log_of(1, 1), epoch=2, is_leader=True), 4)


def test_a_leader_with_other_records_than_those_committed():
    made = history()
    committed(made, log_of(1, 1, 1))
    with fails("CommittedNeverLost"):
        made.observe(view(2, log_of(1, 1, 1, crc=7), epoch=2, is_leader=True, hw=3), 4)


def test_what_all_who_vouch_have_lost_may_be_lost_but_no_more():
    made = history()
    made.observe(view(2, log_of(1, 1, 1), durable=2), 1)
    made.observe(view(1, log_of(1, 1, 1), durable=1, is_leader=True, hw=3), 2)
    made.on_memory_lost(1)
    with fails("CommittedNeverLost"):
        made.observe(view(1, log_of(1), epoch=2, is_leader=True, process=2, durable=1), 3)
    made.newest_epoch = 1
    made.leaders.clear()
    made.on_memory_lost(2)
    made.observe(view(1, log_of(1), epoch=2, is_leader=True, process=2, durable=1), 4)
    assert made.cuts == [(4, 1, 2)]
    made.check_acknowledged("p", 2, 102, Told(3, 1), "AcknowledgedNeverLost")
    with fails("AcknowledgedNeverLost"):
        made.check_acknowledged("p", 2, 102, Told(5, 2), "AcknowledgedNeverLost")


def test_who_led_in_an_epoch_before_a_loss_told_nothing_that_counts():
    # The client knew the epoch after the loss, but the broker that it asked did not.
    made = history()
    made.observe(view(1, log_of(1, 1, 1), is_leader=True, hw=3), 1)
    made.on_image(replicas=(1, 2, 3), isr=(2,), eligible=(), leader_epoch=2, is_unclean=True)
    made.observe(view(2, log_of(1), epoch=2, is_leader=True, hw=1), 2)
    assert made.answer_of(1, 3, 4) == Told(3, 1)
    made.check_acknowledged("p", 2, 102, made.answer_of(1, 3, 4), "AcknowledgedOnceCommitted")
    made.observe(view(1, log_of(1), epoch=4, is_leader=True, hw=1), 4)
    assert made.answer_of(1, 3, 4) == Told(3, 1)
    assert made.answer_of(1, 4, 4) == Told(4, 4)
    assert made.answer_of(3, 4, 4) == Told(4, 4)
    with fails("AcknowledgedOnceCommitted"):
        made.check_acknowledged("p", 2, 102, made.answer_of(1, 4, 4), "AcknowledgedOnceCommitted")


def test_an_eligible_replica_vouches_too():
    made = history(isr=(1,), eligible=(2,))
    committed(made, log_of(1, 1), isr=(1, 2))
    made.on_memory_lost(1)
    with fails("CommittedNeverLost"):
        made.observe(view(1, [], epoch=2, is_leader=True, process=2), 4)


def test_an_unclean_election_may_lose_all():
    made = history()
    committed(made, log_of(1, 1))
    note(made, isr=(3,), epoch=2, is_unclean=True)
    made.observe(view(3, [], epoch=2, is_leader=True), 4)
    assert made.end_offset == 0
    # A former leader that does not know of its successor is ignored.
    made.observe(view(1, log_of(1, 1, 1), is_leader=True, hw=3), 5)
    assert made.end_offset == 0


def test_who_begins_late_an_epoch_that_is_over_says_nothing_of_the_unclean_one_behind_it():
    # Seed 51604: the second broker learned of epoch 2 when the third had been elected for epoch 3.
    made = history()
    committed(made, log_of(1, 1))
    note(made, isr=(2,), epoch=2, is_unclean=True)
    note(made, isr=(3,), epoch=3, is_unclean=True)
    made.observe(view(2, log_of(1, 1), epoch=2, is_leader=True, hw=2), 4)
    made.observe(view(3, [], epoch=3, is_leader=True), 5)
    assert made.end_offset == 0


def test_who_was_a_replica_before_and_removed_its_log_has_lost_nothing():
    # Seed 52319: the broker learned late that it was no longer a replica, and the check came in
    # between.
    made = history()
    committed(made, log_of(1, 1))
    made.on_image(replicas=(1,), isr=(1,), eligible=(), leader_epoch=2, is_unclean=False)
    made.observe(view(2, log_of(1, 1), hw=2, durable=2), 4)
    note(made, isr=(2,), epoch=3, is_unclean=True)
    made.observe(view(2, [], epoch=3, is_leader=True, process=2), 5)
    assert made.end_offset == 0


def test_fsynced_records_are_there_after_a_power_cut():
    made = history()
    committed(made, log_of(1, 1, 1))
    made.observe(view(2, log_of(1, 1, 1), hw=3, durable=2), 4)
    made.on_memory_lost(2)
    with fails("DurableSurvives"):
        made.observe(view(2, log_of(1), process=2), 5)


def test_a_replica_that_differs_below_its_high_watermark():
    made = history()
    committed(made, log_of(1, 1))
    with fails("ReplicasIdenticalBelowHighWatermark"):
        made.observe(view(3, log_of(1, 1, crc=7), hw=2), 4)


def test_a_follower_that_says_committed_what_no_leader_did():
    made = history()
    committed(made, log_of(1))
    with fails("NothingCommittedByFollowers"):
        made.observe(view(2, log_of(1, 1), hw=2), 4)


def test_a_follower_whose_watermark_is_from_before_an_unclean_election():
    # Seed 91092: the replica has the same log as the new leader, which knew a lower high watermark,
    # and so does not truncate.
    made = history()
    committed(made, log_of(1, 1))
    note(made, isr=(3,), epoch=2, is_unclean=True)
    made.observe(view(3, log_of(1), epoch=2, is_leader=True, hw=1), 4)
    note(made, isr=(1,), epoch=3, is_unclean=True)
    made.observe(view(1, log_of(1, 1), epoch=3, is_leader=True, hw=1, process=2), 5)
    assert made.end_offset == 1
    made.observe(view(2, log_of(1, 1), epoch=3, hw=2), 6)
    note(made, isr=(1, 2), epoch=3)
    made.observe(view(2, log_of(1, 1), epoch=3, hw=2), 7)
    with fails("NothingCommittedByFollowers"):
        made.observe(view(2, log_of(1, 1, 3), epoch=3, hw=3), 8)


def test_an_unclean_leader_that_never_begins_and_knew_of_more():
    made = history()
    committed(made, log_of(1, 1))
    note(made, isr=(3,), epoch=2, is_unclean=True)
    made.observe(view(3, [], epoch=2, is_leader=True), 4)
    note(made, isr=(1,), epoch=3, is_unclean=True)
    note(made, isr=(1,), epoch=4)
    made.observe(view(1, log_of(1, 1), epoch=4, hw=2, process=2), 5)
    made.observe(view(1, log_of(1, 1), epoch=4, hw=2, process=2, is_leader=True), 6)
    assert made.end_offset == 2


def test_an_unclean_leader_that_has_not_begun_yet_is_not_held_against_the_old_truth():
    # Seed 103107: the process of the unclean leader ended before it began to lead, and came back as
    # a follower without a leader.
    made = history()
    committed(made, log_of(1, 1))
    made.observe(view(2, log_of(1, 1), epoch=1, hw=2), 4)
    note(made, isr=(3,), epoch=2, is_unclean=True)
    made.observe(view(3, log_of(1, 2), epoch=2, is_leader=True, hw=2), 5)
    note(made, isr=(2,), epoch=3, is_unclean=True)
    made.observe(view(2, log_of(1, 1), epoch=3, hw=2, process=2), 6)
    made.observe(view(2, log_of(1, 1), epoch=4, is_leader=True, hw=2, process=2), 7)
    assert made.end_offset == 2 and made.losses == 2
    note(made, isr=(2, 3), epoch=4)
    with fails("ReplicasIdenticalBelowHighWatermark"):
        made.observe(view(3, log_of(1, 2), epoch=4, hw=2), 8)


def test_a_high_watermark_that_falls():
    made = history()
    committed(made, log_of(1, 1))
    with fails("HighWatermarkNeverFalls"):
        made.observe(view(2, log_of(1, 1), hw=1), 4)


def test_a_high_watermark_above_the_log():
    with fails("HighWatermarkWithinLog"):
        history().observe(view(1, log_of(1), hw=2), 1)


def test_a_member_of_the_isr_without_what_is_committed():
    made = history()
    made.observe(view(2, log_of(1)), 1)
    with fails("IsrMembersHoldTheHighWatermark"):
        made.observe(view(1, log_of(1, 1), is_leader=True, hw=2), 2)


def test_a_gap_in_the_offsets():
    made = history(isr=(1,))
    with fails("OffsetsDense"):
        made.observe(view(1, [*log_of(1), *log_of(1, first=2)], is_leader=True, hw=3), 1)


def test_what_may_be_lost_below_the_start_of_the_next_leader_may_come_again():
    made = history(isr=(1,))
    batches = [b._replace(producer=(5, 0, b.base_offset)) for b in log_of(1, 1)]
    made.observe(view(1, batches, is_leader=True, hw=2), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    others = [*log_of(1, 1, 2, first=9), batches[1]._replace(base_offset=12, last_offset=12)]
    made.observe(view(2, others, is_leader=True, epoch=2, hw=13, start=9), 2)
    assert made.end_offset == 13
    third = batches[1]._replace(base_offset=13, last_offset=13)
    with fails("DuplicatesDropped"):
        made.observe(view(2, [*others, third], is_leader=True, epoch=2, hw=14, start=9), 3)


@pytest.mark.parametrize("end", [1, 2])
def test_the_log_of_an_unclean_leader_begins_within_a_batch(end):
    made = history(isr=(1,))
    made.observe(view(1, log_of(*[1] * end), is_leader=True, hw=end), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    around = HeldBatch(1, 3, 1, 50)
    made.observe(view(2, [around, *log_of(2, first=4)], is_leader=True, epoch=2, hw=5, start=2), 2)
    assert made.end_offset == 5


def test_a_batch_that_is_there_twice():
    made = history(isr=(1,))
    twice = [batch._replace(producer=(5, 0, 0)) for batch in log_of(1, 1)]
    with fails("DuplicatesDropped"):
        made.observe(view(1, twice, is_leader=True, hw=2), 1)


def test_an_epoch_cache_that_does_not_know_its_log():
    made = history(isr=(1,))
    with fails("LeaderEpochsAgree"):
        made.observe(view(1, log_of(1), is_leader=True, hw=1, epoch_of=lambda offset: 0), 1)


def test_an_acknowledgement_before_its_commit():
    made = history()
    committed(made, log_of(1))
    with fails("AcknowledgedOnceCommitted"):
        made.check_acknowledged("p", 1, 101, Told(4, 1), "AcknowledgedOnceCommitted")


def test_a_read_above_the_high_watermark():
    made = history()
    committed(made, log_of(1))
    with fails("NothingReadAboveHighWatermark"):
        made.check_read("c", log_of(1, 1)[1], Told(4, 1))


# Compacted partitions.


def compacted(broker, records, end, **values):
    batches = log_of(*[1] * end)
    return CompactedView(
        read_records=lambda begin, stop: [r for r in records if begin <= r.offset < stop],
        **{
            name: getattr(view(broker, batches, **values), name)
            for name in ReplicaView.__dataclass_fields__
        },
    )


def records_of(*keys):
    return [CompactedRecord(at, 1, key.encode(), b"%d" % at) for at, key in enumerate(keys)]


def test_compaction_takes_what_was_followed_by_another_value():
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "a"), 3, is_leader=True, hw=3), 1)
    made.observe(compacted(2, records_of("a", "b", "a")[1:], 3, hw=3), 2)


def test_compaction_keeps_the_last_value_of_each_key():
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "a"), 3, is_leader=True, hw=3), 1)
    with fails("ReplicasIdenticalBelowHighWatermark"):
        made.observe(compacted(2, records_of("a", "b", "a")[:1], 3, hw=3), 2)


def test_compaction_changes_no_value():
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b"), 2, is_leader=True, hw=2), 1)
    changed = [CompactedRecord(0, 1, b"a", b"x"), *records_of("a", "b")[1:]]
    with fails("ReplicasIdenticalBelowHighWatermark"):
        made.observe(compacted(2, changed, 2, hw=2), 2)


def test_a_value_may_go_with_the_lost_one_that_followed_it():
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "a"), 3, is_leader=True, hw=3), 1)
    made.on_memory_lost(1)
    kept = records_of("a", "b")[1:]
    made.observe(compacted(1, kept, 2, is_leader=True, hw=2, epoch=2, process=2), 2)
    made.observe(compacted(1, kept, 2, is_leader=True, hw=2, epoch=3, process=3), 3)


def test_an_unclean_leader_may_have_had_others_where_all_is_compacted_for_what_is_lost():
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "a", "b")[2:], 4, is_leader=True, hw=4), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    made.observe(compacted(2, records_of("a", "b"), 2, is_leader=True, epoch=2), 2)
    made.observe(compacted(2, records_of("a", "b"), 2, is_leader=True, epoch=2, hw=2), 3)
    assert made.end_offset == 2


def test_a_compacted_log_may_become_the_truth_again_gaps_and_all():
    # Seed 5: an unclean election discarded this log, and another one made its replica the leader
    # again.
    made = history(isr=(1,), kind=CompactedHistory)
    gapped = [batch for batch in log_of(1, 1, 1) if batch.base_offset != 1]
    read = {"read": lambda begin, end: [b for b in gapped if begin <= b.base_offset < end]}
    leader = {"epoch": 1, "is_leader": True, "hw": 3, **read}
    with fails("OffsetsDense"):
        made.observe(compacted(1, records_of("a", "b", "c"), 3, **leader), 1)
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a"), 1, is_leader=True, hw=1), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    made.observe(view(2, [], epoch=2, is_leader=True), 2)
    note(made, isr=(1,), epoch=3, is_unclean=True)
    leader["epoch"] = 3
    made.observe(compacted(1, records_of("a", "b", "c"), 3, **leader), 3)
    assert made.end_offset == 3


def test_a_replica_may_hold_what_compaction_took_from_an_unclean_leader():
    # Seed 160610: compaction removed a record because of a later value of its key, which both
    # replicas hold.
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "a"), 2, is_leader=True, hw=2), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    leader = {"epoch": 2, "is_leader": True, "hw": 3}
    made.observe(compacted(2, records_of("a", "b", "a")[1:], 3, **leader), 2)
    assert made.cuts and made.end_offset == 3
    note(made, isr=(2, 3), epoch=2)
    made.observe(compacted(3, records_of("a", "b", "a"), 3, epoch=2, hw=3), 3)
    with fails("ReplicasIdenticalBelowHighWatermark"):
        made.observe(compacted(3, records_of("c", "b", "a"), 3, epoch=2, hw=3, process=2), 4)


def test_an_empty_log_that_leads_loses_what_compaction_had_taken_as_well():
    # Seed 9570: the first remaining record was at offset 2, and only records from there on counted
    # as lost.
    made = history(isr=(1,), kind=CompactedHistory)
    made.observe(compacted(1, records_of("a", "b", "c")[2:], 3, is_leader=True, hw=3), 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    made.observe(compacted(2, [], 0, epoch=2, is_leader=True), 2)
    assert made.end_offset == 0


def test_a_move_that_ends_with_another_leader_is_no_unclean_election():
    moving = PartitionImage((2, 3, 4), (4, 3), 4, 1, 5, (2,), (4,))
    assert _completes_a_move(moving, PartitionImage((2, 3), (2, 3), 2, 2, 6))
    assert not _completes_a_move(moving, PartitionImage((2, 3), (2,), 2, 2, 6))
    # Seed 60042: an unclean election may complete a move too.
    unclean = PartitionImage((2,), (2,), 2, 2, 6, leader_recovery_state=RECOVERING)
    assert not _completes_a_move(PartitionImage((2, 3), (3,), 3, 1, 5, (2,), (3,)), unclean)
    settled = PartitionImage((2, 3), (3,), 3, 1, 5)
    assert not _completes_a_move(settled, PartitionImage((2, 3), (2, 3), 2, 2, 6))


# --- deleted records -----------------------------------------------------------------------------


def test_a_log_that_begins_below_what_it_told_to_be_deleted():
    made = history()
    committed(made, log_of(1, 1, 1))
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=2), 4)
    made.on_deleted(2, 2, 1)
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=2), 5)
    with fails("DeletedStaysDeleted"):
        made.observe(view(2, log_of(1, 1, 1), hw=3, start=1, process=2), 6)


def test_who_joins_the_isr_is_bound_by_what_was_deleted_while_it_was_away():
    made = history(isr=(1, 2))
    committed(made, log_of(1, 1, 1))
    note(made, isr=(1,))
    made.on_deleted(1, 2, 1)
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=1), 4)
    note(made, isr=(1, 2))
    with fails("DeletedStaysDeleted"):
        made.observe(view(2, log_of(1, 1, 1), hw=3, start=1), 5)


def test_an_eligible_replica_that_was_away_may_bring_back_what_was_deleted():
    made = history(isr=(1, 2))
    committed(made, log_of(1, 1, 1))
    note(made, isr=(1,), eligible=(2,))
    made.on_deleted(1, 2, 1)
    note(made, isr=(2,))
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=1, process=2), 4)


def test_a_leader_that_is_deposed_binds_nobody_but_itself_by_what_it_deletes():
    made = history(isr=(1, 2))
    committed(made, log_of(1, 1, 1))
    note(made, isr=(1,), eligible=(2,))
    note(made, isr=(2,), epoch=2)
    made.observe(view(2, log_of(1, 1, 1), is_leader=True, epoch=2, hw=3), 4)
    made.on_deleted(1, 2, 1)
    note(made, isr=(2, 3), epoch=2)
    made.observe(view(3, log_of(1, 1, 1), epoch=2, hw=3), 5)
    with fails("DeletedStaysDeleted"):
        made.observe(view(1, log_of(1, 1, 1), epoch=2, hw=3, start=1), 6)


def test_who_is_elected_without_having_been_in_sync_may_bring_back_what_was_deleted():
    made = history(isr=(1, 2))
    committed(made, log_of(1, 1, 1))
    note(made, isr=(1,))
    made.on_deleted(1, 2, 1)
    note(made, isr=(2,), epoch=2, is_unclean=True)
    made.observe(view(2, log_of(1, 1), is_leader=True, epoch=2, hw=2, start=1), 4)
    note(made, isr=(2, 3), epoch=2)
    made.observe(view(3, log_of(1, 1), epoch=2, hw=2, start=1), 5)


def test_a_disk_that_is_replaced_and_a_log_that_lost_all_tell_nothing():
    for lose in (
        lambda made: made.on_memory_lost(2, is_disk_lost=True),
        lambda made: made.observe(view(2, [], process=2), 5),
    ):
        made = history()
        committed(made, log_of(1, 1, 1))
        made.on_deleted(2, 2, 1)
        lose(made)
        made.observe(view(2, log_of(1, 1, 1), hw=3, process=3), 6)


def test_a_log_that_begins_above_all_that_was_to_be_deleted():
    made = history()
    committed(made, log_of(1, 1, 1))
    made.deletions = {"t-0": 1}
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=1), 4)
    with fails("OnlyWhatWasToGoIsDeleted"):
        made.observe(view(2, log_of(1, 1, 1), hw=3, start=2), 5)
    made.deletions = None  # where retention deletes, it may begin anywhere
    made.observe(view(2, log_of(1, 1, 1), hw=3, start=3), 6)
