"""The controller's gRPC edge for configs, client quotas and SCRAM credentials."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.rpc import configs_codec, scram_codec
from kvorum.metadata.rpc.codec import encode_status
from kvorum.metadata.rpc.service import COMMIT_TIMEOUT_MS
from kvorum.rpc import configs_pb2 as pb
from kvorum.rpc import configs_pb2_grpc as pb_grpc
from kvorum.runtime.errors import Rejected


class ConfigsServicer(pb_grpc.ConfigsServicer):
    """Requests of operators, and of clients through a broker."""

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def AlterConfigs(self, request: pb.AlterConfigsRequest, context: Any) -> Any:
        asked = configs_codec.decode_alter_configs(request)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = pb.AlterConfigsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.resources.extend(
                configs_codec.encode_altered_configs(reply)  # type: ignore[arg-type]
            )
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)

    async def AlterClientQuotas(self, request: pb.AlterClientQuotasRequest, context: Any) -> Any:
        asked = configs_codec.decode_alter_quotas(request)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = pb.AlterClientQuotasReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.entries.extend(
                configs_codec.encode_altered_quotas(reply)  # type: ignore[arg-type]
            )
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)

    async def AlterScramCredentials(
        self, request: pb.AlterScramCredentialsRequest, context: Any
    ) -> Any:
        asked = scram_codec.decode_alter_scram(request)
        reply = await self._loop.submit(asked, COMMIT_TIMEOUT_MS)
        message = pb.AlterScramCredentialsReply(leader_id=self._loop.leader_id)
        if isinstance(reply, tuple):
            message.users.extend(
                scram_codec.encode_altered_scram(reply)  # type: ignore[arg-type]
            )
            message.end_offset = self._loop.controller.committed.end_offset
        return _with_status(message, reply)


def _with_status(message: Any, reply: Any) -> Any:
    message.status.CopyFrom(encode_status(reply if isinstance(reply, Rejected) else None))
    return message
