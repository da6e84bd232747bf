import errno

import pytest

from kvorum.chaos.sim.kernel.async_disk import SimTask
from kvorum.runtime.errors import CorruptData, InvariantViolated
from kvorum.runtime.memory_disk import PowerCut
from kvorum.snapshots.format import SnapshotHeader, SnapshotId
from kvorum.snapshots.store import (
    PositionOutOfRange,
    SnapshotNotFound,
    SnapshotStore,
    read_snapshot,
)
from tests.test_snapshots.places import (
    NEW,
    OLD,
    PAYLOADS,
    crash_before_call,
    decode_file,
    memory_place,
    newest_good,
    pauses_of,
)

BOOTSTRAP = SnapshotHeader(end_offset=0, epoch=0, timestamp_ms=0, kraft_version=1)


def damage(place, id):
    data = bytearray(place.bytes_of(place.store.path(id)))
    data[-1] ^= 1
    place.put(place.store.path(id), bytes(data))


def test_a_snapshot_reads_back_as_it_was_written_and_leaves_no_part(place):
    id = place.run(place.store.write(NEW, iter(PAYLOADS)))
    assert id == NEW.id == SnapshotId(7, 2)
    read = place.run(read_snapshot(place.store.disk, place.store.path(id)))
    assert (read.header, list(read.payloads)) == (NEW, PAYLOADS)
    assert place.names() == ["00000000000000000007-0000000002.checkpoint"]
    assert place.run(place.store.size(id)) == len(place.bytes_of(read.path))


def test_equal_snapshots_are_equal_bytes_whoever_wrote_them(place):
    other = memory_place()
    for one in (place, other):
        one.run(one.store.write(NEW, PAYLOADS))
    path = place.store.path(NEW.id)
    assert place.bytes_of(path) == other.bytes_of(other.store.path(NEW.id))


def test_a_stale_part_file_is_replaced(place):
    place.put(place.store.part_path(OLD.id), b"?" * 5_000)
    place.run(place.store.write(OLD, PAYLOADS))
    assert newest_good(place) == (OLD.id, [])
    assert len(place.names()) == 1


def test_list_is_ascending_and_holds_final_names_only(place):
    for header in (NEW, OLD, BOOTSTRAP):
        place.run(place.store.write(header, []))
    for name in ("quorum-state", "x.checkpoint", "00000000000000000009-0000000001.checkpoint.part"):
        place.put(f"{place.store.directory}/{name}", b"x")
    assert place.run(place.store.list()) == [OLD.id, NEW.id]


def test_what_is_damaged_is_passed_over_and_named(place):
    third = SnapshotHeader(end_offset=9, epoch=2, timestamp_ms=30)
    for header in (OLD, NEW, third):
        place.run(place.store.write(header, PAYLOADS))
    damage(place, NEW.id)
    # A sound file, but under the name of another snapshot.
    place.put(place.store.path(third.id), place.bytes_of(place.store.path(OLD.id)))
    found, refused = newest_good(place)
    assert found == OLD.id
    assert [error.path for error in refused] == [place.store.path(i) for i in (third.id, NEW.id)]
    assert "by its header this is 00000000000000000003-0000000001" in refused[0].reason
    assert "checksum" in refused[1].reason


def test_a_file_that_cannot_be_read_counts_as_damaged():
    place = memory_place()
    for header in (OLD, NEW):
        place.run(place.store.write(header, PAYLOADS))
    place.store.disk.disk.fail("read", path_part=place.store.path(NEW.id))
    found, refused = newest_good(place)
    assert found == OLD.id and "cannot be read" in refused[0].reason


def test_an_empty_or_missing_folder_has_no_snapshot(place):
    assert newest_good(place) == (None, [])
    missing = SnapshotStore(place.store.disk, f"{place.store.directory}/none")
    assert place.run(missing.list()) == []
    place.run(missing.clean_up())


def test_remove_takes_one_and_leaves_the_others(place):
    for header in (OLD, NEW):
        place.run(place.store.write(header, []))
    place.run(place.store.remove(OLD.id))
    assert place.run(place.store.list()) == [NEW.id] and len(place.names()) == 1
    with pytest.raises(SnapshotNotFound):
        place.run(place.store.remove(OLD.id))


def test_clean_up_removes_leftovers_and_nothing_else(place):
    place.run(place.store.write(NEW, []))
    kept = ["00000000000000000000.log", "leader-epoch-checkpoint", "notes.part"]
    left = [f"00000000000000000009-0000000001.checkpoint{e}" for e in (".part", ".deleted")]
    for name in kept + left:
        place.put(f"{place.store.directory}/{name}", b"x")
    place.run(place.store.clean_up())
    assert place.names() == sorted([*kept, "00000000000000000007-0000000002.checkpoint"])


def test_names_that_a_dead_process_left_are_durable_after_clean_up():
    calls = pauses_of(memory_place().store.write(NEW, PAYLOADS))
    for seed in range(10):
        place = memory_place(seed)
        task = SimTask(place.store.write(NEW, PAYLOADS))
        for _ in range(calls):
            task.step()
        assert task.pause.operation == "sync_dir"
        task.drop()
        place.run(place.store.clean_up())
        assert place.run(place.store.list()) == [NEW.id]
        place.store.disk.disk.crash()
        assert newest_good(place) == (NEW.id, [])


def test_chunks_make_up_the_file(place):
    place.run(place.store.write(NEW, PAYLOADS))
    got = b""
    while True:
        chunk, total = place.run(place.store.read_chunk(NEW.id, len(got), 17))
        assert 0 < len(chunk) <= 17
        got += chunk
        if len(got) == total:
            break
    assert decode_file("f", got) == (NEW, PAYLOADS)


def test_a_chunk_that_is_not_there_is_refused(place):
    place.run(place.store.write(NEW, PAYLOADS))
    size = place.run(place.store.size(NEW.id))
    for position in (-1, size, size + 1):
        with pytest.raises(PositionOutOfRange, match=f"has {size} bytes, none at {position}"):
            place.run(place.store.read_chunk(NEW.id, position, 10))
    for id in (OLD.id, SnapshotId(0, 0)):
        with pytest.raises(SnapshotNotFound):
            place.run(place.store.read_chunk(id, 0, 10))
    assert place.names() == ["00000000000000000007-0000000002.checkpoint"]


def test_the_bootstrap_checkpoint_is_read_but_never_listed_served_or_removed(place):
    assert place.run(place.store.bootstrap()) is None
    place.run(place.store.write(BOOTSTRAP, []))
    assert place.run(place.store.bootstrap()) == BOOTSTRAP
    assert place.run(place.store.list()) == []
    assert newest_good(place) == (None, [])
    with pytest.raises(SnapshotNotFound):
        place.run(place.store.read_chunk(BOOTSTRAP.id, 0, 10))
    with pytest.raises(InvariantViolated):
        place.run(place.store.remove(BOOTSTRAP.id))
    damage(place, BOOTSTRAP.id)
    with pytest.raises(CorruptData):
        place.run(place.store.bootstrap())


def with_an_old_one(seed=0, **limits):
    place = memory_place(seed, **limits)
    place.run(place.store.write(OLD, PAYLOADS))
    return place, place.bytes_of(place.store.path(OLD.id))


def check_after_crash(place, old):
    """Either no or a whole new snapshot, the old one as it was, and the next write succeeds."""
    ids = place.run(place.store.list())
    assert ids in ([OLD.id], [OLD.id, NEW.id])
    assert newest_good(place) == (ids[-1], [])
    assert place.bytes_of(place.store.path(OLD.id)) == old
    place.run(place.store.clean_up())
    assert len(place.names()) == len(ids)
    place.run(place.store.write(NEW, PAYLOADS))
    assert newest_good(place) == (NEW.id, [])
    return ids


def test_a_crash_before_any_disk_call_of_a_write_leaves_none_or_all():
    place, _ = with_an_old_one()
    calls = pauses_of(place.store.write(NEW, PAYLOADS))
    outcomes = set()
    for number in range(calls):
        for seed in range(12):
            place, old = with_an_old_one(seed)
            crash_before_call(place, place.store.write(NEW, PAYLOADS), number)
            outcomes.add(len(check_after_crash(place, old)))
    assert outcomes == {1, 2}


def test_a_power_cut_in_any_disk_call_of_a_write_leaves_none_or_all():
    place, _ = with_an_old_one()
    before = place.store.disk.disk.operation_count
    place.run(place.store.write(NEW, PAYLOADS))
    operations = place.store.disk.disk.operation_count - before
    for number in range(operations):
        for seed in range(12):
            place, old = with_an_old_one(seed)
            place.store.disk.disk.cut_power_after(number)
            with pytest.raises(PowerCut):
                place.run(place.store.write(NEW, PAYLOADS))
            place.store.disk.disk.crash()
            check_after_crash(place, old)


def test_a_crash_while_a_snapshot_is_written_again_leaves_it_whole():
    calls = pauses_of(with_an_old_one()[0].store.write(OLD, PAYLOADS))
    for number in range(calls):
        for seed in range(6):
            place, old = with_an_old_one(seed)
            crash_before_call(place, place.store.write(OLD, PAYLOADS), number)
            assert newest_good(place) == (OLD.id, [])
            assert place.bytes_of(place.store.path(OLD.id)) == old


def test_what_write_has_told_survives_a_crash():
    for seed in range(20):
        place, _ = with_an_old_one(seed)
        place.run(place.store.write(NEW, PAYLOADS))
        place.store.disk.disk.crash()
        assert newest_good(place) == (NEW.id, [])


def test_a_crash_before_any_disk_call_of_a_removal_leaves_all_or_none():
    calls = pauses_of(with_an_old_one()[0].store.remove(OLD.id))
    for number in range(calls):
        for seed in range(12):
            place, old = with_an_old_one(seed)
            crash_before_call(place, place.store.remove(OLD.id), number)
            if place.run(place.store.list()):
                assert place.bytes_of(place.store.path(OLD.id)) == old
            place.run(place.store.clean_up())
            assert len(place.names()) == len(place.run(place.store.list()))


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_dir"])
def test_a_failing_disk_call_leaves_nothing_visible_and_is_told(operation):
    place, old = with_an_old_one()
    place.store.disk.disk.fail(operation)
    with pytest.raises(OSError, match="injected fault"):
        place.run(place.store.write(NEW, PAYLOADS))
    assert place.names() == ["00000000000000000003-0000000001.checkpoint"]
    assert place.bytes_of(place.store.path(OLD.id)) == old


def test_a_failing_folder_sync_does_not_take_a_snapshot_that_was_there_before():
    place, old = with_an_old_one()
    place.store.disk.disk.fail("sync_dir")
    with pytest.raises(OSError, match="injected fault"):
        place.run(place.store.write(OLD, PAYLOADS))
    assert place.bytes_of(place.store.path(OLD.id)) == old


def test_a_full_disk_leaves_nothing_visible_and_frees_what_was_taken():
    place, old = with_an_old_one(capacity_bytes=1_000)
    with pytest.raises(OSError) as refused:
        place.run(place.store.write(NEW, [b"x" * 100] * 20))
    assert refused.value.errno == errno.ENOSPC
    assert place.store.disk.disk.used_bytes() == len(old)
    assert newest_good(place) == (OLD.id, [])


def test_the_error_goes_on_also_when_the_part_cannot_be_removed():
    place, _ = with_an_old_one()
    place.store.disk.disk.fail("sync")
    place.store.disk.disk.fail("remove", error_number=errno.EROFS)
    with pytest.raises(OSError) as refused:
        place.run(place.store.write(NEW, PAYLOADS))
    assert refused.value.errno == errno.EIO
    assert place.run(place.store.list()) == [OLD.id]


def test_an_error_in_the_source_of_payloads_leaves_nothing(place):
    def source():
        yield b"x"
        raise LookupError("no more")

    with pytest.raises(LookupError):
        place.run(place.store.write(NEW, source()))
    assert place.names() == []
