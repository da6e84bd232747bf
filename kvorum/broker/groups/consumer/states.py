"""The states of a group of the consumer protocol and of its members. Pure."""

from __future__ import annotations

import enum


class ConsumerGroupState(enum.Enum):
    """The state of a group of the consumer protocol; never stored, but computed from the epochs.
        The values are the names that Kafka's tools show.

    EMPTY: no members.
    ASSIGNING: the target is older than the group epoch.
    RECONCILING: some member does not have its target yet.
    STABLE: all members have their targets.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(enum.IntEnum):
    """The state of a member. The values are Kafka's, as in records of type 8.

    UNREVOKED_PARTITIONS: the member has to give up partitions, has not confirmed it, and stays in
        its epoch.
    UNRELEASED_PARTITIONS: the member is in the target's epoch and waits for partitions that other
        members have not given up.
    STABLE: neither.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
