"""The share coordinators on this broker: makes their shards, and moves the log's start for them."""

from __future__ import annotations

import logging
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.coordinator.shard_context import ShardContext
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.share_state.requests import Prune
from kvorum.broker.share_state.shard import ShareStateConfig, ShareStateShard
from kvorum.runtime.errors import CorruptData, InvariantViolated

_log = logging.getLogger(__name__)


class ShareStateDriver:
    """See the docstring of this module."""

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
