"""The active controller, as the parts of a broker see it; `forwarding` implements it over gRPC.

Refusals are `Rejected` values: the controller's own, or REQUEST_TIMED_OUT if no active controller
answers in time. No method here raises for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.raft.model.messages import AddVoterRequest, RemoveVoterRequest
from kvorum.runtime.errors import Rejected

REQUEST_TIMEOUT_MS = 5_000

PUBLISH_WAIT_MAX_MS = 5_000
"""Longest wait of a reply until this broker's own image shows the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One voter or observer as the quorum's leader sees it; times -1 when unknown."""

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp_ms: int = -1
    last_caught_up_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The metadata quorum. nodes: (id, host, port) of the controllers' listeners."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class NoQuorum(Rejected):
    """No controller leads. nodes: (id, host, port) of all controllers, for clients that want to ask
    them."""

    nodes: tuple[tuple[int, str, int], ...] = ()


class Voters(Protocol):
    """The voters of the metadata quorum (KIP-853). A method returns None once the change is
    committed, else the refusal."""

    async def add(self, request: AddVoterRequest, timeout_ms: int) -> Rejected | None:
        """Add a voter; waits until the node has caught up."""
        ...

    async def remove(self, request: RemoveVoterRequest, timeout_ms: int) -> Rejected | None: ...


class ControllerChannel(Protocol):
    """The active controller, whichever node it is."""

    @property
    def voters(self) -> Voters: ...

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before it."""
        ...

    @property
    def is_lost(self) -> bool:
        """True after a heartbeat or a request that reached no active controller, until one is
        reached again."""
        ...

    async def request(
        self,
        call: ControllerCall[Request, Reply],
        request: Request,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Reply | Rejected:
        """The reply to a call of the table in `metadata.rpc.calls`.

        If the call changed the metadata, the reply waits until this broker's own image shows the
        change, at most PUBLISH_WAIT_MAX_MS.
        """
        ...

    async def describe_quorum(self) -> QuorumDescription | NoQuorum | Rejected:
        """The quorum, as its leader describes it. The message of NoQuorum also tells when this
        broker last heard from an active controller."""
        ...
