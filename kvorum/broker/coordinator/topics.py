"""The internal topics: their configs, and their creation when they are first used."""

from __future__ import annotations

import logging

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.metadata_answers.topic_names import (
    EVENTS_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.tasks import TaskGroup

_log = logging.getLogger(__name__)

CREATE_TIMEOUT_MS = 10_000


def internal_topic(name: str, config: BrokerConfig) -> NewTopic | None:
    """The CreateTopics request for the internal topic `name`; None for other topics."""
    if name == OFFSETS_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )
    if name == TRANSACTIONS_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    if name == SHARE_STATE_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=config.share_coordinator_state_topic_num_partitions,
            replication_factor=config.share_coordinator_state_topic_replication_factor,
            configs=(
                # Records are needed until the log's start is moved over them.
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
                ("retention.bytes", "-1"),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    if name == EVENTS_TOPIC:
        return NewTopic(
            name=name,
            num_partitions=1,
            replication_factor=config.metadata_events_topic_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                # The records have the timestamps of the metadata records.
                ("message.timestamp.type", "CreateTime"),
                ("min.insync.replicas", str(config.metadata_events_topic_min_isr)),
                ("segment.bytes", str(config.metadata_events_topic_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    return None


class InternalTopicMaker:
    """Creates internal topics in the background. Clients retry until the topic exists."""

    def __init__(
        self, config: BrokerConfig, controller: ControllerChannel, tasks: TaskGroup
    ) -> None:
        """tasks: of the creations; their owner stops them."""
        self._config = config
        self._controller = controller
        self._tasks = tasks
        self._under_way: set[str] = set()
        self.refusals: dict[str, str] = {}
        """The reason why the latest attempt to create each topic failed, for the client."""

    def make(self, name: str) -> None:
        """Start to create the topic, unless a creation is under way."""
        topic = internal_topic(name, self._config)
        if topic is not None and name not in self._under_way:
            self._under_way.add(name)
            self._tasks.spawn(self._make(topic), f"make {name}")

    async def _make(self, topic: NewTopic) -> None:
        try:
            reply = await self._controller.request(
                CREATE_TOPICS, CreateTopics(topics=(topic,)), CREATE_TIMEOUT_MS
            )
        finally:
            self._under_way.discard(topic.name)
        outcome = reply if isinstance(reply, Rejected) else reply[0]
        code = outcome.code if isinstance(outcome, Rejected) else outcome.error
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.refusals.pop(topic.name, None)
            return
        reason = f"{topic.name} cannot be made: {outcome.message or code.name}"
        if self.refusals.get(topic.name) != reason:
            _log.warning("%s", reason)
        self.refusals[topic.name] = reason
