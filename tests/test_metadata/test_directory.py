"""A node's folder read as it lies: whole, torn, damaged, trimmed, half replaced, in motion."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.metadata.inspect.history import OffsetNotHeld
from kvorum.metadata.inspect.node_directory import NoMetadata, history_of_directory, history_of_file
from kvorum.raft.node.metadata_log import recover_log
from kvorum.raft.node.snapshot_files import FoundSnapshots
from kvorum.runtime.errors import CorruptData
from kvorum.snapshots.format import file_name
from tests.test_metadata.folders import (
    FOLDER,
    SEGMENT_BYTES,
    ReadOnly,
    batches_of,
    damage,
    memory_disk,
    open_log,
    records_of_seed,
    replayed,
    segments_in,
    write_log,
    write_snapshot,
)


def read(disk, path=FOLDER):
    return history_of_directory(ReadOnly(disk), path)


def content_of(disk, folder=FOLDER):
    return {name: disk.read_bytes(f"{folder}/{name}") for name in disk.list_dir(folder)}


@pytest.fixture
def whole():
    """(disk, records) of a log of several segments, some of them sealed."""
    disk, records = memory_disk(), records_of_seed(7)
    write_log(disk, records)
    assert len(segments_in(disk)) > 3
    return disk, records


def test_every_offset_is_reached_and_nothing_is_written(whole):
    disk, records = whole
    write_snapshot(disk, replayed(records, 30))
    write_snapshot(disk, replayed(records, 55))
    before = content_of(disk)
    history = read(disk)
    for offset in range(len(records) + 1):
        assert history.image_at(offset) == replayed(records, offset)
    assert [entry.record for entry in history.entries()] == records
    assert content_of(disk) == before
    (note,) = history.notes
    assert note.startswith(f"{FOLDER}: read up to offset {len(records)}; of what lies above the")


def test_the_data_directory_and_the_folder_in_it_are_the_same(whole):
    disk, _ = whole
    assert read(disk, "/node") == read(disk, "/node/") == read(disk)


@pytest.mark.parametrize("path", ["/nowhere", "/node/t-0"])
def test_folder_without_metadata_is_refused(whole, path):
    disk, records = whole
    write_log(disk, records, folder="/node/t-0")
    disk.remove("/node/t-0/quorum-state")
    with pytest.raises(NoMetadata, match=f"no metadata log in {path}: name a node's data dir"):
        read(disk, path)


def test_log_without_the_snapshot_it_begins_behind_is_refused(whole):
    disk, records = whole
    first, second = segments_in(disk)[:2]
    begin = int(second[-24:-4])
    disk.remove(first)
    with pytest.raises(CorruptData, match=f"begins at offset {begin} and no good snapshot covers"):
        read(disk)
    write_snapshot(disk, replayed(records, begin - 1))
    with pytest.raises(CorruptData, match="no good snapshot covers"):
        read(disk)
    path = write_snapshot(disk, replayed(records, begin + 2))
    history = read(disk)
    assert (history.log_start_offset, history.first_offset) == (begin, begin + 2)
    assert history.image_at() == replayed(records, len(records))
    with pytest.raises(OffsetNotHeld):
        history.image_at(begin)
    damage(disk, path, 40)
    with pytest.raises(CorruptData, match=f"covers .*{path} at byte"):
        read(disk)


def test_damaged_newest_snapshot_is_told_and_the_older_one_serves(whole):
    disk, records = whole
    write_snapshot(disk, replayed(records, 30))
    newest = write_snapshot(disk, replayed(records, 55))
    damage(disk, newest, 60)
    history = read(disk)
    assert [header.end_offset for header, _ in history.snapshots] == [30]
    assert history.notes[0].startswith(f"a damaged snapshot is passed over: {newest} at byte ")
    assert history.image_at() == replayed(records, len(records))


def test_snapshot_under_another_name_is_passed_over(whole):
    disk, records = whole
    path = write_snapshot(disk, replayed(records, 30))
    disk.rename(path, f"{FOLDER}/{file_name(31, 1)}")
    history = read(disk)
    assert history.snapshots == () and "by its header this is" in history.notes[0]


def test_log_that_does_not_lead_on_from_the_newest_snapshot_is_left_out(whole):
    disk, records = whole
    write_snapshot(disk, replayed(records, 30))
    write_snapshot(disk, replayed(records, 60, epoch=4))
    history = read(disk)
    assert (history.first_offset, history.end_offset) == (60, 60)
    assert history.image_at() == replayed(records, 60, epoch=4)
    assert "a start would drop the log" in history.notes[0]


def test_only_a_snapshot_is_a_folder_too():
    disk, records = memory_disk(), records_of_seed(7)
    path = write_snapshot(disk, replayed(records, 30))
    assert read(disk).image_at(30) == replayed(records, 30)
    of_file = history_of_file(ReadOnly(disk), path)
    assert of_file.image_at() == replayed(records, 30) and of_file.name == path
    damage(disk, path, 50)
    with pytest.raises(CorruptData, match=f"^{path} at byte"):
        history_of_file(ReadOnly(disk), path)


def test_damage_in_the_middle_is_refused_by_file_and_byte(whole):
    disk, _ = whole
    for path in (segments_in(disk)[1], segments_in(disk)[-2]):
        keep = disk.read_bytes(path)
        damage(disk, path, 70)
        with pytest.raises(CorruptData) as refused:
            read(disk)
        assert (refused.value.path, refused.value.position) == (path, 0)
        disk.write_atomic(path, keep)


def test_missing_segment_is_a_gap_unless_a_snapshot_covers_it(whole):
    disk, records = whole
    _, second, third, *_ = segments_in(disk)
    begin, end = int(second[-24:-4]), int(third[-24:-4])
    disk.remove(second)
    with pytest.raises(CorruptData, match=f"offset {end} follows {begin - 1}: what was between"):
        read(disk)
    write_snapshot(disk, replayed(records, end + 1))
    history = read(disk)
    assert (history.log_start_offset, history.first_offset) == (end, end + 1)
    for offset in range(end + 1, len(records) + 1):
        assert history.image_at(offset) == replayed(records, offset)
    with pytest.raises(OffsetNotHeld):
        history.image_at(begin)


@given(seed=st.integers(0, 8), cut=st.integers(0, 10_000), garbage=st.binary(max_size=80))
@settings(deadline=None, max_examples=60)
def test_torn_tail_is_left_alone_and_what_is_before_it_is_what_a_start_keeps(seed, cut, garbage):
    disk, records = memory_disk(), records_of_seed(seed)
    write_log(disk, records)
    last = segments_in(disk)[-1]
    data = disk.read_bytes(last)
    torn = data[: cut % (len(data) + 1)] + garbage
    disk.write_atomic(last, torn)
    history = read(disk)
    assert disk.read_bytes(last) == torn
    replica_log, _ = recover_log(
        disk,
        FOLDER,
        FoundSnapshots(good=(), headers={}, damaged=(), bootstrap_voters=None),
        is_dynamic=False,
        now_ms=0,
        segment_bytes=SEGMENT_BYTES,
    )
    assert history.end_offset == replica_log.log.end_offset
    assert history.image_at() == replayed(records, history.end_offset)
    is_cut = len(disk.read_bytes(last)) < len(torn)
    told = [note for note in history.notes if "torn tail" in note]
    assert len(told) == is_cut
    assert all(note.startswith(last) and "is left alone" in note for note in told)


@given(seed=st.integers(0, 8), where=st.integers(0, 1 << 20), bit=st.integers(0, 7))
@settings(deadline=None, max_examples=80)
def test_any_flipped_bit_is_judged_as_a_start_judges_it(seed, where, bit):
    disk, records = memory_disk(), records_of_seed(seed)
    write_log(disk, records)
    paths = segments_in(disk)
    path = paths[where % len(paths)]
    data = bytearray(disk.read_bytes(path))
    data[where // 7 % len(data)] ^= 1 << bit
    disk.write_atomic(path, bytes(data))
    try:
        history = read(disk)
    except CorruptData as error:
        history, refused = None, (error.path, error.position)
    nothing = FoundSnapshots(good=(), headers={}, damaged=(), bootstrap_voters=None)
    try:
        log, _ = recover_log(
            disk, FOLDER, nothing, is_dynamic=False, now_ms=0, segment_bytes=SEGMENT_BYTES
        )
    except CorruptData as error:
        assert history is None and refused == (error.path, error.position)
    else:
        assert history is not None and history.end_offset == log.log.end_offset


class Moving(ReadOnly):
    """A folder whose node changes it once (`happen`), between the reader's listing and its read of
    `path`."""

    def __init__(self, disk, path, happen):
        super().__init__(disk)
        self._path, self._happen = path, happen

    def read_bytes(self, path):
        if path == self._path and self._happen is not None:
            happen, self._happen = self._happen, None
            happen()
        return super().read_bytes(path)


def test_trimming_meanwhile_is_read_anew(whole):
    disk, records = whole
    first, second = segments_in(disk)[:2]

    def trim():
        write_snapshot(disk, replayed(records, int(second[-24:-4])))
        disk.remove(first)

    history = history_of_directory(Moving(disk, first, trim), FOLDER)
    assert history.first_offset == int(second[-24:-4])
    assert history.image_at() == replayed(records, len(records))


def test_appends_meanwhile_are_a_tail_that_grew(whole):
    disk, records = whole
    last = segments_in(disk)[-1]
    more = batches_of([*records, None], random.Random(0), start=len(records))
    log = open_log(disk)
    history = history_of_directory(
        Moving(disk, last, lambda: log.append_as_follower(bytes(more[0]), now_ms=0)), FOLDER
    )
    assert history.end_offset == len(records) + 1
