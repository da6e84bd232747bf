"""The fault board, and the disk and the clock that obey it."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.clock import SYSTEM_CLOCK, wall_ms
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.fault_board import (
    HEALTHY,
    SIZE_BYTES,
    UNLIMITED,
    Conditions,
    FaultBoard,
    Hits,
    Word,
    create_board,
)
from kvorum.runtime.machine import machine_of
from tests.polling import eventually

HOUR_US = 3_600_000_000


@pytest.fixture
def board(tmp_path):
    board = create_board(str(tmp_path / "node.board"))
    yield board
    board.close()


@pytest.fixture
def machine(board):
    return machine_of(board.path)


@pytest.fixture
def file(machine, tmp_path):
    file = machine.disk.open(str(tmp_path / "data"))
    yield file
    file.close()


def test_conditions_read_back_on_the_other_side(board):
    other = FaultBoard(board.path)
    assert other.conditions() == HEALTHY
    sick = Conditions(
        sync_delay_us=250_000,
        sync_errno=errno.EIO,
        write_errno=errno.EROFS,
        room_bytes=0,
        clock_offset_ms=-3_600_000,
    )
    board.set(sick)
    assert other.conditions() == sick
    board.set(HEALTHY)
    assert other.conditions() == HEALTHY
    other.close()


@pytest.mark.parametrize("content", [b"", b"x" * 8, bytes(SIZE_BYTES), bytes(SIZE_BYTES + 8)])
def test_a_file_that_is_no_board_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no fault board"):
        machine_of(str(path))
    with pytest.raises(ConfigError, match="cannot be opened"):
        machine_of(str(tmp_path / "missing"))


def test_a_node_without_a_board_has_the_operating_systems_own_parts():
    machine = machine_of("")
    assert type(machine.disk) is OsDisk
    assert type(machine.async_disk) is OsAsyncDisk
    assert machine.clock is SYSTEM_CLOCK


def test_a_healthy_board_changes_nothing(board, machine, file, tmp_path):
    file.pwrite(b"abc", 0)
    file.sync()
    file.truncate(2)
    machine.disk.write_atomic(str(tmp_path / "whole"), b"whole")
    assert file.pread(9, 0) == b"ab"
    assert machine.disk.read_bytes(str(tmp_path / "whole")) == b"whole"
    assert board.hits() == Hits(delayed_syncs=0, failed_calls=0)
    assert board.words[Word.USED_BYTES] == 0


def test_a_full_disk_takes_what_has_room_and_overwrites(board, file, tmp_path):
    file.pwrite(b"0123456789", 0)
    board.set(Conditions(room_bytes=4))
    file.pwrite(b"abcdef", 6)
    with pytest.raises(OSError, match="No space left") as full:
        file.pwrite(b"xyz", 12)
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(tmp_path / "data"))
    file.pwrite(b"ABCDEF", 0)
    file.pwrite(b"yz", 12)
    assert file.pread(99, 0) == b"ABCDEFabcdefyz"
    assert board.hits().failed_calls == 1
    board.set(HEALTHY)
    file.pwrite(b"more", 14)


def test_the_room_counts_from_zero_when_the_disk_fills_again(board, file):
    board.set(Conditions(room_bytes=4))
    file.pwrite(b"1234", 0)
    board.set(Conditions(room_bytes=4, sync_delay_us=1))
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"5", 4)
    board.set(HEALTHY)
    board.set(Conditions(room_bytes=4))
    file.pwrite(b"5678", 4)


def test_a_full_disk_refuses_checkpoints_and_snapshots(board, machine, tmp_path):
    whole = str(tmp_path / "whole")
    machine.disk.write_atomic(whole, b"old")
    board.set(Conditions(room_bytes=0))
    with pytest.raises(OSError, match="No space left"):
        machine.disk.write_atomic(whole, b"new")
    assert machine.disk.read_bytes(whole) == b"old"

    async def snapshot() -> None:
        writing = await machine.async_disk.open_write(str(tmp_path / "snapshot"), append=False)
        try:
            await writing.write(b"state")
        finally:
            await writing.close()

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(snapshot())


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_failing_syncs_fail_for_files_folders_and_snapshots(board, machine, file, number, tmp_path):
    board.set(Conditions(sync_errno=number))
    file.pwrite(b"a", 0)

    async def sync_snapshot() -> None:
        writing = await machine.async_disk.open_write(str(tmp_path / "snapshot"), append=False)
        try:
            await writing.sync()
        finally:
            await writing.close()

    calls = (
        file.sync,
        lambda: machine.disk.sync_dir(str(tmp_path)),
        lambda: machine.disk.write_atomic(str(tmp_path / "whole"), b"x"),
        lambda: asyncio.run(sync_snapshot()),
        lambda: asyncio.run(machine.async_disk.sync_dir(str(tmp_path))),
    )
    for call in calls:
        with pytest.raises(OSError, match="a fault of the chaos lab") as failed:
            call()
        assert failed.value.errno == number
    assert board.hits().failed_calls == len(calls)


def test_failing_writes_fail_and_syncs_do_not(board, machine, file, tmp_path):
    board.set(Conditions(write_errno=errno.EIO))
    for call in (
        lambda: file.pwrite(b"a", 0),
        lambda: file.truncate(0),
        lambda: machine.disk.write_atomic(str(tmp_path / "whole"), b"x"),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            call()
    file.sync()
    assert file.size() == 0


def test_a_slow_fsync_waits_and_ends_with_its_fault(board, file):
    board.set(Conditions(sync_delay_us=HOUR_US))
    syncing = threading.Thread(target=file.sync)
    syncing.start()
    eventually(lambda: board.hits().delayed_syncs == 1, "the fsync waits")
    assert syncing.is_alive()
    board.set(HEALTHY)
    syncing.join(60)
    assert not syncing.is_alive()


def test_a_stepped_clock_moves_the_wall_clock_alone(board, machine):
    board.set(Conditions(clock_offset_ms=-3_600_000))
    before_ms = wall_ms()
    stepped_ms = machine.clock.wall_ms()
    assert before_ms - 3_600_000 <= stepped_ms <= wall_ms() - 3_600_000
    assert machine.clock.monotonic_ms is SYSTEM_CLOCK.monotonic_ms
    board.set(Conditions(clock_offset_ms=86_400_000))
    assert machine.clock.wall_ms() > before_ms + 86_000_000
    board.set(HEALTHY)
    assert before_ms <= machine.clock.wall_ms() <= wall_ms()


def test_the_room_is_unlimited_by_default():
    assert HEALTHY.room_bytes == UNLIMITED
