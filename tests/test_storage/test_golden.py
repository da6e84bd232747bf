"""Folders that Apache Kafka 4.1 wrote for librdkafka and Java producers (tests/golden/make.py)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvorum.runtime.disk import OsDisk
from kvorum.storage.files.file_names import INDEX_SUFFIXES
from kvorum.storage.format.batch import (
    HEADER_BYTES,
    BatchHeader,
    encode_record,
    iter_headers,
    iter_records,
    read_header,
    seal_batch,
)
from kvorum.storage.format.client_batch import validate_client_batch, validate_client_records
from kvorum.storage.format.compression import Codec, decompress
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.tools.dump import dump_lines
from kvorum.storage.tools.verify import verify_log

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kafka-4.1.0"
FOLDERS = sorted(path.name for path in GOLDEN.iterdir())
CODECS = [codec.name.lower() for codec in Codec]
CONFIG = LogConfig(retention_ms=-1, segment_ms=1 << 60, index_interval_bytes=4096)


def segments(folder: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob("*.log"))


def batches(folder: str) -> list[tuple[BatchHeader, bytes]]:
    found = []
    for path in segments(folder):
        data = path.read_bytes()
        found += [(h, data[at : at + h.size_bytes]) for at, h in iter_headers(data)]
    return found


def opened(folder: str, tmp_path: Path, config: LogConfig = CONFIG, **options) -> Log:
    """A log on a copy of the folder."""
    target = tmp_path / folder
    if not target.exists():
        shutil.copytree(GOLDEN / folder, target)
    return Log.open(OsDisk(), str(target), config, now_ms=0, **options)


def test_the_folders_hold_both_clients_with_every_codec_and_both_timestamp_types() -> None:
    for client in ("librdkafka", "java"):
        for codec in CODECS:
            headers = [header for header, _ in batches(f"{client}-{codec}-0")]
            assert {Codec(h.compression_code).name.lower() for h in headers} == {codec}
            assert not any(header.is_log_append_time for header in headers)
    assert {header.is_log_append_time for header, _ in batches("append-time-0")} == {True}


@pytest.mark.parametrize("folder", FOLDERS)
def test_our_dump_is_line_by_line_what_kafkas_tool_printed(folder: str) -> None:
    complaints: list[str] = []
    ours = []
    for path in sorted(p for p in (GOLDEN / folder).iterdir() if p.name[0] == "0"):
        ours += list(dump_lines(OsDisk(), str(path), print_data_log=True))
    text = "\n".join(ours).replace(f"{GOLDEN / folder}/", "") + "\n"
    assert text == (GOLDEN / folder / "kafka-dump-log.txt").read_text()
    assert complaints == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_we_find_nothing_to_complain_of(folder: str) -> None:
    found = verify_log(OsDisk(), str(GOLDEN / folder))
    assert found.problems == []
    assert all("offsets are in no batch" in note for note in found.notes)
    assert bool(found.notes) == folder.startswith("compacted")
    assert found.batches == len(batches(folder))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("librdkafka", [((b"h", b"1"), (b"h", None)), ((b"empty", b""),), ()]),
        ("java", [((b"h", b"1"), (b"g", b"2")), ((b"e", b""),), ()]),
    ],
)
def test_records_of_real_producers_are_read_as_they_were_sent(client, codec, headers) -> None:
    found = [
        record
        for header, data in batches(f"{client}-{codec}-0")
        for record in iter_records(data, 0, header)
    ]
    assert [(r.offset, r.key, r.value) for r in found] == [
        (0, b"key-1", b"value-1" * 20),
        (1, b"key-2", None),
        (2, None, b"value-3" * 20),
    ]
    assert [record.headers for record in found] == headers


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_record_is_encoded_again_to_the_same_bytes(folder: str) -> None:
    for header, data in batches(folder):
        region = data[HEADER_BYTES:]
        if header.compression_code:
            region = bytes(decompress(Codec(header.compression_code), region, bytes_max=1 << 20))
        plain = seal_batch(
            header._replace(attributes=header.attributes & ~0x0F), [bytes(HEADER_BYTES), region]
        )
        encoded = [
            encode_record(
                offset_delta=record.offset - header.base_offset,
                timestamp_delta_ms=record.timestamp_ms - header.base_timestamp_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
            for record in iter_records(plain, 0, read_header(plain, 0))
        ]
        assert b"".join(encoded) == region
        assert seal_batch(header, [bytes(HEADER_BYTES), data[HEADER_BYTES:]]) == data


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith(("librdkafka", "java"))])
def test_what_a_producer_sent_passes_is_appended_and_read_back(folder: str, tmp_path: Path) -> None:
    log = Log.open(OsDisk(), str(tmp_path / "t-0"), CONFIG, now_ms=0)
    for _, data in batches(folder):
        sent = bytearray(data)
        sent[:8] = bytes(8)
        header = validate_client_batch(sent, max_message_bytes=1 << 20)
        assert validate_client_records(sent, header) is header, "nothing had to be put right"
        assert log.producers.check(header) is None
        done = log.append_as_leader(sent, leader_epoch=0, now_ms=0)
        stored = log.read(done.base_offset, bytes_max=1 << 20, end_offset=log.end_offset).read()
        assert stored == data


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_kafkas_is_opened_read_and_written_on(
    folder: str, is_clean: bool, tmp_path: Path
) -> None:
    log = opened(folder, tmp_path, is_clean=is_clean)
    stored = [data for _, data in batches(folder)]
    assert log.torn_tail is None
    assert log.end_offset == batches(folder)[-1][0].end_offset
    assert log.epochs.entries == [(0, 0)]
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, bytes_max=1, end_offset=log.end_offset).read()
        found.append(piece)
        offset = read_header(piece, 0).end_offset
    assert found == stored
    again = bytearray(stored[-1])
    log.append_as_leader(again, leader_epoch=0, now_ms=0)
    log.close()
    assert opened(folder, tmp_path, is_clean=True).end_offset > offset


@pytest.mark.parametrize("folder", FOLDERS)
def test_indexes_and_snapshots_made_from_the_batches_are_kafkas_byte_by_byte(
    folder: str, tmp_path: Path
) -> None:
    interval = 100 if folder == "rolled-0" else 4096
    config = LogConfig(retention_ms=-1, index_interval_bytes=interval)
    target = tmp_path / folder
    shutil.copytree(GOLDEN / folder, target)
    for path in target.iterdir():
        if path.name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
            path.unlink()
    log = opened(folder, tmp_path, config)
    log.close()
    suffixes = (*INDEX_SUFFIXES, ".snapshot")
    theirs = {p.name: p.read_bytes() for p in (GOLDEN / folder).iterdir() if p.suffix in suffixes}
    ours = {p.name: p.read_bytes() for p in target.iterdir() if p.suffix in suffixes}
    assert ours == theirs


def test_a_transaction_that_kafka_aborted_is_told_to_read_committed_consumers(
    tmp_path: Path,
) -> None:
    log = opened("transactions-0", tmp_path, is_clean=True)
    piece = log.read(0, bytes_max=1 << 20, end_offset=log.end_offset)
    told = log.segments.aborted_in(piece, end_offset=log.end_offset)
    assert [(entry.first_offset, entry.last_offset) for entry in told] == [(3, 5)]
    assert log.last_stable_offset(log.end_offset) == log.end_offset
