"""Several data directories of a broker, and disks that fail, call by call (KIP-112, KIP-858)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.log_dirs.log_directories import (
    FILES_BESIDE_LOGS,
    FoundDirectory,
    LogDirectories,
)
from kvorum.cli.log_dirs import _asked
from kvorum.metadata.image.records import LOST_DIRECTORY
from kvorum.runtime.disk import OsDisk, OsDiskFile
from kvorum.runtime.errors import CorruptData, shortage_of
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, fetch_values
from tests.test_broker.several_directories import (
    QUIET,
    FaultyDisk,
    FaultyFile,
    create,
    create_plain,
    damage,
    isr,
    leader,
    produce,
    told,
    wait_moved,
)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def harness(tmp_path: Path, disk: FaultyDisk) -> Iterator[Harness]:
    """Broker 1 has two directories on the faulty disk, broker 2 two on a sound one."""
    harness = Harness(tmp_path, count=2, config=QUIET, directory_count=2, disks={1: disk})
    yield harness
    harness.close()


def test_a_broker_tells_where_its_replicas_lie_in_one_message(harness: Harness) -> None:
    create(harness, partitions=40)
    own = list(harness.cluster.paths_of(1).values())
    assert [told(harness, "t", p) for p in range(40)] == own * 20
    sent = [r for r in harness.cluster.controller.assignments if r.broker_id == 1]
    assert len(sent) <= 2
    assert harness.cluster.replica(1, "t", 1).log_dir.path.endswith("broker-1-2")


def test_a_broker_with_one_directory_tells_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path, count=2, config=QUIET)
    try:
        harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)] * 5))
        assert produce(harness) is KioError.none
        assert harness.cluster.controller.assignments == []
    finally:
        harness.close()


DISK_FAULTS = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EACCES,
    errno.EPERM, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN,
    errno.EREMOTEIO, errno.EBADMSG, errno.ENODATA, errno.EILSEQ, errno.ENOLINK, errno.ENOTCONN,
    errno.ESHUTDOWN,
)  # fmt: skip


@pytest.mark.parametrize("number", DISK_FAULTS, ids=errno.errorcode.get)
def test_every_error_of_a_disk_takes_its_directory_down(
    harness: Harness, disk: FaultyDisk, number: int
) -> None:
    create(harness)
    disk.fail("write", "broker-1-1/", number)
    assert produce(harness, 0) is KioError.kafka_storage_error
    wait_moved(harness, 0)
    assert harness.cluster.brokers[1].manager.directories.offline_count == 1
    assert leader(harness, 1) == 1
    assert produce(harness, 1) is KioError.none


def wait_committed(harness: Harness) -> None:
    replica = harness.cluster.replica(1, "t", 0)
    eventually(lambda: replica.core.high_watermark == 1, "a consumer may read it")


def flush(harness: Harness) -> None:
    harness.run(harness.cluster.brokers[1].manager._background_jobs._flush_all())


def checkpoint(harness: Harness) -> None:
    maintenance = harness.cluster.brokers[1].manager._background_jobs
    harness.run(maintenance._checkpoint_high_watermarks())


def fetch(harness: Harness) -> None:
    client = RawClient(harness.cluster.ports[1])
    client.send("fetch", 11, fetch_values("t", 0))
    # The file failed in the middle of the answer: the broker closes the connection.
    with contextlib.suppress(EOFError, ConnectionError):
        client.receive()
    client.close()


def delete(harness: Harness) -> None:
    # The replica of this topic lies in the directory of partition 0. The deletion of the topic
    # renames its folder.
    harness.call(lambda: harness.cluster.controller.create("gone", [(1, 2)]))
    assert produce(harness, 0, topic="gone") is KioError.none
    client = RawClient(harness.cluster.ports[1])
    client.call("delete_topics", 6, {"topics": [{"name": "gone", "topic_id": None}], "timeout": 0})
    client.close()


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("sync", flush),
        ("replace", checkpoint),
        ("read", fetch),
        ("sync_dir", flush),
        ("rename", delete),
    ],
)
def test_every_kind_of_call_that_fails_takes_the_directory_down_once(
    harness: Harness,
    disk: FaultyDisk,
    caplog: pytest.LogCaptureFixture,
    operation: str,
    act: Callable[[Harness], None],
) -> None:
    create(harness)
    assert produce(harness, 0) is KioError.none
    assert produce(harness, 1) is KioError.none
    wait_committed(harness)
    disk.fail(operation, "broker-1-1/", errno.EIO)
    with caplog.at_level(logging.ERROR):
        act(harness)
        wait_moved(harness, 0)
    said = [r.message for r in caplog.records if "is offline, with" in r.message]
    assert len(said) == 1
    assert "broker-1-1" in said[0] and "EIO" in said[0]
    assert leader(harness, 1) == 1
    assert produce(harness, 1) is KioError.none
    assert harness.cluster.brokers[1].manager.directories.offline_count == 1


def create_to_send(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that goes from its file to the socket."""
    create(harness)
    assert produce(harness, 0) is KioError.none
    wait_committed(harness)
    monkeypatch.setattr(FaultyFile, "fileno", OsDiskFile.fileno)
    monkeypatch.setattr("kvorum.wire.fetch_codec.INLINE_BYTES_MAX", 0)


def test_a_file_that_fails_while_it_is_sent_takes_its_directory_down(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sendfile copies from file to socket without our disk: EIO comes from the kernel.
    create_to_send(harness, monkeypatch)

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("os.sendfile", refuse)
    fetch(harness)
    wait_moved(harness, 0)
    assert leader(harness, 1) == 1


@pytest.mark.parametrize("is_of_file", [True, False])
def test_what_sendfile_says_is_the_files_if_that_cannot_be_read(
    harness: Harness, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, is_of_file: bool
) -> None:
    # Bug: the directory stayed online; consumers asked for that offset again and again, and lost
    # their connections each time.
    create_to_send(harness, monkeypatch)
    refused = threading.Event()

    def refuse(*_: object) -> int:
        if is_of_file:
            disk.fail("read", "broker-1-1/", errno.EUCLEAN)
        refused.set()
        raise OSError(errno.EUCLEAN if is_of_file else errno.EPERM, "refused")

    monkeypatch.setattr("os.sendfile", refuse)
    fetch(harness)
    assert refused.wait(10)
    if is_of_file:
        wait_moved(harness, 0)
    manager = harness.cluster.brokers[1].manager
    assert manager.directories.offline_count == int(is_of_file)


def test_a_follower_s_directory_that_fails_leaves_the_isr_and_fetches_no_more(
    harness: Harness, disk: FaultyDisk
) -> None:
    topic_id = create(harness)
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (2, 1)))
    disk.fail("write", "broker-1-1/", errno.ENOSPC)
    assert produce(harness, 0, broker_id=2) is KioError.none
    wait_moved(harness, 0)
    replica = harness.cluster.replica(1, "t", 0)
    assert replica.is_offline
    assert not harness.cluster.brokers[1].manager.fetchers.is_following((topic_id, 0), 2)


def test_a_directory_that_is_offline_at_the_start_keeps_its_replicas_offline(
    harness: Harness,
) -> None:
    create(harness)
    for partition_id in (0, 1):
        assert produce(harness, partition_id) is KioError.none
    harness.run(harness.cluster.stop_broker(1))
    lost, kept = harness.cluster.paths_of(1)
    harness.cluster.unreadable = {lost}
    broker = harness.run(harness.cluster.start_broker(1))
    assert broker.manager.registry.find_by_name("t", 0) is None
    assert not Path(kept, "t-0").exists()
    eventually(lambda: 1 in isr(harness, 1), "the other one is in sync again")
    assert produce(harness, 0) is KioError.kafka_storage_error
    # New replicas go into the directory that is left.
    harness.call(lambda: harness.cluster.controller.create("later", [(1,), (1,)]))
    assert [harness.cluster.replica(1, "later", p).log_dir.path for p in (0, 1)] == [kept, kept]
    # The disk is back.
    harness.run(harness.cluster.stop_broker(1))
    harness.cluster.unreadable = set()
    harness.run(harness.cluster.start_broker(1))
    eventually(lambda: set(isr(harness, 0)) == {1, 2}, "it is in sync again")


def test_a_checkpoint_that_is_damaged_costs_its_directory_and_no_other(harness: Harness) -> None:
    create(harness)
    harness.run(harness.cluster.stop_broker(1))
    lost, kept = harness.cluster.paths_of(1)
    (Path(lost) / "log-start-offset-checkpoint").write_text("garbage\n")
    broker = harness.run(harness.cluster.start_broker(1, is_clean=True))
    (offline,) = broker.manager.directories.offline
    assert offline.path == lost
    assert "not an offset checkpoint" in offline.reason and "EBADMSG" not in offline.reason
    assert [item.path for item in broker.manager.directories.online] == [kept]


def test_a_choice_outlives_a_restart_although_there_is_no_file(harness: Harness) -> None:
    create(harness)
    places = [harness.cluster.replica(1, "t", p).log_dir.path for p in (0, 1)]
    assert len(set(places)) == 2
    harness.run(harness.cluster.stop_broker(1))
    harness.call(lambda: harness.cluster.controller.create("aaa", [(2, 1)]))
    harness.run(harness.cluster.start_broker(1))
    assert [harness.cluster.replica(1, "t", p).log_dir.path for p in (0, 1)] == places


@pytest.mark.parametrize("directory_count", [1, 2])
def test_damage_costs_the_replica_its_lead_and_no_other_anything(
    tmp_path: Path, directory_count: int, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness(tmp_path, count=2, config=QUIET, directory_count=directory_count)
    try:
        create_plain(harness)
        for _ in range(2):
            assert produce(harness, 0) is KioError.none
        replica = harness.cluster.replica(1, "t", 0)
        failure = CorruptData(f"{replica.log.directory}/00000000000000000000.log", 100, "bad CRC")
        with caplog.at_level(logging.ERROR):
            harness.call(lambda: replica.fail(failure, "read"))
            wait_moved(harness, 0)
        assert "at byte 100: bad CRC" in caplog.text
        assert told(harness, "t", 0) == LOST_DIRECTORY
        assert not harness.cluster.brokers[1].manager.directories.offline
        assert leader(harness, 1) == 1
    finally:
        harness.close()


@pytest.mark.parametrize("found", ["CRC", "damage was found before"])
def test_a_log_that_cannot_be_opened_is_told_as_lost(
    harness: Harness, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(harness)
    for _ in range(3):
        assert produce(harness, 0) is KioError.none
    log = harness.cluster.replica(1, "t", 0).log
    harness.run(harness.cluster.crash_broker(1))
    harness.call(lambda: harness.cluster.fence(1))
    if found == "CRC":
        damage(log)
    else:
        (Path(log.directory) / "damaged").write_text("so")
    harness.run(harness.cluster.start_broker(1))
    eventually(lambda: told(harness, "t", 0) == LOST_DIRECTORY, "it is told")
    (said,) = (text for text in caplog.messages if text.startswith("cannot open t-0: "))
    assert found in said and said.endswith("; see `kvorum partitions restore`")
    assert leader(harness, 0) == 2


def test_a_leader_whose_disk_failed_drops_no_follower(harness: Harness, disk: FaultyDisk) -> None:
    # Its followers get only errors and fall behind. If it removed them from the ISR, no replica
    # could be elected.
    create(harness)
    controller = harness.cluster.controller
    harness.call(lambda: setattr(controller, "is_answering", False))
    manager = harness.cluster.brokers[1].manager
    replica = harness.cluster.replica(1, "t", 0)
    harness.call(replica.go_offline)
    before = len(controller.alter_requests)

    def look_much_later() -> None:
        now_ms = manager.now_ms()
        manager.isr._now_ms = lambda: now_ms + 10 * QUIET.replica_lag_time_max_ms
        manager.isr.check([replica])
        manager.isr.reconsider(replica)

    harness.call(look_much_later)
    checkpoint(harness)  # some turns of the loop
    assert len(controller.alter_requests) == before
    assert replica.core.proposal_in_flight() is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_blames_the_replica_and_not_the_disk_and_advises_no_restore(
    harness: Harness, disk: FaultyDisk, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    create(harness)
    disk.fail("write", "broker-1-1/", number)
    assert produce(harness, 0) is KioError.kafka_storage_error
    wait_moved(harness, 0)
    assert not harness.cluster.brokers[1].manager.directories.offline
    (said,) = (text for text in caplog.messages if text.startswith("t-0 is offline: "))
    assert said.endswith(f"; {shortage_of(OSError(number, ''))}")
    assert "partitions restore" not in said


def test_a_read_out_of_descriptors_costs_one_answer_and_not_the_replica(
    harness: Harness, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    create(harness)
    assert produce(harness, 0) is KioError.none
    wait_committed(harness)
    replica = harness.cluster.replica(1, "t", 0)
    harness.call(lambda: replica.fail(OSError(errno.EMFILE, "Too many open files"), "read"))
    harness.call(lambda: replica.fail(OSError(errno.EMFILE, "Too many open files"), "read"))
    assert not replica.is_offline
    assert produce(harness, 0) is KioError.none
    (said,) = (text for text in caplog.messages if text.startswith("cannot read "))
    assert "LimitNOFILE=" in said


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_log_that_could_not_be_opened_for_a_shortage_is_not_to_be_restored(
    harness: Harness, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    create(harness)
    replica = harness.cluster.replica(1, "t", 0)
    key = (replica.core.topic_id, 0)
    failures = harness.cluster.brokers[1].manager.failures
    lack = OSError(number, os.strerror(number), replica.log.directory)
    harness.call(lambda: failures.on_open_failed(key, "t-0", replica.log_dir, lack))
    (said,) = (text for text in caplog.messages if text.startswith("cannot open t-0: "))
    assert said.endswith(f"; {shortage_of(lack)}")
    assert not replica.log_dir.is_offline


def test_a_start_that_lacks_files_takes_no_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = LogDirectories(OsDisk(), [str(tmp_path)], random.Random(1), dict)
    item = directories.items[0]

    def lack(is_clean: bool) -> None:
        raise OSError(errno.EMFILE, "Too many open files", item.path)

    monkeypatch.setattr(type(item.store), "load", lambda self, is_clean: lack(is_clean))
    with pytest.raises(OSError, match="Too many open files"):
        directories.load({item.path: FoundDirectory(directory_id=b"d" * 16)})
    assert not item.is_offline


def test_a_limit_below_what_the_logs_need_is_told_with_both_figures(tmp_path: Path) -> None:
    directories = LogDirectories(OsDisk(), [str(tmp_path)], random.Random(1), dict)
    directories.items[0].store.unclaimed.update({f"t-{n}": None for n in range(100)})
    needed = 100 + FILES_BESIDE_LOGS
    assert directories.lack_of_files(needed) == ""
    said = directories.lack_of_files(needed - 1)
    assert f"{needed - 1:,}, below the {needed:,}" in said and "100 logs" in said


def test_describe_log_dirs_answers_one_result_a_directory(
    harness: Harness, disk: FaultyDisk
) -> None:
    create(harness)
    for partition_id in (0, 1):
        assert produce(harness, partition_id) is KioError.none
    client = RawClient(harness.cluster.ports[1])
    try:
        found = client.call("describe_log_dirs", 4, {"topics": None}).results
        assert [r.log_dir for r in found] == list(harness.cluster.paths_of(1))
        assert [r.error_code for r in found] == [KioError.none] * 2
        assert [p.partition_index for r in found for t in r.topics for p in t.partitions] == [0, 1]
        disk.fail("write", "broker-1-1/", errno.EROFS)
        assert produce(harness, 0) is KioError.kafka_storage_error
        found = client.call("describe_log_dirs", 4, {"topics": None}).results
        assert [r.error_code for r in found] == [KioError.kafka_storage_error, KioError.none]
        assert (found[0].topics, found[0].total_bytes) == ((), -1)
    finally:
        client.close()


def test_the_command_counts_and_names_replicas_that_are_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = Harness(tmp_path, count=2, config=QUIET)
    try:
        create_plain(harness)
        for partition_id in (0, 1):
            assert produce(harness, partition_id) is KioError.none
        address = ("127.0.0.1", harness.cluster.ports[1])
        (row,) = _asked(1, address, 10.0)
        assert (row["offline_replicas"], capsys.readouterr().err) == (0, "")
        replica = harness.cluster.replica(1, "t", 1)
        failure = CorruptData(f"{replica.log.directory}/00000000000000000000.log", 100, "bad CRC")
        harness.call(lambda: replica.fail(failure, "read"))
        (row,) = _asked(1, address, 10.0)
        assert (row["state"], row["offline_replicas"]) == ("online", 1)
        harness.run(harness.cluster.stop_broker(1))
        harness.run(harness.cluster.start_broker(1))
        address = ("127.0.0.1", harness.cluster.ports[1])
        (row,) = _asked(1, address, 10.0)
        assert row["offline_replicas"] == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 2
        assert all("which is online: 1 (t-1)" in line for line in said)
        assert "partitions restore" in said[0]
    finally:
        harness.close()
