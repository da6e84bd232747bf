"""State batches: ranges of records in one delivery state; newer ones replace older ones. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class DeliveryState(enum.IntEnum):
    """The state of a record for one group. The values are Kafka's, as in `__share_group_state`,
    where a record is never ACQUIRED.

    AVAILABLE: the next member that fetches gets it.
    ACQUIRED: one member holds it, until its lock ends.
    ACKNOWLEDGED: a member has processed it.
    ARCHIVING: as ARCHIVED, once it is in the group's dead-letter topic (KIP-1191).
    ARCHIVED: it was rejected, was delivered too often, or is no record of a user's.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records in one state, as the share coordinator keeps them. Offsets are inclusive."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


KEPT_STATES = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}
"""The states that the share coordinator keeps."""


def combined(
    older: Sequence[StateBatch], newer: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The state after `newer`, without what lies below `start_offset`, with equal neighbours as one
    batch.

    All three are ascending and without overlap.
    """
    kept: list[StateBatch] = []
    for row in sorted([*_outside(older, newer), *newer]):
        if row.last_offset < start_offset:
            continue
        if row.first_offset < start_offset:
            row = row._replace(first_offset=start_offset)
        if kept and kept[-1].last_offset + 1 == row.first_offset and kept[-1][2:] == row[2:]:
            kept[-1] = kept[-1]._replace(last_offset=row.last_offset)
        else:
            kept.append(row)
    return tuple(kept)


def _outside(older: Sequence[StateBatch], newer: Sequence[StateBatch]) -> Iterable[StateBatch]:
    """The parts of `older` that `newer` does not have."""
    place = 0
    for row in older:
        first = row.first_offset
        while place < len(newer) and newer[place].last_offset < first:
            place += 1
        at = place
        while at < len(newer) and newer[at].first_offset <= row.last_offset:
            if newer[at].first_offset > first:
                yield row._replace(first_offset=first, last_offset=newer[at].first_offset - 1)
            first = newer[at].last_offset + 1
            at += 1
        if first <= row.last_offset:
            yield row._replace(first_offset=first)


def batches_problem(batches: Iterable[StateBatch]) -> str | None:
    """The reason why these are no state batches, or None."""
    position = -1
    for first, last, state, count in batches:
        if first < 0 or last < first:
            return f"the records {first} to {last} are no range"
        if first <= position:
            return f"the batch from {first} to {last} does not come after {position}"
        position = last
        if state not in KEPT_STATES:
            return f"the delivery state {state} is not kept"
        if count < 0:
            return f"the delivery count {count} is negative"
    return None
