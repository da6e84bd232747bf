"""The controller's gRPC edge: messages to requests, replies to messages.

All calls of the table (`metadata.rpc.calls`) are served the same way. Heartbeats and a node's
reports of itself have methods of their own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from kvorum.metadata.configs import loggers
from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.inspect import quorum_description
from kvorum.metadata.requests.controller_requests import HeartbeatReply
from kvorum.metadata.rpc.calls import (
    ADMIN_CALLS,
    CONFIG_OPERATION,
    CONTROLLER_CALLS,
    HEARTBEAT_REPLY,
    HEARTBEAT_REQUEST,
    ControllerCall,
)
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node.flight_recorder import FlightRecorder
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2 as pb
from kvorum.rpc import controller_pb2_grpc as pb_grpc
from kvorum.snapshots.format import SnapshotId
from kvorum.snapshots.store import SnapshotNotFound
from kvorum.storage.format.batch import iter_headers

COMMIT_TIMEOUT_MS = 10_000
"""How long a request may wait for its commit; the caller's own deadline is usually shorter."""

READ_CHUNK_BYTES = 1 << 20

RECORD_CHUNK_BYTES = 16 << 10
"""Chunk of a flight record. Encoding runs on the event loop, which must not be blocked for long."""


class ControllerServicer(pb_grpc.ControllerServicer):
    """Requests of brokers and of the other controllers."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop
        _serve_calls(self, CONTROLLER_CALLS, loop)

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
                heartbeat = HEARTBEAT_REQUEST.decode(request)
                yield self._heartbeat_reply(await self._loop.submit(heartbeat, COMMIT_TIMEOUT_MS))
        finally:
            if sender is not None:
                self._loop.stream_broke(*sender, serial)

    def _heartbeat_reply(self, reply: Any) -> Any:
        leader_id = self._loop.leader_id
        if isinstance(reply, HeartbeatReply):
            return HEARTBEAT_REPLY.encode(reply, leader_id=leader_id, status={})
        status = {"code": reply.code, "message": reply.message}
        return pb.HeartbeatReply(leader_id=leader_id, status=status)


class AdminServicer(admin_grpc.AdminServicer):
    """Requests of operators and, through a broker, of Kafka's clients."""

    def __init__(
        self, loop: ControllerLoop, *, cluster_id: str, nodes: dict[int, tuple[str, int]]
    ) -> None:
        self._loop = loop
        _serve_calls(self, ADMIN_CALLS, loop)
        self._cluster_id = cluster_id
        self._nodes = nodes

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

    async def DescribeLoggers(self, request: admin_pb.DescribeLoggersRequest, context: Any) -> Any:
        message = admin_pb.DescribeLoggersReply(node_id=self._loop.node.config.node_id)
        message.status.SetInParent()
        for name, level in loggers.levels():
            message.loggers.add(name=name, level=level)
        return message

    async def AlterLoggers(self, request: admin_pb.AlterLoggersRequest, context: Any) -> Any:
        operations = tuple(CONFIG_OPERATION.decode(each) for each in request.operations)
        refused = loggers.alter_loggers(operations, validate_only=request.validate_only)
        message = admin_pb.AlterLoggersReply(node_id=self._loop.node.config.node_id)
        message.status.SetInParent()
        if refused is not None:
            message.status.code, message.status.message = refused.code, refused.message or ""
        return message

    async def ReadFlightRecord(
        self, request: admin_pb.ReadFlightRecordRequest, context: Any
    ) -> AsyncIterator[Any]:
        """The flight recorder's ring as of the call, encoded chunk by chunk."""
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
                # A caller that reads fast must not take all of the node's time.
                await asyncio.sleep(0)
        yield admin_pb.FlightRecordChunk(lines=bytes(chunk))

    async def ReadMetadataLog(
        self, request: admin_pb.ReadMetadataLogRequest, context: Any
    ) -> AsyncIterator[Any]:
        """All committed records from from_offset on, behind the snapshot if the log begins
        later."""
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
            offset = _end_offset_of(piece)

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


def _serve_calls(
    servicer: Any, calls: Iterable[ControllerCall[Any, Any]], loop: ControllerLoop
) -> None:
    """Give a servicer one method for each of these calls."""
    for call in calls:
        setattr(servicer, call.name, functools.partial(_answer, loop, call))


async def _answer(
    loop: ControllerLoop, call: ControllerCall[Any, Any], message: Any, context: Any
) -> Any:
    reply = await loop.submit(call.decode_request(message), COMMIT_TIMEOUT_MS)
    return call.encode_reply(reply, loop.leader_id, loop.controller.committed.end_offset)


def _end_offset_of(records: bytes) -> int:
    """End offset (exclusive) of a non-empty run of whole batches."""
    end_offset = -1
    for _, header in iter_headers(records):
        end_offset = header.end_offset
    return end_offset
