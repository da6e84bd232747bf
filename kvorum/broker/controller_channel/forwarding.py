"""Requests from a broker to the active controller, for clients and for itself, over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kvorum.broker.controller_channel.controller_api import (
    PUBLISH_WAIT_MAX_MS,
    REQUEST_TIMEOUT_MS,
    NoQuorum,
    QuorumDescription,
    ReplicaState,
)
from kvorum.broker.controller_channel.voter_requests import VoterRequests
from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.text import split_address

LEADER_WAIT_MS = quorum_report.LEADER_WAIT_MS


class Published(Protocol):
    """The metadata that this node shows to clients."""

    async def wait_for(self, end_offset: int, timeout_ms: int) -> bool:
        """Wait until it reaches end_offset; False after timeout_ms."""
        ...


class ForwardingManager:
    """Implements `controller_api.ControllerChannel`: sends a request to the active controller, then
    waits until this broker's own image shows the change.

    broker_epoch: of this broker's registration, -1 before it.
    """

    def __init__(
        self,
        client: ControllerClient,
        publisher: Published,
        broker_id: int,
        broker_epoch: Callable[[], int],
        refused_leader: Callable[[], str] = str,
    ) -> None:
        """refused_leader: returns why the broker does not follow the quorum's leader, "" if it
        does."""
        self._refused_leader = refused_leader
        self._client = client
        self._publisher = publisher
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self.voters = VoterRequests(client, self._refusal)

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    @property
    def is_lost(self) -> bool:
        return self._client.is_lost

    async def request(
        self,
        call: ControllerCall[Request, Reply],
        request: Request,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Reply | Rejected:
        if refused := self._refusal():
            # A quorum without this broker's metadata would acknowledge what is lost again when one
            # that has it comes back.
            return Rejected(ErrorCode.REQUEST_TIMED_OUT, refused)
        answer = await self._client.request(call, request, timeout_ms)
        if isinstance(answer, Rejected):
            return answer
        wait_ms = min(max(timeout_ms, 1), PUBLISH_WAIT_MAX_MS)
        await self._publisher.wait_for(answer.end_offset, wait_ms)
        return answer.reply

    def _refusal(self) -> str:
        refused = self._refused_leader()
        return refused and f"Broker {self._broker_id} refuses the quorum: {refused}"

    async def describe_quorum(self) -> QuorumDescription | NoQuorum:
        if refused := self._refusal():
            nodes = _nodes(self._client.addresses)
            return NoQuorum(ErrorCode.REQUEST_TIMED_OUT, refused, nodes)
        reply = await self._client.describe(LEADER_WAIT_MS)
        if isinstance(reply, Rejected):
            who = f"Broker {self._broker_id}"
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
        place = split_address(address)
        if place is not None:
            found.append((node_id, *place))
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
