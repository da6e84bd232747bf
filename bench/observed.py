"""A broker in memory with many partitions, as its metrics see it; nothing serves and no log is on
disk."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.share.core.sessions import ShareSessions
from kvorum.launch.metrics.broker_view import BrokerView
from kvorum.launch.metrics.process import LoopWatch
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.values import RaftConfig, VoteState
from kvorum.raft.node.follower_clocks import FollowerClocks
from kvorum.raft.node.metrics import RaftMetrics
from kvorum.runtime.clock import SYSTEM_CLOCK
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import LogConfig
from kvorum.storage.log.log import Log

BROKER_ID = 101
PARTITIONS_OF_TOPIC = 1_000


class Observed:
    """A broker with `partitions` replicas of topics t-0, t-1, ..., of each 1,000 partitions.

    All replicas share one log, which is what their metrics read.
    """

    def __init__(self, partitions: int) -> None:
        self.registry = ReplicaRegistry()
        image = PartitionImage((BROKER_ID, 102), (BROKER_ID, 102), BROKER_ID, 0, 0)
        replica = _replica(image)
        topics = {}
        for at in range((partitions + PARTITIONS_OF_TOPIC - 1) // PARTITIONS_OF_TOPIC):
            topic_id, name = at.to_bytes(16, "big"), f"t-{at}"
            count = min(PARTITIONS_OF_TOPIC, partitions - at * PARTITIONS_OF_TOPIC)
            topics[topic_id] = TopicImage(name, topic_id, Map(dict.fromkeys(range(count), image)))
            for partition_id in range(count):
                self.registry.metrics.opened(topic_id, name)
                self.registry.add((topic_id, partition_id), replica)
        self.registry.image = ClusterImage(topics=Map(topics))
        self.watch = LoopWatch(lambda: 0, lambda: 0)
        self.raft: Any = _raft()
        self._server: Any = SimpleNamespace(services=_services(self.registry))

    def view(self) -> BrokerView:
        """The broker at this moment."""
        return BrokerView(
            self.raft, self._server, self.watch,
            now_s=0.0, age_ms=0, is_fenced=False, refuses_leader=False,
        )  # fmt: skip

    def delete(self, topic: int) -> None:
        """Delete a topic, as the replica manager does it."""
        topic_id = topic.to_bytes(16, "big")
        image = self.registry.image
        for partition_id in image.topics[topic_id].partitions:
            self.registry.remove((topic_id, partition_id))
        self.registry.image = ClusterImage(topics=image.topics.delete(topic_id))


def _replica(image: PartitionImage) -> Replica:
    core = Partition(
        broker_id=BROKER_ID,
        topic="t",
        topic_id=bytes(16),
        partition_id=0,
        peer_brokers=PeerBrokers(),
        lag_time_max_ms=1_000,
        min_insync_replicas=1,
    )
    disk: Any = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    unused: Any = None
    replica = Replica(
        core=core,
        log=Log.new(disk, "data/t-0", LogConfig()),
        config=resolve(BrokerConfig(), {}),
        disk=disk,
        loop_turn=LoopTurn(),
        has_identity=True,
        lower_checkpoints=unused,
        on_first_file=unused,
        log_dir=unused,
        on_failed=unused,
    )
    replica.become_leader(image, 0)
    return replica


def _services(registry: ReplicaRegistry) -> SimpleNamespace:
    store: Any = SimpleNamespace()
    directories = SimpleNamespace(items=[LogDirectory("/data", store)], offline_count=0)
    replicas = SimpleNamespace(
        registry=registry,
        broker_id=BROKER_ID,
        directories=directories,
        metrics=registry.metrics,
        deadlines=Deadlines(SYSTEM_CLOCK.monotonic_ms),
    )
    coordinators = SimpleNamespace(active_shards=list)
    led = SimpleNamespace(active=list)
    share = SimpleNamespace(
        partitions=SimpleNamespace(led=led, sessions=ShareSessions(0)), states=coordinators
    )
    return SimpleNamespace(
        replicas=replicas, groups=coordinators, transactions=coordinators, share=share
    )


def _raft() -> SimpleNamespace:
    config = RaftConfig(node_id=BROKER_ID, cluster_id="c", voters=(1, 2, 3))
    core = RaftCore(
        config,
        vote_state=VoteState(epoch=1),
        log=LogTail(epochs=(), end_offset=0, flushed_end_offset=0),
        rng=random.Random(1),
        now_ms=0,
    )
    return SimpleNamespace(
        config=config,
        core=core,
        metrics=RaftMetrics(BROKER_ID),
        servicer=SimpleNamespace(clocks=FollowerClocks()),
        files=SimpleNamespace(newest=lambda: None),
        log=SimpleNamespace(size_bytes=0),
        clock=SYSTEM_CLOCK,
    )
