"""A cluster with idle partitions, or with large logs on one broker; that broker's restarts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.client import produce
from bench.cluster import BenchFailed, bootstrap_of, broker_process, strike, wait_for
from bench.kvorum_cluster import KvorumCluster
from bench.logs.figures import unclean_read_ratio
from bench.observe import BrokerView
from bench.processes import BROKER, ClusterProcess, cpu_percent_over
from bench.topics import create, open_admin, seconds_to_first_write, wait_in_sync
from kvorum.launch.dev.control import request_restart, wait_restarted
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import required
from kvorum.storage.files.checkpoints import RECOVERY_POINT, read_offsets
from kvorum.storage.files.file_names import replica_of
from kvorum.storage.format.header_walk import headers_between

BROKER_ID = 101
RECORD_BYTES = 1_000
PARTITIONS_PER_TOPIC = 1_000
REPLICAS = 3
LARGE = "large"
TAIL = "tail"
LARGE_PARTITIONS = 2
_RESTART_TIMEOUT_MS = 60_000
_TIMEOUT_S = 60.0
_POLL_S = 0.01
_TAIL_ATTEMPTS = 5

Note = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """partitions: idle ones, each with a replica on every broker. log_bytes: on one broker, in two
    partitions. tail_bytes: written between its clean restart and its kill."""

    partitions: int
    log_bytes: int
    tail_bytes: int
    settle_s: float
    idle_s: float


FULL = Load(
    partitions=3_000, log_bytes=10_000_000_000, tail_bytes=300_000_000, settle_s=15.0, idle_s=10.0
)
QUICK = Load(
    partitions=1_000, log_bytes=500_000_000, tail_bytes=50_000_000, settle_s=5.0, idle_s=3.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """began: when it was requested, on the monotonic clock. ready_s: until the launcher reported it
    ready; read_mb: read from files until then. past_mb: records above the recovery points, if it
    was killed."""

    began: float
    ready_s: float
    read_mb: float
    past_mb: float


class Round:
    """One fresh cluster, for `idle` or for `starts`; the disk of `directory` must have room for its
    logs."""

    def __init__(self, *, directory: Path, port: int, load: Load, note: Note) -> None:
        self._data = directory / "data"
        self._cluster = KvorumCluster(directory=directory, port=port)
        self._load = load
        self._note = note

    def start(self) -> None:
        """Start the cluster. Raises BenchFailed."""
        self._cluster.prepare()
        seconds_to_first_write(self._cluster)

    def stop(self) -> None:
        """End every process."""
        self._cluster.stop()

    def last_words(self) -> str:
        """The end of the launcher's log."""
        return self._cluster.last_words()

    def idle(self) -> None:
        """Take the figures of the load's idle partitions, without a record: CPU, files, restart.
        Raises BenchFailed."""
        load = self._load
        names = [f"idle-{at}" for at in range(load.partitions // PARTITIONS_PER_TOPIC)]
        admin = open_admin(bootstrap_of(self._cluster))
        for name in names:
            create(admin, [_topic(name, PARTITIONS_PER_TOPIC, replication_factor=REPLICAS)])
        for name in names:
            wait_in_sync(self._cluster, name, PARTITIONS_PER_TOPIC)
        del admin
        time.sleep(load.settle_s)
        brokers = [p for p in self._cluster.processes() if p.role == BROKER]
        self._note(
            "idle_percent", max(cpu_percent_over([p.pid for p in brokers], load.idle_s).values())
        )
        self._note("idle_files", max(self._files_of(process) for process in brokers))
        restart = self._restart(signal.SIGTERM)
        self._note("idle_restart_s", restart.ready_s)
        self._await_in_sync(names)
        self._note("idle_in_sync_s", time.monotonic() - restart.began)

    def starts(self) -> None:
        """Take the figures of the load's log_bytes on one broker: bytes read by its starts, and
        their time. Raises BenchFailed."""
        load = self._load
        # Bytes that a start reads of everything else: the code, the metadata log.
        base = self._restart(signal.SIGTERM)
        admin = open_admin(bootstrap_of(self._cluster))
        self._produce(admin, LARGE, LARGE_PARTITIONS, load.log_bytes)
        clean = self._restart(signal.SIGTERM)
        self._note("clean_restart_s", clean.ready_s)
        self._note("clean_read_mb", max(clean.read_mb - base.read_mb, 0.0))
        for attempt in range(_TAIL_ATTEMPTS):
            self._produce(admin, f"{TAIL}{attempt}", 1, load.tail_bytes)
            # The timer that fsyncs all logs may have just fired.
            if self._past_recovery_point_mb() > load.tail_bytes / 2e6:
                break
        unclean = self._restart(signal.SIGKILL)
        self._note("unclean_restart_s", unclean.ready_s)
        self._note(
            "unclean_read_ratio",
            unclean_read_ratio(max(unclean.read_mb - base.read_mb, 0.0), unclean.past_mb),
        )

    # --- restarts ----------------------------------------------------------------------------

    def _restart(self, number: signal.Signals) -> Restart:
        """End the broker, and start it again on its data."""
        process = broker_process(self._cluster, BROKER_ID)
        strike(process, number)
        wait_for(
            lambda: None if Path(f"/proc/{process.pid}").exists() else True,
            timeout_s=_TIMEOUT_S,
            what=f"{process.name} has ended",
        )
        past_mb = self._past_recovery_point_mb() if number == signal.SIGKILL else 0.0
        began = time.monotonic()
        request_restart(str(self._data), [process.name])
        deadline_ms = int(began * 1000) + _RESTART_TIMEOUT_MS
        entry = wait_restarted(str(self._data), process.name, deadline_ms=deadline_ms)
        return Restart(
            began=began,
            ready_s=time.monotonic() - began,
            read_mb=_read_mb(required(entry.pid, "a running node has a pid")),
            past_mb=past_mb,
        )

    def _await_in_sync(self, names: list[str]) -> None:
        """Wait until another broker shows the restarted one in every ISR."""

        def is_in_sync(view: BrokerView) -> bool | None:
            views = [view for topic in view.topics(names).values() for view in topic.values()]
            members = sum(BROKER_ID in partition.isr for partition in views)
            return True if members == self._load.partitions else None

        with BrokerView(self._cluster.brokers[1]) as view:
            wait_for(
                lambda: is_in_sync(view),
                timeout_s=_TIMEOUT_S,
                what="the restarted broker is in every ISR",
                poll_s=_POLL_S,
            )

    # --- logs --------------------------------------------------------------------------------

    def _produce(self, admin: Any, topic: str, partitions: int, size_bytes: int) -> None:
        """Create a topic with all replicas on one broker, and write this many bytes to it."""
        create(admin, [_topic(topic, partitions, replica_assignment=[[BROKER_ID]] * partitions)])
        produce(
            bootstrap_of(self._cluster),
            topic,
            partitions=partitions,
            records=size_bytes // RECORD_BYTES,
            record_bytes=RECORD_BYTES,
            acks="1",
        )

    def _files_of(self, process: ClusterProcess) -> int:
        """The number of files of the idle partitions, on disk or open."""
        folder = self._data / process.name
        on_disk = sum(1 for path in folder.glob("idle-*/*"))
        opened = 0
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            opened += "/idle-" in os.readlink(link)
        return on_disk + opened

    def _past_recovery_point_mb(self) -> float:
        """The records above the recovery point of each log, which a start has to check."""
        folder = self._data / f"broker-{BROKER_ID}"
        points = read_offsets(OsDisk(), str(folder / RECOVERY_POINT))
        past_bytes = 0
        for path in (*folder.glob(f"{LARGE}-*"), *folder.glob(f"{TAIL}*-*")):
            point = points.get(required(replica_of(path.name), "the folder of a partition"), 0)
            for log in path.glob("*.log"):
                past_bytes += _bytes_from(log, point)
        return past_bytes / 1e6


def _topic(name: str, partitions: int, **placed: Any) -> Any:
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    return NewTopic(name, partitions, **placed)


def _bytes_from(log: Path, offset: int) -> int:
    """The bytes of a segment's file behind the batches that end at or below `offset`."""
    size = log.stat().st_size
    file = OsDisk().open(str(log))
    try:
        for position, header in headers_between(file, 0, size):
            if header.end_offset > offset:
                return size - position
    finally:
        file.close()
    return 0


def _read_mb(pid: int) -> float:
    """The bytes that a process has read from files so far, in MB, with or without the page cache;
    sockets do not count."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise BenchFailed(f"no /proc/{pid}/io: {error}") from error
    fields = dict(line.split(": ") for line in lines)
    return int(fields["rchar"]) / 1e6
