"""Rows of the replication page: the log of each replica, as its broker or controller tells it.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvorum.console.core.patch import Document
from kvorum.console.core.replica_log import ReplicaLog, Seen
from kvorum.console.core.sample import QuorumNode, Sample
from kvorum.metadata.image.image import PartitionImage


def replica_rows(partition: PartitionImage, seen: Mapping[int, Seen]) -> Document:
    """`replicas` by broker id, and their `replica_order`: the assignment's."""
    rows = {}
    for broker_id in partition.replicas:
        answer = seen.get(broker_id)
        is_leader = broker_id == partition.leader
        rows[str(broker_id)] = {
            "id": broker_id,
            "role": "leader" if is_leader else "follower",
            "is_in_sync": broker_id in partition.isr,
            "problem": answer.problem if answer is not None and answer.problem else None,
            **_log_fields(None if answer is None else answer.log),
        }
    return {"replicas": rows, "replica_order": list(rows)}


def metadata_rows(
    sample: Sample, nodes: Sequence[QuorumNode], roles: Mapping[int, str]
) -> Document:
    """The same of the metadata log. roles: by node id, with those of nodes that do not answer.

    A controller tells its own log. Of a broker the leader knows the end alone, up to which the
    broker's log is the leader's: the leader checked it at the fetch (Raft's log matching).
    """
    leader = sample.answers.get(sample.leader_id)
    leader_log = None if leader is None else leader.log
    rows = {}
    for node in nodes:
        answer, role = sample.answers.get(node.node_id), roles[node.node_id]
        log = None if answer is None else answer.log
        fields = _log_fields(log)
        if log is None and node.end_offset >= 0:
            epochs = () if leader_log is None else leader_log.epochs
            known = [[epoch, first] for epoch, first in epochs if first < node.end_offset]
            fields = {"end": node.end_offset, "epochs": known}
        rows[str(node.node_id)] = {
            "id": node.node_id,
            "kind": node.kind,
            "role": role,
            "is_in_sync": role not in ("unreachable", "silent"),
            "problem": "it does not answer" if role == "unreachable" else None,
            **fields,
        }
    return {"replicas": rows, "replica_order": list(rows)}


def _log_fields(log: ReplicaLog | None) -> Document:
    if log is None:
        return {}
    return {
        "start": log.start_offset,
        "stable": log.last_stable_offset if log.last_stable_offset >= 0 else None,
        "high_watermark": log.high_watermark,
        "end": log.end_offset,
        "epochs": [list(each) for each in log.epochs],
    }
