"""A node's disk after a crash: log, vote and snapshots must fit each other."""

import struct

import pytest

from kvorum.chaos.sim.kernel.async_disk import run_now
from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    FinishSnapshot,
    PersistVoteState,
    ReplaceLog,
    TruncateLog,
    WriteSnapshotChunk,
)
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.values import OffsetAndEpoch, VoteState
from kvorum.raft.model.voters import NO_VOTERS
from kvorum.raft.node.control_records import KRAFT_VOTERS, voters_batch
from kvorum.raft.node.metadata_log import open_metadata_log
from kvorum.raft.node.replica_log import spans_of
from kvorum.raft.node.snapshot_files import FoundSnapshots, header_voters
from kvorum.raft.node.vote_store import VoteStore
from kvorum.runtime.errors import CorruptData
from kvorum.snapshots.format import SnapshotHeader
from kvorum.storage.format.batch import build_batch
from tests.test_raft.driver import voter_set
from tests.test_raft.places import FOLDER, Place, crash_everywhere, with_ten_records


def test_an_empty_folder_is_an_empty_log():
    place = Place()
    tail = place.check()
    assert (tail.end_offset, tail.snapshots, place.newest) == (0, [], None)
    assert place.replica_log.vote_store.load() == VoteState()


def test_a_log_and_its_snapshots_come_back():
    place = with_ten_records()
    first, second = place.take(4), place.take(8, epoch=2)
    tail = place.restart()
    place.check()
    assert tail.snapshots == [first, second]
    assert (tail.start_offset, tail.end_offset) == (4, 10)
    assert tail.epochs == [(1, 4), (2, 5)]


def test_a_restarted_tail_is_the_one_that_lived_on():
    place = with_ten_records()
    live = place.replica_log.tail()
    live.add_snapshot(place.take(6, epoch=2))
    place.replica_log.trim(6, wall_ms=0)
    again = place.restart()
    for name in ("start_offset", "end_offset", "last_epoch", "snapshots", "epochs"):
        assert getattr(again, name) == getattr(live, name)


def trim(place):
    """Trim like DropSnapshots: first the snapshot files, then the log."""
    run_now(place.files.remove([OffsetAndEpoch(3, 1)]))
    place.replica_log.trim(9, wall_ms=0)


def ready_to_trim(seed):
    place = with_ten_records(seed)
    place.take(3)
    place.take(9, epoch=2)
    return place


def test_a_crash_anywhere_in_trimming_leaves_a_log_that_fits_its_snapshots():
    ends = set()
    for place in crash_everywhere(ready_to_trim, trim):
        place.restart()
        tail = place.check()
        assert tail.snapshots[-1] == OffsetAndEpoch(9, 2)
        assert tail.end_offset == 10
        ends.add(tail.start_offset)
    assert ends == {3, 9}


def test_a_crash_anywhere_in_taking_a_snapshot_leaves_it_whole_or_not_there():
    found = set()
    for place in crash_everywhere(with_ten_records, lambda place: place.take(6, epoch=2)):
        place.restart()
        tail = place.check()
        assert tail.end_offset == 10
        found.add(tuple(tail.snapshots))
    assert found == {(), (OffsetAndEpoch(6, 2),)}


SENT = OffsetAndEpoch(50, 4)


def bytes_of_sent(voters=None):
    """The file as the leader has it."""
    leader = Place(9, is_dynamic=voters is not None)
    header = SnapshotHeader(
        end_offset=SENT.offset,
        epoch=SENT.epoch,
        timestamp_ms=5,
        kraft_version=int(voters is not None),
        voters=() if voters is None else header_voters(voters),
    )
    run_now(leader.files.take(header, [b"sent"] * 3))
    return leader.disk.read_bytes(leader.path(SENT))


def receive(place, data=None):
    """A whole transfer, from the first piece to the removal of older snapshots."""
    data = bytes_of_sent() if data is None else data
    for position in (0, 20):
        piece = data[position : position + 20] if position == 0 else data[position:]
        run_now(place.files.write_chunk(WriteSnapshotChunk(SENT, position, piece)))
    received = run_now(place.files.finish(FinishSnapshot(SENT)))
    if received.is_good:
        place.do(ReplaceLog(SENT))
        run_now(place.files.remove_older(SENT))
    return received


def test_a_received_snapshot_replaces_log_and_older_snapshots():
    place = with_ten_records()
    place.take(4)
    assert receive(place).is_good
    tail = place.restart()
    place.check()
    assert (tail.snapshots, tail.start_offset, tail.end_offset) == ([SENT], 50, 50)
    assert (tail.last_epoch, place.newest) == (4, SENT)


def test_retention_leaves_a_snapshot_alone_that_the_log_does_not_rest_on():
    # Bad sequence: 1. A snapshot comes from the leader. 2. The core gives the transfer up, and the
    # file waits for its removal. 3. Retention counts it as one of the log's, and drops the last
    # snapshot on which the log rests.
    place = with_ten_records()
    ours = [place.take(offset) for offset in (2, 3, 4)]
    data = bytes_of_sent()
    run_now(place.files.write_chunk(WriteSnapshotChunk(SENT, 0, data)))
    assert run_now(place.files.finish(FinishSnapshot(SENT))).is_good
    long_after_ms = 1 << 50
    for count in (3, 2, 1):
        gone = place.files.expired(ours[:count], log_bytes=0, now_ms=long_after_ms)
        assert gone == max(count - 2, 0), "two stay, whatever their age"


@pytest.mark.parametrize("own", [OffsetAndEpoch(4, 1), OffsetAndEpoch(9, 2)])
def test_a_crash_anywhere_in_replacing_leaves_the_old_log_or_begins_behind_the_snapshot(own):
    def prepare(seed):
        place = with_ten_records(seed)
        place.take(own.offset, own.epoch)
        place.trim(own.offset)
        return place

    ends = set()
    for place in crash_everywhere(prepare, receive):
        place.restart()
        tail = place.check()
        assert tail.snapshots in ([own], [SENT])
        ends.add((tail.start_offset, tail.end_offset))
    assert ends == {(own.offset, 10), (50, 50)}


def test_a_log_goes_on_behind_a_received_snapshot_and_comes_back():
    place = with_ten_records()
    receive(place)
    place.kept.clear()
    place.append("k", "l", epoch=4)
    place.flush()
    tail = place.restart()
    place.check()
    assert (tail.start_offset, tail.end_offset, tail.epochs) == (50, 52, [(4, 50)])


def test_a_second_crash_in_the_recovery_of_the_first_harms_nothing():
    def prepare(seed):
        # 1. The snapshot gets its final name. 2. The node crashes before the log is replaced.
        place = with_ten_records(seed)
        for position, data in ((0, bytes_of_sent()),):
            run_now(place.files.write_chunk(WriteSnapshotChunk(SENT, position, data)))
        run_now(place.files.finish(FinishSnapshot(SENT)))
        place.disk.crash()
        return place

    for place in crash_everywhere(prepare, lambda place: place.open()):
        place.restart()
        assert place.check().snapshots == [SENT]


def test_an_entry_that_parts_from_the_newest_snapshot_goes_with_its_log():
    place = Place()
    place.append(*"abcdefgh", epoch=1)
    place.log.flush()
    place.take(6, epoch=2)
    tail = place.restart()
    assert (tail.start_offset, tail.end_offset) == (6, 6)


def test_the_older_snapshot_serves_when_the_newest_is_damaged():
    place = with_ten_records()
    first, second = place.take(4), place.take(8, epoch=2)
    place.disk.flip_bits(place.path(second), 30)
    tail = place.restart()
    place.check()
    assert tail.snapshots == [first]
    assert [error.path for error in place.found.damaged] == [place.path(second)]
    assert place.disk.exists(place.path(second))


def test_a_whole_log_needs_no_snapshot():
    place = with_ten_records()
    only = place.take(4)
    place.disk.flip_bits(place.path(only), 30)
    tail = place.restart()
    place.check()
    assert (tail.snapshots, tail.start_offset) == ([], 0)


def test_a_trimmed_log_without_a_good_snapshot_is_refused_by_name():
    place = with_ten_records()
    only = place.take(9, epoch=2)
    place.trim(9)
    place.disk.flip_bits(place.path(only), 30)
    with pytest.raises(CorruptData) as refused:
        place.restart()
    assert place.path(only) in str(refused.value)
    assert refused.value.path == FOLDER


def test_a_trimmed_log_whose_snapshot_is_gone_is_refused():
    place = with_ten_records()
    only = place.take(9, epoch=2)
    place.trim(9)
    run_now(place.files.remove([only]))
    with pytest.raises(CorruptData, match="there is none"):
        place.restart()


def test_a_snapshot_below_where_the_log_begins_serves_nobody():
    place = with_ten_records()
    place.take(3)
    place.take(9, epoch=2)
    place.trim(9)
    VoteStore(place.disk, FOLDER).save(VoteState(2))
    place.disk.crash()
    opened = run_now(open_metadata_log(place.disk, FOLDER, place.files, is_dynamic=False, now_ms=0))
    assert opened.replica_log.snapshots == (OffsetAndEpoch(9, 2),)
    assert not place.disk.exists(place.path(OffsetAndEpoch(3, 1)))


def without_second_segment(place):
    """Remove the second segment with its indexes, as an operator might; the names of all segments
    before."""
    bases = sorted(name[:20] for name in place.disk.list_dir(FOLDER) if name.endswith(".log"))
    for suffix in ("log", "index", "timeindex"):
        place.disk.remove(f"{FOLDER}/{bases[1]}.{suffix}")
    place.disk.sync_dir(FOLDER)
    return bases


def test_a_log_with_a_segment_missing_in_the_middle_is_refused_by_name():
    place = with_ten_records()
    bases = without_second_segment(place)
    with pytest.raises(CorruptData, match=f"offset {int(bases[2])} follows") as refused:
        place.restart()
    assert refused.value.path == f"{FOLDER}/{bases[0]}.log"


def test_a_segment_missing_below_the_oldest_snapshot_is_missed_by_nobody():
    place = with_ten_records()
    place.take(9, epoch=2)
    without_second_segment(place)
    tail = place.restart()
    assert (tail.start_offset, tail.end_offset) == (9, 10)


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_log_whose_files_are_gone_is_refused(how):
    """It is refused even if the index files beside them, by which the loss shows at once, are gone
    too."""
    place = with_ten_records()
    for name in list(place.disk.list_dir(FOLDER)):
        if name.endswith(".log"):
            if how == "removed":
                place.disk.remove(f"{FOLDER}/{name}")
            else:
                place.disk.open(f"{FOLDER}/{name}").truncate(0)
        elif name.endswith(("index", ".recovery")):
            place.disk.remove(f"{FOLDER}/{name}")
    place.disk.sync_dir(FOLDER)
    with pytest.raises(CorruptData, match=r"are gone|between is missing|no good snapshot covers"):
        place.restart()


def ahead_of_its_fsync(seed):
    """A log whose epochs 3 and 4 are in the page cache only; a snapshot of committed records covers
    epoch 3."""
    place = with_ten_records(seed)
    place.append("k", "l", "m", "n", epoch=3)
    place.append("o", "p", epoch=4)
    place.take(13, epoch=3)
    return place


@pytest.mark.parametrize(
    "act",
    [lambda place: place.do(TruncateLog(15)), lambda place: place.trim(13)],
    ids=["cut", "trimmed"],
)
@pytest.mark.parametrize("is_flush_under_way", [False, True])
def test_a_log_changed_ahead_of_its_fsync_does_not_count_as_one_that_lost_files(
    act, is_flush_under_way
):
    def change(place):
        ticket = place.log.begin_flush() if is_flush_under_way else None
        act(place)
        if ticket is not None:
            ticket.run()
            place.log.complete_flush(ticket)
        place.disk.sync_dir("/")  # one more operation: the power may fail behind all of it too

    for place in crash_everywhere(ahead_of_its_fsync, change):
        place.restart()
        place.check()
    # quorum-state is written before the first record, so a log without it means that the node has
    # lost its votes.
    place = with_ten_records()
    place.disk.remove(f"{FOLDER}/quorum-state")
    with pytest.raises(CorruptData, match="what this node voted"):
        run_now(open_metadata_log(place.disk, FOLDER, place.files, is_dynamic=False, now_ms=0))


def test_a_state_file_from_before_the_logs_last_epoch_is_refused():
    place = with_ten_records()
    VoteStore(place.disk, FOLDER).save(VoteState(1, voted_id=2))
    with pytest.raises(CorruptData, match="says epoch 1, the log has records of epoch 2"):
        run_now(open_metadata_log(place.disk, FOLDER, place.files, is_dynamic=False, now_ms=0))


def test_a_damaged_transfer_leaves_nothing():
    place = with_ten_records()
    data = bytearray(bytes_of_sent())
    data[-1] ^= 1
    assert not receive(place, bytes(data)).is_good
    place.restart()
    place.check()
    assert place.log.end_offset == 10
    assert [name for name in place.disk.list_dir(FOLDER) if "checkpoint" in name] == [
        "leader-epoch-checkpoint"
    ]


def test_a_torn_tail_is_cut_and_what_was_synced_stays():
    for seed in range(20):
        place = with_ten_records(seed)
        place.append("k", "l", "m", epoch=3)
        place.restart()
        assert 10 <= place.check().end_offset <= 13


# Voters.


def opened_dynamic(place, **more):
    return run_now(
        open_metadata_log(place.disk, FOLDER, place.files, is_dynamic=True, now_ms=0, **more)
    )


def append_voters(place, voters, epoch=1):
    offset = place.log.end_offset
    batch = voters_batch(voters, base_offset=offset, epoch=epoch, timestamp_ms=5)
    place.do(AppendFetched(offset, bytes(batch)))


def test_voters_come_from_the_log_behind_those_of_the_oldest_snapshot():
    place = Place(is_dynamic=True)
    place.append("a")
    append_voters(place, voter_set(1))
    append_voters(place, voter_set(1, 2))
    place.append("b")
    place.flush()
    assert place.replica_log.tail().voters.entries == [
        (-1, NO_VOTERS),
        (1, voter_set(1)),
        (2, voter_set(1, 2)),
    ]
    place.take(2, voters=voter_set(1))
    tail = place.restart()
    assert tail.voters.entries == [(1, voter_set(1)), (2, voter_set(1, 2))]
    place.take(4, voters=voter_set(1, 2))
    run_now(place.files.remove([OffsetAndEpoch(2, 1)]))
    tail = place.restart()
    assert tail.voters.entries == [(3, voter_set(1, 2))]


def test_voters_of_the_opening_batch_are_found():
    place = Place(is_dynamic=True)
    place.do(AppendLeaderChange(0, 1, 1, voter_set(1), (1,), has_voter_set=True))
    place.flush()
    assert place.restart().voters.last == voter_set(1)


def test_voters_travel_with_a_snapshot():
    place = Place(is_dynamic=True)
    received = receive(place, bytes_of_sent(voter_set(1, 3)))
    assert received.voters == voter_set(1, 3)
    assert place.restart().voters.entries == [(49, voter_set(1, 3))]


def test_a_wiped_dynamic_node_knows_no_voter():
    place = Place(is_dynamic=True)
    assert place.replica_log.tail().voters.last == NO_VOTERS


def test_the_mirror_and_the_log_agree_on_where_voters_stand():
    place = Place(is_dynamic=True)
    place.append("a")
    append_voters(place, voter_set(1, 2))
    place.flush()
    mirror = LogTail(voter_sets=[(-1, NO_VOTERS)])
    data = place.log.read(0, bytes_max=1 << 20, end_offset=2).read()
    for span in spans_of(data):
        mirror.append(span)
    assert mirror.voters.entries == place.restart().voters.entries


def test_a_voters_record_of_a_newer_build_on_disk_is_named_as_damage():
    place = Place(is_dynamic=True)
    key, value = struct.pack(">hh", 0, KRAFT_VOTERS), struct.pack(">h", 1) + b"\x01\x00"
    newer = build_batch([(key, value)], timestamp_ms=5, leader_epoch=1, is_control=True)
    place.do(AppendFetched(0, bytes(newer)))
    place.log.flush()
    with pytest.raises(CorruptData):
        place.restart()


# Marks in a directory of how it was made.


def test_a_directory_tells_whether_its_voters_are_dynamic():
    place = Place()
    assert opened_dynamic(place).was_dynamic is None
    place.do(PersistVoteState(VoteState(1)))
    assert opened_dynamic(place).was_dynamic is False
    VoteStore(place.disk, FOLDER, version=1).save(VoteState(1))
    assert opened_dynamic(place).was_dynamic is True


def test_a_snapshot_tells_it_before_the_state_file():
    place = with_ten_records()
    place.take(4)
    VoteStore(place.disk, FOLDER, version=1).save(VoteState(2))
    place.disk.crash()
    assert opened_dynamic(place).was_dynamic is False


def test_voters_in_the_log_tell_it():
    place = Place(is_dynamic=True)
    append_voters(place, voter_set(1))
    place.flush()
    VoteStore(place.disk, FOLDER).save(VoteState(1))
    assert opened_dynamic(place).was_dynamic is True


def test_found_snapshots_of_an_empty_folder_are_none():
    assert Place().found == FoundSnapshots(good=(), headers={}, damaged=(), bootstrap_voters=None)
