"""A broker takes several data directories: identity, locks, markers; a replica begun anew."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.log_dirs.log_directories import DirectoriesLost
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.directories.identity import DirectoryLock
from kvorum.launch.directories.log_directories import UNCLEAN
from kvorum.launch.nodes.broker_process import BrokerProcess
from kvorum.launch.recovery.restore import ASIDE_SUFFIX, Restoration, restore
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError, CorruptData, DirectoryUnusable
from kvorum.runtime.ids import uuid_text
from kvorum.storage.files.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK,
    RECOVERY_POINT,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
    write_partition_metadata,
)
from tests.test_launch.node_folders import BROKER, TOPIC_ID, take


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "x", tmp_path / "y"


def change(path: Path, **changes: str) -> None:
    known = read_meta_properties(OsDisk(), str(path))
    assert known is not None
    named = {name.replace("_", "."): value for name, value in changes.items()}
    write_meta_properties(OsDisk(), str(path), {**known, **named})


# Configuration.


def test_log_dirs_is_a_list_and_the_metadata_log_lies_in_the_first() -> None:
    config, _ = broker_config({**BROKER, "log.dirs": "/x, /y"})
    assert config.data_directories == ("/x", "/y")
    assert config.directory == "/x"


def test_the_metadata_log_has_a_directory_of_its_own_where_that_is_said() -> None:
    config, _ = broker_config({**BROKER, "log.dirs": "/x,/y", "metadata.log.dir": "/m"})
    assert (config.directory, config.data_directories) == ("/m", ("/x", "/y"))


def test_log_dir_is_heard_where_log_dirs_is_not_given() -> None:
    assert broker_config({**BROKER, "log.dir": "/x"})[0].data_directories == ("/x",)
    given = {**BROKER, "log.dir": "/x", "log.dirs": "/y"}
    assert broker_config(given)[0].data_directories == ("/y",)


@pytest.mark.parametrize(
    ("log_dirs", "said"),
    [
        ("", "must name the node's data directories"),
        ("/x,,/y", "must name the node's data directories"),
        ("/x,/y,/x", "names /x twice"),
        ("/x,/x/y", "/x/y lies in /x"),
    ],
)
def test_a_list_that_cannot_be_is_refused(log_dirs: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        broker_config({**BROKER, "log.dirs": log_dirs})


def test_the_metadata_logs_own_directory_lies_in_no_other() -> None:
    given = {**BROKER, "log.dirs": "/x,/y", "metadata.log.dir": "/y/m"}
    with pytest.raises(ConfigError, match="/y/m lies in /y"):
        broker_config(given)


def test_a_session_lasts_two_heartbeats_at_least() -> None:
    given = {
        **BROKER,
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:21002",
        "log.dirs": "/x",
    }
    assert controller_config({**given, "broker.session.timeout.ms": "1000"})
    with pytest.raises(ConfigError, match=r"broker\.heartbeat\.interval\.ms=500"):
        controller_config({**given, "broker.session.timeout.ms": "999"})


def test_a_controller_has_one_directory() -> None:
    given = {
        **BROKER,
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:21002",
        "log.dirs": "/x,/y",
    }
    with pytest.raises(ConfigError, match=r"metadata\.log\.dir"):
        controller_config(given)
    assert controller_config({**given, "metadata.log.dir": "/y"})[0].directory == "/y"


# Taking them.


def test_each_directory_has_an_identity_of_its_own_and_keeps_it(paths: tuple[Path, Path]) -> None:
    first = take(*paths)
    first.release()
    ids = [claim.directory_id for claim in first.found.values()]
    assert len({*ids, None}) == 3
    assert first.metadata_id == ids[0]
    again = take(*paths)
    again.release()
    assert [claim.directory_id for claim in again.found.values()] == ids
    known = [read_meta_properties(OsDisk(), str(path)) for path in paths]
    assert [(k or {})["node.id"] for k in known] == ["101", "101"]
    assert (paths[0] / "__cluster_metadata-0").is_dir()
    assert not (paths[1] / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node_id": "102"}, "belongs to node 102"),
        ({"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, "belongs to cluster"),
    ],
)
def test_one_directory_of_somebody_else_stops_the_start_by_name(
    paths: tuple[Path, Path], changes: dict[str, str], said: str
) -> None:
    take(*paths).release()
    change(paths[1], **changes)
    with pytest.raises(ConfigError, match=said) as refused:
        take(*paths)
    assert str(paths[1]) in str(refused.value)


def test_a_disk_that_is_not_mounted_is_said_and_no_first_start(
    paths: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        own = take(*paths)
        own.release()
        take(*paths).release()
        assert caplog.messages == []
        shutil.rmtree(paths[1])
        paths[1].mkdir()  # the mount point
        again = take(*paths)
    again.release()
    new = again.found[str(paths[1])].directory_id
    assert new is not None and new != own.found[str(paths[1])].directory_id
    (said,) = caplog.messages
    assert f"{paths[1]} was empty and begins as a new data directory, id {uuid_text(new)}" in said
    assert f"{paths[0]} (id {uuid_text(own.metadata_id)})" in said
    assert "mount" in said


def test_a_copied_directory_is_refused(paths: tuple[Path, Path]) -> None:
    own = take(*paths)
    own.release()
    known = read_meta_properties(OsDisk(), str(paths[0]))
    change(paths[1], directory_id=(known or {})["directory.id"])
    with pytest.raises(ConfigError, match="one is a copy of the other"):
        take(*paths)


def test_a_further_directory_that_a_process_uses_stops_the_start(paths: tuple[Path, Path]) -> None:
    take(*paths).release()
    # A lock belongs to a process, so another process has to hold it.
    script = (
        "import sys; from kvorum.launch.directories.identity import DirectoryLock; "
        "DirectoryLock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(paths[1])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        with pytest.raises(ConfigError, match="in use by another process") as refused:
            take(*paths)
        assert str(paths[1]) in str(refused.value)
    finally:
        holder.communicate()


def test_one_that_cannot_be_read_is_passed_over_unless_the_metadata_log_lies_in_it(
    paths: tuple[Path, Path],
) -> None:
    take(*paths).release()
    for at in (1, 0):
        aside = paths[at].with_name("aside")
        paths[at].rename(aside)
        paths[at].write_text("no directory\n")
        if at == 1:
            own = take(*paths)
            own.release()
            claim = own.found[str(paths[1])]
            assert claim.directory_id is None
            assert isinstance(claim.failure, OSError)
        else:
            with pytest.raises(ConfigError, match="cannot use data directory"):
                take(*paths)
        paths[at].unlink()
        aside.rename(paths[at])


def clean(*marks: tuple[Path, int]) -> None:
    for path, epoch in marks:
        write_clean_shutdown(OsDisk(), str(path), broker_epoch=epoch)


def test_a_shutdown_was_clean_only_if_it_was_in_every_directory(paths: tuple[Path, Path]) -> None:
    x, y = paths
    take(x, y).release()
    for marks, expected in (
        (((x, 7), (y, 7)), 7),
        (((x, 7),), UNCLEAN),
        (((x, 7), (y, 5)), UNCLEAN),
        ((), UNCLEAN),
    ):
        clean(*marks)
        own = take(x, y)
        own.release()
        for path in paths:
            remove_clean_shutdown(OsDisk(), str(path))
        assert own.epoch_before == expected
        assert [c.is_clean for c in own.found.values()] == [path in dict(marks) for path in (x, y)]


def test_a_directory_that_is_added_does_not_make_the_shutdown_before_unclean(
    paths: tuple[Path, Path],
) -> None:
    take(paths[0]).release()
    clean((paths[0], 7))
    own = take(*paths)
    own.release()
    assert own.epoch_before == 7


def test_a_start_that_is_refused_leaves_the_markers_to_the_next(paths: tuple[Path, Path]) -> None:
    take(*paths).release()
    clean((paths[0], 7), (paths[1], 7))
    take(*paths).release()  # then the start ended, because its port was taken
    own = take(*paths)
    own.release()
    assert own.epoch_before == 7


def test_the_metadata_log_in_a_directory_of_its_own(tmp_path: Path) -> None:
    own = take(tmp_path / "x", metadata=tmp_path / "m")
    own.release()
    assert own.found.keys() == {str(tmp_path / "x")}
    assert (tmp_path / "m" / "__cluster_metadata-0").is_dir()


# Beginning a replica anew.


def with_replica(x: Path, y: Path) -> Path:
    """A stopped broker whose t-3 lies in its second directory."""
    take(x, y).release()
    folder = y / "t-3"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(b"damaged")
    write_partition_metadata(OsDisk(), str(folder), TOPIC_ID)
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        write_offsets(OsDisk(), str(y / name), {("t", 3): 9, ("u", 0): 5})
    clean((x, 7), (y, 7))
    return folder


def begin_anew(x: Path, y: Path, topic_id: bytes = TOPIC_ID, **changes: bool) -> Restoration:
    config, broker = broker_config({**BROKER, "log.dirs": f"{x},{y}"})
    assert isinstance(broker, BrokerConfig)
    return restore(OsDisk(), config, topic="t", partition_id=3, topic_id=topic_id, **changes)


def test_the_folder_is_put_aside_and_an_empty_one_has_its_place(paths: tuple[Path, Path]) -> None:
    folder = with_replica(*paths)
    done = begin_anew(*paths)
    ((before, new_path),) = done.put_aside
    assert (before, done.folder) == (str(folder), str(folder))
    assert new_path.endswith(ASIDE_SUFFIX)
    assert (Path(new_path) / "00000000000000000000.log").read_bytes() == b"damaged"
    assert [entry.name for entry in folder.iterdir()] == ["partition.metadata"]
    assert read_partition_metadata(OsDisk(), str(folder)) == TOPIC_ID
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        assert read_offsets(OsDisk(), str(paths[1] / name)) == {("u", 0): 5}


def test_the_next_start_does_not_vouch_for_what_it_held(paths: tuple[Path, Path]) -> None:
    # With a clean-shutdown marker, the replica would stay an eligible leader replica, and could be
    # elected with an empty log.
    with_replica(*paths)
    begin_anew(*paths)
    assert not (paths[1] / CLEAN_SHUTDOWN).exists()
    own = take(*paths)
    own.release()
    assert own.epoch_before == UNCLEAN


def test_a_dry_run_changes_nothing(paths: tuple[Path, Path]) -> None:
    folder = with_replica(*paths)
    done = begin_anew(*paths, is_dry_run=True)
    assert len(done.put_aside) == 1
    assert (folder / "00000000000000000000.log").exists()
    assert (paths[1] / CLEAN_SHUTDOWN).exists()


def test_without_a_folder_it_begins_in_the_first_directory(paths: tuple[Path, Path]) -> None:
    take(*paths).release()
    done = begin_anew(*paths)
    assert (done.folder, done.put_aside) == (str(paths[0] / "t-3"), ())
    assert read_partition_metadata(OsDisk(), done.folder) == TOPIC_ID


def test_a_folder_of_an_older_topic_is_left_to_the_broker(paths: tuple[Path, Path]) -> None:
    with_replica(*paths)
    with pytest.raises(ConfigError, match="removes it by itself"):
        begin_anew(*paths, topic_id=b"u" * 16)


def test_a_broker_that_never_ran_has_nothing_to_restore(paths: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match="start it first"):
        begin_anew(*paths)


def test_a_lock_is_released_after_all(paths: tuple[Path, Path]) -> None:
    with_replica(*paths)
    begin_anew(*paths)
    for path in paths:
        DirectoryLock(str(path)).release()


# A failure of a directory that no controller hears of.


@pytest.mark.parametrize("is_told", [True, False])
def test_a_broker_ends_if_no_controller_hears_of_a_failed_directory_in_time(
    paths: tuple[Path, Path], is_told: bool
) -> None:
    async def fail() -> list[BaseException]:
        given = {**BROKER, "log.dirs": f"{paths[0]},{paths[1]}", "log.dir.failure.timeout.ms": 50}
        ended: list[BaseException] = []
        process = BrokerProcess(*broker_config(given), on_failure=ended.append)
        own = take(*paths)
        process._replicas.load(found=own.found)
        own.release()
        lost = process._replicas.directories.items[1]
        process._replicas.on_directory_error(lost, OSError(errno.EIO, "i/o error"), "test")
        assert process._lifecycle._heartbeat_due.is_set()
        if is_told:
            process._lifecycle.acknowledged_offline = frozenset(
                process._lifecycle._offline_directories()
            )
        await process._exit_if_unreported()
        await process._tasks.stop()
        await process._client.close()
        return ended

    ended = asyncio.run(fail())
    assert [type(error) for error in ended] == ([] if is_told else [DirectoriesLost] * len(ended))
    assert is_told == (not ended)


def test_a_broker_whose_last_directory_fails_ends_at_once(paths: tuple[Path, Path]) -> None:
    async def fail() -> list[BaseException]:
        ended: list[BaseException] = []
        given = {**BROKER, "log.dirs": str(paths[0]), "metadata.log.dir": str(paths[1])}
        process = BrokerProcess(*broker_config(given), on_failure=ended.append)
        own = take(paths[0], metadata=paths[1])
        process._replicas.load(found=own.found)
        own.release()
        (only,) = process._replicas.directories.items
        process._replicas.on_directory_error(only, OSError(errno.EIO, "i/o error"), "test")
        await process._client.close()
        return ended

    (ended,) = asyncio.run(fail())
    assert "no data directory is left" in str(ended) and str(paths[0]) in str(ended)


@pytest.mark.parametrize("content", [bytes(92), b"", b"version=1\n", b"\xff\xfe"])
def test_a_further_directory_whose_identity_is_damaged_is_passed_over(
    paths: tuple[Path, Path], content: bytes
) -> None:
    # Bug: a damaged meta.properties, left by a broken file system, ended the broker with a
    # traceback.
    take(*paths).release()
    (paths[1] / "meta.properties").write_bytes(content)
    own = take(*paths)
    own.release()
    claim = own.found[str(paths[1])]
    assert claim.directory_id is None
    assert claim.failure is not None and "meta.properties" in str(claim.failure)
    assert len(str(claim.failure)) < len(str(paths[1])) + 350
    (paths[0] / "meta.properties").write_bytes(content)
    with pytest.raises(CorruptData, match=r"meta\.properties"):
        take(*paths)


def test_a_new_file_system_may_be_mounted_there(paths: tuple[Path, Path]) -> None:
    for path in paths:
        (path / "lost+found").mkdir(parents=True)
    own = take(*paths)
    own.release()
    assert all(claim.directory_id for claim in own.found.values())


def test_a_metadata_directory_that_cannot_be_entered_is_named(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", str(paths[0]))

    def refuse(*_: object) -> bool:
        raise denied

    monkeypatch.setattr(OsDisk, "exists", refuse)
    with pytest.raises(
        ConfigError, match=f"cannot use data directory {paths[0]}: Permission"
    ) as error:
        take(*paths)
    # No disk will heal by itself: a supervisor must not start the node again and again.
    assert not isinstance(error.value, DirectoryUnusable)
