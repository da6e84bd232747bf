"""The share coordinators on this broker: makes their shards, and moves the log's start for them."""

from __future__ import annotations

import logging
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.model import NOBODY, Client
from kvorum.broker.coordinator.shard_context import ShardContext
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.metadata_answers.topic_names import SHARE_STATE_TOPIC
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.share_state.requests import Prune, WriteState
from kvorum.broker.share_state.shard import ShareStateConfig, ShareStateShard
from kvorum.runtime.errors import CorruptData, ErrorCode, InvariantViolated

_log = logging.getLogger(__name__)


class ShareCoordinators(CoordinatorHost):
    """The share coordinators on this broker, which time the writes that they keep."""

    def __init__(self, replicas: ReplicaManager, config: BrokerConfig) -> None:
        self._metrics, self._clock = replicas.metrics.share, replicas.clock
        driver = ShareStateDriver(config, self._metrics)
        super().__init__(
            topic=SHARE_STATE_TOPIC,
            replicas=replicas,
            make_shard=driver.make_shard,
            ask=driver.ask,
        )

    async def request(self, *, key: str, body: Any, client: Client = NOBODY) -> Any:
        began_ms = self._clock.monotonic_ms()
        answer = await super().request(key=key, body=body, client=client)
        if isinstance(body, WriteState) and answer == ErrorCode.NONE:
            now_ms = self._clock.monotonic_ms()
            self._metrics.note_coordinator_write(now_ms - began_ms, now_ms)
        return answer


class ShareStateDriver:
    """Makes shards, and carries out what they ask."""

    def __init__(self, config: BrokerConfig, metrics: ShareMetrics) -> None:
        self._config = part_of(config, ShareStateConfig)
        self._metrics = metrics

    def make_shard(self, partition_id: int, leader_epoch: int) -> ShareStateShard:
        """An empty shard for one partition of `__share_group_state`."""
        return ShareStateShard(self._config, self._metrics)

    def ask(self, context: ShardContext, question: Any) -> None:
        """Carry out a shard's question, which has no answer."""
        if not isinstance(question, Prune):
            raise InvariantViolated(f"{context.name} asks {question!r}")
        replica = context.replica
        offset = min(question.offset, replica.core.high_watermark)
        try:
            if offset > replica.log.start_offset:
                replica.move_start(offset)
        except (OSError, CorruptData) as failure:
            replica.fail(failure, "move the start of")
