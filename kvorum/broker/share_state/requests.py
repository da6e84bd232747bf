"""The requests to a share coordinator's shard, and their answers. Pure data.

A refusal is a `Rejected`, or an ErrorCode of the coordinator's host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvorum.broker.share_state.batches import StateBatch
from kvorum.broker.share_state.records import UNKNOWN_COUNT, ShareKey

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeState:
    """-> ErrorCode. start_offset: -1 leaves the choice to the partition's leader."""

    key: ShareKey
    state_epoch: int
    start_offset: int = NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """-> ShareState. Leaders of lower epochs can write no more."""

    key: ShareKey
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSummary:
    """-> ShareState or None, which is no fault. leader_epoch: as in `ReadState`, but kept by
    nobody."""

    needs_replicas: ClassVar[bool] = False
    key: ShareKey
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """-> ErrorCode. start_offset: -1 if it has not changed."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteState:
    """-> ErrorCode; NONE also if there is no such state."""

    key: ShareKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Asks for the partition's log to start at `offset`: no record below it is needed."""

    offset: int
