"""The first steps of every node's process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kvorum.launch.config.properties import controller_config
from kvorum.launch.daemon import process
from kvorum.launch.daemon.process import run_node
from kvorum.launch.directories.identity import check_owner, claim_directory
from kvorum.launch.directories.metadata_log import open_log
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError, CorruptData, DirectoryUnusable, NodeRefused
from kvorum.runtime.machine import Machine
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig

SAID = """
import resource
from kvorum.launch.daemon.process import raise_file_limit
raise_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_node_may_open_as_many_files_as_the_system_lets_it() -> None:
    # The usual limit of 1,024 is soon reached: each segment that was read has an open file.
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 512))
    command = [sys.executable, "-c", SAID]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["512", "512"]


CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"
FULL = OSError(errno.ENOSPC, "No space left on device", "/data/quorum-state.tmp")


class Refusing:
    """A node whose start ends with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.stopped_as_refused = False

    async def start(self) -> None:
        raise self._error

    async def stop(self, *, is_withdrawn: bool = False) -> None:
        self.stopped_as_refused = is_withdrawn


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("node.id=7 is no voter"), 2, "node.id=7 is no voter"),
        (DirectoryUnusable("/data has lost its log"), 1, "/data has lost its log"),
        (CorruptData("/data/log", 3, "the CRC is wrong"), 1, "/data/log at byte 3: the CRC is"),
        (FULL, 1, "cannot start: /data/quorum-state.tmp: No space left on device; make room on"),
    ],
)
def test_a_start_ends_with_2_for_the_configuration_and_with_1_for_a_disk(
    error: Exception,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "limit_collections", lambda: None)
    monkeypatch.setattr(process, "raise_file_limit", lambda: None)
    node = Refusing(error)
    assert run_node(lambda _: node) == code
    # Only what is refused for good makes new directories empty again.
    assert node.stopped_as_refused == (code == 2)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("kvorum: "))
    assert line.startswith(f"kvorum: {said}")


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (FULL, 1, "/data/quorum-state.tmp: No space left on device; make room"),
        (NodeRefused("node 1 leads already"), 2, "node 1 leads already"),
        (NodeRefused("another took its place", may_succeed_later=True), 1, "another took its"),
        (ConfigError("controller 3 cannot join"), 2, "controller 3 cannot join"),
    ],
)
def test_a_node_that_runs_ends_with_a_sentence_and_no_traceback(
    failure: Exception,
    code: int,
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Failing(Refusing):
        async def start(self) -> None:
            asyncio.get_running_loop().call_later(0.01, on_failure[0], failure)

    class Ended(SystemExit):
        """The loop lets it through."""

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(process, "limit_collections", lambda: None)
    monkeypatch.setattr(process, "raise_file_limit", lambda: None)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", end)
    on_failure = []

    def make(failed):  # type: ignore[no-untyped-def]
        on_failure.append(failed)
        return Failing(FULL)

    with pytest.raises(Ended) as ended:
        run_node(make)
    assert ended.value.args == (code,)
    (record,) = (record for record in caplog.records if record.levelname == "CRITICAL")
    assert record.exc_info is None
    assert said in record.getMessage()
    if failure is not FULL:
        assert capsys.readouterr().err.startswith(f"kvorum: {said}")


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (NodeRefused("node 1 leads already"), 2),
        (NodeRefused("another took its place", may_succeed_later=True), 1),
        (ConfigError("controller 3 cannot join"), 2),
    ],
)
def test_a_node_that_is_refused_while_it_starts_stops_in_order(
    refusal: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Waiting(Refusing):
        async def start(self) -> None:
            on_failure[0](refusal)
            await asyncio.Event().wait()

    monkeypatch.setattr(process, "limit_collections", lambda: None)
    monkeypatch.setattr(process, "raise_file_limit", lambda: None)
    node = Waiting(refusal)
    on_failure = []

    def make(failed):  # type: ignore[no-untyped-def]
        on_failure.append(failed)
        return node

    assert run_node(make) == code
    assert node.stopped_as_refused == (code == 2)
    assert capsys.readouterr().err.startswith(f"kvorum: {refusal}")


def test_a_refused_node_whose_stop_fails_ends_with_the_refusal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Refusing):
        async def stop(self, *, is_withdrawn: bool = False) -> None:
            raise OSError(errno.EIO, "i/o error", "/data/meta.properties")

    monkeypatch.setattr(process, "limit_collections", lambda: None)
    monkeypatch.setattr(process, "raise_file_limit", lambda: None)
    assert run_node(lambda _: Stuck(ConfigError("a port is taken"))) == 2
    assert "kvorum: a port is taken" in capsys.readouterr().err
    assert "did not stop in order" in caplog.text


def claimed(directory: Path) -> bytes:
    return claim_directory(
        OsDisk(), str(directory), node_id=1, cluster_id=CLUSTER_ID, rng=random.Random(1)
    )


def test_a_metadata_log_on_a_full_disk_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "controller"
    directory_id = claimed(directory)
    log = Log.open(OsDisk(), f"{directory}/__cluster_metadata-0", LogConfig(), now_ms=0)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=1), leader_epoch=1, now_ms=0)
    log.close()

    def full(_: OsDisk, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(OsDisk, "write_atomic", full)
    config, _ = controller_config(
        {
            "node.id": "1",
            "cluster.id": CLUSTER_ID,
            "listeners": "CONTROLLER://127.0.0.1:21002",
            "controller.quorum.voters": "1@127.0.0.1:21002",
            "log.dirs": str(directory),
        }
    )
    with pytest.raises(DirectoryUnusable) as refused:
        asyncio.run(open_log(Machine(), config, directory_id))
    said = str(refused.value)
    assert said.startswith(f"cannot open the metadata log: {directory}/__cluster_metadata-0/")
    assert said.endswith("No space left on device; make room on that disk, then start again")


def test_a_damaged_identity_names_the_way_out(tmp_path: Path) -> None:
    claimed(tmp_path / "x")
    (tmp_path / "x" / "meta.properties").write_text("junk\n")
    with pytest.raises(CorruptData, match="restore the file from a copy"):
        check_owner(OsDisk(), str(tmp_path / "x"), node_id=1, cluster_id=CLUSTER_ID)


def test_a_file_in_the_place_of_a_directory_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: it is no directory") as refused:
        claimed(tmp_path / "file")
    assert not isinstance(refused.value, DirectoryUnusable)
    with pytest.raises(ConfigError, match="file/below: it, or a folder above it, is no"):
        claimed(tmp_path / "file" / "below")
