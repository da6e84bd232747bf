"""The states of a Streams group and of its members. Pure."""

from __future__ import annotations

import enum


class StreamsGroupState(enum.Enum):
    """The state of a group; never stored, but computed. The values are the names that Kafka's tools
        show.

    EMPTY: no members.
    NOT_READY: topics are missing, or do not fit the topology.
    ASSIGNING: the target is older than the group epoch.
    RECONCILING: some member does not have its target yet.
    STABLE: all members have their targets.
    """

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsMemberState(enum.IntEnum):
    """The state of a member. The values are Kafka's, as in records of type 22.

    UNREVOKED_TASKS: the member has to give up tasks, has not confirmed it, and stays in its epoch.
    UNRELEASED_TASKS: the member is in the target's epoch and waits for tasks that others have.
    STABLE: neither.
    """

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Status(enum.IntEnum):
    """The states of a group that a heartbeat's answer tells its members (the codes are Kafka's)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
