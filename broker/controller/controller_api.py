"""The active controller as the parts of a broker see it; `forwarding` implements it over gRPC.

Refusals come back as `Rejected` values (NOT_CONTROLLER or REQUEST_TIMED_OUT when no controller
answers in time); none of these methods raises for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.raft.messages import AddVoterRequest, RemoveVoterRequest
from kvorum.runtime.errors import Rejected

REQUEST_TIMEOUT_MS = 5_000

PUBLISH_WAIT_MAX_MS = 5_000
"""How long a reply waits for this broker's own image to show what was just done."""


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
    """No controller leads; nodes: (id, host, port) of all of them, for who wants to look."""

    nodes: tuple[tuple[int, str, int], ...] = ()


class Voters(Protocol):
    """The voters of the quorum itself (KIP-853). None: the change is made, and committed."""

    async def add(self, request: AddVoterRequest, timeout_ms: int) -> Rejected | None:
        """Waits until the node has caught up."""
        ...

    async def remove(self, request: RemoveVoterRequest, timeout_ms: int) -> Rejected | None: ...


class Controller(Protocol):
    """The active controller, wherever it is."""

    @property
    def voters(self) -> Voters: ...

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before it."""
        ...

    @property
    def is_lost(self) -> bool:
        """Neither the last heartbeat nor the last request has reached an active controller."""
        ...

    async def request(
        self,
        call: ControllerCall[Request, Reply],
        request: Request,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Reply | Rejected:
        """The reply to a call of the table in `metadata.rpc.calls`.

        If it changed the metadata, this broker's own image shows the outcome by now, or does not
        within PUBLISH_WAIT_MAX_MS.
        """
        ...

    async def describe_quorum(self) -> QuorumDescription | NoQuorum | Rejected:
        """The quorum as its leader sees it. NoQuorum's message also says how old the broker's
        own view of the cluster may be."""
        ...
