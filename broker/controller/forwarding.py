"""What a broker asks of the active controller for its clients and for itself, over gRPC.

Implements `controller_api.Controller`; what is about partitions is in `partition_requests`, what is
about voters in `voter_requests`. The broker's own place in the cluster is `lifecycle`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvorum.broker.controller.controller_api import NoQuorum, QuorumDescription, ReplicaState
from kvorum.broker.controller.lifecycle import BrokerLifecycle
from kvorum.broker.controller.partition_requests import PartitionsLink
from kvorum.broker.controller.voter_requests import VotersLink
from kvorum.metadata.image.publisher import MetadataPublisher
from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlteredConfigs,
    AlteredQuota,
)
from kvorum.metadata.requests.controller_requests import (
    AlteredPartition,
    AlterPartition,
    CreatedTopic,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    ElectedLeader,
    ElectLeaders,
    ProducerIdBlock,
    UnregisterBrokerRequest,
    UnregisteredBroker,
    UpdatedFeature,
    UpdateFeatures,
)
from kvorum.metadata.requests.directory_requests import AssignedReplica, AssignReplicas
from kvorum.metadata.requests.scram_requests import AlteredScramUser, AlterScramCredentials
from kvorum.metadata.rpc import codec, configs_codec, directories_codec, features_codec, scram_codec
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import controller_pb2 as pb
from kvorum.runtime.errors import Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.text import split_address

REQUEST_TIMEOUT_MS = 5_000
LEADER_WAIT_MS = quorum_report.LEADER_WAIT_MS
"""Requests that a client waits for are refused after so long without a leader; the broker's own
are sent again and again, nobody would do so for them."""

PUBLISH_WAIT_MS = 1_000
"""How long an answer waits for this broker's own image to show what was just done."""


class Forwarding:
    """Sends requests to whoever is active, and waits until this broker sees what came of them."""

    def __init__(
        self, client: ControllerClient, publisher: MetadataPublisher, lifecycle: BrokerLifecycle
    ) -> None:
        self._client = client
        self._publisher = publisher
        self._lifecycle = lifecycle
        self.partitions = PartitionsLink(self)
        self.voters = VotersLink(client)

    @property
    def broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    @property
    def is_lost(self) -> bool:
        return self._client.is_lost

    async def change(
        self,
        invoke: Callable[[ControllerClient, int, float], Any],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        publish_wait_ms: int = PUBLISH_WAIT_MS,
    ) -> Any:
        """The leader's reply to a change, once this broker's image shows it; or Rejected."""
        reply = await self.ask(invoke, timeout_ms)
        if not isinstance(reply, Rejected):
            await self._publisher.wait_for(reply.end_offset, publish_wait_ms)
        return reply

    async def ask(
        self, invoke: Callable[[ControllerClient, int, float], Any], timeout_ms: int
    ) -> Any:
        """The leader's reply to a question that a client waits for; or Rejected."""
        reply = await self._client.call(invoke, timeout_ms, leader_wait_ms=LEADER_WAIT_MS)
        return _rejected(reply) or reply

    async def create_topics(
        self, request: CreateTopics, timeout_ms: int
    ) -> tuple[CreatedTopic, ...] | Rejected:
        message = codec.encode_create_topics(request)
        reply = await self.change(
            lambda client, target, timeout: client.admin_stub(target).CreateTopics(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return reply if isinstance(reply, Rejected) else codec.decode_created(reply.topics)

    async def delete_topics(
        self, request: DeleteTopics, timeout_ms: int
    ) -> tuple[DeletedTopic, ...] | Rejected:
        message = codec.encode_delete_topics(request)
        reply = await self.change(
            lambda client, target, timeout: client.admin_stub(target).DeleteTopics(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return reply if isinstance(reply, Rejected) else codec.decode_deleted(reply.topics)

    async def update_features(
        self, request: UpdateFeatures, timeout_ms: int
    ) -> tuple[UpdatedFeature, ...] | Rejected:
        message = features_codec.encode_update(request)
        reply = await self.change(
            lambda client, target, timeout: client.features_stub(target).UpdateFeatures(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return (
            reply if isinstance(reply, Rejected) else features_codec.decode_updated(reply.features)
        )

    async def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> UnregisteredBroker | Rejected:
        message = admin_pb.UnregisterBrokerRequest(broker_id=request.broker_id)
        reply = await self.change(
            lambda client, target, timeout: client.admin_stub(target).UnregisterBroker(
                message, timeout=timeout
            ),
        )
        return reply if isinstance(reply, Rejected) else UnregisteredBroker()

    async def alter_partition(
        self, request: AlterPartition
    ) -> tuple[AlteredPartition, ...] | Rejected:
        message = codec.encode_alter_partition(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.controller_stub(target).AlterPartition(
                message, timeout=timeout
            ),
            REQUEST_TIMEOUT_MS,
        )
        rejected = _rejected(reply)
        return rejected if rejected is not None else codec.decode_altered(reply.partitions)

    async def assign_replicas(
        self, request: AssignReplicas
    ) -> tuple[AssignedReplica, ...] | Rejected:
        message = directories_codec.encode_assign(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.directories_stub(target).AssignReplicas(
                message, timeout=timeout
            ),
            REQUEST_TIMEOUT_MS,
        )
        rejected = _rejected(reply)
        return rejected if rejected is not None else directories_codec.decode_assigned(reply)

    async def allocate_producer_ids(self) -> ProducerIdBlock | Rejected:
        message = pb.AllocateProducerIdsRequest(
            broker_id=self._lifecycle.broker_id, broker_epoch=self._lifecycle.broker_epoch
        )
        reply = await self._client.call(
            lambda client, target, timeout: client.controller_stub(target).AllocateProducerIds(
                message, timeout=timeout
            ),
            REQUEST_TIMEOUT_MS,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        return rejected or ProducerIdBlock(start=reply.start, length=reply.length)

    async def elect_leaders(self, request: ElectLeaders) -> tuple[ElectedLeader, ...] | Rejected:
        message = codec.encode_elect_leaders(request)
        reply = await self.change(
            lambda client, target, timeout: client.admin_stub(target).ElectLeaders(
                message, timeout=timeout
            ),
        )
        return reply if isinstance(reply, Rejected) else codec.decode_elected(reply.leaders)

    async def alter_configs(
        self, request: AlterConfigs, timeout_ms: int
    ) -> tuple[AlteredConfigs, ...] | Rejected:
        message = configs_codec.encode_alter_configs(request)
        reply = await self.change(
            lambda client, target, timeout: client.configs_stub(target).AlterConfigs(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return (
            reply
            if isinstance(reply, Rejected)
            else configs_codec.decode_altered_configs(reply.resources)
        )

    async def alter_client_quotas(
        self, request: AlterClientQuotas, timeout_ms: int
    ) -> tuple[AlteredQuota, ...] | Rejected:
        message = configs_codec.encode_alter_quotas(request)
        reply = await self.change(
            lambda client, target, timeout: client.configs_stub(target).AlterClientQuotas(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return (
            reply
            if isinstance(reply, Rejected)
            else configs_codec.decode_altered_quotas(reply.entries)
        )

    async def alter_scram_credentials(
        self, request: AlterScramCredentials, timeout_ms: int
    ) -> tuple[AlteredScramUser, ...] | Rejected:
        message = scram_codec.encode_alter_scram(request)
        reply = await self.change(
            lambda client, target, timeout: client.configs_stub(target).AlterScramCredentials(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return (
            reply if isinstance(reply, Rejected) else scram_codec.decode_altered_scram(reply.users)
        )

    async def describe_quorum(self) -> QuorumDescription | NoQuorum:
        reply = await self._client.describe(LEADER_WAIT_MS)
        if isinstance(reply, Rejected):
            who = f"Broker {self._lifecycle.broker_id}"
            message = quorum_report.with_age(reply.message, who, self._client.leader_age_ms)
            return NoQuorum(reply.code, message, _nodes(self._client.addresses))
        return QuorumDescription(
            leader_id=reply.leader_id,
            leader_epoch=reply.leader_epoch,
            high_watermark=reply.high_watermark,
            voters=_replicas(reply.voters),
            observers=_replicas(reply.observers),
            nodes=tuple((n.node_id, n.host, n.port) for n in reply.nodes),
        )


def _nodes(addresses: Mapping[int, str]) -> tuple[tuple[int, str, int], ...]:
    found = []
    for node_id, address in sorted(addresses.items()):
        place = split_address(address)
        if place is not None:
            found.append((node_id, *place))
    return tuple(found)


def _replicas(messages: Any) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            id=m.node_id,
            directory_id=m.directory_id or UUID_ZERO,
            log_end_offset=m.log_end_offset,
            last_fetch_timestamp_ms=m.last_fetch_timestamp_ms,
            last_caught_up_timestamp_ms=m.last_caught_up_timestamp_ms,
        )
        for m in messages
    )


def _rejected(reply: Any) -> Rejected | None:
    return reply if isinstance(reply, Rejected) else codec.decode_status(reply.status)
