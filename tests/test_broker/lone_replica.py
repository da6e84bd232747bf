"""A replica without a broker: its store and its log on a memory disk, its session with a leader."""

from __future__ import annotations

import random

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.fetch.follower_fetch_session import FollowerFetchSession
from kvorum.broker.fetch.log_start_ack import LogStartAcks
from kvorum.broker.log_dirs.replica_store import ReplicaStore
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.runtime.clock import SYSTEM_CLOCK
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.checkpoints import PARTITION_METADATA
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from kvorum.wire.replica_fetch_codec import ReplicaAnswer, ReplicaFetchAnswer

TOPIC_ID = bytes(range(16))
CONFIG = BrokerConfig()


def replica_of(partition_id=0):
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    core = Partition(
        broker_id=1, topic="t", topic_id=TOPIC_ID, partition_id=partition_id,
        peer_brokers=PeerBrokers(),
        lag_time_max_ms=1_000, min_insync_replicas=1,
    )  # fmt: skip
    return Replica(
        core=core, log=Log.new(disk, f"data/t-{partition_id}", LogConfig()),
        config=resolve(CONFIG, {}), disk=disk, loop_turn=LoopTurn(), has_identity=True,
        lower_checkpoints=lambda *_: None, on_first_file=lambda _: None, log_dir=None,
        on_failed=lambda *_: None,
    )  # fmt: skip


def fail(log_dir, failure, operation):
    raise failure


def session_of():
    return FollowerFetchSession(
        config=CONFIG, leader_name=lambda: "broker 2 at host:9092", on_resume=lambda: None,
        quota=ReplicationQuota(0), clock=SYSTEM_CLOCK, starts=LogStartAcks(fail),
    )  # fmt: skip


def answer(session_id, *, batch=b""):
    part = ReplicaAnswer(TOPIC_ID, 0, 0, 0, 0, None, 0, len(batch))
    return ReplicaFetchAnswer(1, 0, session_id, [part])


def made(disk: MemoryDisk) -> ReplicaStore:
    store = ReplicaStore(disk=disk, data_directory="data", rng=random.Random(1), topics=dict)
    store.load(is_clean=False)
    return store


def with_log(disk: MemoryDisk, topic_id: bytes = TOPIC_ID) -> None:
    """A replica of t-0 with one record, all of it in the page cache."""
    disk.make_dirs("data")
    disk.sync_dir(".")
    log = Log.new(disk, "data/t-0", LogConfig())
    log.append_as_leader(build_batch([(None, b"x")], timestamp_ms=1), leader_epoch=1, now_ms=1)
    file = disk.open(f"data/t-0/{PARTITION_METADATA}")
    file.pwrite(b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 0)
