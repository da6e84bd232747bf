"""Replica manager: all replicas of this broker. Follows the metadata, owns logs and fetchers. The
driver.

Walk: metadata publisher -> `publish` -> `plan` (pure) -> here. Produce and Fetch find their
replicas in the `ReplicaRegistry`. Everything runs on the event loop; fsyncs and removals run in
threads.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.controller_channel.alter_partition_manager import AlterPartitionManager
from kvorum.broker.controller_channel.assignments_manager import AssignmentsManager
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.fetch.fetch_services import FetchServices
from kvorum.broker.fetch.fetch_sessions import SessionCache
from kvorum.broker.fetch.follower_fetch import ReplicaFetcherManager
from kvorum.broker.fetch.leader_throttle import LeaderThrottle
from kvorum.broker.log_dirs.log_directories import (
    FoundDirectory,
    LogDirectories,
    LogDirectory,
    is_disk_fault,
)
from kvorum.broker.manager.background_jobs import BackgroundJobs
from kvorum.broker.manager.directory_moves import DirectoryMoves
from kvorum.broker.manager.failure_handling import ReplicaFailures
from kvorum.broker.manager.isolation import Isolation
from kvorum.broker.manager.log_cleaner import LogCleaner
from kvorum.broker.manager.metadata_plan import Delete, Follow, Lead, plan
from kvorum.broker.manager.replica_opener import ReplicaOpener
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.metrics.counters import BrokerMetrics
from kvorum.broker.network.peer_connection import Connect, PeerAddress
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.metadata.configs.cordons import cordoned_paths
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import (
    ClusterImage,
    PartitionImage,
    TopicIdPartition,
)
from kvorum.metadata.image.records import NO_LEADER
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.sockets import connect_tcp

_log = logging.getLogger(__name__)

ImageListener = Callable[[Delta | None, ClusterImage], None]


class ReplicaManager:
    """All replicas of a broker.

    Order of calls: construct, `load`, `publish` the first image, `start`; at the end `await
    stop()`.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        data_directories: Sequence[str],
        config: BrokerConfig,
        controller: ControllerChannel,
        disk: Disk,
        peer_address: PeerAddress,
        rng: random.Random,
        clock: Clock = SYSTEM_CLOCK,
        connect: Connect = connect_tcp,
        on_directory_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """connect: how fetchers connect to leaders. on_directory_failed: called when a directory
        has gone offline; the owner decides if the broker can go on."""
        self.broker_id = broker_id
        self.clock = clock
        now_ms = clock.monotonic_ms
        self.rng = rng
        self.configs = CurrentConfigs(broker_id, config)
        registry = self.registry = ReplicaRegistry()
        self.peer_brokers = PeerBrokers(has_rack_readers=bool(config.replica_selector_class))
        self.deadlines = Deadlines(now_ms)
        self.loop_turn = LoopTurn()
        self.peer_address = peer_address
        self.connect = connect
        self.isr = AlterPartitionManager(broker_id=broker_id, controller=controller, now_ms=now_ms)
        self.fetch_services = self._services_of_fetches(config)
        self.directories = LogDirectories(
            disk, data_directories, rng, lambda: registry.image.topics
        )
        self.assignments = AssignmentsManager(broker_id=broker_id, controller=controller)
        self.fetchers = ReplicaFetcherManager(
            broker_id=broker_id,
            config=config,
            controller=controller,
            peer_address=peer_address,
            clock=clock,
            connect=connect,
            on_directory_error=self.on_directory_error,
        )
        self.moves = self._moves_on(disk)
        self._adopt_settings()
        self.failures = self._failures_with(on_directory_failed)
        self._opener = ReplicaOpener(
            broker_id=broker_id,
            controller=controller,
            configs=self.configs,
            directories=self.directories,
            registry=registry,
            failures=self.failures,
            moves=self.moves,
            peer_brokers=self.peer_brokers,
            loop_turn=self.loop_turn,
            disk=disk,
            clock=clock,
        )
        self.image_listeners: list[ImageListener] = [self.fetchers.suspects.on_image]
        """Called with (delta, image) after the replicas have adopted an image."""
        self._background_jobs = self._jobs()
        self.cleaner = LogCleaner(registry, self.configs, clock)
        self.isolation = Isolation(registry.all, now_ms, config, registry.notify_observer)

    def _services_of_fetches(self, config: BrokerConfig) -> FetchServices:
        registry, now_ms = self.registry, self.clock.monotonic_ms
        return FetchServices(
            watch=registry.watch,
            missing_error=registry.missing_error,
            configs=self.configs,
            peer_brokers=self.peer_brokers,
            deadlines=self.deadlines,
            propose_expand=self.isr.propose_expand,
            sessions=SessionCache(config.max_incremental_fetch_session_cache_slots, self.rng),
            throttle=LeaderThrottle(self.loop_turn, now_ms),
            now_ms=now_ms,
        )

    def _failures_with(self, on_directory_failed: Callable[[], None]) -> ReplicaFailures:
        return ReplicaFailures(
            broker_id=self.broker_id,
            registry=self.registry,
            directories=self.directories,
            assignments=self.assignments,
            fetchers=self.fetchers,
            on_directory_failed=on_directory_failed,
            end_move=self.moves.abandon,
        )

    def _moves_on(self, disk: Disk) -> DirectoryMoves:
        return DirectoryMoves(
            broker_id=self.broker_id,
            registry=self.registry,
            directories=self.directories,
            assignments=self.assignments,
            disk=disk,
            clock=self.clock,
            on_directory_error=self.on_directory_error,
        )

    def _jobs(self) -> BackgroundJobs:
        return BackgroundJobs(
            registry=self.registry,
            configs=self.configs,
            directories=self.directories,
            fetchers=self.fetchers,
            isr=self.isr,
            clock=self.clock,
            on_directory_error=self.failures.on_directory_error,
        )

    # --- life --------------------------------------------------------------------------------

    def load(
        self, is_clean: bool = False, found: Mapping[str, FoundDirectory] | None = None
    ) -> None:
        """Read checkpoints and find the replicas on disk (blocking). Logs are opened at `publish`.

        is_clean: the last process ended by `stop`; otherwise logs are checked when opened.
        found: `is_clean` and the id of each directory; required if there are several.
        """
        if found is None:
            found = {
                item.path: FoundDirectory(directory_id=UUID_ZERO, is_clean=is_clean)
                for item in self.directories.items
            }
        self.directories.load(found)

    def start(self) -> None:
        """Start fetching and the background jobs; needs a running event loop."""
        self.fetchers.start()
        self._background_jobs.start()
        self.cleaner.start()
        self.moves.start()

    async def stop(self) -> None:
        """Stop fetching, answer waiting requests, write checkpoints and close all logs cleanly."""
        await self.fetchers.stop()
        await self.isr.stop()
        await self.assignments.stop()
        self.isolation.stop()
        await self.cleaner.stop()
        await self.fetch_services.reread_verification.stop()
        await self._background_jobs.stop()
        unclosed = await self.moves.stop()
        replicas = self.registry.all()
        for replica in replicas:
            replica.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.loop_turn.run()
        self.deadlines.close()
        self.fetch_services.throttle.close()
        self.registry.clear()
        await self.failures.close_all(replicas, [*self.registry.broken, *unclosed])

    @property
    def metrics(self) -> BrokerMetrics:
        """The counters of this broker."""
        return self.registry.metrics

    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    # --- metadata ----------------------------------------------------------------------------

    def publish(self, delta: Delta | None, image: ClusterImage) -> None:
        """Adopt `image`; `delta` led to it from the last published image.

        If delta is None, or starts from another image, the images are compared whole.
        """
        before, self.registry.image = self.registry.image, image
        if delta is not None and delta.base is not before:
            delta = None
        self.peer_brokers.brokers = image.brokers
        is_reconfigured = self.configs.adopt(delta, image)  # before any log opens
        if is_reconfigured:
            self._adopt_settings()
        # Apply min.insync.replicas first. Bad sequence otherwise: 1. The minimum is raised.
        # 2. Follower B leaves the ISR and stays eligible. 3. One image brings both changes, and
        # this leader acknowledges alone by the old minimum. All other configs follow after the
        # roles, since this broker may no longer lead.
        reconfigured = self._configured_by(delta, is_all=is_reconfigured)
        for replica in reconfigured:
            minimum = self.configs.of_topic(replica.core.topic).min_insync_replicas
            replica.core.min_insync_replicas = minimum
        led: set[TopicIdPartition] = set()
        for action in plan(before, image, self.broker_id, delta):
            key = (action.topic_id, action.partition_id)
            match action:
                case Delete():
                    self._delete(key)
                case Lead():
                    self._lead(key, action.topic, action.image, before)
                    led.add(key)
                case Follow():
                    self._follow(key, action.topic, action.image, before)
        self.failures.log_offline()
        for replica in reconfigured:
            self._reconfigure(replica)
        if delta is None or delta.changed_brokers:
            self.fetchers.on_brokers_changed()
            for key, replica in self.registry.items():
                if replica.core.is_leader:
                    self._on_brokers_changed(replica, is_settled=key in led)
        self._opener.drop_strays()
        for listener in self.image_listeners:
            listener(delta, image)

    def _lead(
        self, key: TopicIdPartition, topic: str, image: PartitionImage, before: ClusterImage
    ) -> None:
        replica = self._opener.open(key, topic, image, before)
        if replica is None:
            return
        self.failures.report_directory_if_changed(key, replica, image)
        self.fetchers.unfollow(key)
        if replica.become_leader(image, self.now_ms()) and _log.isEnabledFor(logging.DEBUG):
            _log.debug("lead %s", replica.core.summary())
        # The image may settle a proposal before its answer arrives. A follower that caught up while
        # the proposal was pending is in no incremental fetch any more: without this, only the
        # periodic check would propose it.
        self.isr.reconsider(replica)
        self.registry.notify_observer(replica)

    def _follow(
        self, key: TopicIdPartition, topic: str, image: PartitionImage, before: ClusterImage
    ) -> None:
        replica = self._opener.open(key, topic, image, before)
        if replica is None:
            return
        self.failures.report_directory_if_changed(key, replica, image)
        is_new_epoch = replica.become_follower(image)
        if image.leader in (NO_LEADER, self.broker_id) or replica.is_offline:
            self.fetchers.unfollow(key)
        elif is_new_epoch or not self.fetchers.is_following(key, image.leader):
            # A change of the ISR alone does not restart the fetch: it would fetch again what is
            # already on its way.
            self.fetchers.follow(key, replica, image.leader)
        self.registry.notify_observer(replica)

    def _delete(self, key: TopicIdPartition) -> None:
        self.fetchers.unfollow(key)
        self.assignments.forget(key)
        self.failures.delete_broken(key, self.registry.remove_broken(key))
        replica = self.registry.remove(key)
        if replica is not None:
            moved, gone = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            replica.close(gone if self.registry.image.partition(*key) is None else moved)
            self.moves.cancel(replica, "the replica is deleted")
            self.registry.notify_observer(replica)
            self.failures.delete(replica)

    def on_file_failed(self, path: str, failure: OSError) -> None:
        """Handle a log's file that could not be read while it was sent."""
        log_dir = self.directories.of_path(path)
        # otherwise the log was truncated or closed
        if log_dir is not None and is_disk_fault(failure):
            self.on_directory_error(log_dir, failure, "read")

    def on_directory_error(self, log_dir: LogDirectory, failure: OSError, operation: str) -> None:
        """Handle a failed disk call that concerns no single replica: a checkpoint, a removal."""
        self.failures.on_directory_error(log_dir, failure, operation)

    def _adopt_settings(self) -> None:
        now_ms, config = self.now_ms(), self.configs.broker
        self.fetch_services.throttle.quota.set_rate(
            config.leader_replication_throttled_rate, now_ms
        )
        self.fetchers.quota.set_rate(config.follower_replication_throttled_rate, now_ms)
        self.moves.quota.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second, now_ms)
        self.directories.cordon(cordoned_paths(config.cordoned_log_dirs))

    def _configured_by(self, delta: Delta | None, *, is_all: bool) -> list[Replica]:
        """The replicas whose configs `delta` changed; all replicas if delta is None."""
        if delta is None or is_all:
            return self.registry.all()
        topics = self.configs.topics_changed_by(delta)
        return self.registry.among(
            (topic.topic_id, partition_id) for topic in topics for partition_id in topic.partitions
        )

    def _reconfigure(self, replica: Replica) -> None:
        config = self.configs.of_topic(replica.core.topic)
        if config is not replica.config and not replica.is_closed:
            replica.reconfigure(config, self.now_ms())

    def _on_brokers_changed(self, replica: Replica, *, is_settled: bool) -> None:
        """Brokers have changed, so a follower may have become eligible or ineligible: check the ISR
        and the high watermark.

        is_settled: `_lead` has checked both already, with these brokers.
        """
        if not is_settled:
            self.isr.reconsider(replica)
            if replica.core.raise_high_watermark(self.now_ms()):
                replica.on_high_watermark()
        replica.on_low_watermark()
