"""`kvorum log verify` and the complaints of `kvorum log dump`: every check is seen to fire."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kvorum.runtime.disk import OsDisk
from kvorum.storage.files.checkpoints import (
    LOG_START_OFFSET,
    RECOVERY_POINT,
    write_offsets,
    write_partition_metadata,
)
from kvorum.storage.files.file_names import METADATA_LOG_FOLDER
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.files.transaction_index import parse_aborted
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import remove_deleted
from kvorum.storage.tools.verify import verify_log
from tests.command import kvorum
from tests.test_storage.cleaning_steps import Writer, clean

BASE = "0" * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed log of several segments with transactions, compacted in its first part."""
    config = LogConfig(segment_bytes=900, index_interval_bytes=150, compaction=CompactionConfig())
    directory = tmp_path / "t-0"
    log = Log.open(OsDisk(), str(directory), config, now_ms=0)
    writer = Writer(log)
    for at in range(24):
        writer.put(7 + at % 2, b"k%d" % (at % 5))
        if at % 6 == 5:
            writer.end(7, is_commit=False)
            writer.end(8, is_commit=True)
        if at == 12:
            log.flush()
            clean(log, now_ms=10)
            remove_deleted(log, 1 << 40)
        batch = build_batch([(b"k", b"v")], timestamp_ms=2000 + at)
        log.append_as_leader(batch, leader_epoch=at // 8, now_ms=0)
    log.close()
    return directory


def run(*arguments: str) -> tuple[int, str]:
    code, out, error = kvorum("log", *arguments)
    return code, out + error


def problem(folder: Path) -> str:
    found = verify_log(OsDisk(), str(folder))
    assert found.problems
    code, said = run("verify", str(folder))
    assert code == 1
    assert all(line in said for line in found.problems)
    return "\n".join(found.problems)


def edit(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def last_segment(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def test_a_sound_folder_has_no_problem(folder: Path) -> None:
    found = verify_log(OsDisk(), str(folder))
    assert found.problems == []
    (compacted,) = found.notes
    assert "15 offsets are in no batch, the most of them at once from 3 to 5" in compacted
    assert found.segments > 2
    code, said = run("verify", str(folder))
    assert code == 0
    assert f"\n{folder}: sound; segments={found.segments} " in said


def test_a_flipped_bit_is_found_with_its_batch(folder: Path) -> None:
    edit(folder / f"{BASE}.log", 100, b"\xff")
    assert f"{BASE}.log" in problem(folder)
    assert "CRC" in problem(folder)


def test_a_cut_batch_is_found(folder: Path) -> None:
    path = last_segment(folder)
    path.write_bytes(path.read_bytes()[:-3])
    assert path.name in problem(folder)


def test_segments_that_overlap_are_found(folder: Path) -> None:
    name = sorted(path.name for path in folder.glob("*.log"))[1]
    (folder / f"{1:020d}.log").write_bytes((folder / f"{BASE}.log").read_bytes()[:0])
    assert f"{1:020d}.log: begins at 1, below the end" in problem(folder)
    assert name


def test_an_index_that_points_elsewhere_is_found(folder: Path) -> None:
    path = last_segment(folder).with_suffix(".index")
    edit(path, 0, struct.pack(">i", struct.unpack(">i", path.read_bytes()[:4])[0] + 1))
    assert f"Mismatches in :{path}" in problem(folder)
    code, said = run("dump", "--verify-index-only", str(path))
    assert code == 1
    assert f"Mismatches in :{path}\n  Index offset: " in said


def test_a_time_index_with_another_timestamp_is_found(folder: Path) -> None:
    path = last_segment(folder).with_suffix(".timeindex")
    edit(path, 0, struct.pack(">q", 5))
    assert f"Found timestamp mismatch in :{path}\n  Index timestamp: 5, log" in problem(folder)


def test_a_time_index_of_an_offset_inside_a_batch_is_found(tmp_path: Path) -> None:
    log = Log.open(OsDisk(), str(tmp_path / "t-0"), LogConfig(), now_ms=0)
    batch = build_batch([(b"a", b"1"), (b"b", b"2")], timestamp_ms=9)
    log.append_as_leader(batch, leader_epoch=0, now_ms=0)
    log.close()
    edit(tmp_path / "t-0" / f"{BASE}.timeindex", 8, struct.pack(">i", 0))
    assert "are not found in the log" in problem(tmp_path / "t-0")


@pytest.mark.parametrize(
    ("suffix", "part"),
    [(".index", "no multiple of 8"), (".timeindex", "no multiple of 12")],
)
def test_an_index_of_half_an_entry_is_found(folder: Path, suffix: str, part: str) -> None:
    path = last_segment(folder).with_suffix(suffix)
    path.write_bytes(path.read_bytes() + b"\x01")
    assert part in problem(folder)
    code, out, error = kvorum("log", "dump", "--index-sanity-check", str(path))
    assert code == 1
    assert out == f"Dumping {path}\n"
    assert f"{path} failed sanity check: " in error
    assert part in error


@pytest.mark.parametrize(
    ("suffix", "entries", "part"),
    [
        (".index", [(5, 0), (-406667659, 7)], "the last offset is -406667659, which is less than"),
        (".timeindex", [(9, 1), (8, 2)], "the last timestamp is 8, which is less than the first"),
        (".timeindex", [(8, 1), (9, -3)], "the last offset is -3, which is less than the base"),
    ],
)
def test_a_last_entry_below_the_first_or_the_base_fails_the_sanity_check(
    tmp_path: Path, suffix: str, entries: list[tuple[int, int]], part: str
) -> None:
    form = ">ii" if suffix == ".index" else ">qi"
    path = tmp_path / f"{BASE}{suffix}"
    path.write_bytes(b"".join(struct.pack(form, *entry) for entry in entries))
    code, said = run("dump", "--index-sanity-check", str(path))
    assert code == 1
    assert f"{path} failed sanity check: {part}" in said
    path.write_bytes(struct.pack(form, *entries[0]))
    code, said = run("dump", "--index-sanity-check", str(path))
    assert (code, said) == (0, f"Dumping {path}\n{path} passed sanity check.\n")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_in_place_of_a_sealed_segments_index_are_found(folder: Path, suffix: str) -> None:
    sealed = sorted(folder.glob("*.log"))[-2].with_suffix(suffix)
    size = len(sealed.read_bytes())
    assert size
    sealed.write_bytes(bytes(size))
    assert str(sealed) in problem(folder)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_behind_the_entries_of_the_last_segment_are_how_kafka_leaves_it(
    folder: Path, suffix: str
) -> None:
    path = last_segment(folder).with_suffix(suffix)
    path.write_bytes(path.read_bytes() + bytes(240))
    assert verify_log(OsDisk(), str(folder)).problems == []


def test_a_folder_without_logs_is_no_sound_log(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path, tmp_path / "empty"):
        assert f"{directory}: there is no .log file in it; name the folder" in problem(directory)


def test_a_replica_without_a_record_has_nothing_to_verify(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    write_partition_metadata(OsDisk(), str(tmp_path / "t-0"), bytes(16))
    code, said = run("verify", str(tmp_path / "t-0"))
    assert code == 0
    assert "nothing to verify: there is no .log file yet" in said


def test_a_verify_beside_a_running_broker_says_what_that_looks_like(folder: Path) -> None:
    holder = "\n".join(
        (
            "import sys",
            "from kvorum.launch.directories.identity import DirectoryLock",
            "lock = DirectoryLock(sys.argv[1])",
            "print('locked', flush=True)",
            "sys.stdin.read()",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(folder.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        _, _, error = kvorum("log", "verify", str(folder))
        assert f"runs on {folder.parent}: what it writes or removes meanwhile looks like" in error
        process.communicate()
    assert kvorum("log", "verify", str(folder))[2] == ""
    assert "Use it on folders that no process writes to" in kvorum("log", "verify", "--help")[1]


def test_a_bad_transaction_index_snapshot_or_checkpoint_is_found(folder: Path) -> None:
    for path, part in (
        (min(folder.glob("*.txnindex")), "no multiple of 34"),
        (min(folder.glob("*.snapshot")), "CRC of the producer snapshot"),
        (folder / "leader-epoch-checkpoint", "not a leader epoch checkpoint"),
    ):
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] if path.suffix == ".txnindex" else b"\0\1" + sound[2:-1] + b"x")
        assert part in problem(folder), path
        code, said = run("dump", str(path))
        assert code == 1
        assert part in said
        path.write_bytes(sound)


@pytest.mark.parametrize("first_offset", [-1, 1])
def test_an_aborted_transaction_that_begins_elsewhere_is_found(
    folder: Path, first_offset: int
) -> None:
    path = max(folder.glob("*.txnindex"))
    (entry, *_), (before, *_) = (
        parse_aborted(part.read_bytes(), "") for part in (path, min(folder.glob("*.txnindex")))
    )
    assert before.last_offset < entry.first_offset
    # Move the begin into the previous transaction, or behind the first record of its own.
    wrong = before.last_offset if first_offset < 0 else entry.first_offset + 1
    edit(path, 10, struct.pack(">q", wrong))
    assert f"{path}: an aborted transaction of producer 7 up to {entry.last_offset} begins at " in (
        problem(folder)
    )


@pytest.mark.parametrize("entries_left", [0, 1])
def test_a_time_index_that_lost_its_end_is_found(folder: Path, entries_left: int) -> None:
    path = sorted(folder.glob("*.timeindex"))[1]
    assert path.stat().st_size > entries_left * 12
    path.write_bytes(path.read_bytes()[: entries_left * 12])
    assert f"{path}: has nothing of timestamp" in problem(folder)


def test_who_owns_a_log_must_be_told(folder: Path) -> None:
    path = folder / "partition.metadata"
    assert not verify_log(OsDisk(), str(folder)).problems, "it was copied from elsewhere"
    (folder.parent / "meta.properties").touch()
    assert f"{path}: is not there" in problem(folder)
    write_partition_metadata(OsDisk(), str(folder), bytes(range(16)))
    assert not verify_log(OsDisk(), str(folder)).problems
    path.write_text("version: 0\ntopic_id: garbage\n")
    assert f"{path} at byte 0: not a partition.metadata" in problem(folder)


def test_a_metadata_log_is_sound_without_partition_metadata(folder: Path) -> None:
    (folder.parent / "meta.properties").touch()
    metadata_log = folder.rename(folder.parent / METADATA_LOG_FOLDER)
    found = verify_log(OsDisk(), str(metadata_log))
    assert (found.problems, found.segments > 0) == ([], True)
    code, said = run("verify", str(metadata_log))
    assert (code, f"{metadata_log}: sound; " in said) == (0, True)
    # Apache Kafka writes the file there, and a damaged one is still found.
    write_partition_metadata(OsDisk(), str(metadata_log), bytes(15) + b"\1")
    assert not verify_log(OsDisk(), str(metadata_log)).problems
    (metadata_log / "partition.metadata").write_text("version: 0\ntopic_id: garbage\n")
    assert "not a partition.metadata" in problem(metadata_log)


def test_a_metadata_log_of_a_node_that_never_started_has_nothing_to_verify(tmp_path: Path) -> None:
    (tmp_path / METADATA_LOG_FOLDER).mkdir()
    code, said = run("verify", str(tmp_path / METADATA_LOG_FOLDER))
    assert code == 0
    assert "nothing to verify: there is no .log file yet" in said


def test_lines_behind_the_leader_epochs_are_found(folder: Path) -> None:
    path = folder / "leader-epoch-checkpoint"
    path.write_text(path.read_text() + "garbage\n")
    assert f"{path} at byte 0: more than the 3 lines" in problem(folder)


def test_a_log_file_that_is_gone_is_found_by_what_lies_beside_it(folder: Path) -> None:
    gone = last_segment(folder)
    gone.unlink()
    assert f"{gone.with_suffix('.index')}: there is no {gone.name}" in problem(folder)


def test_records_that_the_checkpoint_above_knows_and_no_file_has_are_found(folder: Path) -> None:
    disk, key = OsDisk(), ("t", 0)
    end_offset = verify_log(disk, str(folder)).end_offset
    write_offsets(disk, f"{folder.parent}/{RECOVERY_POINT}", {key: end_offset})
    assert not verify_log(disk, str(folder)).problems
    for path in folder.iterdir():
        path.unlink()
    write_partition_metadata(disk, str(folder), bytes(16))
    assert f"flushed up to {end_offset}: .log files are gone" in problem(folder)
    # Unless the log's start is there too: then the records were deleted.
    write_offsets(disk, f"{folder.parent}/{LOG_START_OFFSET}", {key: end_offset})
    assert not verify_log(disk, str(folder)).problems
    (folder.parent / RECOVERY_POINT).write_text("no checkpoint")
    assert RECOVERY_POINT in problem(folder)


def test_an_epoch_that_the_checkpoint_denies_is_found(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 3\n")
    assert "epoch 0, leader-epoch-checkpoint says 5" in problem(folder)


def test_what_a_crash_left_is_noted_and_no_problem(folder: Path) -> None:
    (folder / f"{BASE}.log.cleaned").write_bytes(b"")
    for offset in range(5):
        (folder / f"{offset:020d}.log.deleted").write_bytes(b"")
    found = verify_log(OsDisk(), str(folder))
    assert found.problems == []
    (_, said) = found.notes
    assert "6 files left over (1 .cleaned, 5 .deleted)" in said


def test_gaps_in_a_dump_are_told_and_no_fault(folder: Path) -> None:
    code, said = run("dump", "--deep-iteration", str(folder / f"{BASE}.log"))
    assert code == 0
    assert f"Non-consecutive offsets in {folder}/{BASE}.log\n" in said
    assert " is followed by " in said


def test_decoders_of_topics_that_do_not_exist_are_refused_loudly(folder: Path) -> None:
    code, said = run("dump", "--offsets-decoder", str(folder / f"{BASE}.log"))
    assert code == 1
    assert "not served" in said


def test_leader_epochs_are_dumped(folder: Path) -> None:
    code, said = run("dump", str(folder / "leader-epoch-checkpoint"))
    assert code == 0
    assert "epoch: 0 startOffset: 0\n" in said


@pytest.mark.parametrize("data", [b"torn", bytes(100)])
def test_a_dump_of_a_log_with_damage_ends_with_1(folder: Path, data: bytes) -> None:
    path = folder / f"{BASE}.log"
    assert run("dump", str(path))[0] == 0
    with path.open("ab") as file:
        file.write(data)
    code, said = run("dump", str(path))
    assert code == 1
    assert f"Found {len(data)} invalid bytes at the end of {BASE}.log" in said
    assert f"{len(data)} bytes are no batch" in said
