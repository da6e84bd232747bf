"""A controller: one voter of the quorum with its controller loop and its gRPC server."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2_grpc as controller_grpc
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from launch.identity import DirectoryLock, claim_directory, require_formatted
from launch.metadata_log import open_log
from launch.properties import NodeConfig
from metadata.controller import Controller, ControllerConfig
from metadata.loop import ControllerLoop
from metadata.service import AdminServicer, ControllerServicer
from raft.node import RaftNode
from runtime.disk import OsDisk
from runtime.errors import ConfigError
from runtime.rpc import add_service, make_server

logger = logging.getLogger("kvorum.controller")

SERVER_STOP_GRACE_S = 0.1


class ControllerProcess:
    """Implements `launch.process.NodeProcess`."""

    def __init__(
        self,
        config: NodeConfig,
        controller_config: ControllerConfig,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._controller_config = controller_config
        self._on_failure = on_failure
        self._disk = OsDisk()
        self._rng = random.Random()
        self._server: Any = None
        self._node: RaftNode | None = None
        self._lock: DirectoryLock | None = None

    async def start(self) -> None:
        config = self._config
        claim = require_formatted if config.raft.is_dynamic else claim_directory
        directory_id = claim(
            self._disk,
            config.directory,
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            rng=self._rng,
        )
        self._lock = DirectoryLock(config.directory)
        loop = ControllerLoop(
            Controller(self._controller_config, cluster_id=config.cluster_id, rng=self._rng),
            on_failure=self._on_failure,
        )
        raft_config, metadata_log = await open_log(self._disk, config, directory_id)
        node = self._node = RaftNode(
            raft_config,
            metadata_log,
            peer_address=config.address_of,
            listener=loop,
            on_failure=self._on_failure,
            rng=self._rng,
        )
        loop.attach(node)
        await loop.load(metadata_log.newest)
        await self._serve(loop, node)
        node.start()
        logger.info("controller=%d %s", config.node_id, node.core.summary())

    async def stop(self) -> None:
        if self._node is not None:
            await self._node.stop()
        if self._server is not None:
            await self._server.stop(SERVER_STOP_GRACE_S)
        if self._node is not None:
            self._node.log.close()
        if self._lock is not None:
            self._lock.release()

    async def _serve(self, loop: ControllerLoop, node: RaftNode) -> None:
        config = self._config
        host, port = config.listen
        server = self._server = make_server()
        admin = AdminServicer(loop, cluster_id=config.cluster_id, nodes=config.voter_addresses)
        add_service(raft_grpc.add_RaftServicer_to_server, node.servicer, server)
        add_service(
            controller_grpc.add_ControllerServicer_to_server, ControllerServicer(loop), server
        )
        add_service(admin_grpc.add_AdminServicer_to_server, admin, server)
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise ConfigError(f"cannot listen on {host}:{port}: the address is in use or not ours")
        await server.start()
