"""The replicas of this broker: look-up by topic id or name, watching, and observers.

Requests find their replicas here, and periodic jobs list them. The replica manager and its parts
add and remove replicas; this module opens no log and has no I/O.

Walk: Produce and Fetch -> `find`, `find_by_name` or `watch` -> `Replica`.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable
from typing import NamedTuple

from kvorum.broker.fetch.fetch_sessions import Watched
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.metrics.counters import BrokerMetrics
from kvorum.broker.partition.replica import Replica, ReplicaObserver
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage, TopicIdPartition
from kvorum.runtime.errors import ErrorCode


class ReplicaWithoutLog(NamedTuple):
    """A replica whose log is not open.

    name: of its folder.
    log_dir: the data directory of that folder, None if it is unknown.
    is_unplaced: the next image of the partition may give it a directory (`LogDirectories.place`).
    """

    name: str
    log_dir: LogDirectory | None
    is_unplaced: bool = False


class ReplicaRegistry:
    """All replicas of a broker.

    image: the image that the replica manager has adopted last; names of topics are looked up in it.
    metrics: the broker's counters; those of a topic are here as long as its replicas.
    """

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.metrics = BrokerMetrics()
        self._replicas: dict[TopicIdPartition, Replica] = {}
        self._with_files: dict[TopicIdPartition, Replica] = {}
        self._broken: dict[TopicIdPartition, ReplicaWithoutLog] = {}
        self._observers: dict[str, ReplicaObserver] = {}

    # --- look-up -----------------------------------------------------------------------------

    def all(self) -> list[Replica]:
        return list(self._replicas.values())

    def items(self) -> ItemsView[TopicIdPartition, Replica]:
        """Every replica with its key; not to be used across an await."""
        return self._replicas.items()

    def with_files(self) -> list[Replica]:
        """The replicas that have a log on disk. A partition that was never written to has none, and
        costs the periodic jobs nothing."""
        return list(self._with_files.values())

    @property
    def broken(self) -> list[ReplicaWithoutLog]:
        """Replicas whose logs could not be opened."""
        return list(self._broken.values())

    def get(self, key: TopicIdPartition) -> Replica | None:
        return self._replicas.get(key)

    def get_broken(self, key: TopicIdPartition) -> ReplicaWithoutLog | None:
        return self._broken.get(key)

    def find(self, topic_id: bytes, partition_id: int) -> Replica | None:
        return self._replicas.get((topic_id, partition_id))

    def find_by_name(self, topic: str, partition_id: int) -> Replica | None:
        """The replica of the topic that has this name in the current image."""
        topic_id = self.image.topic_ids.get(topic)
        return None if topic_id is None else self._replicas.get((topic_id, partition_id))

    def among(self, keys: Iterable[TopicIdPartition]) -> list[Replica]:
        """The replicas of those keys, as far as this broker has them."""
        return [self._replicas[key] for key in keys if key in self._replicas]

    def watch(self, watched: Watched) -> Replica | None:
        """Connect a watched partition to its replica, if this broker has it."""
        partition_id = watched.asked.partition_id
        if watched.state.is_by_id:
            replica = self.find(watched.topic_id, partition_id)
        else:
            replica = self.find_by_name(watched.name, partition_id)
        if replica is not None:
            watched.replica = replica
            replica.watchers[watched] = None
        return replica

    def missing_error(self, topic: str | None, topic_id: bytes, partition_id: int) -> ErrorCode:
        """The error for a requested partition (by name, or by id if the name is None) that this
        broker has no replica of."""
        if topic is not None:
            image = self.image.topic(topic)
            if image is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            image = self.image.topics.get(topic_id)
            if image is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if partition_id not in image.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (image.topic_id, partition_id) in self._broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- observers ---------------------------------------------------------------------------

    def observe(self, topic: str, observer: ReplicaObserver) -> None:
        """Report every change of the replicas of `topic` to `observer`."""
        self._observers[topic] = observer

    def notify_observer(self, replica: Replica) -> None:
        """Report a change of `replica` to the observer of its topic, if there is one."""
        observer = self._observers.get(replica.core.topic)
        if observer is not None:
            observer.on_replica(replica)

    # --- changes by the replica manager ------------------------------------------------------

    def add(self, key: TopicIdPartition, replica: Replica) -> None:
        self._replicas[key] = replica

    def add_broken(self, key: TopicIdPartition, broken: ReplicaWithoutLog) -> None:
        """Add a replica whose log could not be opened."""
        self._broken[key] = broken

    def note_files(self, replica: Replica) -> None:
        """The replica has a log on disk from now on."""
        self._with_files[replica.core.topic_id, replica.core.partition_id] = replica

    def remove(self, key: TopicIdPartition) -> Replica | None:
        """The replica of that key, which is found no longer; None if there is none."""
        self._with_files.pop(key, None)
        if key in self._replicas:
            self.metrics.closed(key[0])
        return self._replicas.pop(key, None)

    def remove_broken(self, key: TopicIdPartition) -> ReplicaWithoutLog | None:
        return self._broken.pop(key, None)

    def clear(self) -> None:
        """Find no replica any more: the broker stops."""
        self._replicas.clear()
