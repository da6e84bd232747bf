"""The gRPC edge of feature levels and of controllers' registrations."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.rpc import features_codec as codec
from kvorum.metadata.rpc.codec import encode_status
from kvorum.metadata.rpc.service import COMMIT_TIMEOUT_MS
from kvorum.rpc import features_pb2 as pb
from kvorum.rpc import features_pb2_grpc as pb_grpc
from kvorum.runtime.errors import Rejected


class FeaturesServicer(pb_grpc.FeaturesServicer):
    """Requests of operators, of clients through a broker, and of the other controllers."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def UpdateFeatures(self, request: pb.UpdateFeaturesRequest, context: Any) -> Any:
        reply = await self._loop.submit(codec.decode_update(request), COMMIT_TIMEOUT_MS)
        message = pb.UpdateFeaturesReply(leader_id=self._loop.leader_id)
        if isinstance(reply, Rejected):
            message.status.CopyFrom(encode_status(reply))
        elif isinstance(reply, tuple):
            message.features.extend(codec.encode_updated(reply))  # type: ignore[arg-type]
            message.end_offset = self._loop.controller.committed.end_offset
        return message

    async def RegisterController(self, request: pb.RegisterControllerRequest, context: Any) -> Any:
        asked: r.RegisterControllerRequest = codec.decode_register_controller(request)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        refused = reply if isinstance(reply, Rejected) else None
        return pb.RegisterControllerReply(
            leader_id=self._loop.leader_id, status=encode_status(refused)
        )
