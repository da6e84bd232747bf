"""The requests of `kvorum groups`, each group at its coordinator. They work against Apache Kafka
too."""

from __future__ import annotations

from typing import Any

from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.cluster.brokers import Brokers, Partition
from kvorum.client.cluster.offsets import ends_at
from kvorum.client.failures import CommandFailed, Row, check
from kvorum.client.groups.coordinator import GROUP, Coordinator, ask_loaded
from kvorum.client.groups.share_offsets import SHARE_TYPE
from kvorum.client.groups.streams_members import STREAMS_TYPE, streams_members, topics_read
from kvorum.client.rights import on_group
from kvorum.runtime.errors import ErrorCode


class NoSuchGroup(CommandFailed):
    """No coordinator knows a group of this name; it may have been deleted."""


class GroupClient:
    """Sends the requests. Keeps a connection to each broker that it has asked."""

    def __init__(self, backend: BrokerBackend, timeout_s: float) -> None:
        self._backend = backend
        self._brokers = Brokers(backend.addresses, timeout_s)
        self._coordinators: dict[str, Coordinator] = {}
        self._listed_types: dict[str, str] = {}

    def close(self) -> None:
        self._brokers.close()

    def list_groups(self, states: list[str]) -> list[Row]:
        """group, type, protocol_type, state of the groups of every unfenced broker."""
        rows = []
        active = [row["broker_id"] for row in self._backend.brokers() if not row["is_fenced"]]
        self._brokers.topics([])  # learns every broker's address
        for broker_id in active:
            rows += self._list_of(broker_id, states)
        self._listed_types = {str(row["group"]): str(row["type"]) for row in rows}
        return sorted(rows, key=lambda row: str(row["group"]))

    def describe(self, names: list[str]) -> list[Row]:
        """group, state, type, protocol_type, protocol, coordinator, members, offsets.

        members: member_id, group_instance_id, client_id, client_host, member_epoch (null in groups
        of the classic protocol), partitions (`topic-0`; null if the assignment is not in Kafka's
        format). offsets: topic, partition, committed_offset, end_offset, lag, metadata, member_id
        (of the member that has the partition; null in share groups, where several have it).
        Members of Streams groups have active_tasks, standby_tasks (`0_1`) and process_id too; their
        partitions are the inputs of their active tasks.
        """
        return [self._describe(name) for name in names]

    def delete(self, names: list[str]) -> list[Row]:
        """Delete groups. Returns a row for each: group, error."""
        rows = []
        for name in names:
            values: Row = {"groups_names": [name]}
            _, reply = self._ask(name, "delete_groups", 42, 2, values, operation="DELETE")
            error = ErrorCode(reply.results[0].error_code)
            rows.append({"group": name, "error": error.name})
        return rows

    def _list_of(self, broker_id: int, states: list[str]) -> list[Row]:
        values: Row = {"states_filter": states, "types_filter": []}
        reply = ask_loaded(self._brokers, broker_id, ("list_groups", 16, 5), values)
        check(reply.error_code, None, f"groups of broker {broker_id}")
        return [
            {
                "group": row.group_id,
                "type": row.group_type,
                "protocol_type": row.protocol_type,
                "state": row.group_state,
            }
            for row in reply.groups
        ]

    # --- one coordinator ---------------------------------------------------------------------

    def _ask(
        self,
        group: str,
        name: str,
        key: int,
        version: int,
        values: Row,
        *,
        operation: str = "DESCRIBE",
    ) -> tuple[int | None, Any]:
        """(broker id of the coordinator, its answer). operation: on the group, that it needs."""
        coordinator = self._coordinators.get(group)
        if coordinator is None:
            coordinator = Coordinator(self._brokers, GROUP, group, operation=operation)
            self._coordinators[group] = coordinator
        reply = coordinator.call(name, key, version, values, error_of=_error_of)
        return coordinator.broker_id, reply

    def _describe(self, name: str) -> Row:
        if self._listed_types.get(name) == SHARE_TYPE:
            row = self._describe_share(name)
            if row is not None:
                return row
            # It was deleted since it was listed; a group of another type may have its name.
        values: Row = {"groups": [name], "include_authorized_operations": False}
        coordinator, reply = self._ask(name, "describe_groups", 15, 6, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            row = self._describe_consumer(name)
            if row is None:
                listed = self._listed_type(name, coordinator)
                if listed == SHARE_TYPE:
                    row = self._describe_share(name)
                elif listed == STREAMS_TYPE:
                    row = self._describe_streams(name)
            if row is not None:
                return row
            raise _no_such_group(name)
        check(found.error_code, found.error_message, f"group {name}", on_group("DESCRIBE", name))
        members = [_member(found.protocol_type, member) for member in found.members]
        return {
            "group": name,
            "state": found.group_state,
            "type": "classic",
            "protocol_type": found.protocol_type,
            "protocol": found.protocol_data,
            "coordinator": coordinator,
            "members": members,
            "offsets": self._offsets(name, members),
        }

    def _describe_consumer(self, name: str) -> Row | None:
        """A group of the consumer protocol; None if no such group has that name."""
        values: Row = {"group_ids": [name], "include_authorized_operations": False}
        coordinator, reply = self._ask(name, "consumer_group_describe", 69, 1, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check(found.error_code, found.error_message, f"group {name}", on_group("DESCRIBE", name))
        members = [_consumer_member(member) for member in found.members]
        return {
            "group": name,
            "state": found.group_state,
            "type": "consumer",
            "protocol_type": CONSUMER_PROTOCOL_TYPE,
            "protocol": found.assignor_name,
            "coordinator": coordinator,
            "members": members,
            "offsets": self._offsets(name, members),
        }

    def _listed_type(self, name: str, coordinator: int | None) -> str | None:
        """The type that the coordinator lists for the group: a cluster of an earlier version lists
        no group of a newer type, and knows no request about one."""
        listed = [] if coordinator is None else self._list_of(coordinator, [])
        return next((str(row["type"]) for row in listed if row["group"] == name), None)

    def _describe_streams(self, name: str) -> Row | None:
        """A Streams group; None if no Streams group has that name."""
        values: Row = {
            "group_ids": [name],
            "include_authorized_operations": False,
            "include_topology_description": False,
        }
        coordinator, reply = self._ask(name, "streams_group_describe", 89, 1, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check(found.error_code, found.error_message, f"group {name}", on_group("DESCRIBE", name))
        topics = self._brokers.topics(sorted(topics_read(found)))
        counts = {topic: len(known.leaders) for topic, known in topics.items()}
        members = streams_members(found, counts)
        return {
            "group": name,
            "state": found.group_state,
            "type": STREAMS_TYPE,
            "protocol_type": STREAMS_TYPE,
            "protocol": found.assignor_name,
            "coordinator": coordinator,
            "members": members,
            "offsets": self._offsets(name, members),
        }

    def _describe_share(self, name: str) -> Row | None:
        """A share group; None if no share group has that name. Its committed offsets are where its
        share-partitions begin."""
        values: Row = {"group_ids": [name], "include_authorized_operations": False}
        coordinator, reply = self._ask(name, "share_group_describe", 77, 1, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check(found.error_code, found.error_message, f"group {name}", on_group("DESCRIBE", name))
        return {
            "group": name,
            "state": found.group_state,
            "type": SHARE_TYPE,
            "protocol_type": SHARE_TYPE,
            "protocol": found.assignor_name,
            "coordinator": coordinator,
            "members": [_consumer_member(member) for member in found.members],
            "offsets": self._share_offsets(name),
        }

    def _share_offsets(self, group: str) -> list[Row]:
        values: Row = {"groups": [{"group_id": group, "topics": None}]}
        _, reply = self._ask(group, "describe_share_group_offsets", 90, 1, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise _no_such_group(group)  # it was deleted between the two requests
        right = on_group("DESCRIBE", group)
        check(found.error_code, found.error_message, f"offsets of group {group}", right)
        starts = {
            (topic.topic_name, row.partition_index): row
            for topic in found.topics
            for row in topic.partitions
            if row.start_offset >= 0
        }
        end_offsets = self._end_offsets(sorted(starts))
        return [
            {
                "topic": topic,
                "partition": partition,
                "committed_offset": row.start_offset,
                "end_offset": end_offsets.get((topic, partition)),
                "lag": None if row.lag < 0 else row.lag,
                "metadata": "",
                "member_id": None,
            }
            for (topic, partition), row in sorted(starts.items())
        ]

    def _offsets(self, group: str, members: list[Row]) -> list[Row]:
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        values = {"groups": [asked], "require_stable": False}
        _, reply = self._ask(group, "offset_fetch", 9, 9, values)
        right = on_group("DESCRIBE", group)
        check(reply.groups[0].error_code, None, f"offsets of group {group}", right)
        committed = {
            (topic.name, row.partition_index): row
            for topic in reply.groups[0].topics
            for row in topic.partitions
        }
        owners = {
            owned: member["member_id"] for member in members for owned in member["partitions"] or ()
        }
        end_offsets = self._end_offsets(sorted(committed))
        rows = []
        for topic, partition in sorted(committed):
            offset = committed[topic, partition].committed_offset
            end_offset = end_offsets.get((topic, partition))
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "committed_offset": offset,
                    "end_offset": end_offset,
                    "lag": None if end_offset is None else end_offset - offset,
                    "metadata": committed[topic, partition].metadata or "",
                    "member_id": owners.get(f"{topic}-{partition}"),
                }
            )
        return rows

    # --- leaders -----------------------------------------------------------------------------

    def _end_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        """High watermarks; partitions without a leader, or deleted ones, are left out."""
        topics = self._brokers.topics(sorted({topic for topic, _ in partitions}))
        led: dict[int, list[Partition]] = {}
        for topic, number in partitions:
            # The offsets of a deleted topic will be removed soon.
            leader = topics[topic].leaders.get(number, -1) if topic in topics else -1
            if leader >= 0:
                led.setdefault(leader, []).append((topic, number))
        found: dict[Partition, int] = {}
        for leader, wanted in led.items():
            found |= ends_at(self._brokers.to(leader), wanted)
        return found


def _no_such_group(name: str) -> NoSuchGroup:
    code = ErrorCode.GROUP_ID_NOT_FOUND.name
    return NoSuchGroup(f"group {name}: {code}: the cluster has no such group")


def _error_of(reply: Any) -> int:
    """The error of an answer about one group."""
    rows = reply.results if hasattr(reply, "results") else reply.groups
    return int(rows[0].error_code)


def _consumer_member(member: Any) -> Row:
    return {
        "member_id": member.member_id,
        # Members of share groups are never static.
        "group_instance_id": getattr(member, "instance_id", None),
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_epoch": member.member_epoch,
        "partitions": [
            f"{topic.topic_name}-{partition}"
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ],
    }


def _member(protocol_type: str, member: Any) -> Row:
    assigned = None
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        assigned = assigned_partitions(member.member_assignment)
    partitions = None
    if assigned is not None:
        partitions = [f"{topic}-{p}" for topic in sorted(assigned) for p in sorted(assigned[topic])]
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_epoch": None,
        "partitions": partitions,
    }
