"""A broker as its metrics see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvorum.broker.fetch.leader_fetch import PendingFetch
from kvorum.broker.groups.book import type_of
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.metrics.counters import ConnectionMetrics, RequestMetrics, TopicMetrics
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.pending_produce import PendingProduce
from kvorum.broker.transactions.core.shard import TransactionShard
from kvorum.launch.metrics.process import LoopWatch
from kvorum.launch.metrics.row import Item, escaped
from kvorum.launch.metrics.share_view import ShareView
from kvorum.launch.metrics.views import NodeView, Number
from kvorum.metadata.image.image import PartitionImage
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from kvorum.broker.server import KafkaServer

FETCH_KEY = 1
RUNNING, STARTING = 3, 2
"""Kafka's numbers of a broker's state; a fenced broker counts as starting."""
_OPERATIONS: dict[type, str] = {PendingProduce: "Produce", PendingFetch: "Fetch"}


class _Api:
    """The requests of one API. Fetch has two of these: requests of consumers, and of followers."""

    __slots__ = ("local_s", "remote_s", "requests", "send_s", "throttle_s", "total_s")

    def __init__(self, metrics: RequestMetrics, requests: int) -> None:
        self.requests = requests
        for name in ("total_s", "local_s", "remote_s", "throttle_s", "send_s"):
            setattr(self, name, getattr(metrics, name))


class _Directory:
    __slots__ = ("is_offline", "is_online")

    def __init__(self, is_offline: bool) -> None:
        self.is_offline = int(is_offline)
        self.is_online = int(not is_offline)


class _Listener:
    __slots__ = ("counts", "open")

    def __init__(self, metrics: ConnectionMetrics) -> None:
        self.counts = metrics
        self.open = metrics.made - metrics.closed


class BrokerView(NodeView):
    """A broker at the time of a scrape."""

    def __init__(
        self, raft: RaftNode, server: KafkaServer, watch: LoopWatch, *, now_s: float,
        age_ms: int | None, is_fenced: bool, refuses_leader: bool,
    ) -> None:  # fmt: skip
        replicas = server.services.replicas
        super().__init__(raft, replicas.registry.image, watch, now_s)
        self._services = server.services
        self._registry = replicas.registry
        self._broker_id = replicas.broker_id
        self._directories = replicas.directories
        self.metrics = replicas.metrics
        self._age_ms = age_ms
        self.refuses_leader = int(refuses_leader)
        self.is_fenced = int(is_fenced)
        self.broker_state = STARTING if is_fenced else RUNNING
        self.traffic = TopicMetrics("")
        self.groups_by_type = {"classic": 0, "consumer": 0, "share": 0, "streams": 0}
        self.share = ShareView(server.services.share, self.metrics.share, self.image, now_s)
        self.group_members = 0
        self.transaction_states: Counter[str] = Counter()
        self._parked: Counter[type] = Counter()
        self.coordinator_shards = 0
        self.scopes |= {
            "topics": lambda: iter([((), self.traffic)]),
            "api": self._apis,
            "error": self._errors,
            "topic": self._topics,
            "replica": self._replicas,
            "led": lambda: self._replicas(is_led=True),
            "directory": self._log_directories,
            "listener": self._listeners,
            "operation": self._operations,
            "groups": self._groups,
            "transactions": self._transactions,
            **self.share.scopes,
        }

    @property
    def age_s(self) -> float:
        return float("inf") if self._age_ms is None else self._age_ms / 1000

    @property
    def directories_offline(self) -> int:
        return self._directories.offline_count

    @property
    def groups(self) -> int:
        return sum(self.groups_by_type.values())

    def prepare(self) -> Iterator[None]:
        yield from super().prepare()
        self.counts.offline += len(self._registry.broken)
        self.traffic.add(self.metrics.departed)
        for topic_id in self.image.topics:
            topic = self.metrics.topics.get(topic_id)
            if topic is not None:
                self.traffic.add(topic)
            yield None
        for counted in self._services.replicas.deadlines.count():
            self._parked.update(counted)
            yield None
        yield from self._count_coordinators()

    def note_partition(self, topic_id: bytes, partition_id: int, partition: PartitionImage) -> None:
        if self._broker_id not in partition.replicas:
            return
        replica = self._registry.find(topic_id, partition_id)
        if replica is None:
            return
        counts, core = self.counts, replica.core
        counts.replicas += 1
        counts.offline += replica.is_offline
        if not core.is_leader:
            counts.fetch_lag = max(counts.fetch_lag, core.high_watermark - core.end_offset)
            return
        counts.led += 1
        counts.under_replicated += core.is_under_replicated
        counts.under_min_isr += core.is_under_min_isr
        counts.at_min_isr += core.is_at_min_isr
        counts.reassigning += partition.is_reassigning
        for follower in core.followers.values():
            lag = core.end_offset - max(follower.end_offset, 0)
            counts.follower_lag = max(counts.follower_lag, lag)

    def _count_coordinators(self) -> Iterator[None]:
        """One step for each shard: its groups change between two steps."""
        services = self._services
        for shard in [*services.groups.active_shards(), *services.transactions.active_shards()]:
            self.coordinator_shards += 1
            if isinstance(shard, GroupShard):
                for group in shard.groups.values():
                    self.groups_by_type[type_of(group)] += 1
                    self.group_members += len(group.members)
                self.share.note_groups(shard.share.groups.values())
            elif isinstance(shard, TransactionShard):
                self.transaction_states.update(shard.states())
            yield None
        yield from self.share.count_coordinators()
        self.coordinator_shards += self.share.shards
        self.groups_by_type["share"] = self.share.count
        self.group_members += self.share.members

    # --- scopes ------------------------------------------------------------------------------

    def _apis(self) -> Iterator[Item]:
        of_followers = self.metrics.follower_fetch
        for key, metrics in sorted(self.metrics.requests.items()):
            if key == FETCH_KEY:
                of_consumers = metrics.requests - of_followers.requests
                yield ("FetchConsumer",), _Api(metrics, of_consumers)
                yield ("FetchFollower",), _Api(of_followers, of_followers.requests)
            else:
                yield (metrics.name,), _Api(metrics, metrics.requests)

    def _errors(self) -> Iterator[Item]:
        for _, metrics in sorted(self.metrics.requests.items()):
            for code, count in sorted(metrics.errors.items()):
                yield (metrics.name, ErrorCode(code).name), Number(count)

    def _topics(self) -> Iterator[Item | None]:
        for topic_id in self.image.topics:
            topic = self.metrics.topics.get(topic_id)
            yield None if topic is None else ((escaped(topic.name),), topic)

    def _replicas(self, *, is_led: bool = False) -> Iterator[Item | None]:
        find, own_id = self._registry.find, self._broker_id
        for topic_id, topic in self.image.topics.items():
            name = escaped(topic.name)
            for partition_id, partition in topic.partitions.items():
                replica: Replica | None = None
                if own_id in partition.replicas:
                    replica = find(topic_id, partition_id)
                if replica is None or (is_led and not replica.core.is_leader):
                    yield None
                else:
                    yield (name, str(partition_id)), replica

    def _log_directories(self) -> Iterator[Item]:
        for item in self._directories.items:
            yield (escaped(item.path),), _Directory(item.is_offline)

    def _listeners(self) -> Iterator[Item]:
        for name, metrics in sorted(self.metrics.connections.items()):
            yield (escaped(name),), _Listener(metrics)

    def _operations(self) -> Iterator[Item]:
        for kind, name in _OPERATIONS.items():
            yield (name,), Number(self._parked[kind])

    def _groups(self) -> Iterator[Item]:
        for kind, count in self.groups_by_type.items():
            yield (kind,), Number(count)

    def _transactions(self) -> Iterator[Item]:
        for state, count in sorted(self.transaction_states.items()):
            yield (state,), Number(count)
