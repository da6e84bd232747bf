"""The ISR of one partition, as its leader keeps it. Pure.

It has three states (KIP-497): Committed, PendingExpand and PendingShrink. While a proposal is
pending, the leader does not know if the controller has committed it, so the leader must be safe in
both cases:

- PendingExpand: the joining replica already counts toward the high watermark. Bad sequence
  otherwise: 1. The controller commits the larger ISR. 2. Leader A has not heard of it and
  acknowledges a record that joining follower B does not have. 3. A dies, the controller elects B,
  and the acknowledged record is lost.
- PendingShrink: the leaving replica still counts: until the controller has committed its removal,
  it may be elected.

So the high watermark waits for the *maximal* ISR, and only one proposal is pending at a time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.metadata.requests.controller_requests import AlteredPartition
from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR as the controller last committed it; no proposal is pending."""

    isr: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """isr: as committed.
    joining: the replicas that the leader asks to add.
    """

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
    """isr: as committed.
    leaving: the replicas that the leader asks to remove, which count until the metadata says that
        they are removed.
    """

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


#: The controller has refused the proposal for good: nothing is pending there.
_VOID = frozenset(
    {
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
#: This leader is behind the controller; newer metadata will replace role, epochs and ISR together.
#: (NEW_LEADER_ELECTED: the controller committed the proposal, and another replica leads because of
#: it. So the proposal must not be rolled back.)
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
    """Propose to add `joining`; None if a proposal is pending or all of them are members."""
    if not isinstance(state, Committed):
        return None
    added = frozenset(joining) - state.isr
    return PendingExpand(state.isr, added) if added else None


def shrink(state: IsrState, leaving: Iterable[int]) -> PendingShrink | None:
    """Propose to remove `leaving`; None if a proposal is pending or none of them is a member."""
    if not isinstance(state, Committed):
        return None
    removed = frozenset(leaving) & state.isr
    return PendingShrink(state.isr, removed) if removed else None


def confirm(state: IsrState) -> PendingShrink | None:
    """Propose the present members again; None if a proposal is pending."""
    return PendingShrink(state.isr, frozenset()) if isinstance(state, Committed) else None


def react(answer: AlteredPartition, *, leader_epoch: int, partition_epoch: int) -> Reaction:
    """How to react to the controller's answer to a proposal made at these epochs.

    An answer is applied only if it is newer than this broker's metadata: the metadata log may have
    delivered a later state already.
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
