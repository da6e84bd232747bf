"""The controller's gRPC edge: messages in, requests to the loop, replies back as messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2 as pb
from kvorum.rpc import controller_pb2_grpc as pb_grpc
from metadata import codec
from metadata import requests as r
from metadata.loop import ControllerLoop
from raft.progress import ReplicaProgress
from raft.roles.states import Leader
from runtime.clock import monotonic_ms, wall_ms
from runtime.errors import Rejected

COMMIT_TIMEOUT_MS = 10_000
"""How long a request may wait for commitment; the caller's own deadline is usually shorter."""

READ_CHUNK_BYTES = 1 << 20


class ControllerServicer(pb_grpc.ControllerServicer):
    """What brokers ask."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def RegisterBroker(self, request: pb.RegisterBrokerRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_register(request), COMMIT_TIMEOUT_MS)
        message = pb.RegisterBrokerReply(leader_id=self._loop.leader_id)
        if isinstance(reply, r.RegisteredBroker):
            message.broker_epoch = reply.broker_epoch
        return _with_status(message, reply)

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[Any]:
        sender: tuple[int, int] | None = None
        try:
            async for request in request_iterator:
                sender = (request.broker_id, request.broker_epoch)
                reply = await self._loop.submit(codec.decode_heartbeat(request), COMMIT_TIMEOUT_MS)
                message = pb.HeartbeatReply(leader_id=self._loop.leader_id)
                if isinstance(reply, r.HeartbeatReply):
                    message.is_caught_up = reply.is_caught_up
                    message.is_fenced = reply.is_fenced
                    message.should_shut_down = reply.should_shut_down
                yield _with_status(message, reply)
        finally:
            if sender is not None:
                self._loop.stream_broke(*sender)

    async def AlterPartition(self, request: pb.AlterPartitionRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_alter_partition(request), COMMIT_TIMEOUT_MS)
        message = pb.AlterPartitionReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.partitions.extend(codec.encode_altered(reply))  # type: ignore[arg-type]
        return _with_status(message, reply)

    async def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest, context: Any
    ) -> Any:
        asked = r.AllocateProducerIds(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch
        )
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = pb.AllocateProducerIdsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, r.ProducerIdBlock):
            message.start, message.length = reply.start, reply.length
        return _with_status(message, reply)


class AdminServicer(admin_grpc.AdminServicer):
    """What operators ask, and clients through a broker."""

    def __init__(
        self, loop: ControllerLoop, *, cluster_id: str, nodes: dict[int, tuple[str, int]]
    ) -> None:
        self._loop = loop
        self._cluster_id = cluster_id
        self._nodes = nodes

    async def CreateTopics(self, request: admin_pb.CreateTopicsRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_create_topics(request), COMMIT_TIMEOUT_MS)
        message = admin_pb.CreateTopicsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.topics.extend(codec.encode_created(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)

    async def DeleteTopics(self, request: admin_pb.DeleteTopicsRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_delete_topics(request), COMMIT_TIMEOUT_MS)
        message = admin_pb.DeleteTopicsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.topics.extend(codec.encode_deleted(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)

    async def ElectLeaders(self, request: admin_pb.ElectLeadersRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_elect_leaders(request), COMMIT_TIMEOUT_MS)
        message = admin_pb.ElectLeadersReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.leaders.extend(codec.encode_elected(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)

    async def DescribeQuorum(self, request: admin_pb.DescribeQuorumRequest, context: Any) -> Any:
        node = self._loop.node
        core = node.core
        message = admin_pb.DescribeQuorumReply(
            cluster_id=self._cluster_id,
            node_id=node.config.node_id,
            leader_id=core.leader_id,
            leader_epoch=core.epoch,
            high_watermark=core.high_watermark,
            role=type(core.role).__name__.lower(),
        )
        message.status.SetInParent()
        for node_id, (host, port) in sorted(self._nodes.items()):
            message.nodes.add(node_id=node_id, host=host, port=port)
        role = core.role
        now_wall_ms = wall_ms()
        if isinstance(role, Leader):
            message.voters.add(
                node_id=node.config.node_id,
                log_end_offset=core.log.end_offset,
                last_fetch_timestamp_ms=now_wall_ms,
                last_caught_up_timestamp_ms=now_wall_ms,
            )
            message.voters.extend(_replica(p, now_wall_ms) for p in role.voters.values())
            message.observers.extend(_replica(p, now_wall_ms) for p in role.observers.values())
        else:
            message.voters.extend(
                _replica(ReplicaProgress(voter), now_wall_ms) for voter in node.config.voters
            )
        return message

    async def ReadMetadataLog(
        self, request: admin_pb.ReadMetadataLogRequest, context: Any
    ) -> AsyncIterator[Any]:
        """Everything committed from from_offset on, then end."""
        node = self._loop.node
        offset = max(request.from_offset, node.log.start_offset)
        high_watermark = max(node.core.high_watermark, 0)
        epoch = node.core.log.last_epoch
        while offset < high_watermark:
            piece = node.log.read(
                offset, bytes_max=READ_CHUNK_BYTES, end_offset=high_watermark
            ).read()
            if not piece:
                break
            yield admin_pb.MetadataLogChunk(
                records=piece, high_watermark=high_watermark, epoch=epoch
            )
            offset = codec.end_offset_of(piece)


def _replica(progress: ReplicaProgress, now_wall_ms: int) -> admin_pb.QuorumReplica:
    # Progress is kept on the monotonic clock; people and tools read the wall clock.
    shift_ms = now_wall_ms - monotonic_ms()
    return admin_pb.QuorumReplica(
        node_id=progress.node_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp_ms=_wall(progress.last_fetch_ms, shift_ms),
        last_caught_up_timestamp_ms=_wall(progress.last_caught_up_ms, shift_ms),
    )


def _wall(at_ms: int, shift_ms: int) -> int:
    return -1 if at_ms < 0 else at_ms + shift_ms


def _with_status(message: Any, reply: Any) -> Any:
    message.status.CopyFrom(codec.encode_status(reply if isinstance(reply, Rejected) else None))
    return message
