"""The controller's gRPC edge: messages in, requests to the loop, replies back as messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.inspect import quorum_description
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.rpc import codec
from kvorum.raft.flight_recorder import FlightRecorder
from kvorum.raft.model import OffsetAndEpoch
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2 as pb
from kvorum.rpc import controller_pb2_grpc as pb_grpc
from kvorum.runtime.errors import Rejected
from kvorum.snapshots.format import SnapshotId
from kvorum.snapshots.store import SnapshotNotFound

COMMIT_TIMEOUT_MS = 10_000
"""How long a request may wait for commitment; the caller's own deadline is usually shorter."""

READ_CHUNK_BYTES = 1 << 20

RECORD_CHUNK_BYTES = 16 << 10
"""Of a flight record: encoded on the loop, which must not stand still for long."""


class ControllerServicer(pb_grpc.ControllerServicer):
    """Requests of brokers."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def RegisterBroker(self, request: pb.RegisterBrokerRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_register(request), COMMIT_TIMEOUT_MS)
        message = pb.RegisterBrokerReply(leader_id=self._loop.leader_id)
        if isinstance(reply, r.RegisteredBroker):
            message.broker_epoch = reply.broker_epoch
        return with_status(message, reply)

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[Any]:
        sender: tuple[int, int] | None = None
        serial = 0
        try:
            async for request in request_iterator:
                if sender != (request.broker_id, request.broker_epoch):
                    sender = (request.broker_id, request.broker_epoch)
                    serial = self._loop.stream_began(*sender)
                reply = await self._loop.submit(codec.decode_heartbeat(request), COMMIT_TIMEOUT_MS)
                message = pb.HeartbeatReply(leader_id=self._loop.leader_id)
                if isinstance(reply, r.HeartbeatReply):
                    message.is_caught_up = reply.is_caught_up
                    message.is_fenced = reply.is_fenced
                    message.should_shut_down = reply.should_shut_down
                yield with_status(message, reply)
        finally:
            if sender is not None:
                self._loop.stream_broke(*sender, serial)

    async def AlterPartition(self, request: pb.AlterPartitionRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_alter_partition(request), COMMIT_TIMEOUT_MS)
        message = pb.AlterPartitionReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.partitions.extend(codec.encode_altered(reply))  # type: ignore[arg-type]
        return with_status(message, reply)

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
        return with_status(message, reply)


class AdminServicer(admin_grpc.AdminServicer):
    """Requests of operators, and of clients through a broker."""

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
        return with_status(message, reply)

    async def DeleteTopics(self, request: admin_pb.DeleteTopicsRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_delete_topics(request), COMMIT_TIMEOUT_MS)
        message = admin_pb.DeleteTopicsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.topics.extend(codec.encode_deleted(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return with_status(message, reply)

    async def ElectLeaders(self, request: admin_pb.ElectLeadersRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_elect_leaders(request), COMMIT_TIMEOUT_MS)
        message = admin_pb.ElectLeadersReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.leaders.extend(codec.encode_elected(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return with_status(message, reply)

    async def UnregisterBroker(
        self, request: admin_pb.UnregisterBrokerRequest, context: Any
    ) -> Any:
        asked = r.UnregisterBrokerRequest(broker_id=request.broker_id)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = admin_pb.UnregisterBrokerReply(
            leader_id=self._loop.leader_id,
            end_offset=self._loop.controller.committed.end_offset,
        )
        return with_status(message, reply)

    async def DescribeQuorum(self, request: admin_pb.DescribeQuorumRequest, context: Any) -> Any:
        node = self._loop.node
        core = node.core
        message = admin_pb.DescribeQuorumReply(
            cluster_id=self._cluster_id,
            node_id=node.config.node_id,
            leader_id=self._loop.leader_id,
            leader_epoch=core.epoch,
            high_watermark=core.high_watermark,
            role=type(core.role).__name__.lower(),
            leaderless_ms=self._loop.leaderless_ms,
            directory_id=node.config.directory_id,
        )
        message.status.SetInParent()
        quorum_description.fill(message, node, self._nodes)
        return message

    async def ReadElectionTimeline(
        self, request: admin_pb.ReadElectionTimelineRequest, context: Any
    ) -> Any:
        node = self._loop.node
        message = admin_pb.ReadElectionTimelineReply(node_id=node.config.node_id)
        message.status.SetInParent()
        for line in node.timeline:
            timestamp_ms, _, text = line.partition(" ")
            message.lines.add(timestamp_ms=int(timestamp_ms), text=text)
        return message

    async def ReadFlightRecord(
        self, request: admin_pb.ReadFlightRecordRequest, context: Any
    ) -> AsyncIterator[Any]:
        """The ring as it is when asked, encoded chunk by chunk."""
        recorder: FlightRecorder | None = getattr(self._loop.node, "recorder", None)
        if recorder is None:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                f"node {self._loop.node.config.node_id} keeps no flight record",
            )
            return
        chunk = bytearray()
        for line in recorder.lines():
            chunk += line.encode()
            chunk += b"\n"
            if len(chunk) >= RECORD_CHUNK_BYTES:
                yield admin_pb.FlightRecordChunk(lines=bytes(chunk))
                chunk.clear()
                # A caller that reads fast must not keep the node from its own work.
                await asyncio.sleep(0)
        yield admin_pb.FlightRecordChunk(lines=bytes(chunk))

    async def ReadMetadataLog(
        self, request: admin_pb.ReadMetadataLogRequest, context: Any
    ) -> AsyncIterator[Any]:
        """Everything committed from from_offset on, then end."""
        node = self._loop.node
        high_watermark = max(node.core.high_watermark, 0)
        epoch = node.core.log.last_epoch
        base = node.core.log.base
        offset = max(request.from_offset, base.offset)
        if request.from_offset < base.offset:
            async for piece in self._pieces_of(base, context):
                yield admin_pb.MetadataLogChunk(
                    snapshot=piece, high_watermark=high_watermark, epoch=epoch
                )
        if offset < node.core.log.start_offset:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the log was trimmed; ask again")
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

    async def _pieces_of(self, snapshot: OffsetAndEpoch, context: Any) -> AsyncIterator[bytes]:
        store = self._loop.node.files.store
        id = SnapshotId(snapshot.offset, snapshot.epoch)
        position, size = 0, 1
        while position < size:
            try:
                piece, size = await store.read_chunk(id, position, READ_CHUNK_BYTES)
            except SnapshotNotFound as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, f"{error}; ask again")
                return
            yield piece
            position += len(piece)


def with_status(message: Any, reply: Any) -> Any:
    """The message with the refusal in its status, if the reply is one."""
    message.status.CopyFrom(codec.encode_status(reply if isinstance(reply, Rejected) else None))
    return message
