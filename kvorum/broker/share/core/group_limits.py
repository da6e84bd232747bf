"""The configs that the share-partitions of a group obey: its own, else the broker's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.broker.share.core.share_partition import ShareLimits
from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.metadata.configs.group_keys import (
    AUTO_OFFSET_RESET,
    DEAD_LETTER_COPIES,
    DEAD_LETTER_TOPIC,
    SHARE_DELIVERY_LIMIT,
    SHARE_ISOLATION,
    SHARE_LOCK_DURATION,
    SHARE_RECORD_LOCKS,
    SHARE_RENEW,
    number_of,
)

_DURATION = re.compile(
    r"by_duration:P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?",
    re.ASCII,
)
_SECONDS = (86_400, 3_600, 60, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDefaults(GroupBounds):
    """The broker's defaults, and the bounds of groups' own values, under Kafka's names."""

    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000


def limits_of(
    configs: Mapping[str, str], defaults: ShareDefaults, *, may_have_dead_letters: bool = False
) -> ShareLimits:
    """The limits of a group with these configs. may_have_dead_letters: by share.version."""

    def own(name: str, default: int) -> int:
        number = number_of(configs, name)
        return default if number is None else defaults.within(name, number)

    return ShareLimits(
        lock_duration_ms=own(SHARE_LOCK_DURATION, defaults.group_share_record_lock_duration_ms),
        delivery_count_limit=own(SHARE_DELIVERY_LIMIT, defaults.group_share_delivery_count_limit),
        record_locks_max=own(SHARE_RECORD_LOCKS, defaults.group_share_partition_max_record_locks),
        may_renew=configs.get(SHARE_RENEW, "true").strip().lower() == "true",
        has_dead_letters=may_have_dead_letters and bool(dead_letter_topic_of(configs)),
    )


def dead_letter_topic_of(configs: Mapping[str, str]) -> str:
    """The name of the group's dead-letter topic; "" for none."""
    return configs.get(DEAD_LETTER_TOPIC, "").strip()


def copies_dead_letters(configs: Mapping[str, str]) -> bool:
    """True if the group's dead letters have the key and the value of their records."""
    return configs.get(DEAD_LETTER_COPIES, "").strip().lower() == "true"


def reads_committed(configs: Mapping[str, str]) -> bool:
    """True if the group reads records of committed transactions only."""
    return configs.get(SHARE_ISOLATION, "").strip().lower() == "read_committed"


def reset_of(configs: Mapping[str, str]) -> str | int:
    """The start of a share-partition that has none yet: "latest", "earliest", or so many
    milliseconds before now."""
    value = configs.get(AUTO_OFFSET_RESET, "latest").strip()
    found = _DURATION.fullmatch(value)
    if found is None:
        return "earliest" if value.lower() == "earliest" else "latest"
    seconds = sum(
        float(part) * unit for part, unit in zip(found.groups("0"), _SECONDS, strict=True)
    )
    return round(seconds * 1000)
