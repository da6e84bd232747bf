"""A broker process: metadata observer, replicas, and the Kafka listener."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from kvorum.broker.api.registry import usual_schemas
from kvorum.broker.api.services import Services
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import ignored_configs
from kvorum.broker.controller_channel.forwarding import ForwardingManager
from kvorum.broker.controller_channel.lifecycle import (
    BrokerLifecycleManager,
    MetadataPosition,
    RegistrationFailed,
)
from kvorum.broker.log_dirs.log_directories import DirectoriesLost, LogDirectory
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.server import KafkaServer
from kvorum.launch.config.listeners import Address
from kvorum.launch.config.properties import NodeConfig, static_values
from kvorum.launch.daemon.process import ended
from kvorum.launch.directories.log_directories import UNCLEAN, OwnDirectories, take_directories
from kvorum.launch.directories.metadata_log import open_log
from kvorum.launch.metrics.process import ProcessView
from kvorum.launch.nodes.dynamic_certificates import DynamicCertificates
from kvorum.launch.nodes.kafka_listeners import KafkaListeners
from kvorum.launch.nodes.metrics_server import NodeServer, serve_broker
from kvorum.launch.nodes.reach import NodeLinks, controller_client, tell_voters
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import limited
from kvorum.metadata.image.image import RESOURCE_BROKER, ClusterImage
from kvorum.metadata.image.publisher import MetadataPublisher
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import RegisterBrokerRequest
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import (
    ConfigError,
    DirectoryUnusable,
    QuorumNotReached,
    required,
    shortage_of,
)
from kvorum.runtime.ids import new_uuid
from kvorum.runtime.machine import Machine
from kvorum.runtime.tasks import TaskGroup
from kvorum.runtime.text import address_text
from kvorum.storage.files.checkpoints import remove_clean_shutdown, write_clean_shutdown
from kvorum.wire.kio_codec import warm_up

if TYPE_CHECKING:
    from kvorum.metadata.events.source import MetadataSource

logger = logging.getLogger("kvorum.broker")

CATCH_UP_TIMEOUT_MS = 60_000
SERVE_FENCED_AFTER_S = 1.0
"""After this time a broker that is still fenced serves clients, so that they hear what is wrong."""
FAILURE_CHECK_S = 0.1
"""Pause between two checks that the controller knows of a failed directory."""
WARM_UP_DELAY_S = 2.0
WARM_UP_PAUSE_S = 0.05
"""Pause between two schemas, so that a request waits for one import at most."""


class BrokerProcess:
    """Implements `launch.daemon.process.NodeProcess`.

    Steps of a start:
    1. Recover, and follow the metadata log.
    2. Register, and wait until the registration appears in the image.
    3. Load the replicas that the image names.
    4. Ask to be unfenced, and serve once the image shows that.
    """

    def __init__(
        self,
        config: NodeConfig,
        broker_config: BrokerConfig,
        *,
        on_failure: Callable[[BaseException], None],
        machine: Machine | None = None,
    ) -> None:
        """machine: the disk and the clock; the operating system's by default."""
        self._config = config
        self._machine = machine or Machine()
        self._disk = self._machine.disk
        self._on_failure = on_failure
        self._unfenced = asyncio.Event()
        self._shown_active = asyncio.Event()
        self._rng = random.Random()
        self._tasks = TaskGroup(on_failure)
        self._features = limited(config.node.metadata_version_max)
        self._publisher = MetadataPublisher(self._publish, on_failure=on_failure)
        self._links = NodeLinks(config)
        self._certificates = DynamicCertificates(config.node_id, config.given)
        self._client = controller_client(config, self._links.channels)
        self._lifecycle = self._make_lifecycle()
        self._controller = ForwardingManager(
            self._client,
            self._publisher,
            config.node_id,
            lambda: self._lifecycle.broker_epoch,
            refused_leader=self._refused_leader,
        )
        self._publisher.on_election = self._on_election
        self._publisher.on_voters = self._on_voters
        self._replicas = ReplicaManager(
            broker_id=config.node_id,
            data_directories=config.data_directories,
            config=broker_config,
            controller=self._controller,
            disk=self._disk,
            peer_address=self._peer_address,
            rng=self._rng,
            clock=self._machine.clock,
            connect=self._links.peer_connect(),
            on_directory_failed=self._on_directory_failed,
        )
        services = Services(
            config=broker_config,
            replicas=self._replicas,
            controller=self._controller,
            image=lambda: self._publisher.image,
            cluster_id=config.cluster_id,
            broker_id=config.node_id,
            properties=static_values(config.given),
            supported_features=self._features,
            metadata=_events_source(broker_config, self._publisher),
            authorizer=None if config.access is None else config.access.authorizer(),
            node_principals=None if config.access is None else config.access.nodes,
            certificates_problem=self._certificates.problem,
        )
        self._server = KafkaServer(services)
        self._listeners = KafkaListeners(
            self._server, lambda: self._publisher.image, self._machine.clock, self._watch_tls
        )
        self._metrics: NodeServer | None = None
        self._raft: RaftNode | None = None
        self._own: OwnDirectories | None = None
        self._failure_timeout_ms = broker_config.log_dir_failure_timeout_ms
        self._ignored: dict[str, str] = {}
        self._is_serving = False
        self._is_publishing = False

    def _make_lifecycle(self) -> BrokerLifecycleManager:
        config, waits = self._config, self._config.waits
        return BrokerLifecycleManager(
            self._client,
            registration=self._registration(),
            publisher=self._publisher,
            heartbeat_interval_ms=config.node.broker_heartbeat_interval_ms,
            heartbeat_timeout_ms=waits.controller_socket_timeout_ms,
            registration_timeout_ms=waits.initial_broker_registration_timeout_ms,
            on_unfenced=self._unfenced.set,
            on_answer=lambda is_fenced: self._replicas.isolation.on_controller_answer(
                is_fenced=is_fenced
            ),
            offline_directories=lambda: self._replicas.directories.failed_ids(),
            metadata=self._metadata_position,
        )

    def _refused_leader(self) -> str:
        """Why this broker does not follow the quorum's leader, or does not join; "" if it does."""
        of_raft = "" if self._raft is None else self._raft.core.refused_leader
        return of_raft or self._lifecycle.refusal

    def _metadata_position(self) -> MetadataPosition:
        core = required(self._raft, "the broker follows the metadata log").core
        return MetadataPosition(core.log.end_offset, core.log.last_epoch, core.refused_leader)

    async def start(self) -> None:
        config = self._config
        own = self._own = take_directories(
            self._disk,
            metadata_directory=config.directory,
            data_directories=config.data_directories,
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            rng=self._rng,
        )
        # Bind before the registration. A broker that cannot be reached must not register, and so
        # fence the process that has its port.
        for listener in config.listeners:
            await self._listeners.bind(listener, is_for_brokers=listener is config.listeners[0])
        self._links.watch(self._tasks)
        self._replicas.load(found=own.found)
        if lack := self._replicas.directories.lack_of_files(ProcessView().max_fds):
            logger.warning("%s", lack)
        self._refuse_loss()
        online = [d.id for d in self._replicas.directories.online if d.id is not None]
        self._lifecycle.note_directories(tuple(sorted(online)), own.epoch_before)
        raft_config, metadata_log = await open_log(self._machine, config, own.metadata_id)
        raft = self._raft = RaftNode(
            raft_config,
            metadata_log,
            peer_address=config.address_of,
            listener=self._publisher,
            on_failure=self._on_failure,
            rng=self._rng,
            clock=self._machine.clock,
            channels=self._links.channels,
        )
        self._metrics = await serve_broker(
            config,
            raft,
            self._server,
            self._client,
            lambda: self._lifecycle.is_fenced,
            self._refused_leader,
            links=self._links,
        )
        self._publisher.attach(raft)
        await self._publisher.load(metadata_log.newest)
        raft.start()
        await self._register(own)
        image = self._publisher.image
        own.warn_of_loss(config.directory, lambda: image.replica_count_of(config.node_id))
        self._is_serving = self._is_publishing = True
        self._replicas.publish(Delta.of_whole(image), image)
        self._log_ignored_configs(None, image)
        self._certificates.on_image(None, image)
        self._replicas.start()
        self._tasks.spawn(self._lifecycle.run_heartbeats(), "heartbeats")
        # Clients get the cluster from this broker's image. Without the wait, clients of a starting
        # cluster would see no brokers, after which librdkafka pauses for a second or two. After a
        # restart, partitions that wait for this broker would have no leader.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._shown_active.wait(), SERVE_FENCED_AFTER_S)
        self._server.serve()
        await self._unfenced.wait()
        # The image lags the heartbeat response by one fetch.
        await self._shown_active.wait()
        self._tasks.spawn(self._warm_up(), "warm-up")
        logger.info("broker=%d unfenced %s", config.node_id, raft.core.summary())

    def _watch_tls(self, name: str, tls: TlsListener) -> None:
        self._links.certificates.add(tls)
        self._certificates.add(name, tls)

    async def _register(self, own: OwnDirectories) -> None:
        """Register, wait until the image shows it, and remove the clean-shutdown markers. From then
        on this process is responsible for the logs.

        A start that ends earlier has opened no log and leaves the markers to the next start. The
        controller compares their broker epoch with that of the last registration, so they are
        rewritten with the new epoch. If the process is killed before that, they keep the old epoch.
        The controller then treats the next start as unclean, which is safe, and the broker rightly
        treats the logs as closed.
        """
        try:
            await self._lifecycle.register()
        except RegistrationFailed as error:
            refusal = QuorumNotReached if error.may_succeed_later else ConfigError
            raise refusal(str(error)) from error
        try:
            # Until its own registration appears, the image may name an earlier process of this id
            # as leader; acting on that would revive a leadership that is being taken away.
            shows_at = self._lifecycle.broker_epoch + 1
            if not await self._publisher.wait_for(shows_at, CATCH_UP_TIMEOUT_MS):
                raise QuorumNotReached(
                    f"broker {self._config.node_id} did not see its own registration within "
                    f"{CATCH_UP_TIMEOUT_MS} ms"
                )
            self._remove_markers(own)
        except (ConfigError, asyncio.CancelledError):
            if own.epoch_before != UNCLEAN:
                self._mark_clean(
                    item
                    for item in self._replicas.directories.online
                    if own.found[item.path].is_clean
                )
            raise

    def _remove_markers(self, own: OwnDirectories) -> None:
        """Remove the clean-shutdown markers, durably. A directory whose marker cannot be removed
        goes offline. Raises ConfigError."""
        has_failed = False
        for item in self._replicas.directories.items:
            if own.found[item.path].failure is not None:
                continue
            try:
                remove_clean_shutdown(self._disk, item.path)
            except OSError as failure:
                if shortage_of(failure):
                    raise
                if self._replicas.directories.fail(item, failure, "start"):
                    has_failed = True
                    self._refuse_loss()
        if has_failed:
            # The directory was registered as online.
            self._on_directory_failed()

    def _refuse_loss(self) -> None:
        lost = self._replicas.directories.loss(self._config.directory)
        if lost is not None:
            raise DirectoryUnusable(f"{lost}; repair the disk, or take it out of log.dirs")

    async def stop(self, *, is_withdrawn: bool = False) -> None:
        if self._is_serving:
            logger.info("broker=%d shuts down: leadership is handed over", self._config.node_id)
            problem = await self._lifecycle.shut_down(
                self._config.node.controlled_shutdown_timeout_ms
            )
            if problem is not None:
                logger.warning("leadership was not handed over %s", problem)
        await self._tasks.stop()
        if self._metrics is not None:
            await self._metrics.stop()
        await self._server.stop()
        self._listeners.stop()
        if self._is_serving:
            await self._close_replicas()
        if self._raft is not None:
            await self._raft.stop()
            self._raft.log.close()
        self._lifecycle.stop()
        await ended(self._client.close(), timeout_ms=1_000)
        if self._is_serving:
            # All logs of these directories are closed and fsynced, so the next start may trust
            # them.
            self._mark_clean(item for item in self._replicas.directories.items if item.is_closed)
        if self._own is not None:
            if is_withdrawn and self._lifecycle.broker_epoch < 0:
                self._own.new.undo()
            self._own.release()

    def _mark_clean(self, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            try:
                write_clean_shutdown(
                    self._disk, directory.path, broker_epoch=self._lifecycle.broker_epoch
                )
            except OSError:
                logger.exception("no clean-shutdown marker in %s", directory.path)

    def _on_directory_failed(self) -> None:
        """Tell the controller at once; exit if the remaining directories are not enough."""
        lost = self._replicas.directories.loss(self._config.directory)
        if lost is not None:
            self._on_failure(lost)
            return
        self._lifecycle.heartbeat_now()
        self._tasks.spawn(self._exit_if_unreported(), "directory-failure")

    async def _exit_if_unreported(self) -> None:
        """Exit if the controller does not hear of a failed directory in time (KIP-112).

        Until it knows, the controller counts on the replicas in that directory. It is better that
        this broker exits and is fenced as a whole.
        """
        failed = frozenset(self._replicas.directories.failed_ids())
        deadline_ms = monotonic_ms() + self._failure_timeout_ms
        while not failed <= self._lifecycle.acknowledged_offline:
            if monotonic_ms() >= deadline_ms:
                self._on_failure(
                    DirectoriesLost(
                        "the controller did not hear of a failed data directory within "
                        f"log.dir.failure.timeout.ms={self._failure_timeout_ms}"
                    )
                )
                return
            await asyncio.sleep(FAILURE_CHECK_S)

    async def _close_replicas(self) -> None:
        # The image still changes, because other brokers stop too. A replica manager that applied it
        # after closing its replicas would open logs again while a thread closes them.
        self._is_publishing = False
        try:
            await self._replicas.stop()
        except OSError:
            # The disk failed, so the next start must not trust these logs.
            logger.exception("not all logs could be closed cleanly")

    async def _warm_up(self) -> None:
        """Import the schemas that clients will need, in a thread, after the start."""
        await asyncio.sleep(WARM_UP_DELAY_S)
        try:
            for name, version in usual_schemas():
                await asyncio.to_thread(warm_up, name, version)
                await asyncio.sleep(WARM_UP_PAUSE_S)
        except OSError as failure:
            # Clients may have taken all descriptors. Requests import what they need.
            if not shortage_of(failure):
                raise
            logger.warning("schemas are imported later: %s", shortage_of(failure))

    def _publish(self, delta: Delta | None, image: ClusterImage) -> None:
        if self._is_publishing:
            self._replicas.publish(delta, image)
            self._log_ignored_configs(delta, image)
            self._certificates.on_image(delta, image)
            self._note_own_state(image)
            if self._lifecycle.is_fenced:
                self._lifecycle.heartbeat_now()

    def _log_ignored_configs(self, delta: Delta | None, image: ClusterImage) -> None:
        """Log once each broker config that is set and has no effect."""
        if delta is None or any(kind == RESOURCE_BROKER for kind, _ in delta.changed_configs):
            lines = ignored_configs(image, self._config.node_id)
            for name in lines.keys() - self._ignored.keys():
                logger.warning("broker=%d %s", self._config.node_id, lines[name])
            self._ignored = lines

    def _note_own_state(self, image: ClusterImage) -> None:
        own = image.brokers.get(self._config.node_id)
        if own is not None and own.is_active and own.broker_epoch == self._lifecycle.broker_epoch:
            self._shown_active.set()

    def _on_election(self, leader_id: int, epoch: int) -> None:
        # The log's fetches have found this leader; the configuration may not name it.
        address = self._config.address_of(leader_id)
        if address is None and self._raft is not None:
            address = self._raft.address_of(leader_id)
        if address is not None:
            self._client.add_address(leader_id, address_text(*address))
        self._client.note_election(leader_id, epoch)

    def _on_voters(self, voters: VoterSet) -> None:
        tell_voters(self._config, self._client, voters)

    def _registration(self) -> RegisterBrokerRequest:
        return RegisterBrokerRequest(
            broker_id=self._config.node_id,
            cluster_id=self._config.cluster_id,
            incarnation_id=new_uuid(random.Random()),
            # The first one is for the other brokers.
            endpoints=tuple(
                Endpoint(listener.name, *listener.advertised, listener.protocol)
                for listener in self._config.listeners
            ),
            rack=self._config.rack,
            features=self._features,
        )

    def _peer_address(self, broker_id: int) -> Address | None:
        override = self._config.overrides.get(broker_id)
        if override is not None:
            return override
        broker = self._publisher.image.brokers.get(broker_id)
        return None if broker is None else (broker.endpoint.host, broker.endpoint.port)


def _events_source(
    broker_config: BrokerConfig, publisher: MetadataPublisher
) -> MetadataSource | None:
    """The source of the records of `__kvorum_events`; None if this broker writes none."""
    if not broker_config.metadata_events_topic_enable:
        return None
    from kvorum.metadata.events.source import PublishedMetadata

    return PublishedMetadata(publisher)
