"""The driver of `__kvorum_events`: makes the topic, and answers its shard's questions.

Walk: the metadata publisher -> `ReplicaManager.publish` -> `_on_image` -> a waiting `_find` ->
`EventReader.read` -> the shard -> the log of the partition.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.coordinator.shard_context import ShardContext, ShardState
from kvorum.broker.coordinator.topics import InternalTopicMaker
from kvorum.broker.events.reader import EventReader
from kvorum.broker.events.shard import EventsShard, FindEvents
from kvorum.broker.events.topic import TopicStep, topic_step
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.metadata_answers.topic_names import EVENTS_TOPIC
from kvorum.metadata.events.source import MetadataSource
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, required
from kvorum.runtime.tasks import TaskGroup, report_failure

RETRY_S = 5.0
"""Pause before CreateTopics is sent again, even if the image shows too few brokers: the refusal
then says in the log what is wrong."""


class EventsDriver:
    """The events on one broker. host: runs the shard if this broker leads the topic's partition."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        internal_topics: InternalTopicMaker,
        source: MetadataSource,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._controller = controller
        self._internal_topics = internal_topics
        self._source = source
        self._tasks = TaskGroup(report_failure)
        self._news = asyncio.Event()
        self._retry: asyncio.Task[Any] | None = None
        self._reader: EventReader | None = None
        self.host = CoordinatorHost(
            topic=EVENTS_TOPIC,
            replicas=replicas,
            make_shard=_make_shard,
            ask=self._ask,
        )
        replicas.image_listeners.append(self._on_image)

    async def stop(self) -> None:
        await self.host.stop()
        await self._tasks.stop()

    # --- the topic ---------------------------------------------------------------------------

    def _on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        self._news.set()
        step = self._step(image)
        if step is TopicStep.MAKE:
            self._internal_topics.make(EVENTS_TOPIC)
        if step is not TopicStep.NONE and self._retry is None:
            self._retry = self._tasks.spawn(self._make_later(), "make-events-topic")

    async def _make_later(self) -> None:
        await asyncio.sleep(RETRY_S)
        while self._step(self._replicas.registry.image) is not TopicStep.NONE:
            self._internal_topics.make(EVENTS_TOPIC)
            await asyncio.sleep(RETRY_S)
        self._retry = None

    def _step(self, image: ClusterImage) -> TopicStep:
        return topic_step(
            image,
            broker_id=self._replicas.broker_id,
            broker_epoch=self._controller.broker_epoch,
            replication_factor=self._config.metadata_events_topic_replication_factor,
        )

    # --- the shard's questions ---------------------------------------------------------------

    def _ask(self, context: ShardContext, question: FindEvents) -> None:
        if question.known is not None:
            self._reader = EventReader(self._source, question.position, question.known)
        reader = required(self._reader, "the first question of a shard names its keys")
        self._tasks.spawn(self._find(context, reader), "find-events")

    async def _find(self, context: ShardContext, reader: EventReader) -> None:
        """Answer the shard's question as soon as there are events that can be written."""
        while context.state is ShardState.ACTIVE:
            self._news.clear()
            if context.replica.core.check_produce(-1) == ErrorCode.NONE:
                found = await reader.read()
                if found is not None:
                    context.give(FactLearned(fact=found))
                    return
            # New records, a larger ISR and the end of the leadership all come with an image.
            await self._news.wait()


def _make_shard(partition_id: int, leader_epoch: int) -> EventsShard | None:
    """Partition 0 has all events, also if a client gave the topic more partitions."""
    return EventsShard(f"{EVENTS_TOPIC}-0") if partition_id == 0 else None
