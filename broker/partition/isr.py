"""The ISR of one partition as its leader sees it. Pure.

Three states (KIP-497). While a proposal is on its way the leader cannot know whether the
controller has already committed it, so it must be safe either way:

- PendingExpand: the joining replica already counts for the high watermark. Otherwise: 1. the
  controller commits the larger ISR, 2. the leader, not knowing, acknowledges without the new
  member, 3. the leader dies, the new member is elected and the acknowledged record is gone.
- PendingShrink: the leaving replica still counts, for the same reason read backwards.

So the high watermark waits for the *maximal* ISR, and only one proposal is ever in flight.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.metadata.requests.controller_requests import AlteredPartition
from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR the controller last told us."""

    isr: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """isr: committed; joining: asked to be added."""

    isr: frozenset[int]
    joining: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr | self.joining

    @property
    def proposed(self) -> frozenset[int]:
        return self.isr | self.joining


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """isr: committed; leaving: asked to be removed, counted until the metadata has it so."""

    isr: frozenset[int]
    leaving: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr

    @property
    def proposed(self) -> frozenset[int]:
        return self.isr - self.leaving


IsrState = Committed | PendingExpand | PendingShrink


class Reaction(enum.Enum):
    """The reaction to an answer to AlterPartition."""

    APPLIED = "the ISR is as answered"
    ROLLED_BACK = "the proposal is void; a later check may propose anew"
    RETRY = "send the same proposal again after a back-off"
    WAIT_FOR_METADATA = "our epochs are stale, or a member is out; the metadata log will tell"


#: The controller decided against this proposal and said so for good: nothing is pending there.
_VOID = frozenset(
    {
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
#: We are behind; the newer metadata replaces role, epochs and ISR together. (NEW_LEADER_ELECTED:
#: the proposal was committed and cost us the leadership, so it must not be rolled back.)
_STALE = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def expand(state: IsrState, joining: Iterable[int]) -> PendingExpand | None:
    """Ask for more members; None while another proposal is in flight or nothing is new."""
    if not isinstance(state, Committed):
        return None
    added = frozenset(joining) - state.isr
    return PendingExpand(state.isr, added) if added else None


def shrink(state: IsrState, leaving: Iterable[int]) -> PendingShrink | None:
    """Ask for fewer members; None while another proposal is in flight or nothing changes."""
    if not isinstance(state, Committed):
        return None
    removed = frozenset(leaving) & state.isr
    return PendingShrink(state.isr, removed) if removed else None


def confirm(state: IsrState) -> PendingShrink | None:
    """Ask for the members that there are; None while another proposal is in flight."""
    return PendingShrink(state.isr, frozenset()) if isinstance(state, Committed) else None


def react(answer: AlteredPartition, *, leader_epoch: int, partition_epoch: int) -> Reaction:
    """The meaning of the controller's answer to a proposal made at these epochs.

    An answer is applied only when it is newer than this broker's metadata: the metadata log may
    have been faster.
    """
    if answer.error == ErrorCode.NONE:
        if answer.leader_epoch != leader_epoch or answer.partition_epoch < partition_epoch:
            return Reaction.WAIT_FOR_METADATA
        return Reaction.APPLIED
    if answer.error in _VOID:
        return Reaction.ROLLED_BACK
    if answer.error in _STALE:
        return Reaction.WAIT_FOR_METADATA
    return Reaction.RETRY
