"""A controller process: a voter, or an observer that may become one, with its controller loop and
its gRPC server."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.directories.bootstrap_records import (
    check_bootstrap_level,
    read_bootstrap_records,
)
from kvorum.launch.directories.identity import (
    DirectoryLock,
    check_log_folder,
    claim_directory,
    require_formatted,
)
from kvorum.launch.directories.metadata_log import listener_complaint, metadata_directory, open_log
from kvorum.launch.directories.new_directories import NewDirectories
from kvorum.launch.nodes.metrics_server import NodeServer, serve_controller
from kvorum.launch.nodes.reach import NodeLinks
from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.image.features import limited, of_quorum
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.record_codec import UnreadableRecord
from kvorum.metadata.image.records import Endpoint, Record
from kvorum.metadata.requests.controller_requests import RegisterControllerRequest
from kvorum.metadata.rpc.guard import ControllerGuard
from kvorum.metadata.rpc.registrar import Registrar
from kvorum.metadata.rpc.service import AdminServicer, ControllerServicer
from kvorum.raft.node.raft_node import RaftNode
from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2_grpc as controller_grpc
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from kvorum.runtime.errors import DirectoryUnusable
from kvorum.runtime.http2.rpc import RpcServer
from kvorum.runtime.ids import new_uuid
from kvorum.runtime.machine import Machine
from kvorum.runtime.resolving import until_resolved
from kvorum.runtime.tasks import TaskGroup
from kvorum.runtime.text import address_text

if TYPE_CHECKING:
    from kvorum.launch.nodes.tool_listeners import ToolListeners

logger = logging.getLogger("kvorum.controller")

SERVER_STOP_GRACE_S = 0.1


class ControllerProcess:
    """Implements `launch.daemon.process.NodeProcess`."""

    def __init__(
        self,
        config: NodeConfig,
        controller_config: ControllerConfig,
        *,
        on_failure: Callable[[BaseException], None],
        machine: Machine | None = None,
    ) -> None:
        """machine: the disk and the clock; the operating system's by default."""
        self._config = config
        self._controller_config = controller_config
        self._on_failure = on_failure
        self._machine = machine or Machine()
        self._disk = self._machine.disk
        self._rng = random.Random()
        self._server: RpcServer | None = None
        self._node: RaftNode | None = None
        self._metrics: NodeServer | None = None
        self._lock: DirectoryLock | None = None
        self._new = NewDirectories(self._disk)
        self._may_have_voted = False
        self._features = of_quorum(
            limited(config.node.metadata_version_max), is_dynamic=config.raft.is_dynamic
        )
        self._tasks = TaskGroup(on_failure)
        self._links = NodeLinks(config)
        self._tools: ToolListeners | None = None
        self._guard: ControllerGuard | None = None
        if config.access is not None:
            self._guard = ControllerGuard(config.access.authorizer(), nodes=config.access.nodes)

    async def start(self) -> None:
        config = self._config
        claim = require_formatted if config.raft.is_dynamic else claim_directory
        self._new.look(config.directory)
        directory_id = claim(
            self._disk,
            config.directory,
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            rng=self._rng,
        )
        check_log_folder(self._disk, config.directory)
        self._lock = DirectoryLock(config.directory)
        self._new.note(config.directory)
        loop = ControllerLoop(
            Controller(
                self._controller_config,
                cluster_id=config.cluster_id,
                rng=self._rng,
                supported_features=self._features,
            ),
            on_failure=self._on_failure,
        )
        raft_config, metadata_log = await open_log(self._machine, config, directory_id)
        node = self._node = RaftNode(
            raft_config,
            metadata_log,
            peer_address=config.address_of,
            listener=loop,
            on_failure=self._on_failure,
            rng=self._rng,
            clock=self._machine.clock,
            channels=self._links.channels,
        )
        complaint = listener_complaint(
            config,
            directory_id,
            node.core.voter_set,
            metadata_log.replica_log.log.end_offset,
        )
        if complaint is not None:
            logger.error("%s", complaint)
        loop.controller.first_records = await self._first_records()
        loop.attach(node)
        registrar = Registrar(
            loop,
            self._registration(),
            on_refused=self._on_failure,
            channels=self._links.channels,
            call_timeout_ms=config.waits.controller_socket_timeout_ms,
        )
        if config.tool_listeners:
            # Imported here: other controllers need nothing of a broker.
            from kvorum.launch.nodes.tool_listeners import ToolListeners

            self._tools = ToolListeners(config, self._links, self._machine, self._features)
        loop.on_image = partial(self._on_image, registrar)
        await loop.load(metadata_log.newest)
        self._links.watch(self._tasks)
        await self._serve(loop, node)
        self._metrics = await serve_controller(config, node, loop, self._links)
        if self._tools is not None:
            await self._tools.start()
        self._may_have_voted = True
        node.start()
        self._tasks.spawn(registrar.run(), "registration")
        logger.info("controller=%d %s", config.node_id, node.core.summary())

    def _on_image(self, registrar: Registrar, image: ClusterImage) -> None:
        registrar.on_image(image)
        if self._tools is not None and self._node is not None:
            self._tools.on_image(image, self._node.core.voter_set)
        if self._guard is not None and self._guard.update(image) and self._server is not None:
            self._server.check_conversations()

    async def _first_records(self) -> tuple[Record, ...]:
        path = metadata_directory(self._config.directory)
        try:
            records = await read_bootstrap_records(self._machine.async_disk, path)
        except UnreadableRecord as error:
            raise DirectoryUnusable(f"the bootstrap checkpoint in {path}: {error}") from error
        check_bootstrap_level(self._config, records)
        return records

    def _registration(self) -> RegisterControllerRequest:
        config = self._config
        listener = config.controller_listener
        endpoint = Endpoint(listener.name, *config.advertised, listener.protocol)
        of_tools = (Endpoint(x.name, *x.advertised, x.protocol) for x in config.tool_listeners)
        return RegisterControllerRequest(
            controller_id=config.node_id,
            cluster_id=config.cluster_id,
            incarnation_id=new_uuid(self._rng),
            endpoints=(endpoint, *of_tools),
            features=self._features,
        )

    async def stop(self, *, is_withdrawn: bool = False) -> None:
        await self._tasks.stop()
        if self._tools is not None:
            await self._tools.stop()
        if self._metrics is not None:
            await self._metrics.stop()
        if self._node is not None:
            await self._node.stop()
        if self._server is not None:
            await self._server.stop(SERVER_STOP_GRACE_S)
        if self._node is not None:
            self._node.log.close()
        if is_withdrawn and not self._may_have_voted:
            self._new.undo()
        if self._lock is not None:
            self._lock.release()

    async def _serve(self, loop: ControllerLoop, node: RaftNode) -> None:
        config, guard = self._config, self._guard
        has_principals = config.access is not None and config.access.nodes is not None
        server = self._server = RpcServer(
            config.waits.of_connections(),
            self._links.server,
            None if guard is None else guard.refusal,
            # Without principals of nodes every message would be asked about for nothing.
            guard.refusal_of_message if guard is not None and has_principals else None,
        )
        admin = AdminServicer(loop, cluster_id=config.cluster_id, nodes=config.voter_addresses)
        server.add_service(raft_grpc.add_RaftServicer_to_server, node.servicer)
        server.add_service(
            controller_grpc.add_ControllerServicer_to_server, ControllerServicer(loop)
        )
        server.add_service(admin_grpc.add_AdminServicer_to_server, admin)
        await until_resolved(*config.listen, logger)
        await server.listen(address_text(*config.listen))
