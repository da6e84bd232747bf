"""The requests of `kvorum groups`, each group at its coordinator. They work against Apache Kafka
too."""

from __future__ import annotations

import time
from typing import Any

from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from kvorum.cli.backend_broker import BrokerBackend
from kvorum.cli.common import CommandFailed, Row, check
from kvorum.cli.kafka_client import KafkaConnection
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.text import address_text

_GROUP_KEY = 0
_LATEST = -1
_RETRY_PAUSE_S = 0.1
_MOVING = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of a coordinator that is being created or is moving: the request is retried until the
command's timeout."""


class NoSuchGroup(CommandFailed):
    """No coordinator knows a group of this name; it may have been deleted."""


class GroupClient:
    """Keeps a connection to each broker that it has asked."""

    def __init__(self, backend: BrokerBackend, timeout_s: float) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._connections: dict[tuple[str, int], KafkaConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def list_groups(self, states: list[str]) -> list[Row]:
        """group, type, protocol_type, state of the groups of every unfenced broker."""
        rows = []
        for broker in self._backend.brokers():
            if broker["is_fenced"]:
                continue
            rows += self._list_of(broker["host"], broker["port"], states)
        return sorted(rows, key=lambda row: str(row["group"]))

    def describe(self, names: list[str]) -> list[Row]:
        """group, state, type, protocol_type, protocol, coordinator, members, offsets.

        members: member_id, group_instance_id, client_id, client_host, partitions (`topic-0`; null
        if the assignment is not in Kafka's format). offsets: topic, partition, committed_offset,
        end_offset, lag, metadata, member_id (of the member that has the partition).
        """
        return [self._describe(name) for name in names]

    def delete(self, names: list[str]) -> list[Row]:
        """group, error."""
        rows = []
        for name in names:
            _, reply = self._ask(name, "delete_groups", 42, 2, {"groups_names": [name]})
            error = ErrorCode(reply.results[0].error_code)
            rows.append({"group": name, "error": error.name})
        return rows

    # --- one broker --------------------------------------------------------------------------

    def _connection(self, host: str, port: int) -> KafkaConnection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = KafkaConnection([(host, port)], self._timeout_s)
            self._connections[host, port] = connection
        return connection

    def _list_of(self, host: str, port: int, states: list[str]) -> list[Row]:
        values = {"states_filter": states, "types_filter": []}
        while True:
            reply = self._connection(host, port).call("list_groups", 16, 5, values, flexible=True)
            if reply.error_code not in _MOVING or not self._has_time():
                break
        check(reply.error_code, None, f"groups of {address_text(host, port)}")
        return [
            {
                "group": row.group_id,
                "type": row.group_type,
                "protocol_type": row.protocol_type,
                "state": row.group_state,
            }
            for row in reply.groups
        ]

    def _has_time(self) -> bool:
        """Pause before the next try. Returns False if there is no time left for one."""
        if time.monotonic() + _RETRY_PAUSE_S > self._deadline_s:
            return False
        time.sleep(_RETRY_PAUSE_S)
        return True

    # --- one coordinator ---------------------------------------------------------------------

    def _ask(self, group: str, name: str, key: int, version: int, values: Row) -> tuple[int, Any]:
        """(broker id of the coordinator, its answer)."""
        while True:
            found = self._coordinator(group)
            connection = self._connection(found.host, found.port)
            reply = connection.call(name, key, version, values, flexible=True)
            rows = reply.results if hasattr(reply, "results") else reply.groups
            error = ErrorCode(rows[0].error_code)
            if error not in _MOVING or not self._has_time():
                break
        if error in _MOVING:
            check(error, None, f"group {group}")
        return found.node_id, reply

    def _coordinator(self, group: str) -> Any:
        values = {"key_type": _GROUP_KEY, "coordinator_keys": [group]}
        while True:
            reply = self._backend.connection.call("find_coordinator", 10, 4, values, flexible=True)
            found = reply.coordinators[0]
            if found.error_code not in _MOVING or not self._has_time():
                break
        check(found.error_code, found.error_message, f"coordinator of group {group}")
        return found

    def _describe(self, name: str) -> Row:
        values: Row = {"groups": [name], "include_authorized_operations": False}
        coordinator, reply = self._ask(name, "describe_groups", 15, 6, values)
        found = reply.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            row = self._describe_consumer(name)
            if row is not None:
                return row
            raise NoSuchGroup(f"group {name}: {ErrorCode.GROUP_ID_NOT_FOUND.name}")
        check(found.error_code, found.error_message, f"group {name}")
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
        check(found.error_code, found.error_message, f"group {name}")
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

    def _offsets(self, group: str, members: list[Row]) -> list[Row]:
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        values = {"groups": [asked], "require_stable": False}
        _, reply = self._ask(group, "offset_fetch", 9, 9, values)
        check(reply.groups[0].error_code, None, f"offsets of group {group}")
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

    def _end_offsets(self, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """High watermarks; partitions without a leader, or deleted ones, are left out."""
        brokers = {b["broker_id"]: b for b in self._backend.brokers() if not b["is_fenced"]}
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic in sorted({topic for topic, _ in partitions}):
            try:
                (described,) = self._backend.topics([topic])
            except CommandFailed:
                continue  # the topic was deleted: its offsets will be removed soon
            for row in described["partitions"]:
                if (topic, row["partition"]) in partitions and row["leader"] in brokers:
                    wanted = by_leader.setdefault(row["leader"], {})
                    wanted.setdefault(topic, []).append(row["partition"])
        found: dict[tuple[str, int], int] = {}
        for leader, topics in by_leader.items():
            broker = brokers[leader]
            connection = self._connection(broker["host"], broker["port"])
            found.update(_latest(connection, topics))
        return found


def _consumer_member(member: Any) -> Row:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "partitions": [
            f"{topic.topic_name}-{partition}"
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ],
    }


def _latest(
    connection: KafkaConnection, topics: dict[str, list[int]]
) -> dict[tuple[str, int], int]:
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "current_leader_epoch": -1, "timestamp": _LATEST}
                    for p in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
    }
    reply = connection.call("list_offsets", 2, 7, values, flexible=True)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in reply.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
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
        "partitions": partitions,
    }
