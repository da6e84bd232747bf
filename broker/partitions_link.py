"""What a broker asks of the active controller about partitions, over gRPC (see controller_api)."""

from __future__ import annotations

from typing import Any

from metadata import codec as common_codec
from metadata import partitions_codec as codec
from metadata.client import ControllerClient
from metadata.publisher import MetadataPublisher
from metadata.quorum_report import LEADER_WAIT_MS
from metadata.requests import (
    AlterReassignments,
    CreatePartitions,
    GrownTopic,
    ListReassignments,
    OngoingReassignment,
    ReassignedPartition,
)
from runtime.errors import Rejected

PUBLISH_WAIT_MS = 5_000
"""For this broker's own image to hold what the controller has answered; see create_topics."""


class PartitionsLink:
    """The part of `controller_link.ControllerLink` that is about partitions."""

    def __init__(self, client: ControllerClient, publisher: MetadataPublisher) -> None:
        self._client = client
        self._publisher = publisher

    async def create_partitions(
        self, request: CreatePartitions, timeout_ms: int
    ) -> tuple[GrownTopic, ...] | Rejected:
        message = codec.encode_create_partitions(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.partitions_stub(target).CreatePartitions(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return codec.decode_grown(reply.topics)

    async def alter_reassignments(
        self, request: AlterReassignments, timeout_ms: int
    ) -> tuple[ReassignedPartition, ...] | Rejected:
        message = codec.encode_alter_reassignments(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.partitions_stub(target).AlterReassignments(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        if rejected is not None:
            return rejected
        await self._publisher.wait_for(reply.end_offset, PUBLISH_WAIT_MS)
        return codec.decode_reassigned(reply.partitions)

    async def list_reassignments(
        self, request: ListReassignments, timeout_ms: int
    ) -> tuple[OngoingReassignment, ...] | Rejected:
        message = codec.encode_list_reassignments(request)
        reply = await self._client.call(
            lambda client, target, timeout: client.partitions_stub(target).ListReassignments(
                message, timeout=timeout
            ),
            timeout_ms,
            leader_wait_ms=LEADER_WAIT_MS,
        )
        rejected = _rejected(reply)
        return rejected if rejected is not None else codec.decode_ongoing(reply.reassignments)


def _rejected(reply: Any) -> Rejected | None:
    return reply if isinstance(reply, Rejected) else common_codec.decode_status(reply.status)
