"""OsDisk on real files."""

from __future__ import annotations

import errno
import os
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.disk import OsDisk


def test_what_is_written_at_a_position_is_read_there(tmp_path):
    disk = OsDisk()
    path = str(tmp_path / "f")
    file = disk.open(path)
    assert (file.path, file.size()) == (path, 0) and file.fileno() >= 0
    file.pwrite(b"hello", 3)
    file.pwrite(memoryview(b"J"), 3)
    file.pwrite(bytearray(b"!"), 8)
    file.sync()
    assert file.size() == 9
    assert file.pread(5, 3) == b"Jello"
    assert file.pread(100, 7) == b"o!"
    assert file.pread(1, 50) == b""
    assert file.pread(3, 0) == bytes(3)
    file.truncate(4)
    assert disk.read_bytes(path) == b"\x00\x00\x00J"
    file.close()
    file.close()
    again = disk.open(path)
    assert again.size() == 4
    again.close()


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file = OsDisk().open(str(tmp_path / "f"))
    file.pwrite(b"0123456789", 2)
    file.close()
    assert OsDisk().read_bytes(str(tmp_path / "f")) == b"\x00\x000123456789"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(0, 200)), max_size=10))
def test_file_equals_an_array_of_bytes(tmp_path_factory, writes):
    file = OsDisk().open(str(tmp_path_factory.mktemp("model") / "f"))
    model = bytearray()
    for data, position in writes:
        file.pwrite(data, position)
        if data:
            model.extend(bytes(max(0, position + len(data) - len(model))))
            model[position : position + len(data)] = data
    assert file.pread(1_000, 0) == bytes(model) and file.size() == len(model)
    file.close()


def test_folders_are_made_listed_renamed_and_removed(tmp_path):
    disk = OsDisk()
    top = str(tmp_path / "a")
    disk.make_dirs(f"{top}/b/c")
    disk.make_dirs(f"{top}/b/c")
    disk.write_atomic(f"{top}/z", b"1")
    assert disk.list_dir(top) == ["b", "z"] and disk.exists(f"{top}/z")
    disk.write_atomic(f"{top}/y", b"2")
    disk.rename(f"{top}/y", f"{top}/z")
    assert disk.read_bytes(f"{top}/z") == b"2" and disk.list_dir(top) == ["b", "z"]
    disk.sync_dir(top)
    for _ in range(2):
        disk.remove(f"{top}/z")
        disk.remove_tree(f"{top}/b")
    assert disk.list_dir(top) == [] and disk.list_dir(f"{top}/missing") == []


def test_atomic_write_replaces_all_or_nothing(tmp_path, monkeypatch):
    disk = OsDisk()
    path = str(tmp_path / "f")
    big = random.Random(1).randbytes(1 << 20)
    disk.write_atomic(path, b"old")
    disk.write_atomic(path, big)
    assert disk.read_bytes(path) == big and disk.list_dir(str(tmp_path)) == ["f"]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomic(path, b"new")
    assert disk.read_bytes(path) == big


def test_file_in_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        OsDisk().open(str(tmp_path / "missing" / "f"))


@pytest.mark.skipif(sys.platform != "linux", reason="fallocate is Linux's")
def test_reserved_space_leaves_the_size_as_it_is_and_is_given_back(tmp_path):
    path = tmp_path / "segment"
    file = OsDisk().open(str(path))
    file.pwrite(b"batch", 0)
    file.reserve(1 << 20)
    assert file.size() == 5
    if path.stat().st_blocks * 512 < 1 << 20:
        pytest.skip("this file system reserves nothing")
    file.truncate(5)
    file.close()
    assert path.stat().st_blocks * 512 < 1 << 20
    assert path.read_bytes() == b"batch"


@pytest.mark.skipif(sys.platform != "linux", reason="fallocate is Linux's")
def test_space_that_is_not_there_cannot_be_reserved(tmp_path):
    file = OsDisk().open(str(tmp_path / "segment"))
    with pytest.raises(OSError, match="segment") as failed:
        file.reserve(1 << 62)
    assert failed.value.errno in (errno.ENOSPC, errno.EFBIG)
    file.close()
