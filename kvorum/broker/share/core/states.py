"""The ways in which members of a share group acquire and acknowledge records. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from kvorum.broker.share_state.batches import StateBatch


class AcknowledgeType(enum.IntEnum):
    """A member's word about a record that it holds.

    GAP: there is no such record in the log.
    RENEW: the member needs more time (KIP-1222).
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(enum.IntEnum):
    """The way in which a fetch keeps to its limit of records (KIP-1206).

    BATCH_OPTIMIZED: whole batches; the last one may exceed the limit.
    RECORD_LIMIT: never more records than the limit.
    """

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class AcquiredRecords(NamedTuple):
    """Records that a member was given. Offsets are inclusive; delivery_count has this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """Records that a member acknowledges. Offsets are inclusive.

    types: one for all records, or one for each.
    """

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class FetchedBatch(NamedTuple):
    """A batch of the log that a fetch has read. Offsets are inclusive.

    is_dropped: its records are for nobody: a control batch, or one of an aborted transaction.
    """

    first_offset: int
    last_offset: int
    is_dropped: bool = False


class DeadLetters(NamedTuple):
    """Records that nobody may have any more and that are not in the dead-letter topic yet. Offsets
    are inclusive.

    is_rejected: by a member; otherwise the records were delivered as often as the limit allows.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool


def count_up_to(letters: Iterable[DeadLetters], last_offset: int) -> int:
    """The number of these records whose offsets are not above `last_offset`."""
    ends = (min(letter.last_offset, last_offset) - letter.first_offset + 1 for letter in letters)
    return sum(max(count, 0) for count in ends)


class StateWrite(NamedTuple):
    """The changes that the share coordinator is to keep.

    revision: all changes up to this one are in it.
    delivery_complete_count: records from start_offset on that are acknowledged or archived.
    """

    revision: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
