"""A cluster reached through a broker (Kafka protocol). Works against Apache Kafka as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvorum import __version__
from kvorum.client.config_hints import with_hint
from kvorum.client.failures import CommandFailed, Row, check, check_topic, warn
from kvorum.client.rights import on_cluster, on_topic
from kvorum.metadata.controller.decide.eligible_brokers import MIN_INSYNC_REPLICAS
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.inspect import quorum_report
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, uuid_text

PARTITIONS_PER_ANSWER = 2_000
"""Partitions in one answer to a DescribeTopicPartitions; more are read in several requests."""
_QUORUM = "metadata quorum"
BROKER_SHARE = 0.8
"""The share of a command's timeout that the broker may use for a forwarded request."""


class BrokerBackend:
    """Requests through any broker.

    addresses: the brokers that it was given. timeout_ms: the time that the broker has for a request
    that it forwards.
    """

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        from kvorum.client.connection import KafkaConnection

        self.addresses = addresses
        self.connection = KafkaConnection(addresses, timeout_s)
        # The broker must time out, and report why, before the command does.
        self.timeout_ms = int(timeout_s * 1000 * BROKER_SHARE)
        self._has_warned = False

    def close(self) -> None:
        self.connection.close()

    def topics(self, names: list[str] | None) -> list[Row]:
        asked = None
        if names is not None:
            asked = [{"topic_id": None, "name": name} for name in names]
        reply = self.connection.call(
            "metadata",
            3,
            12,
            {
                "topics": asked,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
            flexible=True,
        )
        self._warn_without_leader()
        rows = []
        for topic in reply.topics:
            check_topic(topic.error_code, None, topic.name, "DESCRIBE")
            rows.append(
                {
                    "topic": topic.name,
                    "topic_id": uuid_text(_uuid(topic.topic_id)),
                    "partitions": [
                        {
                            "partition": p.partition_index,
                            "leader": p.leader_id,
                            "leader_epoch": p.leader_epoch,
                            "replicas": list(p.replica_nodes),
                            "isr": list(p.isr_nodes),
                        }
                        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
                    ],
                }
            )
        return sorted(rows, key=lambda row: str(row["topic"]))

    def describe_topics(self, names: list[str] | None) -> list[Row]:
        found: dict[str, Row] = {}
        cursor: Row | None = None
        while True:
            reply = self.connection.call(
                "describe_topic_partitions",
                75,
                0,
                {
                    "topics": [{"name": name} for name in sorted(names or ())],
                    "response_partition_limit": PARTITIONS_PER_ANSWER,
                    "cursor": cursor,
                },
                flexible=True,
            )
            for topic in reply.topics:
                check_topic(topic.error_code, None, topic.name, "DESCRIBE")
                row = found.setdefault(
                    topic.name,
                    {
                        "topic": topic.name,
                        "topic_id": uuid_text(_uuid(topic.topic_id)),
                        "partitions": [],
                    },
                )
                row["partitions"] += [_described(partition) for partition in topic.partitions]
            if reply.next_cursor is None:
                break
            cursor = {
                "topic_name": reply.next_cursor.topic_name,
                "partition_index": reply.next_cursor.partition_index,
            }
        self._warn_without_leader()
        return [row for _, row in sorted(found.items())]

    def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        configs: dict[str, str],
        *,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> Row:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": [
                {"partition_index": at, "broker_ids": list(replicas)}
                for at, replicas in enumerate(assignment)
            ],
            "configs": [{"name": k, "value": v} for k, v in configs.items()],
        }
        reply = self.connection.call(
            "create_topics",
            19,
            7,
            {"topics": [topic], "timeout": self.timeout_ms, "validate_only": validate_only},
            flexible=True,
        )
        made = reply.topics[0]
        subject = f"topic {name}"
        check(made.error_code, with_hint(made.error_message), subject, on_topic("CREATE", name))
        return {
            "topic": name,
            "topic_id": uuid_text(_uuid(made.topic_id)),
            "partitions": made.num_partitions,
            "replication_factor": made.replication_factor,
        }

    def delete_topics(self, names: list[str]) -> list[Row]:
        reply = self.connection.call(
            "delete_topics",
            20,
            6,
            {
                "topics": [{"name": name, "topic_id": None} for name in names],
                "timeout": self.timeout_ms,
            },
            flexible=True,
        )
        for gone in reply.responses:
            if gone.error_code == ErrorCode.REQUEST_TIMED_OUT:
                check(gone.error_code, gone.error_message, f"topic {gone.name}")
        return [
            {
                "topic": gone.name,
                "error": ErrorCode(gone.error_code).name,
                "message": gone.error_message or "",
            }
            for gone in reply.responses
        ]

    def brokers(self) -> list[Row]:
        reply = self.connection.call(
            "describe_cluster",
            60,
            2,
            {
                "include_cluster_authorized_operations": False,
                "endpoint_type": 1,
                "include_fenced_brokers": True,
            },
            flexible=True,
        )
        check(reply.error_code, reply.error_message, "cluster")
        self._warn_without_leader()
        return [
            {
                "broker_id": b.broker_id,
                "host": b.host,
                "port": b.port,
                "rack": b.rack,
                "is_fenced": b.is_fenced,
            }
            for b in sorted(reply.brokers, key=lambda b: b.broker_id)
        ]

    def min_isr(self, names: Sequence[str]) -> dict[str, int]:
        if not names:
            return {}
        reply = self.connection.call(
            "describe_configs",
            32,
            4,
            {
                "resources": [
                    {
                        "resource_type": RESOURCE_TOPIC,
                        "resource_name": name,
                        "configuration_keys": [MIN_INSYNC_REPLICAS],
                    }
                    for name in names
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
            flexible=True,
        )
        # A topic that was deleted meanwhile has no configs.
        return {
            result.resource_name: int(entry.value)
            for result in reply.results
            for entry in result.configs
        }

    def unregister_broker(self, broker_id: int) -> None:
        reply = self.connection.call(
            "unregister_broker", 64, 0, {"broker_id": broker_id}, flexible=True
        )
        subject = f"broker {broker_id}"
        check(reply.error_code, reply.error_message, subject, on_cluster("ALTER"))

    def unregister_controller(self, controller_id: int) -> None:
        asked = {"controller_id": controller_id}
        reply = self.connection.call("unregister_controller", 94, 0, asked, flexible=True)
        subject = f"controller {controller_id}"
        check(reply.error_code, reply.error_message, subject, on_cluster("ALTER"))

    def features(self) -> list[Row]:
        reply = self.connection.call(
            "api_versions",
            18,
            4,
            {"client_software_name": "kvorum-cli", "client_software_version": __version__},
            flexible=True,
            is_header_flexible=False,
        )
        check(reply.error_code, None, "features")
        known = {f.name: (f.min_version, f.max_version) for f in reply.supported_features}
        levels = {f.name: f.max_version_level for f in reply.finalized_features}
        return [
            {
                "feature": name,
                "min_level": known.get(name, (None, None))[0],
                "max_level": known.get(name, (None, None))[1],
                "finalized_level": levels.get(name, 0),
            }
            for name in sorted({*known, *levels})
        ]

    def update_features(self, levels: dict[str, int], kind: int, dry_run: bool) -> list[Row]:
        updates = [
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level in levels.items()
        ]
        reply = self.connection.call(
            "update_features",
            57,
            1,
            {"timeout": self.timeout_ms, "feature_updates": updates, "validate_only": dry_run},
            flexible=True,
        )
        if not reply.results:
            # If the answer has rows, their errors say more than the one error of the whole request.
            check(reply.error_code, reply.error_message, "features", on_cluster("ALTER"))
        return [
            {
                "feature": row.feature,
                "level": levels[row.feature],
                "error": ErrorCode(row.error_code).name,
                "message": row.error_message or "",
            }
            for row in reply.results
        ]

    def quorum(self) -> Row:
        reply = self._describe_quorum()
        check(reply.error_code, reply.error_message, _QUORUM, on_cluster("DESCRIBE"))
        partition = reply.topics[0].partitions[0]
        check(partition.error_code, partition.error_message, _QUORUM)
        cluster = self.connection.call(
            "describe_cluster",
            60,
            0,
            {"include_cluster_authorized_operations": False},
            flexible=True,
        )
        return {
            "cluster_id": cluster.cluster_id,
            "leader_id": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "high_watermark": partition.high_watermark,
            "voters": [_replica(r) for r in partition.current_voters],
            "observers": [_replica(r) for r in partition.observers],
            "nodes": [
                {"node_id": n.node_id, "host": n.listeners[0].host, "port": n.listeners[0].port}
                for n in reply.nodes
            ],
        }

    def cluster_operations(self) -> int:
        """The operations that the user may perform on the cluster: bit N stands for the operation
        with Kafka's number N."""
        asked = {"include_cluster_authorized_operations": True}
        reply = self.connection.call("describe_cluster", 60, 0, asked, flexible=True)
        check(reply.error_code, reply.error_message, "cluster")
        return max(int(reply.cluster_authorized_operations), 0)

    def controllers(self) -> tuple[list[tuple[str, int]], str | None]:
        """The controllers' addresses, and what the broker reports as wrong with their quorum (or
        None)."""
        reply = self._describe_quorum()
        message = reply.error_message or ""
        no_quorum = quorum_report.without_age(message) if _is_no_quorum(reply) else None
        if no_quorum is None:
            check(reply.error_code, message, _QUORUM, on_cluster("DESCRIBE"))
        return [(n.listeners[0].host, n.listeners[0].port) for n in reply.nodes], no_quorum

    def _describe_quorum(self) -> Any:
        return self.connection.call(
            "describe_quorum",
            55,
            2,
            {
                "topics": [
                    {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
                ]
            },
            flexible=True,
        )

    def _warn_without_leader(self) -> None:
        """Warn once if the quorum has no leader: the broker answers from its own image, which may
        then be stale."""
        if self._has_warned:
            return
        self._has_warned = True
        try:
            reply = self._describe_quorum()
        except CommandFailed:
            return  # this broker cannot report it; the answer itself has arrived
        if _is_no_quorum(reply):
            warn(f"{reply.error_message}: this is its view")


def _is_no_quorum(reply: Any) -> bool:
    return reply.error_code != ErrorCode.NONE and quorum_report.is_sentence(
        reply.error_message or ""
    )


def _replica(replica: Any) -> Row:
    return {
        "node_id": replica.replica_id,
        "directory_id": uuid_text(_uuid(replica.replica_directory_id)),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": _timestamp(replica.last_fetch_timestamp),
        "last_caught_up_timestamp": _timestamp(replica.last_caught_up_timestamp),
        # Kafka's answer has no field for it; a controller tells it.
        "clock_ahead_ms": None,
    }


def _timestamp(value: Any) -> int:
    """Milliseconds since 1970, from either type that kio's schemas use for it; -1 for never."""
    if value is None:
        return -1
    if isinstance(value, int):
        return int(value)
    return int(value.timestamp() * 1000)


def _uuid(value: Any) -> bytes:
    return UUID_ZERO if value is None else bytes(value.bytes)


def _described(partition: Any) -> Row:
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replica_nodes),
        "isr": list(partition.isr_nodes),
        "elr": list(partition.eligible_leader_replicas or ()),
        "last_known_elr": list(partition.last_known_elr or ()),
    }
