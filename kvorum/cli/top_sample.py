"""One look at a cluster for `kvorum top`: a few requests to each broker, none of which waits for a
partition or a broker that is not there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from kvorum.cli.partition_backends import partitions_of, reassigning
from kvorum.cli.top_view import Sample
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.cluster.brokers import Brokers, Partition
from kvorum.client.cluster.offsets import ends_at
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import EXIT_NO_QUORUM, CommandFailed, Row
from kvorum.client.groups.coordinator import GROUP
from kvorum.runtime.errors import ErrorCode


def take_sample(backend: BrokerBackend, brokers: Brokers) -> Sample:
    """The cluster's present state. Raises CommandFailed if no broker answers."""
    quorum, no_quorum = None, ""
    try:
        quorum = backend.quorum()
    except CommandFailed as error:
        if error.exit_code != EXIT_NO_QUORUM:
            raise
        no_quorum = str(error)
    nodes = backend.brokers()
    topics = backend.topics(None)
    moves = {} if quorum is None else reassigning(partitions_of(backend))
    brokers.topics([])  # learns the addresses
    alive = [node["broker_id"] for node in nodes if not node["is_fenced"]]
    at_s = time.monotonic()
    ends = _ends(brokers, topics)
    groups = _groups(brokers, alive)
    return Sample(
        at_s=at_s,
        quorum=quorum,
        no_quorum=no_quorum,
        brokers=nodes,
        topics=topics,
        reassigning=moves,
        sizes=_sizes(brokers, alive),
        ends=ends,
        groups=groups,
        committed=_committed(brokers, list(groups)),
    )


def _ask(brokers: Brokers, broker_id: int, request: tuple[str, int, int], values: Row) -> Any:
    """A broker's answer; None if it is gone."""
    name, key, version = request
    try:
        return brokers.to(broker_id).call(name, key, version, values, flexible=True)
    except BrokerGone:
        brokers.forget(broker_id)
        return None


def _ends(brokers: Brokers, topics: Sequence[Row]) -> dict[Partition, int]:
    led: dict[int, list[Partition]] = {}
    for topic in topics:
        for row in topic["partitions"]:
            if row["leader"] >= 0:
                led.setdefault(row["leader"], []).append((topic["topic"], row["partition"]))
    found: dict[Partition, int] = {}
    for leader, partitions in led.items():
        try:
            found |= ends_at(brokers.to(leader), partitions)
        except BrokerGone:
            brokers.forget(leader)
    return found


def _sizes(brokers: Brokers, broker_ids: Iterable[int]) -> dict[int, int]:
    from kvorum.wire.log_dirs_codec import read_answer

    sizes = {}
    for broker_id in broker_ids:
        try:
            connection = brokers.to(broker_id)
            answer = connection.ask("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
        except BrokerGone:
            brokers.forget(broker_id)
            continue
        error, directories = read_answer(answer[1:])  # skip the header's empty tagged fields
        if error == ErrorCode.NONE:
            sizes[broker_id] = sum(
                directory.size_bytes for directory in directories if directory.error == 0
            )
    return sizes


def _groups(brokers: Brokers, broker_ids: Iterable[int]) -> dict[str, str]:
    states = {}
    for broker_id in broker_ids:
        values: Row = {"states_filter": [], "types_filter": []}
        reply = _ask(brokers, broker_id, ("list_groups", 16, 5), values)
        for row in reply.groups if reply is not None else ():
            states[row.group_id] = row.group_state
    return states


def _committed(brokers: Brokers, groups: list[str]) -> dict[str, dict[Partition, int]]:
    """Committed offsets by group, for the groups whose coordinators answer."""
    if not groups:
        return {}
    asked = {"key_type": GROUP, "coordinator_keys": groups}
    reply = brokers.call("find_coordinator", 10, 4, asked)
    by_coordinator: dict[int, list[str]] = {}
    for row in reply.coordinators:
        if row.error_code == ErrorCode.NONE:
            by_coordinator.setdefault(row.node_id, []).append(row.key)
    found = {}
    for broker_id, names in by_coordinator.items():
        wanted = [
            {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
            for name in names
        ]
        values: Row = {"groups": wanted, "require_stable": False}
        answer = _ask(brokers, broker_id, ("offset_fetch", 9, 9), values)
        for group in answer.groups if answer is not None else ():
            if group.error_code == ErrorCode.NONE:
                found[group.group_id] = {
                    (topic.name, row.partition_index): row.committed_offset
                    for topic in group.topics
                    for row in topic.partitions
                    if row.committed_offset >= 0
                }
    return found
