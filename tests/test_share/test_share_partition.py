"""Facts about the records of one share-partition."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.broker.share.core.runs import Runs
from kvorum.broker.share.core.share_partition import Acquire, ShareLimits, SharePartition
from kvorum.broker.share.core.states import (
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatch,
)
from kvorum.broker.share_state.batches import DeliveryState, StateBatch
from kvorum.runtime.errors import ErrorCode

LIMITS = ShareLimits(lock_duration_ms=1_000, delivery_count_limit=2, record_locks_max=100)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def acquire(part, member, *batches, records_max=500, size=1, mode=0, now_ms=0, limits=LIMITS):
    """The records that the member gets, as (first, last, delivery count)."""
    offset = part.next_fetch_offset(limits)
    if offset is None:
        return []
    wish = Acquire(
        member_id=member, records_max=records_max, batch_size=size, mode=AcquireMode(mode)
    )
    fetched = [FetchedBatch(*batch) for batch in batches if batch[1] >= offset]
    return [tuple(row) for row in part.acquire(wish, offset, fetched, limits, now_ms)]


def acknowledge(part, member, *batches, now_ms=0, limits=LIMITS):
    rows = [
        AcknowledgementBatch(first, last, kind if isinstance(kind, tuple) else (kind,))
        for first, last, kind in batches
    ]
    refused = part.acknowledge(member, rows, limits, now_ms)
    return None if refused is None else refused.code


def states(part):
    return [(run.first, run.last, run.state.name, run.delivery_count) for run in part.runs]


def test_new_records_are_acquired_in_whole_batches():
    part = SharePartition(10)
    assert acquire(part, "a", (10, 14), (15, 19), (20, 24), records_max=6) == [
        (10, 14, 1), (15, 19, 1),
    ]  # fmt: skip
    assert part.end_offset == 20
    assert acquire(part, "b", (10, 14), (15, 19), (20, 24)) == [(20, 24, 1)]


def test_what_one_member_holds_no_other_gets():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    assert acknowledge(part, "a", (0, 0, RELEASE), (5, 5, RELEASE)) is None
    assert acquire(part, "b", (0, 9)) == [(0, 0, 2), (5, 5, 2)]
    assert acquire(part, "c", (0, 9)) == []


def test_a_limit_of_records_is_never_exceeded_in_that_mode():
    part = SharePartition(0)
    assert acquire(part, "a", (0, 9), records_max=3, mode=1) == [(0, 2, 1)]
    assert acquire(part, "b", (0, 9), records_max=3, mode=1) == [(3, 5, 1)]
    assert acknowledge(part, "a", (0, 2, RELEASE)) is None
    assert acquire(part, "b", (0, 9), records_max=2, mode=1) == [(0, 1, 2)]


def test_entries_of_an_answer_grow_to_the_wished_size_at_the_end_of_a_batch():
    part = SharePartition(0)
    batches = [(first, first + 4) for first in range(0, 30, 5)]
    assert acquire(part, "a", *batches, size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]


def test_no_more_records_are_in_flight_than_allowed():
    limits = ShareLimits(record_locks_max=10)
    part = SharePartition(0)
    assert acquire(part, "a", (0, 7), (8, 15), (16, 23), limits=limits) == [(0, 7, 1), (8, 15, 1)]
    assert part.next_fetch_offset(limits) is None
    assert acknowledge(part, "a", (0, 7, ACCEPT)) is None
    assert part.next_fetch_offset(limits) == 16


def test_accepted_records_at_the_front_move_the_start():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    assert acknowledge(part, "a", (5, 9, ACCEPT)) is None
    assert (part.start_offset, part.delivery_complete_count) == (0, 5)
    assert acknowledge(part, "a", (0, 4, ACCEPT)) is None
    assert (part.start_offset, part.end_offset, part.delivery_complete_count) == (10, 10, 0)


def test_each_record_of_a_batch_may_have_a_fate_of_its_own():
    part = SharePartition(0)
    acquire(part, "a", (0, 5))
    assert acknowledge(part, "a", (0, 5, (RELEASE, ACCEPT, REJECT, GAP, RENEW, RELEASE))) is None
    assert states(part) == [
        (0, 0, "AVAILABLE", 1), (1, 1, "ACKNOWLEDGED", 1), (2, 2, "ARCHIVED", 1),
        (3, 3, "ARCHIVED", 1), (4, 4, "ACQUIRED", 1), (5, 5, "AVAILABLE", 1),
    ]  # fmt: skip


def test_a_record_released_at_its_last_delivery_is_archived():
    part = SharePartition(0)
    for _ in range(LIMITS.delivery_count_limit):
        assert len(acquire(part, "a", (0, 0))) == 1
        assert acknowledge(part, "a", (0, 0, RELEASE)) is None
    assert acquire(part, "a", (0, 0)) == []
    assert part.start_offset == 1


def test_records_that_come_back_often_come_in_pieces_and_at_last_one_by_one():
    limits = ShareLimits(delivery_count_limit=5)
    part = SharePartition(0)
    pieces = []
    for _ in range(9):
        got = acquire(part, "a", (0, 31), limits=limits)
        pieces += [(last - first + 1, first, count) for first, last, count in got]
        for first, last, _ in got:
            acknowledge(part, "a", (first, last, RELEASE), limits=limits)
    # As Apache Kafka 4.4 delivers them.
    assert pieces == [
        (32, 0, 1), (32, 0, 2), (32, 0, 3), (16, 0, 4),
        (1, 0, 5), (1, 1, 5), (1, 2, 5), (1, 3, 5), (1, 4, 5),
    ]  # fmt: skip


def test_a_piece_has_a_fetch_of_its_own():
    limits = ShareLimits(delivery_count_limit=4)
    part = SharePartition(0)
    for _ in range(2):
        acquire(part, "a", (0, 1), limits=limits)
        acknowledge(part, "a", (0, 1, RELEASE), limits=limits)
    assert acquire(part, "a", (0, 1), (2, 3), limits=limits) == [(0, 0, 3)]
    assert acquire(part, "a", (0, 1), (2, 3), limits=limits) == [(1, 1, 3)]
    assert acquire(part, "a", (0, 1), (2, 3), limits=limits) == [(2, 3, 1)]


def test_a_lock_that_ends_makes_its_records_available():
    part = SharePartition(0)
    acquire(part, "a", (0, 4), now_ms=0)
    acquire(part, "b", (5, 9), now_ms=500)
    assert part.next_deadline_ms() == 1_000
    assert not part.expire(LIMITS, 999)
    assert part.expire(LIMITS, 1_000) == 5
    assert states(part) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]
    assert acknowledge(part, "a", (0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_ends_later():
    part = SharePartition(0)
    acquire(part, "a", (0, 4), now_ms=0)
    assert acknowledge(part, "a", (0, 4, RENEW), now_ms=900) is None
    assert part.next_deadline_ms() == 1_900
    no_renewing = ShareLimits(may_renew=False)
    refused = acknowledge(part, "a", (0, 4, RENEW), now_ms=900, limits=no_renewing)
    assert refused == ErrorCode.INVALID_REQUEST


def test_a_member_that_leaves_gives_up_what_it_holds_and_nothing_else():
    part = SharePartition(0)
    acquire(part, "a", (0, 4))
    acquire(part, "b", (5, 9))
    assert part.release_member("a", LIMITS) == 5
    assert not part.release_member("a", LIMITS)
    assert states(part) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([(0, 4, ACCEPT), (4, 5, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(5, 6, ACCEPT), (0, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(3, 2, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(-1, 2, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 4, 5)], ErrorCode.INVALID_REQUEST),
        ([(0, 4, (ACCEPT, ACCEPT))], ErrorCode.INVALID_REQUEST),
        ([(0, 4, ())], ErrorCode.INVALID_REQUEST),
        ([(0, 10, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(10, 12, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 4, ACCEPT), (7, 8, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_a_refused_acknowledgement_changes_nothing(batches, error):
    part = SharePartition(0)
    acquire(part, "a", (0, 4))
    acquire(part, "b", (5, 9))
    before = states(part)
    assert acknowledge(part, "a", *batches) == error
    assert states(part) == before
    assert not part.has_unwritten


def test_an_acknowledgement_counts_once():
    part = SharePartition(0)
    acquire(part, "a", (0, 4), (5, 9))
    assert acknowledge(part, "a", (0, 4, ACCEPT)) is None
    assert acknowledge(part, "a", (0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_offsets_that_the_log_lacks_are_passed_over():
    part = SharePartition(0)
    assert acquire(part, "a", (3, 4), (8, 9)) == [(3, 4, 1), (8, 9, 1)]
    assert (part.start_offset, part.end_offset) == (3, 10)
    assert acknowledge(part, "a", (3, 4, ACCEPT), (8, 9, ACCEPT)) is None
    assert part.start_offset == 10


def test_batches_for_nobody_are_archived_and_may_be_all_there_is():
    part = SharePartition(0)
    assert acquire(part, "a", (0, 4, True), (5, 5, True)) == []
    assert part.start_offset == 6
    assert part.has_unwritten


def test_records_below_a_new_log_start_are_gone_and_their_acknowledgement_is_no_fault():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    assert part.on_log_start(5)
    assert not part.on_log_start(5)
    assert part.start_offset == 5
    assert acknowledge(part, "a", (0, 9, ACCEPT)) is None
    assert part.start_offset == 10
    assert part.on_log_start(50)
    assert (part.start_offset, part.end_offset) == (50, 50)


def test_a_write_has_what_changed_and_no_more():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    assert not part.has_unwritten
    acknowledge(part, "a", (2, 3, ACCEPT), (4, 4, RELEASE))
    write = part.take_write()
    assert write.start_offset == 0
    assert write.delivery_complete_count == 2
    assert write.batches == (StateBatch(2, 3, 2, 1), StateBatch(4, 4, 0, 1))
    assert not part.has_unwritten
    acknowledge(part, "a", (0, 1, ACCEPT))
    write = part.take_write()
    assert (write.start_offset, write.batches) == (4, ())
    assert write.revision == part.revision


def test_a_release_is_written_though_another_member_has_the_record_already():
    part = SharePartition(0)
    acquire(part, "a", (0, 0))
    acknowledge(part, "a", (0, 0, RELEASE))
    acquire(part, "b", (0, 0))
    assert part.take_write().batches == (StateBatch(0, 0, 0, 1),)


def test_a_share_partition_that_is_read_back_has_what_was_acknowledged():
    state = [StateBatch(2, 3, 2, 1), StateBatch(6, 6, 0, 1), StateBatch(7, 8, 4, 2)]
    part = SharePartition(0, state)
    assert states(part) == [
        (0, 1, "AVAILABLE", 0), (2, 3, "ACKNOWLEDGED", 1), (4, 5, "AVAILABLE", 0),
        (6, 6, "AVAILABLE", 1), (7, 8, "ARCHIVED", 2),
    ]  # fmt: skip
    assert acquire(part, "a", (0, 9)) == [(0, 1, 1), (4, 5, 1), (6, 6, 2), (9, 9, 1)]


def test_a_settled_front_is_not_kept_when_it_is_read_back():
    part = SharePartition(5, [StateBatch(5, 7, 2, 1), StateBatch(8, 8, 4, 1)])
    assert (part.start_offset, part.end_offset, part.runs) == (9, 9, ())


def test_equal_neighbours_become_one_run():
    part = SharePartition(0)
    acquire(part, "a", (0, 99))
    for offset in range(1, 99):
        acknowledge(part, "a", (offset, offset, ACCEPT))
    part.take_write()
    assert [run.state for run in part.runs] == [
        DeliveryState.ACQUIRED, DeliveryState.ACKNOWLEDGED, DeliveryState.ACQUIRED,
    ]  # fmt: skip


# --- dead letters --------------------------------------------------------------------------------

DEADLY = dataclasses.replace(LIMITS, has_dead_letters=True)


def letters(part, records_max=100):
    return [tuple(row) for row in part.dead_letters(DEADLY, records_max)]


def test_a_dead_letter_is_due_once_the_share_coordinator_knows_its_record():
    part = SharePartition(0)
    acquire(part, "a", (0, 4))
    assert acknowledge(part, "a", (1, 2, REJECT), limits=DEADLY) is None
    assert letters(part) == []
    assert part.take_write().batches == (StateBatch(1, 2, DeliveryState.ARCHIVING, 1),)
    assert letters(part) == [(1, 2, 1, True)]
    assert letters(part, records_max=1) == [(1, 1, 1, True)]


def test_a_record_blocks_the_start_offset_until_its_dead_letter_is_written():
    part = SharePartition(0)
    acquire(part, "a", (0, 1))
    acknowledge(part, "a", (0, 0, REJECT), (1, 1, ACCEPT), limits=DEADLY)
    write = part.take_write()
    assert (write.start_offset, write.delivery_complete_count) == (0, 1)
    part.archive(0, 0)
    assert part.take_write().start_offset == part.start_offset == 2


def test_a_new_leader_tells_the_reason_from_the_count():
    rows = [
        StateBatch(0, 0, DeliveryState.ARCHIVING, 1),
        StateBatch(1, 1, DeliveryState.ARCHIVING, 2),
    ]
    assert letters(SharePartition(0, rows)) == [(0, 0, 1, True), (1, 1, 2, False)]


def test_records_that_are_rejected_and_delivered_too_often_have_dead_letters_apart():
    part = SharePartition(0)
    acquire(part, "a", (0, 1))
    acknowledge(part, "a", (0, 1, RELEASE), limits=DEADLY)
    acquire(part, "a", (0, 0))
    acquire(part, "a", (1, 1))
    acknowledge(part, "a", (0, 0, RELEASE), (1, 1, REJECT), limits=DEADLY)
    part.take_write()
    assert letters(part) == [(0, 0, 2, False), (1, 1, 2, True)]


def test_a_dead_letter_of_a_record_that_is_deleted_meanwhile_stays_due():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    acknowledge(part, "a", (2, 2, REJECT), (3, 4, RELEASE), limits=DEADLY)
    part.take_write()
    assert part.on_log_start(6) is True
    assert part.on_log_start(6) is False
    part.take_write()
    assert (part.start_offset, letters(part)) == (2, [(2, 2, 1, True)])
    # A record below the log's start that was held is gone, and its holder may still answer it.
    assert acknowledge(part, "a", (0, 1, ACCEPT), (5, 9, ACCEPT), limits=DEADLY) is None
    part.archive(2, 2)
    assert (part.start_offset, part.end_offset) == (10, 10)


def test_a_log_that_begins_above_all_records_in_flight_waits_for_their_dead_letters():
    part = SharePartition(0)
    acquire(part, "a", (0, 4))
    acknowledge(part, "a", (0, 4, REJECT), limits=DEADLY)
    part.take_write()
    part.on_log_start(20)
    assert (part.start_offset, part.end_offset) == (0, 20)
    assert acquire(part, "b", (20, 24), limits=DEADLY) == [(20, 24, 1)]
    part.take_write()
    assert letters(part) == [(0, 4, 1, True)]
    part.archive(0, 4)
    assert part.start_offset == 20


class CountedRuns(Runs):
    """Counts how often all runs are gone through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_a_partition_without_dead_letters_is_not_searched_for_them():
    limits = dataclasses.replace(LIMITS, has_dead_letters=True)
    part = SharePartition(0)
    runs = part._runs = CountedRuns(0)
    acquire(part, "a", (0, 9), limits=limits)
    assert part.dead_letters(limits, 500) == []
    walks = runs.walks
    assert part.dead_letters(limits, 500) == []
    assert runs.walks == walks
    acknowledge(part, "a", (3, 4, REJECT), limits=limits)
    assert part.dead_letters(limits, 500) == []  # the share coordinator does not know them yet
    part.take_write()
    assert [row[:2] for row in part.dead_letters(limits, 1)] == [(3, 3)]
    part.archive(3, 3)
    assert [row[:2] for row in part.dead_letters(limits, 500)] == [(4, 4)]
    part.archive(4, 4)
    assert part.dead_letters(limits, 500) == []
    walks = runs.walks
    assert part.dead_letters(limits, 500) == []
    assert runs.walks == walks
    acknowledge(part, "a", (5, 5, REJECT), limits=limits)
    part.take_write()
    assert [row[:2] for row in part.dead_letters(limits, 500)] == [(5, 5)]


def test_records_that_are_not_settled_count_by_their_deliveries():
    part = SharePartition(0)
    acquire(part, "a", (0, 9))
    assert part.unsettled_records == {1: 10}
    acknowledge(part, "a", (0, 3, RELEASE), (4, 5, ACCEPT), (6, 6, REJECT))
    assert acquire(part, "b", (0, 9)) == [(0, 3, 2)]
    assert part.unsettled_records == {1: 3, 2: 4}
    acknowledge(part, "b", (0, 3, ACCEPT))
    assert part.unsettled_records == {1: 3}
