"""A node as its metrics see it: the items of each scope, and sums over all partitions.

Nothing here is kept from one scrape to the next, and no walk over partitions runs in one piece: a
generator yields None after each partition, so that `page` can give the event loop its turn. The
walks go over an image, which never changes, and look up each partition's replica on the way. A
topic that is deleted meanwhile has no replica any more and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvorum.launch.metrics.process import LoopWatch, ProcessView
from kvorum.launch.metrics.raft_view import RaftView
from kvorum.launch.metrics.row import Item, Scope, escaped
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import NO_LEADER
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.certificates import CertificateWatch
from kvorum.runtime.peer_failures import PEER_FAILURES, PeerFailures

if TYPE_CHECKING:
    from kvorum.metadata.controller.core.controller import Controller


@dataclass(slots=True)
class Counts:
    """Sums over all partitions: of the cluster, and of this broker's replicas.

    follower_lag: of the slowest follower of a partition led here.
    fetch_lag: of the replica here that is furthest behind its leader's high watermark, both in
        records.
    """

    partitions: int = 0
    offline_partitions: int = 0
    imbalanced_partitions: int = 0
    replicas: int = 0
    led: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    follower_lag: int = 0
    fetch_lag: int = 0


class Number:
    """The item of a scope whose only value is a count."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class NodeView:
    """The common part of a broker's and a controller's view."""

    certificates: CertificateWatch | None = None
    """The node's certificates; None for a node without TLS."""

    def __init__(self, raft: RaftNode, image: ClusterImage, watch: LoopWatch, now_s: float) -> None:
        self.raft = RaftView(raft, now_s)
        self.refuses_leader = int(bool(raft.core.refused_leader))
        self.snapshot = self.raft.snapshot
        self.image = image
        self.watch = watch
        self.process = ProcessView()
        self.now_s = now_s
        self.counts = Counts()
        self.scopes: dict[str, Scope] = {
            "node": lambda: iter([((), self)]),
            "role": self.raft.roles,
            "follower": self.raft.followers,
            "certificate": self._certificates,
        }

    def _certificates(self) -> Iterator[Item]:
        for each in [] if self.certificates is None else self.certificates.watched:
            if each.shown is not None:
                side = "server" if each.is_server else "client"
                yield (escaped(each.settings.listener), side), each.shown

    @property
    def age_s(self) -> float:
        """For how long no leader of the quorum was heard of; infinite: never."""
        raise NotImplementedError

    @property
    def peer_failures(self) -> PeerFailures:
        return PEER_FAILURES

    @property
    def applied_offset(self) -> int:
        return self.image.end_offset

    @property
    def topic_count(self) -> int:
        return len(self.image.topics)

    @property
    def brokers_active(self) -> int:
        return sum(broker.is_active for broker in self.image.brokers.values())

    @property
    def brokers_fenced(self) -> int:
        return sum(broker.is_fenced for broker in self.image.brokers.values())

    def prepare(self) -> Iterator[None]:
        """Fill `counts`; a step for each partition of the cluster."""
        counts = self.counts
        for topic_id, topic in self.image.topics.items():
            for partition_id, partition in topic.partitions.items():
                counts.partitions += 1
                counts.offline_partitions += partition.leader == NO_LEADER
                counts.imbalanced_partitions += partition.leader != partition.replicas[0]
                self.note_partition(topic_id, partition_id, partition)
                yield None

    def note_partition(self, topic_id: bytes, partition_id: int, partition: Any) -> None:
        """Count the node's own replica of a partition."""


class ControllerView(NodeView):
    """A controller at the time of a scrape."""

    def __init__(
        self, raft: RaftNode, controller: Controller, watch: LoopWatch, now_s: float, age_s: float
    ) -> None:
        super().__init__(raft, controller.committed, watch, now_s)
        self.controller = controller.metrics
        self.is_active = controller.is_active
        self._age_s = age_s

    @property
    def age_s(self) -> float:
        return self._age_s


def one(item: Any) -> Iterator[Item | None]:
    """A scope of one item without labels."""
    yield (), item
