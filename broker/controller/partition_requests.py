"""What a broker asks of the active controller about partitions, over gRPC (see controller_api)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    CreatePartitions,
    GrownTopic,
    ListReassignments,
    OngoingReassignment,
    ReassignedPartition,
)
from kvorum.metadata.rpc import partitions_codec as codec
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import Rejected

PUBLISH_WAIT_MS = 5_000
"""For this broker's own image to hold what the controller has answered; see create_topics."""


class Requests(Protocol):
    """Requests to whoever is active (`forwarding.Forwarding`)."""

    async def change(
        self,
        invoke: Callable[[ControllerClient, int, float], Any],
        timeout_ms: int,
        *,
        publish_wait_ms: int,
    ) -> Any: ...

    async def ask(
        self, invoke: Callable[[ControllerClient, int, float], Any], timeout_ms: int
    ) -> Any: ...


class PartitionsLink:
    """The part of `forwarding.Forwarding` that is about partitions."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def create_partitions(
        self, request: CreatePartitions, timeout_ms: int
    ) -> tuple[GrownTopic, ...] | Rejected:
        message = codec.encode_create_partitions(request)
        reply = await self._requests.change(
            lambda client, target, timeout: client.partitions_stub(target).CreatePartitions(
                message, timeout=timeout
            ),
            timeout_ms,
            publish_wait_ms=PUBLISH_WAIT_MS,
        )
        return reply if isinstance(reply, Rejected) else codec.decode_grown(reply.topics)

    async def alter_reassignments(
        self, request: AlterReassignments, timeout_ms: int
    ) -> tuple[ReassignedPartition, ...] | Rejected:
        message = codec.encode_alter_reassignments(request)
        reply = await self._requests.change(
            lambda client, target, timeout: client.partitions_stub(target).AlterReassignments(
                message, timeout=timeout
            ),
            timeout_ms,
            publish_wait_ms=PUBLISH_WAIT_MS,
        )
        return reply if isinstance(reply, Rejected) else codec.decode_reassigned(reply.partitions)

    async def list_reassignments(
        self, request: ListReassignments, timeout_ms: int
    ) -> tuple[OngoingReassignment, ...] | Rejected:
        message = codec.encode_list_reassignments(request)
        reply = await self._requests.ask(
            lambda client, target, timeout: client.partitions_stub(target).ListReassignments(
                message, timeout=timeout
            ),
            timeout_ms,
        )
        return reply if isinstance(reply, Rejected) else codec.decode_ongoing(reply.reassignments)
