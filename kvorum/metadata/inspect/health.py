"""The health of a cluster, and what the restart of a node would break.

The rows are those of the command line: `quorum`, `brokers` and `describe_topics` of a backend. No
I/O here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.metadata.image.image import is_under_replicated
from kvorum.raft.model.quorum import majority

VOTER_LAG_MS_MAX = 1_500
"""A voter that was level with the leader at most this long ago counts toward a majority. An idle
voter is level at each of its fetches, two a second at least. For so long a dead voter counts, too:
much more, and a second one would be restarted meanwhile."""

NAMES_SHOWN_MAX = 5
"""Partitions named in one finding; the others are counted."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of a cluster. detail: what was found, in words for a person."""

    check: str
    is_healthy: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What a cluster says of itself.

    quorum: None without a leader; no_quorum then says why.
    min_isr: min.insync.replicas by topic; a topic that was deleted meanwhile is missing.
    reassigning: by topic and partition, the replicas that a reassignment is adding; none without a
        leader.
    asked_ms: this machine's clock before the quorum was asked and after its answer, in milliseconds
        since 1970.
    """

    quorum: Row | None
    no_quorum: str
    brokers: Sequence[Row]
    topics: Sequence[Row]
    min_isr: Mapping[str, int]
    reassigning: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    asked_ms: tuple[int, int] = (0, 0)


def health_of(view: ClusterView) -> list[Finding]:
    """A finding for each check, healthy or not."""
    return [
        _quorum(view),
        _voters(view),
        _brokers(view),
        _partitions(view, "offline partitions", _is_offline),
        _partitions(view, "under min ISR", _is_under_min_isr),
        _partitions(view, "under-replicated", _is_under_replicated),
    ]


def restart_hazards(view: ClusterView, node_id: int) -> list[str]:
    """A sentence for everything that would fail while a node is down; none if it may be restarted.

    A controller may be restarted if the other voters that are level with the leader are a majority.
    A broker may be restarted if no other broker is down, and each of its partitions has
    min.insync.replicas in sync without it. A partition with no more than min.insync.replicas
    replicas is not counted (`stopped_by_any_restart`): waiting would not help. A leader hands its
    leadership over when it stops.
    """
    known = known_nodes(view)
    if view.quorum is None or known is None:
        return [f"the quorum has no leader: {view.no_quorum}"]
    if node_id not in known:
        return [f"the cluster has no node {node_id}; it has {', '.join(map(str, known))}"]
    voters = [int(voter["node_id"]) for voter in view.quorum["voters"]]
    if node_id in voters:
        return list(_voter_hazards(view.quorum, voters, node_id))
    if any(broker["broker_id"] == node_id for broker in view.brokers):
        return list(_broker_hazards(view, node_id))
    return []


def stopped_by_any_restart(view: ClusterView, node_id: int) -> str:
    """A sentence on the partitions that cannot be written while the broker is down, however healthy
    the cluster is: they have no replica to spare. "" for none."""
    stopped = [
        name
        for name, topic, partition in _all(view)
        if node_id in partition["replicas"]
        and len(partition["replicas"]) <= view.min_isr.get(topic, 1)
    ]
    if not stopped:
        return ""
    return f"stops {_count(len(stopped), 'partition')} without a replica to spare: {named(stopped)}"


def known_nodes(view: ClusterView) -> list[int] | None:
    """The ids of all nodes, in order; None without a leader, since only a leader knows the
    controllers."""
    if view.quorum is None:
        return None
    replicas = (*view.quorum["voters"], *view.quorum["observers"])
    brokers = {int(broker["broker_id"]) for broker in view.brokers}
    return sorted({int(node["node_id"]) for node in replicas} | brokers)


def level_voters(quorum: Row) -> list[int]:
    """The voters that are level with the leader, or were VOTER_LAG_MS_MAX ago; the leader too."""
    leader = next(
        (voter for voter in quorum["voters"] if voter["node_id"] == quorum["leader_id"]), None
    )
    if leader is None:
        return []
    since_ms = leader["last_caught_up_timestamp"] - VOTER_LAG_MS_MAX
    return [
        int(voter["node_id"])
        for voter in quorum["voters"]
        if voter is leader or voter["last_caught_up_timestamp"] >= max(since_ms, 0)
    ]


def _voter_hazards(quorum: Row, voters: Sequence[int], node_id: int) -> Iterator[str]:
    rest = [voter for voter in level_voters(quorum) if voter != node_id]
    need = majority(len(voters))
    if len(rest) < need:
        yield (
            f"without controller {node_id} {_count(len(rest), 'voter')} of {len(voters)} would be "
            f"level with the leader, and {need} are needed"
        )


def _broker_hazards(view: ClusterView, node_id: int) -> Iterator[str]:
    fenced = [
        int(broker["broker_id"])
        for broker in view.brokers
        if broker["is_fenced"] and broker["broker_id"] != node_id
    ]
    if fenced:
        yield f"{_nodes('broker', fenced)} {'is' if len(fenced) == 1 else 'are'} down already"
    stopped = [
        name
        for name, topic, partition in _all(view)
        if node_id in partition["replicas"]
        and len(partition["replicas"]) > (need := view.min_isr.get(topic, 1))
        and len(set(partition["isr"]) - {node_id}) < need
    ]
    if stopped:
        yield (
            f"{_count(len(stopped), 'partition')} would have too few replicas in sync without "
            f"broker {node_id}: {named(stopped)}"
        )


def _quorum(view: ClusterView) -> Finding:
    if view.quorum is None:
        return Finding(check="leader", is_healthy=False, detail=view.no_quorum)
    leader, epoch = view.quorum["leader_id"], view.quorum["leader_epoch"]
    detail = f"controller {leader} leads in epoch {epoch}"
    return Finding(check="leader", is_healthy=True, detail=detail)


def _voters(view: ClusterView) -> Finding:
    if view.quorum is None:
        return Finding(check="voters", is_healthy=False, detail="unknown without a leader")
    voters = [int(voter["node_id"]) for voter in view.quorum["voters"]]
    behind = sorted(set(voters) - set(level_voters(view.quorum)))
    detail = f"{len(voters) - len(behind)} of {len(voters)} level with the leader"
    if behind:
        detail += f"; behind or down: {_nodes('controller', behind)}"
    return Finding(check="voters", is_healthy=not behind, detail=detail)


def _brokers(view: ClusterView) -> Finding:
    fenced = [int(broker["broker_id"]) for broker in view.brokers if broker["is_fenced"]]
    detail = f"{len(view.brokers) - len(fenced)} of {len(view.brokers)} active"
    if fenced:
        detail += f"; fenced: {_nodes('broker', fenced)}"
    is_healthy = bool(view.brokers) and not fenced
    return Finding(check="brokers", is_healthy=is_healthy, detail=detail)


def _partitions(view: ClusterView, check: str, is_bad: Any) -> Finding:
    everything = list(_all(view))
    bad = [name for name, topic, partition in everything if is_bad(view, topic, partition)]
    detail = f"{len(bad)} of {_count(len(everything), 'partition')}"
    if bad:
        detail += f": {named(bad)}"
    return Finding(check=check, is_healthy=not bad, detail=detail)


def _is_offline(_: ClusterView, __: str, partition: Row) -> bool:
    return bool(partition["leader"] < 0)


def _is_under_replicated(view: ClusterView, topic: str, partition: Row) -> bool:
    adding = view.reassigning.get((topic, partition["partition"]), ())
    return is_under_replicated(partition["replicas"], partition["isr"], adding)


def _is_under_min_isr(view: ClusterView, topic: str, partition: Row) -> bool:
    return len(partition["isr"]) < min(view.min_isr.get(topic, 1), len(partition["replicas"]))


def _all(view: ClusterView) -> Iterator[tuple[str, str, Row]]:
    """(name, topic, partition) of every partition."""
    for topic in view.topics:
        for partition in topic["partitions"]:
            yield f"{topic['topic']}-{partition['partition']}", topic["topic"], partition


def named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _nodes(kind: str, ids: Sequence[int]) -> str:
    return f"{kind if len(ids) == 1 else kind + 's'} {', '.join(map(str, ids))}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"
