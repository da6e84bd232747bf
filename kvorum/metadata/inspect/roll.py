"""A rolling restart: which node is next, and when the next one may follow. No I/O here.

Two rules make it safe. A node is restarted only while the cluster is healthy without exception, so
that no second node is missing at the same time. And a node counts as restarted only once the
metadata log has its new registration: a restart command that returns early proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.health import (
    VOTER_LAG_MS_MAX,
    ClusterView,
    Finding,
    Row,
    health_of,
    named,
    restart_hazards,
)
from kvorum.runtime.clock import CLOCK_MS_MAX

SETTLE_FACTOR = 3
SETTLE_S_MAX = 10.0
"""Of `settle_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollNode:
    """A node to restart, as the metadata log has it registered.

    role: controller or broker.
    incarnation_id: of its process; each start has another.
    """

    node_id: int
    role: str
    host: str
    incarnation_id: bytes

    @property
    def name(self) -> str:
        return f"{self.role}-{self.node_id}"

    @property
    def short_host(self) -> str:
        """The first label of the host: the name of a pod in a StatefulSet."""
        return self.host.partition(".")[0]


def nodes_of(image: ClusterImage) -> list[RollNode]:
    """Every registered node, by role and id."""
    controllers = [
        RollNode(
            node_id=node_id,
            role="controller",
            host=node.endpoints[0].host,
            incarnation_id=node.incarnation_id,
        )
        for node_id, node in sorted(image.controllers.items())
    ]
    brokers = [
        RollNode(
            node_id=node_id,
            role="broker",
            host=node.endpoint.host,
            incarnation_id=node.incarnation_id,
        )
        for node_id, node in sorted(image.brokers.items())
    ]
    return [*controllers, *brokers]


def roll_order(
    nodes: Sequence[RollNode], leader_id: int, done: Collection[int] = ()
) -> list[RollNode]:
    """The nodes that are still to restart: controllers, the leader last among them, then brokers.

    The leader is last, so that the quorum changes its leader once and not at each restart. It may
    change all the same: ask again after each node. done: ids of the nodes that were restarted.
    """
    left = [node for node in nodes if node.node_id not in done]
    return sorted(
        left,
        key=lambda node: (node.role == "broker", node.node_id == leader_id, node.node_id),
    )


def gone_controllers(view: ClusterView, nodes: Sequence[RollNode]) -> list[RollNode]:
    """The registered controllers that do not vote and do not follow the quorum any more.

    No request takes a controller out of the metadata, so one that was removed as a voter and
    stopped would be waited for in every roll. Empty without a leader.
    """
    if view.quorum is None:
        return []
    here = (
        {int(row["node_id"]) for row in view.quorum["voters"]}
        | {view.quorum["leader_id"]}
        | {
            node_id
            for node_id, row in _followers(view.quorum).items()
            if _is_heard(view.quorum, row)
        }
    )
    return [n for n in nodes if n.role == "controller" and n.node_id not in here]


def hazards_of_start(view: ClusterView, node: RollNode) -> list[str]:
    """Reasons not to restart the node now: anything that is not well, what would break, and a
    reassignment, whose copies a restart would interrupt."""
    unhealthy = [f"{f.check}: {f.detail}" for f in health_of(view) if not f.is_healthy]
    return unhealthy or restart_hazards(view, node.node_id) or _reassignment(view)


def _reassignment(view: ClusterView) -> list[str]:
    if not view.reassigning:
        return []
    names = [f"{topic}-{partition}" for topic, partition in sorted(view.reassigning)]
    return [
        f"a reassignment is under way ({named(names)}): wait for its end, or cancel it with kvorum "
        "partitions reassign --cancel"
    ]


def not_registered(node: RollNode) -> str:
    """The obstacle of a restarted node whose new process is not in the metadata log yet."""
    return f"{node.name} has not registered again"


def not_back(view: ClusterView, image: ClusterImage, before: RollNode) -> str | None:
    """The check that a restarted node and its cluster do not pass yet; None once the next node may
        follow.

    before: the node as it was registered before its restart.
    image: the first one that was read with its new registration, or any without. The node must have
        the metadata log up to there.

    Bad sequence without the offset: a voter counts as level with the leader for some seconds after
    it has stopped, so the next voter could stop before this one has caught up.
    """
    if not is_registered_again(image, before):
        return not_registered(before)
    if view.quorum is not None:
        replica = _replica(view.quorum, before.node_id)
        if replica is None:
            return f"{before.name} does not follow the metadata log"
        if replica["log_end_offset"] < image.end_offset:
            return (
                f"{before.name} has the metadata log up to offset {replica['log_end_offset']}, and "
                f"needs {image.end_offset}"
            )
    return next((f"{f.check}: {f.detail}" for f in health_of(view) if not f.is_healthy), None)


def settle_s(node: RollNode, left: Collection[RollNode], away_s: float) -> float:
    """The pause after a node that was away so long, in seconds: clients must be connected to it
    before the next broker hands its leaderships over. left: the nodes that are still to restart.

    Bad sequence without the pause:
    1. Broker A stops. A producer of librdkafka fails to connect to A, at once and again later.
    2. A is back. The producer still waits before its next attempt.
    3. Broker B stops, and A leads its partitions. The producer has no connection to A: silence.

    librdkafka doubles its back-off as an attempt begins and again as it fails. Each pause is four
    times the one before, so the next attempt comes within about 3 times the absence, and within
    reconnect.backoff.max.ms, which is 10 s by default. A client that needs nothing of A does not
    connect, but its back-off is over by then.
    """
    if node.role != "broker" or not any(n.role == "broker" for n in left):
        return 0.0
    return min(SETTLE_FACTOR * away_s, SETTLE_S_MAX)


def clock_of(view: ClusterView) -> Finding:
    """The leader's clock beside the one of the machine that asks, and the other nodes' beside the
    leader's.

    The leader read its clock at some time between question and answer. So the figure, of the middle
    of the two, may be wrong by half the round trip, which the finding says.

    Records get the brokers' times, and retention, transactions, tokens and certificates go by them.
    The leader sees the clock of each node that fetches from it. Kafka's DescribeQuorum has no field
    for that, so brokers cannot tell it.
    """
    leader = None if view.quorum is None else _replica(view.quorum, view.quorum["leader_id"])
    if view.quorum is None or leader is None or leader["last_caught_up_timestamp"] < 0:
        return Finding(check="clock", is_healthy=False, detail="not known without a leader")
    leader_id = view.quorum["leader_id"]
    before_ms, after_ms = view.asked_ms
    ahead_ms = int(leader["last_caught_up_timestamp"]) - (before_ms + after_ms) // 2
    error_ms = (after_ms - before_ms + 1) // 2 + 1  # each clock is read in whole milliseconds
    details = [f"controller {leader_id} is {_ahead(ahead_ms)} this machine (± {error_ms:,} ms)"]
    others = {
        replica["node_id"]: replica["clock_ahead_ms"]
        for replica in _followers(view.quorum).values()
        if replica.get("clock_ahead_ms") is not None and _is_heard(view.quorum, replica)
    }
    wrong = {i: ms for i, ms in sorted(others.items()) if abs(ms) > CLOCK_MS_MAX}
    details += [f"node {i} is {_ahead(ms)} controller {leader_id}" for i, ms in wrong.items()]
    is_healthy = abs(ahead_ms) <= CLOCK_MS_MAX and not wrong
    if not is_healthy:
        details.append("let NTP set the clocks")
    elif others:
        details.append(f"{len(others)} other nodes are within {CLOCK_MS_MAX // 1000} s")
    else:
        details.append("for the other nodes' clocks ask with --bootstrap-controller")
    return Finding(check="clock", is_healthy=is_healthy, detail="; ".join(details))


def _ahead(ahead_ms: int) -> str:
    size_ms = abs(ahead_ms)
    size = f"{size_ms} ms" if size_ms < 1000 else f"{size_ms / 1000:,.1f} s"
    return f"{size} {'ahead of' if ahead_ms > 0 else 'behind'}"


def is_registered_again(image: ClusterImage, before: RollNode) -> bool:
    """True if the metadata log has a later process of the node."""
    return any(
        n.node_id == before.node_id and n.incarnation_id != before.incarnation_id
        for n in nodes_of(image)
    )


def _followers(quorum: Row) -> dict[int, Row]:
    """The replicas but the leader by node id. A node that lost its disk is there twice for a while:
    the one that has fetched last counts."""
    rows: list[Row] = sorted(
        (*quorum["voters"], *quorum["observers"]), key=lambda row: row["last_fetch_timestamp"]
    )
    return {int(row["node_id"]): row for row in rows if row["node_id"] != quorum["leader_id"]}


def _is_heard(quorum: Row, row: Row) -> bool:
    """True if the replica has fetched within VOTER_LAG_MS_MAX, by the leader's clock."""
    leader = _replica(quorum, quorum["leader_id"])
    if leader is None:
        return False
    return bool(row["last_fetch_timestamp"] >= leader["last_fetch_timestamp"] - VOTER_LAG_MS_MAX)


def _replica(quorum: Row, node_id: int) -> Row | None:
    replicas: list[Row] = [*quorum["voters"], *quorum["observers"]]
    return next((r for r in replicas if r["node_id"] == node_id), None)
