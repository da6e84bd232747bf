"""Opens the replicas of this broker: chooses the data directory, opens the log, makes the core.

A log that cannot be opened is registered as broken and reported to the controller; the broker goes
on without it. A replica is opened only once the metadata names this broker among its replicas. A
folder that no replica claims is removed.

Walk: `ReplicaManager.publish` -> `open` -> `ReplicaRegistry`.
"""

from __future__ import annotations

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.config.topic_config import TopicConfig
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.log_dirs.log_directories import (
    LogDirectories,
    LogDirectory,
    PlacementRequest,
    Unplaced,
)
from kvorum.broker.log_dirs.replica_store import OpenedLog
from kvorum.broker.manager.directory_moves import DirectoryMoves
from kvorum.broker.manager.failure_handling import ReplicaFailures
from kvorum.broker.manager.replica_registry import ReplicaRegistry, ReplicaWithoutLog
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicIdPartition
from kvorum.runtime.clock import Clock
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import replica_of


class ReplicaOpener:
    """Opens the replicas of one broker, and removes the folders that no replica claims."""

    def __init__(
        self,
        *,
        broker_id: int,
        controller: ControllerChannel,
        configs: CurrentConfigs,
        directories: LogDirectories,
        registry: ReplicaRegistry,
        failures: ReplicaFailures,
        moves: DirectoryMoves,
        peer_brokers: PeerBrokers,
        loop_turn: LoopTurn,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._configs = configs
        self._directories = directories
        self._registry = registry
        self._failures = failures
        self._moves = moves
        self._peer_brokers = peer_brokers
        self._loop_turn = loop_turn
        self._disk = disk
        self._clock = clock

    def open(
        self, key: TopicIdPartition, topic: str, image: PartitionImage, before: ClusterImage
    ) -> Replica | None:
        """The replica, opened if needed; None if its log cannot be opened.

        before: the image before the one that is being adopted.
        """
        registry, failures = self._registry, self._failures
        replica = registry.get(key)
        broken = registry.get_broken(key)
        if replica is not None or (broken is not None and not broken.is_unplaced):
            return replica
        topic_id, partition_id = key
        name = f"{topic}-{partition_id}"
        log_dir = self._place(key, name, image, before)
        if isinstance(log_dir, Unplaced):
            if broken is None:
                failures.note_offline(name, log_dir.reason)
                registry.add_broken(key, ReplicaWithoutLog(name, log_dir.log_dir, is_unplaced=True))
            failures.report_missing_replica(key, image)
            return None
        registry.remove_broken(key)
        config, now_ms = self._configs.of_topic(topic), self._clock.wall_ms()
        try:
            opened = log_dir.store.open(topic, topic_id, partition_id, config.log, now_ms=now_ms)
        except (CorruptData, OSError) as failure:
            # Damage is never repaired by guessing. The replica stays offline with an error in the
            # broker's log, and its other replicas serve.
            registry.add_broken(key, ReplicaWithoutLog(name, log_dir))
            failures.on_open_failed(key, name, log_dir, failure)
            return None
        replica = self._make(key, topic, config, opened, log_dir)
        log_dir.replicas += 1
        registry.add(key, replica)
        if opened.has_identity:
            registry.note_files(replica)
        self._moves.continue_moves(replica, image.directory_of(self._broker_id))
        return replica

    def drop_strays(self) -> None:
        """Remove folders of deleted topics, once the image is certainly newer than the folders.

        An image with this process's own registration has everything that earlier processes of this
        broker can have seen. So a folder whose topic is not in it was deleted, and a folder whose
        partition has other replicas was moved away.
        """
        stores = [item.store for item in self._directories.online if item.store.has_strays]
        if not stores and not self._moves.has_strays:
            return
        own = self._registry.image.brokers.get(self._broker_id)
        if own is None or own.broker_epoch != self._controller.broker_epoch:
            return
        for item in self._directories.online:
            if item.store in stores:
                try:
                    item.store.drop_unclaimed(self._opened_at)
                except OSError as failure:
                    self._failures.on_directory_error(item, failure, "removal")
        self._moves.drop_strays()

    def _place(
        self, key: TopicIdPartition, name: str, image: PartitionImage, before: ClusterImage
    ) -> LogDirectory | Unplaced:
        """The directory of a replica, or the reason why it has none."""
        self._moves.promote(name, key[0], image.directory_of(self._broker_id))
        partition_before = before.partition(*key)
        was_ours = partition_before is not None and self._broker_id in partition_before.replicas
        return self._directories.place(
            PlacementRequest(
                name=name,
                topic_id=key[0],
                told=image.directory_of(self._broker_id),
                is_new=not was_ours and before is not EMPTY_IMAGE,
                is_in_sync=self._broker_id in (*image.isr, *image.elr),
            )
        )

    def _make(
        self,
        key: TopicIdPartition,
        topic: str,
        config: TopicConfig,
        opened: OpenedLog,
        log_dir: LogDirectory,
    ) -> Replica:
        """The replica of a log that was just opened in `log_dir`."""
        topic_id, partition_id = key
        core = Partition(
            broker_id=self._broker_id,
            topic=topic,
            topic_id=topic_id,
            partition_id=partition_id,
            peer_brokers=self._peer_brokers,
            lag_time_max_ms=self._configs.broker.replica_lag_time_max_ms,
            min_insync_replicas=config.min_insync_replicas,
            end_offset=opened.log.end_offset,
            high_watermark=max(opened.high_watermark, opened.log.start_offset),
        )
        return Replica(
            core=core,
            log=opened.log,
            config=config,
            disk=self._disk,
            loop_turn=self._loop_turn,
            has_identity=opened.has_identity,
            lower_checkpoints=log_dir.store.checkpoints.lower,
            on_first_file=self._registry.note_files,
            log_dir=log_dir,
            on_failed=self._failures.on_failed,
            metrics=self._registry.metrics.opened(topic_id, topic),
        )

    def _opened_at(self, name: str) -> str | None:
        """The folder of the open replica of that name; None if none is open."""
        key = replica_of(name)
        replica = None if key is None else self._registry.find_by_name(*key)
        return None if replica is None else replica.log.directory
