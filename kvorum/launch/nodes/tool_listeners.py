"""A controller's listeners for Kafka's tools (KIP-919, `--bootstrap-controller`).

They are a broker's server with the APIs of `registry.SERVED_TO_TOOLS`, over the metadata that this
controller has committed, without any partition. A request goes to the active controller by gRPC, as
one at a broker does, so every controller takes all of them. Its caller is this node there: rights
are checked here, and the active controller trusts its peer.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kvorum.broker.api.registry import SERVED_TO_TOOLS
from kvorum.broker.api.services import Services
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.forwarding import ForwardingManager
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.server import KafkaServer
from kvorum.launch.config.properties import NodeConfig, static_values
from kvorum.launch.nodes.kafka_listeners import KafkaListeners
from kvorum.launch.nodes.reach import NodeLinks, controller_client, tell_voters
from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.raft.model.voters import VoterSet
from kvorum.runtime.machine import Machine


class ToolListeners:
    """The listeners of one controller."""

    def __init__(
        self,
        config: NodeConfig,
        links: NodeLinks,
        machine: Machine,
        features: tuple[FeatureRange, ...],
    ) -> None:
        self._config = config
        self._image = EMPTY_IMAGE
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._voters: VoterSet | None = None
        self._client = controller_client(config, links.channels)
        channel = ForwardingManager(self._client, self, config.node_id, lambda: -1)
        broker = BrokerConfig()
        self._replicas = ReplicaManager(
            broker_id=config.node_id,
            data_directories=(),
            config=broker,
            controller=channel,
            disk=machine.disk,
            peer_address=lambda broker_id: None,
            rng=random.Random(),
            clock=machine.clock,
        )
        services = Services(
            config=broker,
            replicas=self._replicas,
            controller=channel,
            image=lambda: self._image,
            cluster_id=config.cluster_id,
            broker_id=config.node_id,
            properties=static_values(config.given),
            supported_features=features,
            authorizer=None if config.access is None else config.access.authorizer(),
            served_to_tools=SERVED_TO_TOOLS,
        )
        self._server = KafkaServer(services)
        self._listeners = KafkaListeners(
            self._server,
            lambda: self._image,
            machine.clock,
            lambda name, tls: links.certificates.add(tls),
        )

    async def start(self) -> None:
        """Bind the listeners and serve. Raises ConfigError."""
        for listener in self._config.tool_listeners:
            await self._listeners.bind(listener)
        self._server.serve()

    def on_image(self, image: ClusterImage, voters: VoterSet) -> None:
        """Take the committed metadata, and the voters of the quorum."""
        before, self._image = self._image, image
        if voters != self._voters:
            self._voters = voters
            tell_voters(self._config, self._client, voters)
        # As a whole, without a delta: the authorizer and the quotas adopt what there is now.
        if image.acls is not before.acls or image.client_quotas is not before.client_quotas:
            for listener in self._replicas.image_listeners:
                listener(None, image)
        for future, end_offset in list(self._waiting.items()):
            if end_offset <= image.end_offset and not future.done():
                future.set_result(None)

    async def wait_for(self, end_offset: int, timeout_ms: int) -> bool:
        """Wait until this node's metadata reaches end_offset; False after timeout_ms."""
        if self._image.end_offset >= end_offset:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = end_offset
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(future, timeout_ms / 1000)
        finally:
            del self._waiting[future]
        return self._image.end_offset >= end_offset

    async def stop(self) -> None:
        """Close listeners and connections."""
        await self._server.stop()
        self._listeners.stop()
        await self._client.close()
