"""An image written to a snapshot and read back, and `kvorum snapshot inspect` on files."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys

import msgpack
import pytest

from kvorum.cli.main import main
from kvorum.metadata.image.snapshot_job import (
    header_of,
    last_timestamp_ms,
    load_image,
    payloads_of,
)
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.ids import uuid_text
from kvorum.snapshots.format import SnapshotHeader
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import build_batch
from tests.test_metadata.worlds import World
from tests.test_snapshots.places import NEW


@pytest.fixture
def image():
    world = World()
    world.create("t", partitions=5, configs=(("retention.ms", "1"),))
    world.heartbeat(101, want_shutdown=True)
    return world.image


@pytest.fixture
def store(tmp_path):
    return SnapshotStore(OsAsyncDisk(), str(tmp_path))


@pytest.fixture
def file(store, image):
    header = header_of(image, timestamp_ms=1_700_000_000_123, kraft_version=1, voters=NEW.voters)
    return store.path(asyncio.run(store.write(header, payloads_of(image))))


@pytest.fixture
def inspect(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvorum", "snapshot", "inspect", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return run


def test_an_image_survives_its_snapshot(file, image):
    header, loaded = asyncio.run(load_image(OsAsyncDisk(), file))
    assert loaded == image and header.voters == NEW.voters


def test_the_timestamp_of_a_snapshot_is_that_of_the_last_record():
    batches = [build_batch([(None, b"x")], timestamp_ms=ms) for ms in (5, 9, 7)]
    assert last_timestamp_ms(b"".join(map(bytes, batches))) == 7
    assert last_timestamp_ms(b"") == 0


def test_a_good_file_is_described(inspect, file, image):
    code, out, err = inspect(file)
    assert (code, err) == (0, "")
    lines = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
    said = {name.strip(): value.strip() for name, value in lines.items()}
    assert said["end offset"] == str(image.end_offset) and said["version"] == "1"
    assert said["timestamp"] == "1700000000123 (2023-11-14T22:13:20.123+00:00)"
    assert said["voters"] == "1@localhost:9093:AAAAAAAAAAAAAAAAAAAAAQ"
    assert (said["Partition"], said["Topic"], said["RegisterBroker"]) == ("5", "1", "3")
    assert out.splitlines()[-1] == "checksum ok, footer ok"


def test_what_is_not_there_is_not_printed(inspect, store, image):
    id = asyncio.run(store.write(header_of(image, timestamp_ms=1), []))
    code, out, _ = inspect(store.path(id))
    assert code == 0 and "kraft version" not in out and "voters" not in out


def test_a_copy_under_any_name_is_described_as_json(inspect, file, image, tmp_path):
    copy = shutil.copy(file, tmp_path / "copy")
    code, out, _ = inspect(copy, "-o", "json")
    answer = json.loads(out)
    assert code == 0 and answer["name"] == "copy"
    assert answer["end_offset"] == image.end_offset and answer["records_by_type"]["Topic"] == 1
    assert answer["voters"][0]["node_id"] == 1 and answer["checksum"] == answer["footer"] == "ok"


def test_every_record_is_a_line(inspect, file, image):
    code, out, _ = inspect(file, "--records", "-o", "json")
    summary, *records = map(json.loads, out.splitlines())
    assert code == 0 and len(records) == summary["records"]
    (topic,) = [record for record in records if record["type"] == "Topic"]
    assert topic["topic_id"] == uuid_text(image.topic("t").topic_id)
    code, out, _ = inspect(file, "--records")
    assert [json.loads(line) for line in out.splitlines() if line.startswith("{")] == records


def test_a_damaged_file_is_refused_in_one_sentence(inspect, file):
    with open(file, "r+b") as handle:
        handle.seek(-3, 2)
        handle.write(b"?")
    code, out, err = inspect(file, "--records")
    assert (code, out) == (1, "")
    assert err.startswith(f"kvorum: {file} at byte ") and err.count("\n") == 1
    assert err.endswith("a frame fails its checksum\n")


def test_a_cut_file_is_refused(inspect, file):
    with open(file, "r+b") as handle:
        handle.truncate(100)
    code, _, err = inspect(file)
    assert code == 1 and err.endswith("the file is cut off here\n")


def test_a_foreign_file_is_called_so(inspect, tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(100))
    code, _, err = inspect(path)
    assert code == 1
    assert err == (
        f"kvorum: {path} at byte 0: not a Kvorum snapshot, it begins with b'\\x00\\x00\\x00\\x00'\n"
    )


def test_a_newer_file_is_called_so(inspect, file):
    with open(file, "r+b") as handle:
        handle.seek(4)
        handle.write(b"\x00\x07")
    code, _, err = inspect(file)
    assert code == 1
    assert err == f"kvorum: {file} at byte 4: snapshot version 7, this build reads version 1\n"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (msgpack.packb([msgpack.packb([9_999, 0])]), "metadata record type 9999 is unknown"),
        (msgpack.packb(1), "not an array of metadata records"),
        (b"\xc1", "a snapshot frame is not msgpack"),
    ],
)
def test_records_of_a_newer_build_are_named(inspect, store, payload, reason):
    header = SnapshotHeader(end_offset=1, epoch=1, timestamp_ms=1)
    path = store.path(asyncio.run(store.write(header, [payload])))
    code, out, err = inspect(path)
    assert (code, out) == (1, "")
    assert err.startswith(f"kvorum: {path}: checksums ok, but ") and reason in err
