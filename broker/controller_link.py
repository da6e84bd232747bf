"""The broker's line to the active controller: registration, heartbeats, requests.

Implements `controller_api.Controller` over gRPC. The heartbeat stream is also the broker's sign of
life: when the process dies it breaks, and the controller fences the broker after a short grace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio

from broker.controller_api import NoQuorum, QuorumDescription, ReplicaState
from broker.partitions_link import PartitionsLink
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import controller_pb2 as pb
from metadata import codec, configs_codec, features_codec, quorum_report
from metadata.client import ControllerClient
from metadata.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlteredConfigs,
    AlteredQuota,
)
from metadata.publisher import MetadataPublisher
from metadata.requests import (
    AlteredPartition,
    AlterPartition,
    CreatedTopic,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    ElectedLeader,
    ElectLeaders,
    Heartbeat,
    ProducerIdBlock,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
    UnregisteredBroker,
    UpdatedFeature,
    UpdateFeatures,
)
from runtime.clock import monotonic_ms
from runtime.errors import ErrorCode, KvorumError, Rejected
from runtime.ids import UUID_ZERO

logger = logging.getLogger("kvorum.broker")

REQUEST_TIMEOUT_MS = 5_000
LEADER_WAIT_MS = quorum_report.LEADER_WAIT_MS
"""Requests that a client waits for are refused after so long without a leader; the broker's own
are sent again and again, nobody would do so for them."""

REGISTRATION_TIMEOUT_MS = 60_000
"""Kafka: initial.broker.registration.timeout.ms."""

REGISTRATION_BACKOFF_MS = 50
HEARTBEAT_TIMEOUT_MS = 1_000
"""A heartbeat unanswered for so long is given up and sent to whoever leads now."""

RETRY_BACKOFF_MS = 20
PUBLISH_WAIT_MS = 1_000
"""How long an answer waits for this broker's own image to show what was just done."""


#: What a write or read on a stream raises once the stream, or the peer, is gone.
_STREAM_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    TimeoutError,
)


class RegistrationFailed(KvorumError):
    """The controller will not have this broker; the process ends with the reason."""


class ControllerLink:
    """Speaks for one broker process (one incarnation)."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        *,
        registration: RegisterBrokerRequest,
        publisher: MetadataPublisher,
        heartbeat_interval_ms: int,
        on_unfenced: Callable[[], None],
    ) -> None:
        self._client = ControllerClient(addresses)
        self._registration = registration
        self._publisher = publisher
        self.partitions = PartitionsLink(self._client, publisher)
        self._interval_s = heartbeat_interval_ms / 1000
        self._on_unfenced = on_unfenced
        self._broker_epoch = -1
        self._wake = asyncio.Event()
        self._want_shutdown = False
        self._shut_down = asyncio.Event()
        self.is_fenced = True

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    def note_epoch_before(self, broker_epoch: int) -> None:
        """The process before this one closed its logs in good order, under this epoch."""
        self._registration = dataclasses.replace(
            self._registration, broker_epoch_before=broker_epoch
        )

    # Life.

    async def register(self) -> None:
        """Take the broker's place; waits for an earlier process of this id to be given up.

        Raises RegistrationFailed when the controller refuses for good or nobody answers in time.
        """
        message = codec.encode_register(self._registration)
        deadline_ms = monotonic_ms() + REGISTRATION_TIMEOUT_MS
        reply: Any = None
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            reply = await self._client.call(
                lambda client, target, timeout: client.controller_stub(target).RegisterBroker(
                    message, timeout=timeout
                ),
                left_ms,
            )
            if isinstance(reply, Rejected):
                break
            if reply.status.code == ErrorCode.NONE:
                self._broker_epoch = reply.broker_epoch
                logger.info(
                    "broker=%d registered broker_epoch=%d",
                    self._registration.broker_id,
                    self._broker_epoch,
                )
                return
            if reply.status.code != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                break
            await asyncio.sleep(REGISTRATION_BACKOFF_MS / 1000)
        reason = reply.message if isinstance(reply, Rejected) else reply.status.message
        raise RegistrationFailed(f"cannot join the cluster: {reason}")

    def on_voters(self, addresses: Mapping[int, str]) -> None:
        """The controllers that vote are now at these addresses, by id."""
        self._client.update_addresses(addresses)

    def on_election(self, leader_id: int, epoch: int) -> None:
        """The metadata log has another leader: whoever waits for the old one need not."""
        self._client.note_election(leader_id, epoch)

    def wake(self) -> None:
        """Something a heartbeat should tell at once: the broker caught up, or wants to go."""
        self._wake.set()

    async def run_heartbeats(self) -> None:
        """Heartbeat until cancelled. Raises RegistrationFailed if the place is lost to another."""
        while True:
            target = self._client.next_target()
            stream = self._client.controller_stub(target).Heartbeat()
            try:
                await self._heartbeat_over(stream, target)
            except _STREAM_FAILURES as error:
                logger.info("heartbeat to controller=%d failed: %s", target, _brief(error))
                self._client.note_failure(target)
            finally:
                stream.cancel()
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    async def shut_down(self, timeout_ms: int) -> bool:
        """Controlled shutdown: True when the controller has moved leadership away in time."""
        self._want_shutdown = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._shut_down.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await self._client.close()

    async def _heartbeat_over(self, stream: Any, target: int) -> None:
        """Heartbeats on one stream until it fails or turns out to lead to a standby."""
        while True:
            self._wake.clear()
            heartbeat = Heartbeat(
                broker_id=self._registration.broker_id,
                broker_epoch=self._broker_epoch,
                metadata_offset=self._publisher.image.end_offset,
                want_shutdown=self._want_shutdown,
            )
            async with asyncio.timeout(HEARTBEAT_TIMEOUT_MS / 1000):
                await stream.write(codec.encode_heartbeat(heartbeat))
                reply = await stream.read()
            if reply is grpc.aio.EOF:
                raise grpc.aio.UsageError("the controller closed the stream")
            if reply is None:
                raise grpc.aio.UsageError("what came in place of an answer is no message")
            if not await self._take(reply, target):
                return
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _take(self, reply: pb.HeartbeatReply, target: int) -> bool:
        """Act on an answer; False when this stream is of no more use."""
        code = ErrorCode(reply.status.code)
        match code:
            case ErrorCode.NONE:
                self._client.note_active(target)
                if reply.should_shut_down:
                    self._shut_down.set()
                was_fenced, self.is_fenced = self.is_fenced, reply.is_fenced
                if was_fenced and not reply.is_fenced:
                    self._on_unfenced()
                return True
            case ErrorCode.BROKER_ID_NOT_REGISTERED:
                await self.register()
                return True
            case ErrorCode.STALE_BROKER_EPOCH:
                raise RegistrationFailed(
                    f"{reply.status.message}: another process has taken this broker's place"
                )
            case _:
                self._client.note_failure(target)
                if reply.leader_id != target:
                    self._client.note_hint(reply.leader_id)
                return False

    # Requests (controller_api.Controller).

    async def create_topics(
        self, request: CreateTopics, timeout_ms: int
    ) -> tuple[CreatedTopic, ...] | Rejected:
        message = codec.encode_create_topics(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.admin_stub(target).CreateTopics(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return codec.decode_created(reply.topics)

    async def delete_topics(
        self, request: DeleteTopics, timeout_ms: int
    ) -> tuple[DeletedTopic, ...] | Rejected:
        message = codec.encode_delete_topics(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.admin_stub(target).DeleteTopics(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return codec.decode_deleted(reply.topics)

    async def update_features(
        self, request: UpdateFeatures, timeout_ms: int
    ) -> tuple[UpdatedFeature, ...] | Rejected:
        message = features_codec.encode_update(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.features_stub(target).UpdateFeatures(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return features_codec.decode_updated(reply.features)

    async def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> UnregisteredBroker | Rejected:
        message = admin_pb.UnregisterBrokerRequest(broker_id=request.broker_id)
        reply = await self._client.call(
            lambda client, target, timeout: client.admin_stub(target).UnregisterBroker(
                message, timeout=timeout
            ),
            REQUEST_TIMEOUT_MS,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return UnregisteredBroker()

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

    async def allocate_producer_ids(self) -> ProducerIdBlock | Rejected:
        message = pb.AllocateProducerIdsRequest(
            broker_id=self._registration.broker_id, broker_epoch=self._broker_epoch
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
        reply = await self._client.call(
            lambda client, target, timeout: client.admin_stub(target).ElectLeaders(
                message, timeout=timeout
            ),
            REQUEST_TIMEOUT_MS,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return codec.decode_elected(reply.leaders)

    async def alter_configs(
        self, request: AlterConfigs, timeout_ms: int
    ) -> tuple[AlteredConfigs, ...] | Rejected:
        message = configs_codec.encode_alter_configs(request)
        reply = await self._change(
            lambda client, target, timeout: client.configs_stub(target).AlterConfigs(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        if isinstance(reply, Rejected):
            return reply
        return configs_codec.decode_altered_configs(reply.resources)

    async def alter_client_quotas(
        self, request: AlterClientQuotas, timeout_ms: int
    ) -> tuple[AlteredQuota, ...] | Rejected:
        message = configs_codec.encode_alter_quotas(request)
        reply = await self._change(
            lambda client, target, timeout: client.configs_stub(target).AlterClientQuotas(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        if isinstance(reply, Rejected):
            return reply
        return configs_codec.decode_altered_quotas(reply.entries)

    async def _change(
        self, invoke: Callable[[ControllerClient, int, float], Any], timeout_ms: int
    ) -> Any:
        """The leader's reply to a change, once this broker's image shows it; or Rejected."""
        reply = await self._client.call(invoke, timeout_ms, leader_wait_ms=LEADER_WAIT_MS)
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return reply

    async def describe_quorum(self) -> QuorumDescription | NoQuorum:
        reply = await self._client.describe(LEADER_WAIT_MS)
        if isinstance(reply, Rejected):
            who = f"Broker {self._registration.broker_id}"
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
        host, _, port = address.rpartition(":")
        found.append((node_id, host, int(port)))
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


def _brief(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error) or type(error).__name__
