"""The states of a group of the consumer protocol and of its members. Pure."""

from __future__ import annotations

import enum


class GroupState(enum.Enum):
    """Never stored: it follows from the epochs. Values: the names that Kafka's tools show.

    EMPTY: no members. ASSIGNING: the target is older than the group. RECONCILING: some member has
    not yet got what the target gives it. STABLE: all have.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(enum.IntEnum):
    """Values: Kafka's, as they stand in records of type 8.

    UNREVOKED_PARTITIONS: has to give up partitions and has not said that it did; stays in its
    epoch. UNRELEASED_PARTITIONS: is in the target's epoch and waits for partitions that others
    have not given up. STABLE: neither.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
