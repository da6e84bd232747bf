"""The start offsets of a share group's share-partitions, asked and changed at its coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.client.cluster.brokers import Brokers, Partition, by_topic
from kvorum.client.failures import CommandFailed, check
from kvorum.client.groups.coordinator import ask_loaded
from kvorum.client.groups.group_offsets import NO_GROUP, GroupOffsets, GroupState
from kvorum.client.rights import on_group
from kvorum.runtime.errors import ErrorCode

SHARE_TYPE = "share"


def group_offsets(brokers: Brokers, group: str) -> GroupOffsets:
    """The offsets of the group, of whatever type it is; one that does not exist is no share
    group."""
    offsets = GroupOffsets(brokers, group)
    if offsets.state().state != NO_GROUP:
        return offsets
    # Only a cluster that lists a share group knows requests about one.
    is_share = group_type(brokers, offsets) == SHARE_TYPE
    return ShareOffsets(brokers, group) if is_share else offsets


def group_type(brokers: Brokers, offsets: GroupOffsets) -> str | None:
    """The type that the group's coordinator, which has answered, lists: classic, consumer, share;
    None if no group has the name. Raises CommandFailed."""
    broker_id = offsets.coordinator_id
    if broker_id is None:
        return None
    values: dict[str, Any] = {"states_filter": [], "types_filter": []}
    reply = ask_loaded(brokers, broker_id, ("list_groups", 16, 5), values)
    check(reply.error_code, None, f"groups of broker {broker_id}")
    types = {row.group_id: str(row.group_type) for row in reply.groups}
    return types.get(offsets.group)


class ShareOffsets(GroupOffsets):
    """The offsets of one share group. Its methods raise CommandFailed."""

    def state(self) -> GroupState:
        values = {"group_ids": [self.group], "include_authorized_operations": False}
        found = self._call("share_group_describe", 77, 1, values, _first_group_error).groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupState(state=NO_GROUP, members=0)
        right = on_group("DESCRIBE", self.group)
        check(found.error_code, found.error_message, f"group {self.group}", right)
        return GroupState(state=found.group_state, members=len(found.members))

    def committed(self) -> dict[Partition, int]:
        """Every start offset."""
        values = {"groups": [{"group_id": self.group, "topics": None}]}
        reply = self._call("describe_share_group_offsets", 90, 1, values, _first_group_error)
        found = reply.groups[0]
        right = on_group("DESCRIBE", self.group)
        check(found.error_code, found.error_message, f"offsets of group {self.group}", right)
        return {
            (topic.topic_name, row.partition_index): row.start_offset
            for topic in found.topics
            for row in topic.partitions
            if row.start_offset >= 0
        }

    def commit(self, offsets: Mapping[Partition, int]) -> dict[Partition, ErrorCode]:
        """Begin these share-partitions at these offsets; the result of each."""
        topics = [
            {
                "topic_name": topic,
                "partitions": [
                    {"partition_index": number, "start_offset": offsets[topic, number]}
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(list(offsets)).items()
        ]
        values = {"group_id": self.group, "topics": topics}
        reply = self._call("alter_share_group_offsets", 91, 0, values, _whole_error)
        right = on_group("READ", self.group)
        check(reply.error_code, reply.error_message, f"group {self.group}", right)
        return {
            (topic.topic_name, row.partition_index): ErrorCode(row.error_code)
            for topic in reply.responses
            for row in topic.partitions
        }

    def delete(self, partitions: list[Partition]) -> dict[Partition, ErrorCode]:
        """Forget the topics of these partitions, which must be all that the group has of them."""
        topics = by_topic(partitions)
        left = [
            f"{topic}-{number}"
            for topic, number in sorted(self.committed())
            if topic in topics and (topic, number) not in partitions
        ]
        if left:
            raise CommandFailed(
                f"share group {self.group} forgets whole topics only: name the topic without "
                f"partitions, or all of them ({', '.join(left)} too)"
            )
        values = {"group_id": self.group, "topics": [{"topic_name": topic} for topic in topics]}
        reply = self._call("delete_share_group_offsets", 92, 0, values, _whole_error)
        right = on_group("DELETE", self.group)
        check(reply.error_code, reply.error_message, f"group {self.group}", right)
        errors = {topic.topic_name: ErrorCode(topic.error_code) for topic in reply.responses}
        return {(topic, number): errors[topic] for topic, number in partitions}


def _first_group_error(reply: Any) -> int:
    return int(reply.groups[0].error_code)


def _whole_error(reply: Any) -> int:
    return int(reply.error_code)
