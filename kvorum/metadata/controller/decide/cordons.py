"""Brokers that take no new replicas, because all their data directories are cordoned (KIP-1066).

A broker that cordons some of its directories chooses among the others. If it has cordoned all, the
controller must know: the broker stores a list of all its directories as `*`, which says so without
their paths (`kvorum/broker/api/config_alteration`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.metadata.configs.cordons import CORDONED_LOG_DIRS, EVERY_DIRECTORY
from kvorum.metadata.configs.effective import broker_configs
from kvorum.metadata.image.image import ClusterImage


def is_cordoned(image: ClusterImage, broker_id: int) -> bool:
    """True if the broker takes no new replicas."""
    return broker_configs(image, str(broker_id)).get(CORDONED_LOG_DIRS) == EVERY_DIRECTORY


def cordon_problem(broker_ids: Sequence[int]) -> str:
    """The end of a sentence that refuses an assignment to these brokers."""
    return (
        f"names brokers that have cordoned all their data directories: {list(broker_ids)}; choose "
        f"others, or remove {CORDONED_LOG_DIRS} there"
    )
