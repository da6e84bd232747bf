"""Asks a live cluster at a moment: the quorum's leader, each partition's leader and ISR.

`chaos.live.observation` watches it all the time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from kvorum.chaos.live.cluster import LiveCluster
from kvorum.chaos.targets import ClusterView, PartitionView
from kvorum.metadata.inspect.history import MetadataHistory, history_of
from kvorum.metadata.rpc.metadata_log_reader import read_copy
from kvorum.rpc import admin_pb2, admin_pb2_grpc
from kvorum.runtime.errors import KvorumError

_STATUS_TIMEOUT_S = 5.0
METADATA_TIMEOUT_S = 3.0


class NotObservable(KvorumError):
    """The cluster did not answer; the message names the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    """One controller's answer. leader_id is -1 if it knows no leader."""

    leader_id: int
    leader_epoch: int
    high_watermark: int


def quorum_status(listener: str) -> QuorumStatus:
    """One controller's own view of the quorum. Raises NotObservable when it gives no answer."""
    with _channel(listener) as channel:
        try:
            answer = admin_pb2_grpc.AdminStub(channel).DescribeQuorum(
                admin_pb2.DescribeQuorumRequest(), timeout=_STATUS_TIMEOUT_S
            )
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
            raise NotObservable(f"controller {listener} gave no status: {reason}") from error
    return QuorumStatus(
        leader_id=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        high_watermark=answer.high_watermark,
    )


def _channel(listener: str) -> grpc.Channel:
    # An HTTP proxy from the environment must not be used for this connection.
    return grpc.insecure_channel(listener, options=[("grpc.enable_http_proxy", 0)])


def newest_status(cluster: LiveCluster) -> QuorumStatus:
    """The answer with the highest epoch among the controllers that answer.

    A controller that is cut off may still name itself as leader, but with a lower epoch.
    """
    reasons: list[str] = []

    def ask(listener: str) -> QuorumStatus | None:
        try:
            return quorum_status(listener)
        except NotObservable as error:
            reasons.append(str(error))
            return None

    listeners = cluster.controller_listeners()
    # All controllers are asked at once: one that hangs must not delay the fault that waits for
    # this.
    with ThreadPoolExecutor(max_workers=max(1, len(listeners))) as pool:
        answers = list(pool.map(ask, listeners))
    led = [answer for answer in answers if answer is not None and answer.leader_id >= 0]
    if not led:
        raise NotObservable("no controller knows a leader: " + "; ".join(reasons))
    return max(led, key=lambda answer: answer.leader_epoch)


def active_controller(cluster: LiveCluster) -> str:
    """The name of the node that leads the quorum. Raises NotObservable."""
    status = newest_status(cluster)
    name = cluster.name_of(status.leader_id)
    if name is None:
        raise NotObservable(f"the quorum's leader {status.leader_id} is no node of this cluster")
    return name


def metadata_history(cluster: LiveCluster, *, timeout_s: float) -> MetadataHistory:
    """All metadata that the quorum's leader has committed; this request bypasses the proxies.
    Raises NotObservable, and KvorumError for metadata that cannot be read."""
    name = active_controller(cluster)
    listener = next(node.listener for node in cluster.nodes() if node.name == name)
    with _channel(listener) as channel:
        try:
            copy = read_copy(channel, timeout_s=timeout_s)
        except grpc.RpcError as error:
            raise NotObservable(f"{name} at {listener} sent no metadata: {error}") from error
    return history_of(copy, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The topic as a client's metadata shows it; broker ids, -1 for no leader."""

    leaders: dict[int, int]
    replicas: dict[int, tuple[int, ...]]
    isr: dict[int, tuple[int, ...]]
    live_brokers: tuple[int, ...]

    @property
    def offline_partitions(self) -> int:
        return sum(1 for leader in self.leaders.values() if leader < 0)

    @property
    def under_replicated_partitions(self) -> int:
        return sum(1 for number in self.isr if len(self.isr[number]) < len(self.replicas[number]))


class TopicWatch:
    """Reads a topic's metadata through the proxies, as any client does."""

    def __init__(self, *, bootstrap: str, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def state(self) -> TopicState:
        """Raises NotObservable when no broker answers or the topic is unknown."""
        from confluent_kafka import KafkaException

        try:
            metadata = self._admin.list_topics(self.topic, timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            raise NotObservable(f"no metadata: {error}") from error
        topic = metadata.topics[self.topic]
        if topic.error is not None:
            raise NotObservable(f"topic {self.topic}: {topic.error}")
        partitions = topic.partitions
        return TopicState(
            leaders={number: partitions[number].leader for number in sorted(partitions)},
            replicas={number: tuple(partitions[number].replicas) for number in sorted(partitions)},
            isr={number: tuple(partitions[number].isrs) for number in sorted(partitions)},
            live_brokers=tuple(sorted(metadata.brokers)),
        )


def view_of(cluster: LiveCluster, topic: str, state: TopicState | None) -> ClusterView:
    """The view that targets are resolved against. Asks for the active controller."""
    names = {node.node_id: node.name for node in cluster.nodes()}
    partitions: dict[tuple[str, int], PartitionView] = {}
    if state is not None:
        for number, leader in state.leaders.items():
            partitions[(topic, number)] = PartitionView(
                leader=names.get(leader),
                replicas=tuple(names[broker] for broker in state.replicas[number]),
                isr=tuple(names[broker] for broker in state.isr[number]),
            )
    try:
        active: str | None = active_controller(cluster)
    except NotObservable:
        active = None
    return ClusterView(
        controllers=cluster.plan.controllers,
        brokers=cluster.plan.brokers,
        killed=frozenset(cluster.killed).union(cluster.died_unasked()),
        paused=frozenset(cluster.paused),
        active_controller=active,
        partitions=partitions,
    )
