"""Feature versions (KIP-584): the levels that this build supports, and what a level requires.

The finalised level of a feature is a fact in the metadata log. Every node registers the levels that
it can read and write. A level is finalised only if all nodes support it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"
"""1: the voters of the quorum are in its log, and may change (KIP-853). Chosen when a quorum is
made: see `of_quorum`."""
GROUP_VERSION = "group.version"
"""1: brokers coordinate groups of the consumer protocol (KIP-848)."""
SHARE_VERSION = "share.version"
"""1: brokers coordinate share groups (KIP-932). 2: these may have dead letters (KIP-1191)."""
STREAMS_VERSION = "streams.version"
"""1: brokers coordinate Streams groups (KIP-1071)."""
TRANSACTION_VERSION = "transaction.version"
"""1: transaction records have tagged fields. 2: clients may use KIP-890 part 2."""

REASSIGNMENT_LEVEL = 27
"""From this level of metadata.version on, partitions have adding and removing replicas, a recovery
state and eligible leader replicas, and client quotas exist."""

SCRAM_LEVEL = 28
"""From this level of metadata.version on, the metadata holds SCRAM credentials of users."""

ACL_LEVEL = 29
"""From this level of metadata.version on, the metadata holds ACLs."""

TOKEN_LEVEL = 30
"""From this level of metadata.version on, the metadata holds delegation tokens."""

UNREGISTER_LEVEL = 33
"""From this level of metadata.version on, a controller's registration can be removed."""

RELEASES = {
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
"""Apache Kafka's names of the levels of metadata.version, which its tools show."""


class FeatureRange(NamedTuple):
    """Levels of a feature that a node supports, both ends inclusive; level 0 is the feature off."""

    name: str
    min_level: int
    max_level: int


SUPPORTED: tuple[FeatureRange, ...] = (
    FeatureRange(ELIGIBLE_LEADER_REPLICAS, 0, 1),
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(KRAFT_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, min(RELEASES), max(RELEASES)),
    FeatureRange(SHARE_VERSION, 0, 2),
    FeatureRange(STREAMS_VERSION, 0, 1),
    FeatureRange(TRANSACTION_VERSION, 0, 2),
)
"""The feature levels that this build supports, by name."""

_NEEDED: dict[tuple[str, int], tuple[str, int]] = {
    (ELIGIBLE_LEADER_REPLICAS, 1): (METADATA_VERSION, REASSIGNMENT_LEVEL),
}
"""A level, and the level of another feature that it requires."""

_SINCE: dict[str, int] = {
    GROUP_VERSION: REASSIGNMENT_LEVEL,
    KRAFT_VERSION: UNREGISTER_LEVEL,
    SHARE_VERSION: TOKEN_LEVEL,
    STREAMS_VERSION: UNREGISTER_LEVEL,
    TRANSACTION_VERSION: REASSIGNMENT_LEVEL,
}
"""Feature -> a level of metadata.version that every build with this feature supports."""

FEATURES_BEFORE_KIP_584: tuple[FeatureRange, ...] = (
    FeatureRange(METADATA_VERSION, min(RELEASES), min(RELEASES)),
)
"""Features of a node that registered before nodes reported them."""


def limited(metadata_version_max: int) -> tuple[FeatureRange, ...]:
    """The features of a node that supports metadata.version only up to metadata_version_max.

    Features that need a higher level, or that came with one, are left out.
    """
    ranges = []
    for feature in SUPPORTED:
        most = feature.max_level
        if feature.name == METADATA_VERSION:
            most = min(most, metadata_version_max)
        else:
            while _needs_more(feature.name, most, metadata_version_max):
                most -= 1
        ranges.append(feature._replace(max_level=most))
    return tuple(ranges)


def of_quorum(ranges: Iterable[FeatureRange], *, is_dynamic: bool) -> tuple[FeatureRange, ...]:
    """The features of a controller: its quorum has one level of kraft.version and keeps it."""
    level = int(is_dynamic)
    return tuple(
        feature._replace(
            min_level=min(level, feature.max_level), max_level=min(level, feature.max_level)
        )
        if feature.name == KRAFT_VERSION
        else feature
        for feature in ranges
    )


def _needs_more(name: str, level: int, metadata_version: int) -> bool:
    needed = _NEEDED.get((name, level))
    if level > 0 and _SINCE.get(name, 0) > metadata_version:
        return True
    return needed is not None and needed[1] > metadata_version


def level_of(finalized: Mapping[str, int], name: str) -> int:
    """The finalised level of a feature; the lowest one in metadata from before feature levels."""
    least = min(RELEASES) if name == METADATA_VERSION else 0
    return finalized.get(name, least)


def bootstrap_levels(supported: Iterable[FeatureRange]) -> dict[str, int]:
    """The levels of a new cluster: the highest ones of its first controller, without level 0."""
    return {f.name: f.max_level for f in supported if f.max_level > 0}


def unsupported(finalized: Mapping[str, int], supported: Iterable[FeatureRange]) -> str | None:
    """The first finalised level that a node does not support, as half a sentence, or None."""
    ranges = {feature.name: feature for feature in supported}
    for name, level in sorted(finalized.items()):
        known = ranges.get(name)
        if known is None:
            return f"{name} {level} is in force, which it does not know"
        if not known.min_level <= level <= known.max_level:
            return f"{name} {level} is in force, it supports {known.min_level} to {known.max_level}"
    return None


def missing_need(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """The level that `level` of a feature requires and `levels` lack, as a sentence, or None."""
    needed = _NEEDED.get((name, level))
    if needed is None or level_of(levels, needed[0]) >= needed[1]:
        return None
    return f"{name} {level} needs {needed[0]} {needed[1]}, it is {level_of(levels, needed[0])}"
