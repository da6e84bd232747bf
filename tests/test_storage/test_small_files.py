"""Checkpoint files, the dump, and the memory disk that the crash tests stand on."""

from __future__ import annotations

import random

import pytest

from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.files import checkpoints
from kvorum.storage.files.file_names import replica_of
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.compression import Codec
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.tools.dump import DumpError, dump_lines
from kvorum.storage.tools.dump_indexes import Complaints

TOPIC_ID = bytes(15) + b"\x01"


def new_disk(seed: int = 1) -> MemoryDisk:
    disk = MemoryDisk(random.Random(seed))
    disk.make_dirs("d")
    disk.sync_dir(".")
    return disk


# --- checkpoints ---------------------------------------------------------------------------------


def test_offset_checkpoints_have_kafkas_text_and_come_back() -> None:
    disk = new_disk()
    offsets = {("data-0", 2): 550_217, ("__consumer_offsets", 3): 0}
    checkpoints.write_offsets(disk, "d/c", offsets)
    assert disk.read_bytes("d/c") == b"0\n2\n__consumer_offsets 3 0\ndata-0 2 550217\n"
    assert checkpoints.read_offsets(disk, "d/c") == offsets
    assert checkpoints.read_offsets(disk, "d/none") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "'' in line 1"),
        (b"9\n0\n", "version 9"),
        (b"0", "too few lines"),
        (b"0\n2\na 0 1\n", "'' in line 4"),
        (b"0\n3\na 0 1\n", "'' in line 4"),
        (b"0\n1\na b c\n", "'a b c' in line 3"),
        (b"junk", "'junk' in line 1"),
    ],
)
def test_an_offset_checkpoint_that_is_none_is_reported(text: bytes, said: str) -> None:
    disk = new_disk()
    disk.write_atomic("d/c", text)
    with pytest.raises(CorruptData, match=said) as damage:
        checkpoints.read_offsets(disk, "d/c")
    assert "invalid literal" not in str(damage.value)


def test_the_clean_shutdown_marker_is_taken_once_even_over_a_crash() -> None:
    disk = new_disk()
    checkpoints.write_clean_shutdown(disk, "d", broker_epoch=41)
    assert disk.read_bytes("d/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":41}'
    assert checkpoints.read_clean_shutdown(disk, "d") == 41
    checkpoints.remove_clean_shutdown(disk, "d")
    disk.crash()
    assert checkpoints.read_clean_shutdown(disk, "d") is None
    disk.write_atomic("d/.kafka_cleanshutdown", b"[]")
    assert checkpoints.read_clean_shutdown(disk, "d") is None


def test_partition_metadata_has_kafkas_text_and_comes_back() -> None:
    disk = new_disk()
    assert checkpoints.read_partition_metadata(disk, "d") is None
    checkpoints.write_partition_metadata(disk, "d", TOPIC_ID)
    text = disk.read_bytes("d/partition.metadata")
    assert text == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.read_partition_metadata(disk, "d") == TOPIC_ID
    for damaged in (b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\ntopic_id: x"):
        disk.write_atomic("d/partition.metadata", damaged)
        with pytest.raises(CorruptData):
            checkpoints.read_partition_metadata(disk, "d")


def test_meta_properties_come_back_and_javas_escapes_are_read() -> None:
    disk = new_disk()
    assert checkpoints.read_meta_properties(disk, "d") is None
    properties = {"version": "1", "node.id": "101", "cluster.id": "AAAA-_\\x"}
    checkpoints.write_meta_properties(disk, "d", properties)
    assert checkpoints.read_meta_properties(disk, "d") == properties
    disk.write_atomic("d/meta.properties", b"#\n#Sat Nov 21\na=b\\:c\n")
    assert checkpoints.read_meta_properties(disk, "d") == {"a": "b:c"}
    disk.write_atomic("d/meta.properties", b"a=b\nnonsense\n")
    with pytest.raises(CorruptData):
        checkpoints.read_meta_properties(disk, "d")
    with pytest.raises(ValueError, match="cannot stand"):
        checkpoints.write_meta_properties(disk, "d", {"a": "b\nc=d"})


# --- dump ----------------------------------------------------------------------------------------


def dumped_log(disk: MemoryDisk) -> Log:
    log = Log.open(disk, "d/t-0", LogConfig(index_interval_bytes=50), now_ms=0)
    plain = build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000)
    packed = build_batch(
        [(None, b"hello")] * 2,
        timestamp_ms=1_700_000_000_005,
        producer_id=4000,
        producer_epoch=1,
        base_sequence=8,
        compression=Codec.ZSTD,
    )
    marker = build_batch(
        [(bytes.fromhex("00000001"), bytes.fromhex("000000000005"))],
        timestamp_ms=1_700_000_000_009,
        producer_id=4000,
        producer_epoch=1,
        is_control=True,
        is_transactional=True,
    )
    for batch in (plain, packed, marker):
        log.append_as_leader(batch, leader_epoch=3, now_ms=0)
    log.close()
    return log


def test_batch_lines_read_as_kafka_dump_log_prints_them() -> None:
    disk = new_disk()
    dumped_log(disk)
    path = "d/t-0/00000000000000000000.log"
    lines = list(dump_lines(disk, path))
    assert lines[:3] == [
        f"Dumping {path}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1"
        " producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false"
        " deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000000 size: 70"
        " magic: 2 compresscodec: none crc: 3919285720 isvalid: true",
    ]
    assert "lastSequence: 9" in lines[3] and "compresscodec: zstd" in lines[3]
    assert "isTransactional: true isControl: true" in lines[4] and len(lines) == 5


def test_record_lines_read_as_kafka_dump_log_prints_them() -> None:
    disk = new_disk()
    dumped_log(disk)
    path = "d/t-0/00000000000000000000.log"
    lines = [line for line in dump_lines(disk, path, print_data_log=True) if line[0] == "|"]
    assert lines == [
        "| offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: -1"
        " headerKeys: [] key: k payload: v",
        "| offset: 1 CreateTime: 1700000000005 keySize: -1 valueSize: 5 sequence: 8"
        " headerKeys: [] payload: hello",
        "| offset: 2 CreateTime: 1700000000005 keySize: -1 valueSize: 5 sequence: 9"
        " headerKeys: [] payload: hello",
        "| offset: 3 CreateTime: 1700000000009 keySize: 4 valueSize: 6 sequence: -1"
        " headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 5",
    ]
    shallow = [line for line in dump_lines(disk, path, deep_iteration=True) if line[0] == "|"]
    assert shallow[0].endswith("headerKeys: []")


def test_indexes_are_dumped_and_other_files_refused() -> None:
    disk = new_disk()
    dumped_log(disk)
    index = list(dump_lines(disk, "d/t-0/00000000000000000000.index"))
    assert index[1:] == ["offset: 2 position: 70", f"offset: 3 position: {_last_position(disk)}"]
    times = list(dump_lines(disk, "d/t-0/00000000000000000000.timeindex"))
    assert times[1:] == ["timestamp: 1700000000005 offset: 2", "timestamp: 1700000000009 offset: 3"]
    for path in ("d/t-0/00000000000000000004.checkpoint", "d/t-0/nothing.log"):
        with pytest.raises(DumpError):
            list(dump_lines(disk, path))


def _last_position(disk: MemoryDisk) -> int:
    line = list(dump_lines(disk, "d/t-0/00000000000000000000.log"))[-1]
    return int(line.partition(" position: ")[2].partition(" ")[0])


def test_a_dump_shows_damage_and_changes_nothing() -> None:
    disk = new_disk()
    dumped_log(disk)
    path = "d/t-0/00000000000000000000.log"
    disk.flip_bits(path, 65)
    file = disk.open(path)
    file.pwrite(b"torn", file.size())
    before = disk.read_bytes(path)
    complaints = Complaints()
    lines = list(dump_lines(disk, path, complaints=complaints))
    assert lines[2].endswith("isvalid: false") and lines[3].endswith("isvalid: true")
    assert lines[-1].startswith("Found 4 invalid bytes at the end of ")
    assert complaints.are_faults
    said = [damage.partition(f"{path} at byte ")[2] for damage in complaints.damage]
    assert said[0] == "0: the CRC does not match"
    assert said[1].endswith(": 4 bytes are no batch")
    assert disk.read_bytes(path) == before


def test_a_dump_shows_the_records_of_a_damaged_batch_as_far_as_they_can_be_read() -> None:
    disk = new_disk()
    dumped_log(disk)
    path = "d/t-0/00000000000000000000.log"
    whole = [line for line in dump_lines(disk, path, deep_iteration=True) if line[0] == "|"]
    disk.flip_bits(path, 17)  # the CRC itself
    damaged = [line for line in dump_lines(disk, path, deep_iteration=True) if line[0] == "|"]
    assert damaged == whole
    disk.flip_bits(path, 61)  # the length of the first record
    complaints = Complaints()
    lines = list(dump_lines(disk, path, deep_iteration=True, complaints=complaints))
    assert lines[3].startswith("| not readable: ")
    assert len(complaints.damage) == 2


# --- the memory disk -----------------------------------------------------------------------------


def test_synced_bytes_survive_and_unsynced_ones_only_as_a_prefix() -> None:
    seen = set()
    for seed in range(60):
        disk = new_disk(seed)
        file = disk.open("d/f")
        disk.sync_dir("d")
        file.pwrite(b"ab", 0)
        file.sync()
        file.pwrite(b"cd", 2)
        file.pwrite(b"ef", 4)
        disk.crash()
        with pytest.raises(OSError, match="closed"):
            file.size()
        seen.add(disk.read_bytes("d/f"))
    assert seen == {b"ab", b"abc", b"abcd", b"abcde", b"abcdef"}


def test_names_survive_only_as_a_prefix_until_the_folder_is_synced() -> None:
    seen = set()
    for seed in range(60):
        disk = new_disk(seed)
        disk.open("d/one").sync()
        disk.open("d/two").sync()
        disk.rename("d/two", "d/three")
        disk.crash()
        seen.add(tuple(disk.list_dir("d")))
    assert seen == {(), ("one",), ("one", "two"), ("one", "three")}


def test_write_atomic_leaves_the_old_or_the_new_content() -> None:
    seen = set()
    for seed in range(60):
        disk = new_disk(seed)
        disk.write_atomic("d/f", b"old")
        disk.cut_power_after(seed % 6)
        try:
            disk.write_atomic("d/f", b"newer")
        except PowerCut:
            disk.crash()
        seen.add(disk.read_bytes("d/f"))
    assert seen == {b"old", b"newer"}


def test_the_capacity_is_a_limit_and_faults_strike_where_told() -> None:
    disk = MemoryDisk(random.Random(1), capacity_bytes=10)
    file = disk.open("f")
    file.pwrite(b"12345678", 0)
    with pytest.raises(OSError, match="no space"):
        file.pwrite(b"abc", 8)
    disk.fail("sync", path_part="other")
    file.sync()
    disk.fail("sync", path_part="f", count=2)
    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            file.sync()
    file.sync()
    with pytest.raises(FileNotFoundError):
        disk.open("nowhere/f")


def test_a_replicas_folder_is_told_by_its_name():
    assert replica_of("a-b-12") == ("a-b", 12)
    for name in ("a", "a-", "-1", "a-²", "a-x"):
        assert replica_of(name) is None
