"""A share group: its members, epochs, target, and share-partitions that have a state. Pure.

The group epoch rises when members, subscriptions or topics change; the assignment epoch is the one
that the target was made for; a member's epoch is the assignment epoch that it has reached. Members
take over a new target at once: several may have one partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.consumer.member import NO_PARTITIONS, Partitions
from kvorum.broker.groups.share import records
from kvorum.broker.groups.share.records import (
    ShareEpoch,
    ShareGroupKey,
    ShareMember,
    ShareStates,
)
from kvorum.broker.groups.steps.member_sessions import MemberSessions
from kvorum.broker.groups.steps.timers import ShareSessionTimer

TYPE_NAME = "share"
PROTOCOL_TYPE = "share"
EMPTY, STABLE = "Empty", "Stable"


class ShareGroup:
    """members: by id.
    targets: of each member.
    is_metadata_stale: topics may have changed since metadata_hash was computed.
    target_due_ms: the target is not made anew before.
    initialize_asked_ms: when states were last asked for; minus infinity if never since the load.
    """

    __slots__ = (
        "assignment_epoch",
        "group_epoch",
        "group_id",
        "initialize_asked_ms",
        "is_metadata_stale",
        "members",
        "metadata_hash",
        "sessions",
        "states",
        "target_due_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.states = ShareStates()
        self.is_metadata_stale = True
        self.sessions = MemberSessions(lambda member_id: ShareSessionTimer(group_id, member_id))
        self.target_due_ms = 0
        self.initialize_asked_ms: float = -math.inf

    @property
    def state(self) -> str:
        """As Kafka's tools show it."""
        return STABLE if self.members else EMPTY

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def subscribed_topics(self) -> set[str]:
        """Names of the topics that any member subscribes to."""
        return set().union(*(member.subscribed_topic_names for member in self.members.values()))

    def remove(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)

    # --- the log -----------------------------------------------------------------------------

    def epoch_record(self) -> CoordinatorRecord:
        value = records.encode_epoch(ShareEpoch(self.group_epoch, self.metadata_hash))
        return self._record(records.GROUP_EPOCH, value)

    def member_record(self, member: ShareMember) -> CoordinatorRecord:
        value = records.encode_member(member)
        return self._record(records.MEMBER_METADATA, value, member.member_id)

    def assignment_record(self, member: ShareMember) -> CoordinatorRecord:
        value = records.encode_assignment(member)
        return self._record(records.CURRENT_ASSIGNMENT, value, member.member_id)

    def target_record(self, member_id: str) -> CoordinatorRecord:
        value = records.encode_target(self.target(member_id))
        return self._record(records.MEMBER_TARGET, value, member_id)

    def target_epoch_record(self) -> CoordinatorRecord:
        value = records.encode_assignment_epoch(self.assignment_epoch)
        return self._record(records.TARGET_EPOCH, value)

    def states_record(self) -> CoordinatorRecord:
        return self._record(records.PARTITION_METADATA, records.encode_states(self.states))

    def member_tombstones(self, member_id: str) -> Iterator[CoordinatorRecord]:
        """The tombstones of a member: a reader that sees only some of them finds a member without
        partitions."""
        for record_type in (
            records.CURRENT_ASSIGNMENT,
            records.MEMBER_TARGET,
            records.MEMBER_METADATA,
        ):
            yield self._record(record_type, None, member_id)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The tombstones of the whole group."""
        for member_id in self.members:
            yield from self.member_tombstones(member_id)
        for record_type in (
            records.PARTITION_METADATA,
            records.TARGET_EPOCH,
            records.GROUP_EPOCH,
        ):
            yield self._record(record_type, None)

    def _record(
        self, record_type: int, value: bytes | None, member_id: str = ""
    ) -> CoordinatorRecord:
        key = records.encode_key(ShareGroupKey(record_type, self.group_id, member_id))
        return CoordinatorRecord(key, value)
