"""A start that is refused for good leaves new directories as it found them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.controller_channel.lifecycle import RegistrationFailed
from kvorum.launch.config.properties import controller_config
from kvorum.launch.directories.identity import LOCK_NAME
from kvorum.launch.directories.new_directories import NewDirectories
from kvorum.launch.nodes.broker_process import BrokerProcess
from kvorum.launch.nodes.controller_process import ControllerProcess
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.storage.files.checkpoints import META_PROPERTIES
from tests.test_launch.node_folders import CLUSTER_ID, process_on, take
from tests.test_runtime.http2_peers import free_port


async def withdrawn(process: BrokerProcess | ControllerProcess) -> None:
    """Start a node, and stop it as `launch.daemon.process` stops one that was refused."""
    try:
        await process.start()
    finally:
        await process.stop(is_withdrawn=True)


def content(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def broker_refused_on(*paths: Path) -> None:
    process = process_on(*paths)

    async def register() -> None:
        raise RegistrationFailed("another process is alive")

    process._lifecycle.register = register  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="another process is alive"):
        asyncio.run(withdrawn(process))


def test_nothing_is_left_of_directories_that_the_start_made(tmp_path: Path) -> None:
    broker_refused_on(tmp_path / "disks" / "a" / "kvorum", tmp_path / "b")
    assert content(tmp_path) == set()


def test_a_directory_that_was_there_is_empty_again_and_keeps_what_is_not_the_nodes(
    tmp_path: Path,
) -> None:
    for name in ("a/logs", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "logs" / "server.log").touch()
    broker_refused_on(tmp_path / "a", tmp_path / "b")
    assert content(tmp_path) == {"a", "a/logs", "a/logs/server.log", "b"}


def test_directories_of_an_earlier_start_stay(tmp_path: Path) -> None:
    first, added = tmp_path / "first", tmp_path / "added"
    take(first).release()
    before = content(first)
    broker_refused_on(first, added)
    assert content(first) == before
    assert META_PROPERTIES in before
    assert not added.exists()


def test_a_broker_that_has_registered_keeps_its_identity(tmp_path: Path) -> None:
    process = process_on(tmp_path / "a")

    async def register() -> None:
        process._lifecycle.broker_epoch = 9

    async def never_shown(end_offset: int, timeout_ms: int) -> bool:
        return False

    process._lifecycle.register = register  # type: ignore[method-assign]
    process._publisher.wait_for = never_shown  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="did not see its own registration"):
        asyncio.run(withdrawn(process))
    assert (tmp_path / "a" / META_PROPERTIES).exists()


def test_a_foreign_directory_undoes_the_claim_of_the_others(tmp_path: Path) -> None:
    take(tmp_path / "b", node_id=7).release()
    before = content(tmp_path)
    with pytest.raises(ConfigError, match="belongs to node 7"):
        take(tmp_path / "a", tmp_path / "b")
    assert content(tmp_path) == before


def test_the_directories_of_another_process_are_left_alone(tmp_path: Path) -> None:
    """Bad sequence: two processes look at the same empty directory; the second one is refused."""
    new = NewDirectories(OsDisk())
    new.look(str(tmp_path / "a"))
    take(tmp_path / "a").release()
    before = content(tmp_path)
    new.undo()
    assert content(tmp_path) == before


def controller_on(directory: Path, port: int) -> ControllerProcess:
    given: dict[str, Any] = {
        "node.id": 1,
        "cluster.id": CLUSTER_ID,
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "log.dirs": str(directory),
    }
    return ControllerProcess(*controller_config(given), on_failure=lambda failure: None)


def test_a_controller_that_could_not_listen_leaves_nothing(tmp_path: Path) -> None:
    async def on_a_taken_port() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await withdrawn(controller_on(tmp_path / "a", port))

    with pytest.raises(ConfigError, match="cannot listen on"):
        asyncio.run(on_a_taken_port())
    assert content(tmp_path) == set()


def test_a_controller_that_may_have_voted_keeps_its_vote_and_identity(tmp_path: Path) -> None:
    asyncio.run(withdrawn(controller_on(tmp_path / "a", free_port())))
    assert {META_PROPERTIES, LOCK_NAME, "__cluster_metadata-0"} <= content(tmp_path / "a")


def test_what_cannot_be_undone_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(OsDisk):
        def remove(self, path: str) -> None:
            raise OSError(errno.EROFS, "Read-only file system", path)

    new = NewDirectories(Failing())
    new.look(str(tmp_path / "a"))
    take(tmp_path / "a").release()
    new.note(str(tmp_path / "a"))
    new.undo()
    assert "keeps what this start made" in caplog.text
    assert "Read-only file system" in caplog.text
