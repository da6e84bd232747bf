"""The requests of `kvorum partitions` to a cluster, through a broker or through a controller.

Both give the same plain values, as in `backends`. If a whole request is refused the command ends;
otherwise each item's row has its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kvorum.cli.backends import Backend
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.cluster.controller_backend import ControllerBackend
from kvorum.client.failures import Row, check, check_topic
from kvorum.client.rights import on_cluster
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    CreatePartitions,
    ElectionType,
    ElectLeaders,
    ListReassignments,
    NewPartitions,
    Reassignment,
)
from kvorum.metadata.rpc.calls import (
    ALTER_REASSIGNMENTS,
    CREATE_PARTITIONS,
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
)
from kvorum.runtime.errors import ErrorCode

ITEMS_PER_REQUEST_MAX = 5_000
"""Partitions in one request; half of the number that a controller accepts."""

Target = tuple[str, int]
Assignments = tuple[tuple[int, ...], ...]
PREFERRED, UNCLEAN = 0, 1


class PartitionBackend(Protocol):
    """Rows of outcomes have topic, partition, error (a name, NONE if it was done), message."""

    def add(
        self, topic: str, count: int, assignments: Assignments | None, *, validate_only: bool
    ) -> None:
        """Add partitions to a topic. Raises CommandFailed with the cluster's reason."""

    def reassign(self, wanted: Sequence[tuple[str, int, tuple[int, ...] | None]]) -> list[Row]:
        """None in place of replicas cancels the partition's reassignment."""

    def reassignments(self) -> list[Row]:
        """topic, partition, replicas, adding_replicas, removing_replicas."""

    def elect(self, targets: Sequence[Target] | None, election: int) -> list[Row]:
        """targets None: all partitions."""


def reassigning(asked: PartitionBackend) -> dict[tuple[str, int], list[int]]:
    """The replicas that are being added to each partition that a reassignment moves."""
    return {
        (row["topic"], row["partition"]): row["adding_replicas"] for row in asked.reassignments()
    }


def partitions_of(backend: Backend) -> PartitionBackend:
    """The partition requests for the same cluster."""
    if isinstance(backend, ControllerBackend):
        return _ThroughController(backend)
    if isinstance(backend, BrokerBackend):
        return _ThroughBroker(backend)
    raise TypeError(f"no partitions through a {type(backend).__name__}")


class _ThroughBroker:
    """Works against Apache Kafka as well."""

    def __init__(self, backend: BrokerBackend) -> None:
        self._backend = backend
        self._call = backend.connection.call
        self._timeout_ms = backend.timeout_ms

    def add(
        self, topic: str, count: int, assignments: Assignments | None, *, validate_only: bool
    ) -> None:
        rows = None
        if assignments is not None:
            rows = [{"broker_ids": replicas} for replicas in assignments]
        values = {
            "topics": [{"name": topic, "count": count, "assignments": rows}],
            "timeout": self._timeout_ms,
            "validate_only": validate_only,
        }
        reply = self._call("create_partitions", 37, 3, values, flexible=True)
        grown = reply.results[0]
        check_topic(grown.error_code, grown.error_message, topic, "ALTER")

    def reassign(self, wanted: Sequence[tuple[str, int, tuple[int, ...] | None]]) -> list[Row]:
        rows: list[Row] = []
        for chunk in _chunks(wanted):
            by_topic: dict[str, list[Row]] = {}
            for topic, partition, replicas in chunk:
                by_topic.setdefault(topic, []).append(
                    {"partition_index": partition, "replicas": replicas}
                )
            values = {
                "timeout": self._timeout_ms,
                "topics": [{"name": n, "partitions": p} for n, p in by_topic.items()],
            }
            reply = self._call("alter_partition_reassignments", 45, 0, values, flexible=True)
            check(reply.error_code, reply.error_message, "partitions", on_cluster("ALTER"))
            rows += [
                _outcome(topic.name, p.partition_index, p.error_code, p.error_message)
                for topic in reply.responses
                for p in topic.partitions
            ]
        return rows

    def reassignments(self) -> list[Row]:
        values = {"timeout": self._timeout_ms, "topics": None}
        reply = self._call("list_partition_reassignments", 46, 0, values, flexible=True)
        check(reply.error_code, reply.error_message, "reassignments", on_cluster("DESCRIBE"))
        return [
            {
                "topic": topic.name,
                "partition": p.partition_index,
                "replicas": list(p.replicas),
                "adding_replicas": list(p.adding_replicas),
                "removing_replicas": list(p.removing_replicas),
            }
            for topic in reply.topics
            for p in topic.partitions
        ]

    def elect(self, targets: Sequence[Target] | None, election: int) -> list[Row]:
        topics = None
        if targets is not None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in targets:
                by_topic.setdefault(topic, []).append(partition)
            topics = [{"topic": n, "partitions": ids} for n, ids in by_topic.items()]
        values = {
            "election_type": election,
            "topic_partitions": topics,
            "timeout": self._timeout_ms,
        }
        reply = self._call("elect_leaders", 43, 2, values, flexible=True)
        if reply.error_code:
            no_quorum = None
            if reply.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The answer has no field for the reason; a quorum without a leader is likely.
                _, no_quorum = self._backend.controllers()
            check(reply.error_code, no_quorum, "elections", on_cluster("ALTER"))
        return [
            _outcome(result.topic, p.partition_id, p.error_code, p.error_message)
            for result in reply.replica_election_results
            for p in result.partition_result
        ]


class _ThroughController:
    def __init__(self, backend: ControllerBackend) -> None:
        self._request = backend.request

    def add(
        self, topic: str, count: int, assignments: Assignments | None, *, validate_only: bool
    ) -> None:
        wanted = NewPartitions(name=topic, count=count, assignments=assignments)
        request = CreatePartitions(topics=(wanted,), validate_only=validate_only)
        (grown,) = self._request(CREATE_PARTITIONS, request, f"topic {topic}")
        check_topic(grown.error, grown.message, topic, "ALTER")

    def reassign(self, wanted: Sequence[tuple[str, int, tuple[int, ...] | None]]) -> list[Row]:
        rows: list[Row] = []
        for chunk in _chunks(wanted):
            request = AlterReassignments(
                reassignments=tuple(
                    Reassignment(topic=topic, partition_id=partition, replicas=replicas)
                    for topic, partition, replicas in chunk
                )
            )
            rows += [
                _outcome(p.topic, p.partition_id, p.error, p.message)
                for p in self._request(ALTER_REASSIGNMENTS, request, "partitions")
            ]
        return rows

    def reassignments(self) -> list[Row]:
        return [
            {
                "topic": ongoing.topic,
                "partition": ongoing.partition_id,
                "replicas": list(ongoing.replicas),
                "adding_replicas": list(ongoing.adding_replicas),
                "removing_replicas": list(ongoing.removing_replicas),
            }
            for ongoing in self._request(LIST_REASSIGNMENTS, ListReassignments(), "reassignments")
        ]

    def elect(self, targets: Sequence[Target] | None, election: int) -> list[Row]:
        request = ElectLeaders(partitions=tuple(targets or ()), election=ElectionType(election))
        return [
            _outcome(e.topic, e.partition_id, e.error, e.message)
            for e in self._request(ELECT_LEADERS, request, "elections")
        ]


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), ITEMS_PER_REQUEST_MAX):
        yield items[start : start + ITEMS_PER_REQUEST_MAX]


def _outcome(topic: str, partition: int, code: int, message: str | None) -> Row:
    return {
        "topic": topic,
        "partition": partition,
        "error": ErrorCode(code).name,
        "message": message or "",
    }
