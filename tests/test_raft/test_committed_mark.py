"""The file that says how far the metadata log was known to be committed."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.raft.node.committed_mark import FILE_NAME, CommittedMark, read_committed
from kvorum.runtime.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk(random.Random(1))
    made.make_dirs("/d")
    return made


class Later:
    """The event loop's call_later: a timer waits until the test fires it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, _: float, call: Callable[[], None]) -> Any:
        self.waiting.append(call)
        return SimpleNamespace(cancel=self.waiting.clear)

    def fire(self) -> None:
        self.waiting.pop()()


def test_commits_of_a_second_are_one_write_and_the_last_is_read_again(disk: MemoryDisk) -> None:
    later = Later()
    mark = CommittedMark(disk, "/d", later)
    for offset in (7, 12, 1_000):
        mark.note(offset)
    assert len(later.waiting) == 1
    assert read_committed(disk, "/d") == -1
    later.fire()
    assert read_committed(disk, "/d") == 1_000
    assert disk.read_bytes(f"/d/{FILE_NAME}") == b"00000000000000001000\n"


def test_a_stop_writes_what_was_committed_last(disk: MemoryDisk) -> None:
    later = Later()
    mark = CommittedMark(disk, "/d", later)
    mark.note(5)
    mark.close()
    assert (read_committed(disk, "/d"), later.waiting) == (5, [])


def test_a_node_that_heard_of_no_commit_writes_no_file(disk: MemoryDisk) -> None:
    CommittedMark(disk, "/d", Later()).close()
    assert not disk.exists(f"/d/{FILE_NAME}")


def test_a_disk_that_refuses_the_file_is_told_and_the_node_goes_on(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    later = Later()
    mark = CommittedMark(disk, "/missing", later)
    mark.note(5)
    later.fire()
    assert "cannot write /missing/committed-offset" in caplog.text
    mark.note(6)
    assert later.waiting, "the next commit tries again"


@pytest.mark.parametrize("content", [b"", b"12", b"x" * 21, b"0" * 19 + b"\n", b"\0" * 21])
def test_a_file_that_a_power_cut_left_says_nothing(disk: MemoryDisk, content: bytes) -> None:
    file = disk.open(f"/d/{FILE_NAME}")
    file.pwrite(content, 0)
    file.close()
    assert read_committed(disk, "/d") == -1
