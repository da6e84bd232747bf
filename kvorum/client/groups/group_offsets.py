"""Committed offsets of a group, read and changed at its coordinator without being a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.client.cluster.brokers import Brokers, Partition, by_topic
from kvorum.client.failures import CommandFailed, check
from kvorum.client.groups.coordinator import GROUP, Coordinator
from kvorum.client.rights import on_group
from kvorum.runtime.errors import ErrorCode

NO_GROUP = "Dead"
_EMPTY = ("Empty", NO_GROUP)
_STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group's state by its coordinator.

    state: NO_GROUP if no group has the name.
    idle: members without a partition, of a group of the consumer protocol.
    """

    state: str
    members: int
    idle: frozenset[str] = frozenset()

    @property
    def is_without_members(self) -> bool:
        """True if offsets may be changed from outside."""
        return self.state in _EMPTY and not self.members


class GroupOffsets:
    """The offsets of one group, of either protocol. Its methods raise CommandFailed."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self.group = group
        self._coordinator = Coordinator(brokers, GROUP, group)

    @property
    def coordinator_id(self) -> int | None:
        """The broker that answered last."""
        return self._coordinator.broker_id

    def state(self) -> GroupState:
        """The group's state and its members."""
        values: dict[str, Any] = {"include_authorized_operations": False}
        found = self._call(
            "describe_groups", 15, 6, {**values, "groups": [self.group]},
            lambda reply: int(reply.groups[0].error_code),
        ).groups[0]  # fmt: skip
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            found = self._call(
                "consumer_group_describe", 69, 1, {**values, "group_ids": [self.group]},
                lambda reply: int(reply.groups[0].error_code),
            ).groups[0]  # fmt: skip
        if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return GroupState(state=NO_GROUP, members=0)
        right = on_group("DESCRIBE", self.group)
        check(found.error_code, found.error_message, f"group {self.group}", right)
        idle = (
            member.member_id
            for member in found.members
            if hasattr(member, "assignment") and not member.assignment.topic_partitions
        )
        return GroupState(state=found.group_state, members=len(found.members), idle=frozenset(idle))

    def is_left_out(self, member_id: str) -> bool:
        """True if every partition has a member, and this member has none."""
        found = self.state()
        return found.state == _STABLE and member_id in found.idle

    def require_no_members(self) -> None:
        """Raise CommandFailed for a group with members: they would overwrite a new offset."""
        found = self.state()
        if not found.is_without_members:
            raise CommandFailed(
                f"group {self.group} has members ({found.members}, state {found.state}): stop them "
                "first, for they would overwrite the offsets"
            )

    def require_existing(self) -> None:
        """Raise CommandFailed if no group has the name."""
        if self.state().state == NO_GROUP:
            raise CommandFailed(
                f"group {self.group}: GROUP_ID_NOT_FOUND: there is no such group; kvorum groups "
                "list shows those that exist"
            )

    def committed(self) -> dict[Partition, int]:
        """Every committed offset."""
        asked = {"group_id": self.group, "member_id": None, "member_epoch": -1, "topics": None}
        values = {"groups": [asked], "require_stable": False}
        reply = self._call("offset_fetch", 9, 9, values, lambda r: int(r.groups[0].error_code))
        right = on_group("DESCRIBE", self.group)
        check(reply.groups[0].error_code, None, f"offsets of group {self.group}", right)
        return {
            (topic.name, row.partition_index): row.committed_offset
            for topic in reply.groups[0].topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    def commit(self, offsets: Mapping[Partition, int]) -> dict[Partition, ErrorCode]:
        """Set these offsets; the result of each."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[topic, number],
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(list(offsets)).items()
        ]
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        return results_of(self._call("offset_commit", 8, 9, values, first_error))

    def delete(self, partitions: list[Partition]) -> dict[Partition, ErrorCode]:
        """Remove the offsets of these partitions; the result of each."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": number} for number in numbers]}
            for topic, numbers in by_topic(partitions).items()
        ]
        reply = self._coordinator.call(
            "offset_delete", 47, 0, {"group_id": self.group, "topics": topics},
            error_of=lambda reply: int(reply.error_code), flexible=False,
        )  # fmt: skip
        check(reply.error_code, None, f"group {self.group}", on_group("DELETE", self.group))
        return results_of(reply)

    def _call(self, name: str, key: int, version: int, values: Any, error_of: Any) -> Any:
        return self._coordinator.call(name, key, version, values, error_of=error_of)


def results_of(reply: Any) -> dict[Partition, ErrorCode]:
    """The result of each partition in an answer to OffsetCommit or OffsetDelete."""
    return {
        (topic.name, row.partition_index): ErrorCode(row.error_code)
        for topic in reply.topics
        for row in topic.partitions
    }


def first_error(reply: Any) -> int:
    """The error of an offset commit; an error of the coordinator is in every row."""
    return next((int(row.error_code) for topic in reply.topics for row in topic.partitions), 0)
