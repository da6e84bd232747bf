"""Brokers whose processes are real from the socket down: listener, API handlers, replicas,
fetchers, ISR proposals, maintenance and logs, put together as `BrokerProcess` does it.

Registration and heartbeats are those of the controller's world.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from kvorum.broker.api.services import Services
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.controller_api import ControllerChannel as Controller
from kvorum.broker.log_dirs.log_directories import FoundDirectory
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.partition.replica import Replica
from kvorum.broker.server import KafkaServer
from kvorum.chaos.sim.controller.broker_machine import BrokerMachine
from kvorum.chaos.sim.controller.brokers import SimBroker, SimBrokerProcess
from kvorum.chaos.sim.kernel.event_loop import SimLoop
from kvorum.chaos.sim.kernel.sockets import SimSocket
from kvorum.chaos.sim.partitions.data_world import WALL_START_MS, DataWorld
from kvorum.chaos.sim.partitions.scenario import (
    STREAMS_HEARTBEAT_INTERVAL_MS,
    STREAMS_SESSION_TIMEOUT_MS,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.memory_disk import PowerCut
from kvorum.runtime.sockets import CONNECT_TIMEOUT_MS
from kvorum.storage.files.checkpoints import (
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)

if TYPE_CHECKING:
    import socket

    from kvorum.chaos.sim.quorum.node import SimNode

DATA_DIRECTORY = "/node"
"""The first data directory, which also holds the metadata log
(`chaos.sim.quorum.model.recovery.DIRECTORY`)."""

FURTHER_DIRECTORY = "/further"
"""The second data directory, of brokers that have two."""

WALL_SKEW_MS = 7
"""Difference between the wall clocks of two nodes with consecutive ids: real machines never
agree."""

UNANSWERED = Rejected(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")


class NodeClock:
    """A `runtime.clock.Clock`: its monotonic time is that of the node's own clock."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def monotonic_ms(self) -> int:
        return self._node.local_ms

    def wall_ms(self) -> int:
        node = self._node
        return WALL_START_MS + node.world.timeline.now_ms + node.node_id * WALL_SKEW_MS


class SimController:
    """The methods of the `controller_api.Controller` of brokers that replicas and the handlers of
    producers' requests call."""

    def __init__(self, process: PartitionProcess) -> None:
        self._process = process

    @property
    def broker_epoch(self) -> int:
        return self._process.broker_epoch

    @property
    def is_lost(self) -> bool:
        # The simulated clients send no controller requests through a broker.
        return False

    async def request(
        self, call: ControllerCall[Request, Reply], request: Request, timeout_ms: int = 0
    ) -> Reply | Rejected:
        reply: Reply | Rejected = await self._ask(request)
        return reply

    async def _ask(self, request: Any) -> Any:
        loop = self._process.loop
        future = loop.create_future()

        def on_reply(reply: Any) -> None:
            def settle() -> None:
                if not future.done():
                    future.set_result(UNANSWERED if reply is None else reply)

            loop.run_inside(settle)

        self._process.ask(request, on_reply)
        return await future


class PartitionBroker(SimBroker):
    """A broker of the controller's world; the files of a clean shutdown are on the disk, where the
    real broker puts them."""

    world: DataWorld
    process: PartitionProcess | None

    def begin(self) -> None:
        node = self.node
        found: dict[str, FoundDirectory] = {}
        epochs: set[int] = set()
        try:
            for number, path in enumerate(paths_of(self.world)):
                directory_id = _directory_id(node.node_id, number)
                epoch = None
                try:
                    if not node.disk.exists(path):
                        # As in a node's identity: the folder's own name must be durable.
                        node.disk.make_dirs(path)
                        node.disk.sync_dir("/")
                    epoch = read_clean_shutdown(node.disk, path)
                    claim = FoundDirectory(directory_id=directory_id, is_clean=epoch is not None)
                except OSError as failure:
                    claim = FoundDirectory(directory_id=directory_id, failure=failure)
                found[path] = claim
                epochs.add(-1 if epoch is None else epoch)
            process = PartitionProcess(self, epochs.pop() if len(epochs) == 1 else -1)
            process.manager.load(found=found)
        except (OSError, PowerCut) as error:
            node.die(error)
            return
        self.process = process
        directories = process.manager.directories
        process.log_dirs = tuple(sorted(d.id for d in directories.online if d.id is not None))
        if (lost := directories.loss(DATA_DIRECTORY)) is not None:
            self.world.timeline.after(0, partial(process.end_of_disks, str(lost)))

    def on_stopped(self) -> None:
        process = self.process
        super().on_stopped()
        if process is not None:
            process.loop.stop_all()


class PartitionMachine(BrokerMachine):
    """A broker's machine of the controller's world; changes of its clock also reach its event
    loop."""

    _broker: SimBroker

    def on_clock_changed(self) -> None:
        super().on_clock_changed()
        process = self._broker.process
        if isinstance(process, PartitionProcess):
            process.loop.on_clock_changed()


class PartitionProcess(SimBrokerProcess):
    """One process of a broker.

    manager, server: the real ones.
    is_publishing: changes of the image are handed to the manager; false before the process serves,
        and once it shuts down.
    """

    EAGER: ClassVar[float] = 0.0

    def __init__(self, broker: PartitionBroker, epoch_before: int) -> None:
        super().__init__(broker, epoch_before)
        node, world = self._node, broker.world
        self._partition_world = world
        self.is_publishing = False
        self.loop = SimLoop(  # type: ignore[abstract]
            node, world.timeline, thread_ms=node.world.fsync_ms, on_turn=self._after_turn
        )
        config = broker_config(world)
        port = cast(Controller, SimController(self))
        rng = random.Random(f"{world.scenario.seed}-replicas-{node.node_id}-{node.incarnation}")
        self.manager = ReplicaManager(
            broker_id=node.node_id,
            data_directories=paths_of(world),
            config=config,
            controller=port,
            disk=node.disk,
            peer_address=self._peer_address,
            rng=rng,
            clock=NodeClock(node),
            connect=self._connect,
            on_directory_failed=self._on_directory_failed,
        )
        services = Services(
            config=config,
            replicas=self.manager,
            controller=port,
            image=lambda: self.image,
            cluster_id=node.config.cluster_id,
            broker_id=node.node_id,
            properties={},
        )
        self.server = KafkaServer(services)

    def replicas(self) -> list[Replica]:
        return self.manager.registry.all()

    def is_ailing(self) -> bool:
        """True if a failed disk keeps a replica offline until the process restarts."""
        return (
            bool(self.manager.registry.broken or self.manager.directories.offline)
            or any(r.is_offline for r in self.replicas())
        )  # fmt: skip

    def failed_log_dirs(self) -> tuple[bytes, ...]:
        return self.manager.directories.failed_ids()

    def end_of_disks(self, reason: str) -> None:
        """End the process, because it cannot continue with its remaining directories."""
        if self._is_mine():
            self._world.tally["starts after a failed disk"] += 1
            self.end(reason)

    def _on_directory_failed(self) -> None:
        lost = self.manager.directories.loss(DATA_DIRECTORY)
        if lost is not None:
            # End the process later, because it is in the middle of a step.
            self._world.timeline.after(0, partial(self.end_of_disks, str(lost)))
            return
        self._world.tally["data directories lost"] += 1
        if self._heartbeats.has_begun:
            self.later(0, self.heartbeat_now)

    # --- life --------------------------------------------------------------------------------

    def on_image(self, delta: Delta | None = None) -> None:
        if self.is_serving:
            # Publish later: this may be the middle of a step of the quorum's node, and a failed
            # disk must not end the process within that step.
            self.loop.call_soon(self._publish, delta, self.image)
            return
        super().on_image(delta)
        if self.is_serving:
            self.is_publishing = True
            self.loop.call_soon(self._begin)

    def _publish(self, delta: Delta | None, image: ClusterImage) -> None:
        if self.is_publishing:
            self.manager.publish(delta, image)

    def _begin(self) -> None:
        # As in `launch.nodes.broker_process`, right before logs are opened.
        for directory in self.manager.directories.items:
            try:
                remove_clean_shutdown(self._node.disk, directory.path)
            except OSError as failure:
                self.manager.on_directory_error(directory, failure, "start")
        image = self.image
        self.manager.publish(Delta.of_whole(image), image)
        self.manager.start()
        self.server.serve()
        self._partition_world.links.listen(self._node, self.loop, self._admit)

    def leave(self, was_moved: bool) -> None:
        """Stop the process. was_moved: the controller has moved leadership away."""
        if self._is_mine() and self.is_publishing:
            self.is_publishing = False
            name = "controlled shutdowns" if was_moved else "shutdowns in a hurry"
            self._world.tally[name] += 1
            self.loop.run_inside(lambda: self.loop.create_task(self._close()))

    async def _close(self) -> None:
        await self.server.stop()
        node = self._node
        try:
            await self.manager.stop()
            for directory in self.manager.directories.items:
                if directory.is_closed:
                    write_clean_shutdown(node.disk, directory.path, broker_epoch=self.broker_epoch)
            self._partition_world.tally["clean stops"] += 1
        except OSError as failure:
            if failure.errno not in (errno.EIO, errno.ENOSPC):
                raise
            self._world.note(node, f"logs not closed cleanly: {failure}")
        self._world.timeline.after(0, self._end_process)

    def _end_process(self) -> None:
        if self._is_mine():
            self._node.stop(is_power_cut=False)
            self._node.start_later(self._broker.stop_down_ms)

    def _look_at_followers(self) -> None:
        """No effect: the real ISR link checks the followers."""

    def on_controller_answer(self, is_fenced: bool) -> None:
        if self.is_publishing:
            isolation = self.manager.isolation
            self.loop.run_inside(lambda: isolation.on_controller_answer(is_fenced=is_fenced))

    # --- connections -------------------------------------------------------------------------

    def _admit(self, end: SimSocket) -> None:
        # A simulated end of a connection has all the methods of a socket that brokers use.
        self.server.admit(cast("socket.socket", end), "peer", "", self.loop)

    def _peer_address(self, broker_id: int) -> tuple[str, int] | None:
        known = self.image.brokers.get(broker_id)
        return None if known is None else (known.endpoint.host, known.endpoint.port)

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, address: tuple[str, int]
    ) -> socket.socket:
        world = self._partition_world
        server = world.nodes[int(address[0].removeprefix("host"))]
        future = loop.create_future()

        def settle(act: Callable[[], None]) -> None:
            self.loop.run_inside(lambda: None if future.done() else act())

        def opened(end: SimSocket) -> None:
            if future.done():
                end.close()
            settle(lambda: future.set_result(end))

        refused = ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        world.links.connect(
            self._node,
            self.loop,
            server,
            on_open=lambda end: self._node.submit(partial(opened, end)),
            on_refused=lambda: settle(lambda: future.set_exception(refused)),
        )
        async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
            end: SimSocket = await future
        return cast("socket.socket", end)

    # Checks.

    def _after_turn(self) -> None:
        if self._is_mine():
            self._partition_world.watch.observe(self._node, self.replicas())


def paths_of(world: DataWorld) -> tuple[str, ...]:
    """The data directories of every broker."""
    return (DATA_DIRECTORY, FURTHER_DIRECTORY)[: world.scenario.directories]


def _directory_id(node_id: int, number: int) -> bytes:
    """A wiped disk keeps its directory id: an operator gives the new disk the old identity."""
    return bytes([number + 1]) * 12 + node_id.to_bytes(4, "big")


def broker_config(world: DataWorld) -> BrokerConfig:
    """A broker's configuration: intervals short enough for a run of seconds, segments of a few
    batches."""
    scenario = world.scenario
    return BrokerConfig(
        broker_session_timeout_ms=scenario.session_ms,
        replica_lag_time_max_ms=scenario.lag_ms,
        replica_fetch_wait_max_ms=scenario.fetch_wait_ms,
        replica_fetch_max_bytes=scenario.fetch_bytes,
        replica_fetch_response_max_bytes=scenario.fetch_bytes * 3,
        replica_high_watermark_checkpoint_interval_ms=scenario.checkpoint_ms,
        log_flush_offset_checkpoint_interval_ms=scenario.flush_ms,
        log_retention_check_interval_ms=1_500,
        log_segment_bytes=scenario.segment_bytes,
        log_segment_delete_delay_ms=800,
        log_index_interval_bytes=scenario.index_interval_bytes,
        log_cleaner_backoff_ms=700,
        log_cleaner_dedupe_buffer_size=8_192,
        log_cleaner_io_buffer_size=4_096,
        log_cleaner_min_cleanable_ratio=0.1,
        max_incremental_fetch_session_cache_slots=scenario.session_slots,
        unclean_leader_election_enable=scenario.is_unclean,
        fetch_max_bytes=scenario.fetch_bytes * 4,
        offsets_topic_num_partitions=2,
        offsets_topic_replication_factor=min(3, scenario.observers),
        group_streams_session_timeout_ms=STREAMS_SESSION_TIMEOUT_MS,
        group_streams_heartbeat_interval_ms=STREAMS_HEARTBEAT_INTERVAL_MS,
        group_streams_initial_rebalance_delay_ms=300,
        group_streams_assignment_interval_ms=100,
        group_share_record_lock_duration_ms=1_000,
        share_coordinator_state_topic_num_partitions=2,
        share_coordinator_state_topic_replication_factor=min(3, scenario.observers),
        share_coordinator_state_topic_min_isr=min(2, scenario.observers),
        share_coordinator_state_topic_prune_interval_ms=1_500,
        share_coordinator_snapshot_update_records_per_snapshot=5,
        share_coordinator_cold_partition_snapshot_interval_ms=1_000,
    )


def running(broker: SimBroker) -> PartitionProcess | None:
    """The broker's process, if it is up."""
    found = broker.process
    return found if isinstance(found, PartitionProcess) else None


def replica_of(broker: SimBroker, topic_id: bytes, partition_id: int) -> Replica | None:
    """The replica, if the broker's process is up and has it."""
    process = running(broker)
    return None if process is None else process.manager.registry.find(topic_id, partition_id)
