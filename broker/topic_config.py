"""Topic configs: the keys we know, their defaults from the broker, and what they come to.

A value that does not parse can only be in the metadata if a controller let it in; then the
broker's own default holds, since a partition must not go down over a config. `refusal` is what
keeps such values out when a topic is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.config import BrokerConfig
from storage.log import LogConfig

SEGMENT_BYTES_LIMIT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    """One topic config. broker_field: BrokerConfig's field with its default.

    kind: "int" or "text"; least: smallest allowed int; values: allowed texts, () for any.
    """

    name: str
    broker_field: str
    broker_name: str
    kind: str = "int"
    least: int = 0
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What the configs of one topic come to."""

    log: LogConfig
    min_insync_replicas: int
    is_log_append_time: bool


#: compact is refused: there is no cleaner yet. compression other than `producer` is refused:
#: batches stay opaque.
TOPIC_KEYS: tuple[TopicKey, ...] = (
    TopicKey(
        name="cleanup.policy",
        broker_field="log_cleanup_policy",
        broker_name="log.cleanup.policy",
        kind="text",
        values=("delete",),
    ),
    TopicKey(
        name="compression.type",
        broker_field="compression_type",
        broker_name="compression.type",
        kind="text",
        values=("producer",),
    ),
    TopicKey(
        name="file.delete.delay.ms",
        broker_field="log_segment_delete_delay_ms",
        broker_name="log.segment.delete.delay.ms",
    ),
    TopicKey(
        name="flush.messages",
        broker_field="log_flush_interval_messages",
        broker_name="log.flush.interval.messages",
        least=1,
    ),
    TopicKey(
        name="index.interval.bytes",
        broker_field="log_index_interval_bytes",
        broker_name="log.index.interval.bytes",
    ),
    TopicKey(
        name="max.message.bytes",
        broker_field="message_max_bytes",
        broker_name="message.max.bytes",
    ),
    TopicKey(
        name="message.timestamp.type",
        broker_field="log_message_timestamp_type",
        broker_name="log.message.timestamp.type",
        kind="text",
        values=("CreateTime", "LogAppendTime"),
    ),
    TopicKey(
        name="min.insync.replicas",
        broker_field="min_insync_replicas",
        broker_name="min.insync.replicas",
        least=1,
    ),
    TopicKey(
        name="retention.bytes",
        broker_field="log_retention_bytes",
        broker_name="log.retention.bytes",
        least=-1,
    ),
    TopicKey(
        name="retention.ms",
        broker_field="log_retention_ms",
        broker_name="log.retention.ms",
        least=-1,
    ),
    TopicKey(
        name="segment.bytes",
        broker_field="log_segment_bytes",
        broker_name="log.segment.bytes",
        least=1024,
    ),
    TopicKey(
        name="segment.index.bytes",
        broker_field="log_index_size_max_bytes",
        broker_name="log.index.size.max.bytes",
        least=4,
    ),
    TopicKey(
        name="segment.ms",
        broker_field="log_roll_ms",
        broker_name="log.roll.ms",
        least=1,
    ),
    TopicKey(
        name="unclean.leader.election.enable",
        broker_field="unclean_leader_election_enable",
        broker_name="unclean.leader.election.enable",
        kind="text",
        values=("false",),
    ),
)
_BY_NAME = {key.name: key for key in TOPIC_KEYS}


def refusal(name: str, value: str) -> str | None:
    """Why this topic config cannot be set, or None."""
    key = _BY_NAME.get(name)
    if key is None:
        return f"unknown topic config {name}"
    if key.kind == "text":
        if key.values and value not in key.values:
            return f"{name}={value} is not served; use one of {', '.join(key.values)}"
        return None
    parsed = _parse_int(value)
    if parsed is None or parsed < key.least:
        return f"{name}={value} is not a whole number of at least {key.least}"
    if name == "segment.bytes" and parsed > SEGMENT_BYTES_LIMIT:
        return f"{name}={value} is above {SEGMENT_BYTES_LIMIT}"
    return None


def default_text(config: BrokerConfig, key: TopicKey) -> str:
    """The broker's default for a topic key, as Kafka prints it."""
    value = getattr(config, key.broker_field)
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolve(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's settings: its own where set and sound, the broker's elsewhere."""

    def number(name: str) -> int:
        value = overrides.get(name)
        if value is not None and refusal(name, value) is None:
            return int(value)
        default: int = getattr(config, _BY_NAME[name].broker_field)
        return default

    flush_messages = number("flush.messages")
    timestamp_type = overrides.get("message.timestamp.type", config.log_message_timestamp_type)
    return TopicConfig(
        log=LogConfig(
            segment_bytes=min(number("segment.bytes"), SEGMENT_BYTES_LIMIT),
            segment_ms=number("segment.ms"),
            index_interval_bytes=number("index.interval.bytes"),
            index_bytes_max=number("segment.index.bytes"),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            max_message_bytes=number("max.message.bytes"),
            flush_messages=None if flush_messages >= (1 << 62) else flush_messages,
            file_delete_delay_ms=number("file.delete.delay.ms"),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        ),
        min_insync_replicas=number("min.insync.replicas"),
        is_log_append_time=timestamp_type == "LogAppendTime",
    )


def _parse_int(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None
