"""The parts of a broker that serve share groups, made once."""

from __future__ import annotations

from collections.abc import Callable

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.network.peers import Peers
from kvorum.broker.share.core.group_limits import ShareDefaults
from kvorum.broker.share.dead_letters import DeadLetterWriter
from kvorum.broker.share.group_configs import ShareGroupConfigs
from kvorum.broker.share.group_states import GroupStates
from kvorum.broker.share.led_share_partitions import LedSharePartitions
from kvorum.broker.share.manager import SharePartitionManager
from kvorum.broker.share.partition_ends import PartitionEnds
from kvorum.broker.share_state.client import ShareStateClient
from kvorum.broker.share_state.driver import ShareCoordinators
from kvorum.metadata.image.image import ClusterImage


class ShareServices:
    """states: the share coordinators on this broker.
    client: those of the cluster.
    configs: of share groups.
    partitions: the share-partitions that this broker leads, and the sessions with their members.
    ends: of any partition, for lags.
    group_states: carries out the questions of group coordinators.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        config: BrokerConfig,
        image: Callable[[], ClusterImage],
        controller: ControllerChannel,
        make_topic: Callable[[str], None],
    ) -> None:
        """make_topic: creates an internal topic of that name in the background."""
        broker_id = replicas.broker_id
        self._peers = Peers(
            broker_id=broker_id,
            purpose="share-groups",
            peer_address=replicas.peer_address,
            connect=replicas.connect,
        )
        self.states = ShareCoordinators(replicas, config)
        self.client = ShareStateClient(
            broker_id=broker_id,
            coordinators=self.states,
            call_peer=self._peers.call,
            image=image,
            make_topic=make_topic,
            clock=replicas.clock,
        )
        self.configs = ShareGroupConfigs(image, part_of(config, ShareDefaults))
        letters = DeadLetterWriter(
            brokers=replicas.configs,
            image=image,
            controller=controller,
            peers=self._peers,
            clock=replicas.clock,
        )
        self._led = LedSharePartitions(replicas, self.client, self.configs, letters)
        self.partitions = SharePartitionManager(self._led, config.group_share_max_share_sessions)
        self.ends = PartitionEnds(broker_id, replicas.registry, self._peers.call)
        self.group_states = GroupStates(self.client)

    async def stop(self) -> None:
        """End all share-partitions and coordinators; waiting requests get an error."""
        await self._led.stop()
        await self.group_states.stop()
        await self.states.stop()
        self._peers.close()
