"""A start that ends before a log is opened leaves the clean-shutdown markers to the next one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kvorum.broker.controller_channel.lifecycle import RegistrationFailed
from kvorum.broker.log_dirs.replica_store import UNCLEAN_LOGS
from kvorum.launch.directories.log_directories import UNCLEAN
from kvorum.launch.nodes.broker_process import BrokerProcess
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.storage.files.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK,
    read_clean_shutdown,
    write_clean_shutdown,
)
from tests.test_launch.node_folders import process_on, take

BEFORE, REGISTERED = 7, 9
"""Broker epochs: of the process that closed the logs, and of this one."""


class Opened(Exception):
    """Raised when the first image reaches the replicas, just before logs are opened."""


class FailingDisk(OsDisk):
    """A disk that fails to remove files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remove(self, path: str) -> None:
        if path.startswith(f"{self.folder}/"):
            raise OSError(errno.EIO, "i/o error", path)
        super().remove(path)


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    """The data directories of a broker that was shut down cleanly."""
    x, y = tmp_path / "x", tmp_path / "y"
    take(x, y).release()
    for path in (x, y):
        write_clean_shutdown(OsDisk(), str(path), broker_epoch=BEFORE)
    return x, y


def marks(*paths: Path) -> list[int | None]:
    return [read_clean_shutdown(OsDisk(), str(path)) for path in paths]


def registering(process: BrokerProcess, sees: Callable[[], Awaitable[bool]]) -> None:
    """Let the controller accept the registration; `sees` waits until the image shows it."""

    async def register() -> None:
        process._lifecycle.broker_epoch = REGISTERED

    async def wait_for(end_offset: int, timeout_ms: int) -> bool:
        assert end_offset == REGISTERED + 1
        return await sees()

    process._lifecycle.register = register  # type: ignore[method-assign]
    process._publisher.wait_for = wait_for  # type: ignore[method-assign]


async def shown() -> bool:
    return True


async def never_shown() -> bool:
    return False


async def started(process: BrokerProcess) -> None:
    try:
        await process.start()
    finally:
        await process.stop()


def refuse(process: BrokerProcess) -> None:
    async def register() -> None:
        raise RegistrationFailed("another process is alive")

    process._lifecycle.register = register  # type: ignore[method-assign]


def test_a_registration_that_is_refused_leaves_the_next_start_a_clean_one(
    paths: tuple[Path, Path],
) -> None:
    for _ in range(2):
        process = process_on(*paths)
        refuse(process)
        with pytest.raises(ConfigError, match="another process is alive"):
            asyncio.run(started(process))
        assert process._lifecycle._registration.broker_epoch_before == BEFORE
        assert marks(*paths) == [BEFORE, BEFORE]


def test_a_start_without_the_directories_it_needs_leaves_them(paths: tuple[Path, Path]) -> None:
    (paths[0] / HIGH_WATERMARK).mkdir()
    with pytest.raises(ConfigError, match="holds the metadata log and has failed"):
        asyncio.run(started(process_on(*paths)))
    assert marks(*paths) == [BEFORE, BEFORE]


def test_which_logs_were_not_closed_is_still_known_after_it(paths: tuple[Path, Path]) -> None:
    (paths[0] / UNCLEAN_LOGS).write_text("t-3\n")
    process = process_on(*paths)
    refuse(process)
    with pytest.raises(ConfigError):
        asyncio.run(started(process))
    assert (paths[0] / UNCLEAN_LOGS).read_text() == "t-3\n"


def test_once_registered_the_markers_have_the_epoch_that_the_controller_knows(
    paths: tuple[Path, Path],
) -> None:
    process = process_on(*paths)
    registering(process, never_shown)
    with pytest.raises(ConfigError, match="did not see its own registration"):
        asyncio.run(started(process))
    assert marks(*paths) == [REGISTERED, REGISTERED]


def test_a_stop_while_its_registration_does_not_show_leaves_them_so(
    paths: tuple[Path, Path],
) -> None:
    async def stopped() -> None:
        process = process_on(*paths)
        waits = asyncio.Event()

        async def for_ever() -> bool:
            waits.set()
            return await asyncio.Event().wait()

        registering(process, for_ever)
        start = asyncio.ensure_future(process.start())
        await waits.wait()
        start.cancel()
        await asyncio.wait({start})
        await process.stop()

    asyncio.run(stopped())
    assert marks(*paths) == [REGISTERED, REGISTERED]


@pytest.mark.parametrize("epoch", [None, BEFORE - 1])
def test_an_unclean_start_that_ends_makes_no_clean_one(
    paths: tuple[Path, Path], epoch: int | None
) -> None:
    (paths[1] / CLEAN_SHUTDOWN).unlink()
    if epoch is not None:
        write_clean_shutdown(OsDisk(), str(paths[1]), broker_epoch=epoch)
    process = process_on(*paths)
    registering(process, never_shown)
    with pytest.raises(ConfigError):
        asyncio.run(started(process))
    assert process._lifecycle._registration.broker_epoch_before == UNCLEAN
    assert marks(*paths) == [BEFORE, epoch]


def found_at_the_first_image(process: BrokerProcess, *paths: Path) -> list[int | None]:
    """The clean-shutdown markers at the moment when logs would be opened."""
    registering(process, shown)
    found: list[int | None] = []

    def publish(*_: object) -> None:
        found.extend(marks(*paths))
        raise Opened

    process._replicas.publish = publish  # type: ignore[method-assign]

    async def run() -> None:
        with pytest.raises(Opened):
            await process.start()
        process._is_serving = False  # nor has it begun to heartbeat
        await process.stop()

    asyncio.run(run())
    return found


def test_no_marker_is_there_when_logs_are_opened(paths: tuple[Path, Path]) -> None:
    process = process_on(*paths)
    assert found_at_the_first_image(process, *paths) == [None, None]
    assert process._lifecycle._registration.broker_epoch_before == BEFORE
    assert [item.store._is_clean for item in process._replicas.directories.items] == [True, True]


def test_a_directory_whose_marker_stays_is_offline(paths: tuple[Path, Path]) -> None:
    process = process_on(*paths)
    process._disk = FailingDisk(paths[1])
    assert found_at_the_first_image(process, *paths) == [None, BEFORE]
    assert [item.is_offline for item in process._replicas.directories.items] == [False, True]
    assert process._lifecycle._heartbeat_due.is_set()  # it was registered as online


def test_the_others_keep_theirs_if_the_start_ends_with_that(paths: tuple[Path, Path]) -> None:
    process = process_on(*paths)
    process._disk = FailingDisk(paths[0])
    registering(process, shown)
    with pytest.raises(ConfigError, match="holds the metadata log and has failed"):
        asyncio.run(started(process))
    assert marks(*paths) == [BEFORE, REGISTERED]


def test_a_directory_added_by_a_start_that_is_refused_was_closed_too(
    paths: tuple[Path, Path],
) -> None:
    z = paths[0].with_name("z")
    for _ in range(2):
        own = take(*paths, z)
        own.release()
        assert own.epoch_before == BEFORE
