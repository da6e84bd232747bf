"""Control records of the quorum, in Kafka's own format (kraft.md section 8).

A control batch holds one record: key int16 version, int16 type; value a flexible struct.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.errors import invariant
from storage.batch import build_batch

LEADER_CHANGE = 2


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of an epoch: who leads it and who voted for it."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


def leader_change_batch(
    change: LeaderChange, *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch that opens an epoch (LeaderChangeMessage version 0)."""
    value = struct.pack(">hi", 0, change.leader_id)
    value += _voters(change.voters) + _voters(change.granting_voters) + b"\x00"
    key = struct.pack(">hh", 0, LEADER_CHANGE)
    return build_batch(
        [(key, value)],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
        is_control=True,
    )


def _voters(voter_ids: Sequence[int]) -> bytes:
    # A compact array: count + 1 (one byte up to 126 voters), then per voter its id and an empty
    # tagged-field section.
    invariant(len(voter_ids) < 127, f"{len(voter_ids)} voters are more than a quorum has")
    entries = b"".join(struct.pack(">i", voter_id) + b"\x00" for voter_id in voter_ids)
    return bytes((len(voter_ids) + 1,)) + entries
