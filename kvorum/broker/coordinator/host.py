"""All coordinators of one kind on this broker: a shard context for each partition that it leads.

Walk: metadata publisher -> `ReplicaManager.publish` -> `on_replica` (a shard context begins or
ends) -> `ShardContext.load`. An API file -> `request` -> the shard context of the key's partition
-> the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.coordinator.model import (
    NOBODY,
    Client,
    Shard,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.coordinator.shard_context import Respond, ShardContext, ShardState
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.partition.replica import Replica, ReplicaObserver
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from kvorum.runtime.tasks import TaskGroup, report_failure

MakeShard = Callable[[int, int], Shard | None]
"""(partition id, leader epoch) -> an empty shard; None if the partition has none."""


class CoordinatorHost:
    """Serves the keys (group ids, transactional ids) whose partitions of `topic` this broker
    leads."""

    def __init__(
        self,
        *,
        topic: str,
        replicas: ReplicaManager,
        make_shard: MakeShard | None,
        ask: Callable[[ShardContext, Any], None] | None = None,
    ) -> None:
        """make_shard: None if this cluster has no such coordinators: `is_served` is then False.
        ask: carries out the effect `Ask`, which only some kinds of coordinators use.
        """
        self.topic = topic
        self._replicas = replicas
        self._make_shard = make_shard
        self._ask = ask or _refuse_to_ask
        self._contexts: dict[int, ShardContext] = {}
        self._registry = replicas.registry
        self._image = self._registry.image
        self._tasks = TaskGroup(report_failure)
        self._observer = ReplicaObserver(self.on_replica, self._on_high_watermark)
        self._registry.observe(topic, self._observer)
        replicas.image_listeners.append(self.on_image)

    @property
    def is_served(self) -> bool:
        return self._make_shard is not None

    # --- requests ----------------------------------------------------------------------------

    def partition_of(self, key: str) -> int | None:
        """The partition that `key` belongs to; None while the topic does not exist."""
        topic = self._registry.image.topic(self.topic)
        return None if topic is None else partition_of(key, len(topic.partitions))

    async def request(self, *, key: str, body: Any, client: Client = NOBODY) -> Any:
        """The answer to `body` of the coordinator of `key`, or an ErrorCode.

        NOT_COORDINATOR if another broker has the key, COORDINATOR_LOAD_IN_PROGRESS while the log is
        being read, COORDINATOR_NOT_AVAILABLE while too few replicas are in sync.
        """
        context = self._context_of(key)
        if context is None:
            return ErrorCode.NOT_COORDINATOR
        return await context.request(body, client)

    def call(self, *, key: str, body: Any, client: Client, respond: Respond) -> None:
        """As `request`, without a task: `respond` is called with the answer, now or later."""
        context = self._context_of(key)
        if context is None:
            respond(ErrorCode.NOT_COORDINATOR)
        else:
            context.call(body, client, respond)

    def _context_of(self, key: str) -> ShardContext | None:
        partition_id = self.partition_of(key)
        return None if partition_id is None else self._contexts.get(partition_id)

    async def request_all(self, body: Any) -> list[Any]:
        """The answers to `body` of every shard on this broker (ListGroups), in the order of the
        partitions.

        A shard that is loading answers COORDINATOR_LOAD_IN_PROGRESS.
        """
        return [
            await context.request(body, NOBODY)
            for _, context in sorted(self._contexts.items())
            if context.state is not ShardState.ENDED
        ]

    def active_shards(self) -> list[Shard]:
        """The shards that serve requests now."""
        return [c.shard for c in self._contexts.values() if c.state is ShardState.ACTIVE]

    def transaction_ended(self, partition_id: int, end: TransactionEnd) -> None:
        """Give the shard a marker that was appended to its partition."""
        context = self._contexts.get(partition_id)
        if context is not None:
            context.give(TransactionEnded(end=end))

    # --- metadata ----------------------------------------------------------------------------

    def on_replica(self, replica: Replica) -> None:
        """Begin or end a shard context: the role or leader epoch of a replica of the topic may have
        changed."""
        core = replica.core
        partition_id = core.partition_id
        context = self._contexts.get(partition_id)
        is_leading = (
            core.is_leader
            and not core.is_abandoned
            and not replica.is_closed
            and not replica.is_offline
        )
        if context is not None:
            if (
                is_leading
                and context.replica is replica
                and context.leader_epoch == core.leader_epoch
            ):
                return
            # Also when this broker continues to lead in a new epoch: another broker may have led in
            # between, since images in quick succession are published as one.
            self._drop(partition_id, context)
        if is_leading and self._make_shard is not None:
            shard = self._make_shard(partition_id, core.leader_epoch)
            if shard is not None:
                self._begin(replica, shard)

    def on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        """Adopt a new image; the roles of this broker's replicas follow it already."""
        before, self._image = self._image, image
        if not self._contexts:
            return
        changed, deleted = _changed_topics(delta, before, image)
        # Configs are checked because groups have some. Without this event, the shard would keep the
        # old image.
        if changed or before.configs is not image.configs:
            event = TopicsChanged(image=image, changed=changed, deleted=deleted)
            # A shard context that began with this image ignores deleted topics that exist again.
            # Bad sequence otherwise: 1. A topic is deleted and created again. 2. Offsets of the new
            # topic are committed to the previous leader. 3. One image brings the deletion and this
            # broker's leadership, and the new offsets are deleted.
            gone = frozenset(name for name in deleted if image.topic(name) is None)
            at_first = TopicsChanged(image=image, changed=changed, deleted=gone)
            for _, context in sorted(self._contexts.items()):
                is_first = context.first_image_end == image.end_offset
                context.give(at_first if is_first else event)

    def _on_high_watermark(self, replica: Replica) -> None:
        context = self._contexts.get(replica.core.partition_id)
        if context is not None and context.replica is replica:
            context.on_high_watermark()

    async def stop(self) -> None:
        """End all shard contexts; waiting requests are answered NOT_COORDINATOR."""
        for partition_id, context in sorted(self._contexts.items()):
            self._drop(partition_id, context)
        await self._tasks.stop()

    def _begin(self, replica: Replica, shard: Shard) -> None:
        context = self._contexts[replica.core.partition_id] = ShardContext(
            replica=replica,
            shard=shard,
            first_image_end=self._registry.image.end_offset,
            clock=self._replicas.clock,
            deadlines=self._replicas.deadlines,
            ask=self._ask,
            on_broken=self._on_broken,
        )
        replica.observer = self._observer
        self._tasks.spawn(self._load(context), f"load {context.name}")

    async def _load(self, context: ShardContext) -> None:
        await context.load()
        # The current image; later changes are in the events that follow.
        context.give(TopicsChanged(image=self._image, changed=frozenset(), deleted=frozenset()))

    def _on_broken(self, context: ShardContext) -> None:
        """Load the shard again from the log, if this broker still leads and can write."""
        if self._contexts.get(context.replica.core.partition_id) is context:
            self._drop(context.replica.core.partition_id, context)
            self.on_replica(context.replica)

    def _drop(self, partition_id: int, context: ShardContext) -> None:
        del self._contexts[partition_id]
        context.replica.observer = None
        context.end()


def _changed_topics(
    delta: Delta | None, before: ClusterImage, image: ClusterImage
) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the topics created, grown or deleted since `before`; and of the deleted ones alone.

    A topic that was deleted and created again under its name is in both.
    """
    if delta is None:
        touched = {i for i in image.topics if image.topics[i] is not before.topics.get(i)}
        gone = [topic for i, topic in before.topics.items() if i not in image.topics]
    else:
        touched = set(delta.changed_partitions)
        gone = list(delta.deleted_topics.values())
    deleted = frozenset(topic.name for topic in gone)
    changed = set(deleted)
    for topic_id in touched:
        topic = image.topics[topic_id]
        old = before.topics.get(topic_id)
        if old is None or len(old.partitions) != len(topic.partitions):
            changed.add(topic.name)
    return frozenset(changed), deleted


def _refuse_to_ask(context: ShardContext, question: Any) -> None:
    raise InvariantViolated(f"{context.name} asks {question!r}, and nobody answers here")
