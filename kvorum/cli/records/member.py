"""A member of a consumer group, in the consumer protocol (KIP-848).

The coordinator assigns partitions. The member stops reading the partitions that it loses, confirms
this in a heartbeat, and gets the partitions that other members gave up. There is no thread for
heartbeats: they are sent between two fetches. A member whose output is blocked for longer than its
session timeout loses its partitions, as one that exceeds max.poll.interval.ms does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from kvorum.cli.common import CommandFailed, refusal, warn
from kvorum.cli.records.brokers import Brokers, Partition, by_topic
from kvorum.cli.records.coordinator import GROUP, MOVING, Coordinator
from kvorum.cli.records.group_offsets import results_of
from kvorum.cli.rights import on_group
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import milliseconds, uuid_bytes

REBALANCE_TIMEOUT_MS = 60_000
UNASSIGNED_WAIT_S = 0.3
"""Time between two heartbeats of a member without partitions."""
_JOIN, _LEAVE = 0, -1
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_RETRIED = MOVING | {ErrorCode.REQUEST_TIMED_OUT}
"""Errors after which Kafka's consumer sends a request of a member again."""
_STALE = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSTABLE_OFFSET_COMMIT)


class GroupMember:
    """One member. assigned: its partitions, None before the coordinator has answered with some
    assignment. interval_s: between two heartbeats, as the coordinator wants it."""

    def __init__(self, brokers: Brokers, group: str, topics: list[str]) -> None:
        self.group = group
        self.assigned: set[Partition] | None = None
        self._brokers = brokers
        self._topics = topics
        self._names = {
            t.topic_id: t.name for t in brokers.existing(topics, operation="READ").values()
        }
        self._ids = {name: topic_id for topic_id, name in self._names.items()}
        self._coordinator = Coordinator(brokers, GROUP, group, retried=_RETRIED, operation="READ")
        self._member_id = str(uuid.uuid4())
        self._epoch = _JOIN
        self._due_s = 0.0
        self._owes_assignment = False
        self.interval_s = 0.0

    def heartbeat(self) -> None:
        """Send a heartbeat if one is due; `assigned` may change.

        The caller commits what it has read of partitions that it lost, stops reading them, and
        calls `acknowledge`. Raises CommandFailed.
        """
        if self._owes_assignment or time.monotonic() >= self._due_s:
            self._beat(self._is_joining)

    def acknowledge(self) -> None:
        """Tell the coordinator that exactly `assigned` is read; it may give away the rest.
        `assigned` may change again."""
        # If no coordinator answers now, the next heartbeat tells it. Otherwise the lost partitions
        # would have no reader until this member leaves.
        self._owes_assignment = True
        self._beat(False)

    def committed(self, partitions: set[Partition]) -> dict[Partition, int]:
        """The committed offsets of these partitions; without those that have none."""
        topics = [
            {"name": name, "partition_indexes": numbers}
            for name, numbers in by_topic(list(partitions)).items()
        ]
        asked = {"group_id": self.group, "member_id": self._member_id, "topics": topics}
        while True:
            values = {"groups": [{**asked, "member_epoch": self._epoch}], "require_stable": True}
            reply = self._call("offset_fetch", 9, 9, values, lambda r: int(r.groups[0].error_code))
            rows = [(t.name, row) for t in reply.groups[0].topics for row in t.partitions]
            errors = {reply.groups[0].error_code, *(row.error_code for _, row in rows)}
            if not errors & {*_STALE}:
                break
            # A transaction that commits offsets is open, or the epoch moves on: both end soon.
            time.sleep(0.1)
            self._beat(self._is_joining)
        for error in errors - {ErrorCode.NONE}:
            raise self._refused(error, None, "offsets of ")
        return {
            (name, row.partition_index): row.committed_offset
            for name, row in rows
            if row.committed_offset >= 0
        }

    def commit(self, positions: Mapping[Partition, int]) -> set[Partition]:
        """Commit the next offset of each partition; returns the partitions that have it now.

        Those of a topic that the broker does not know, or not yet, are left out. A member that was
        fenced meanwhile commits nothing, for its partitions are another one's.

        Raises CommandFailed.
        """
        if not positions or self._is_joining:
            return set()
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": positions[name, number],
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number in numbers
                ],
            }
            for name, numbers in by_topic(list(positions)).items()
        ]
        for _ in range(2):
            values = {
                "group_id": self.group,
                "generation_id_or_member_epoch": self._epoch,
                "member_id": self._member_id,
                "group_instance_id": None,
                "topics": topics,
            }
            reply = self._call("offset_commit", 8, 9, values, _first_retried)
            results = results_of(reply)
            errors = {*results.values()}
            if ErrorCode.STALE_MEMBER_EPOCH not in errors:
                break
            self._beat(False)
        if errors & {*_FENCED}:
            warn(f"group {self.group} gave the partitions to another member, which reads on")
            return set()
        for error in errors - {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            raise refusal(error, None, f"offsets of group {self.group} were not committed")
        return {partition for partition, error in results.items() if error == ErrorCode.NONE}

    def leave(self) -> None:
        """Leave the group. Raises CommandFailed."""
        if self._epoch > 0:
            self._epoch = _LEAVE
            self._ask(True)

    # --- heartbeats --------------------------------------------------------------------------

    @property
    def _is_joining(self) -> bool:
        return self._epoch == _JOIN

    def _beat(self, is_full: bool) -> None:
        reply = self._ask(is_full or self._owes_assignment)
        self._owes_assignment = False
        error = ErrorCode(reply.error_code)
        if error in _FENCED:
            # The coordinator gave the partitions away: join again as a new member.
            self._epoch = _JOIN
            self._member_id = str(uuid.uuid4())
            self.assigned = set()
            self._due_s = 0.0
            return
        if error != ErrorCode.NONE:
            raise self._refused(error, reply.error_message)
        self._epoch = reply.member_epoch
        self.interval_s = milliseconds(reply.heartbeat_interval) / 1000
        if reply.assignment is not None:
            self.assigned = {
                (self._names[uuid_bytes(topic.topic_id)], number)
                for topic in reply.assignment.topic_partitions
                if uuid_bytes(topic.topic_id) in self._names
                for number in topic.partitions
            }
        # A coordinator may assign partitions a moment after the join, and tell so in an answer.
        wait_s = self.interval_s if self.assigned else min(self.interval_s, UNASSIGNED_WAIT_S)
        self._due_s = time.monotonic() + wait_s

    def _refused(self, error: ErrorCode, message: str | None, what: str = "") -> CommandFailed:
        if error == ErrorCode.GROUP_ID_NOT_FOUND:
            return CommandFailed(
                f"group {self.group} cannot be joined by the consumer protocol: {message or error}"
            )
        rights = (on_group("READ", self.group),) if "GROUP" in error.name else ()
        return refusal(error, message, f"{what}group {self.group}", *rights)

    def _ask(self, is_full: bool) -> Any:
        owned = None
        if is_full:
            owned = [
                {"topic_id": self._ids[name], "partitions": numbers}
                for name, numbers in by_topic(list(self.assigned or ())).items()
            ]
        values = {
            "group_id": self.group,
            "member_id": self._member_id,
            "member_epoch": self._epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS if is_full else -1,
            "subscribed_topic_names": self._topics if is_full else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": owned,
        }
        return self._call(
            "consumer_group_heartbeat", 68, 1, values, lambda reply: int(reply.error_code)
        )

    def _call(self, name: str, key: int, version: int, values: Any, error_of: Any) -> Any:
        return self._coordinator.call(name, key, version, values, error_of=error_of)


def _first_retried(reply: Any) -> int:
    """The first error of an offset commit after which it is sent again, if there is one."""
    errors = (int(row.error_code) for topic in reply.topics for row in topic.partitions)
    return next((error for error in errors if error in _RETRIED), int(ErrorCode.NONE))
