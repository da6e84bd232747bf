"""The gRPC edge for brokers' data directories: as `service`, for its own proto file."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.rpc import directories_codec as codec
from kvorum.metadata.rpc.service import COMMIT_TIMEOUT_MS, with_status
from kvorum.rpc import directories_pb2 as pb
from kvorum.rpc import directories_pb2_grpc as pb_grpc


class DirectoriesServicer(pb_grpc.DirectoriesServicer):
    """Reports of brokers."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def AssignReplicas(self, request: pb.AssignReplicasRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_assign(request), COMMIT_TIMEOUT_MS)
        message = pb.AssignReplicasReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.refused.extend(codec.encode_refused(reply))  # type: ignore[arg-type]
        return with_status(message, reply)
