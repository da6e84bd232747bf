"""The gRPC edge for requests about partitions: as `service`, for its own proto file."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.rpc import partitions_codec as codec
from kvorum.metadata.rpc.service import COMMIT_TIMEOUT_MS, with_status
from kvorum.rpc import partitions_pb2 as pb
from kvorum.rpc import partitions_pb2_grpc as pb_grpc


class PartitionsServicer(pb_grpc.PartitionsServicer):
    """Requests of operators, and of clients through a broker."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def CreatePartitions(self, request: pb.CreatePartitionsRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_create_partitions(request), COMMIT_TIMEOUT_MS)
        message = pb.CreatePartitionsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.topics.extend(codec.encode_grown(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return with_status(message, reply)

    async def AlterReassignments(self, request: pb.AlterReassignmentsRequest, context: Any) -> Any:
        asked = codec.decode_alter_reassignments(request)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = pb.AlterReassignmentsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.partitions.extend(codec.encode_reassigned(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return with_status(message, reply)

    async def ListReassignments(self, request: pb.ListReassignmentsRequest, context: Any) -> Any:
        # Through the loop as well: what is answered then is committed.
        reply = await self._loop.submit(codec.decode_list_reassignments(request), COMMIT_TIMEOUT_MS)
        message = pb.ListReassignmentsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.reassignments.extend(codec.encode_ongoing(reply))  # type: ignore[arg-type]
        return with_status(message, reply)
