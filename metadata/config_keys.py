"""Dynamic configs of topics: which exist, of which type, in which range (Kafka's names).

Defaults come from the brokers' own properties; here stand the keys that may be set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.errors import ErrorCode, Rejected

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A topic config. check: a sentence of what is wrong with a value, or None."""

    name: str
    default: str
    broker_name: str
    check: Callable[[str], str | None]


def _integer(low: int, high: int = _INT64_MAX) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not an integer"
        return None if low <= number <= high else f"must lie between {low} and {high}"

    return check


def _ratio(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    return None if 0 <= number <= 1 else "must lie between 0 and 1"


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def _list_of(*allowed: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if parts and all(part in allowed for part in parts):
            return None
        return f"must be a list of {', '.join(allowed)}"

    return check


_BOOLEAN = _one_of("true", "false")


def _anything(value: str) -> str | None:
    return None


TOPIC_CONFIGS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("cleanup.policy", "delete", "log.cleanup.policy", _list_of("compact", "delete")),
        ConfigKey(
            "compression.type",
            "producer",
            "compression.type",
            _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        ),
        ConfigKey(
            "delete.retention.ms", "86400000", "log.cleaner.delete.retention.ms", _integer(0)
        ),
        ConfigKey("file.delete.delay.ms", "60000", "log.segment.delete.delay.ms", _integer(0)),
        ConfigKey("flush.messages", str(_INT64_MAX), "log.flush.interval.messages", _integer(1)),
        ConfigKey("flush.ms", str(_INT64_MAX), "log.flush.interval.ms", _integer(0)),
        ConfigKey("index.interval.bytes", "4096", "log.index.interval.bytes", _integer(0)),
        ConfigKey("max.message.bytes", "1048588", "message.max.bytes", _integer(0, (1 << 31) - 1)),
        ConfigKey(
            "max.compaction.lag.ms",
            str(_INT64_MAX),
            "log.cleaner.max.compaction.lag.ms",
            _integer(1),
        ),
        ConfigKey(
            "message.timestamp.type",
            "CreateTime",
            "log.message.timestamp.type",
            _one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            "3600000",
            "log.message.timestamp.after.max.ms",
            _integer(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            str(_INT64_MAX),
            "log.message.timestamp.before.max.ms",
            _integer(0),
        ),
        ConfigKey("min.cleanable.dirty.ratio", "0.5", "log.cleaner.min.cleanable.ratio", _ratio),
        ConfigKey("min.compaction.lag.ms", "0", "log.cleaner.min.compaction.lag.ms", _integer(0)),
        ConfigKey("min.insync.replicas", "1", "min.insync.replicas", _integer(1, (1 << 15) - 1)),
        ConfigKey("preallocate", "false", "log.preallocate", _BOOLEAN),
        ConfigKey("retention.bytes", "-1", "log.retention.bytes", _integer(-1)),
        ConfigKey("retention.ms", "604800000", "log.retention.ms", _integer(-1)),
        ConfigKey(
            "segment.bytes", str(1 << 30), "log.segment.bytes", _integer(1 << 20, (1 << 31) - 1)
        ),
        ConfigKey(
            "segment.index.bytes",
            str(10 << 20),
            "log.index.size.max.bytes",
            _integer(4, (1 << 31) - 1),
        ),
        ConfigKey("segment.jitter.ms", "0", "log.roll.jitter.ms", _integer(0)),
        ConfigKey("segment.ms", "604800000", "log.roll.ms", _integer(1)),
        ConfigKey(
            "unclean.leader.election.enable",
            "false",
            "unclean.leader.election.enable",
            _BOOLEAN,
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            "",
            "leader.replication.throttled.replicas",
            _anything,
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            "",
            "follower.replication.throttled.replicas",
            _anything,
        ),
    )
}


def topic_config_problem(name: str, value: str) -> Rejected | None:
    """Why this topic config cannot be set, or None."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return Rejected(ErrorCode.INVALID_CONFIG, f"unknown topic config name: {name}")
    problem = key.check(value)
    if problem is None:
        return None
    return Rejected(ErrorCode.INVALID_CONFIG, f"{name}={value!r} {problem}")
