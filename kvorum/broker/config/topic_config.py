"""The effective configs of a topic on this broker.

Keys, types and bounds are in `metadata.configs`; a controller refuses invalid values. A value that
does not parse all the same is replaced by the broker's default, since a partition must not go
offline for a config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.quotas.replication_quota import NO_REPLICAS, ThrottledReplicas, parse_throttled
from kvorum.metadata.configs.config_keys import TOPIC_CONFIGS
from kvorum.metadata.configs.model import list_items, parse
from kvorum.storage.files.model import INDEX_BYTES_MIN, CompactionConfig
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.recompression import TargetCompression
from kvorum.storage.log.log import LogConfig

SEGMENT_BYTES_LIMIT = (1 << 31) - 1
LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"
DISTINCT_MAX = 1_000
"""Limit of override sets in the cache."""
FOREVER = 1 << 62
"""A number of records or milliseconds from this value on means never."""
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""Codecs by compression.type; "producer" is none of them."""
_WITH_LEVEL = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
GZIP_DEFAULT_LEVEL = -1
COMPACT = "compact"
DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective configs of one topic.

    compaction: applies if `log` has it too.
    decompressed_record_bytes_max: of one record in a compressed batch.
    target_compression: None keeps each batch in its producer's codec.
    """

    cleanup_policies: tuple[str, ...]
    log: LogConfig
    compaction: CompactionConfig
    min_insync_replicas: int
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    decompressed_record_bytes_max: int = (1 << 31) - 9
    leader_throttled: ThrottledReplicas = NO_REPLICAS
    follower_throttled: ThrottledReplicas = NO_REPLICAS
    target_compression: TargetCompression | None = None


def resolve(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's configs: its own values where they are set and valid, else the broker's.

    config: includes the broker's dynamic configs (broker.config.dynamic_config).
    """

    def number(name: str) -> int:
        value = _value(config, overrides, name)
        return int(value)

    policies = list_items(str(_value(config, overrides, "cleanup.policy")))
    max_lag_ms = number("max.compaction.lag.ms")
    segment_ms = number("segment.ms")
    compaction = CompactionConfig(
        min_cleanable_dirty_ratio=float(_value(config, overrides, "min.cleanable.dirty.ratio")),
        min_lag_ms=number("min.compaction.lag.ms"),
        max_lag_ms=max_lag_ms,
        delete_retention_ms=number("delete.retention.ms"),
    )
    is_compacted = COMPACT in policies
    if is_compacted:
        # The active segment is never compacted, so it must roll within the maximum lag.
        segment_ms = min(segment_ms, max_lag_ms)
    # A topic without the delete policy has no retention by age or size.
    is_deleted = DELETE in policies
    timestamp_type = _value(config, overrides, "message.timestamp.type")
    return TopicConfig(
        log=LogConfig(
            segment_bytes=max(1, min(number("segment.bytes"), SEGMENT_BYTES_LIMIT)),
            segment_ms=segment_ms,
            segment_jitter_ms=number("segment.jitter.ms"),
            is_preallocated=bool(_value(config, overrides, "preallocate")),
            index_interval_bytes=number("index.interval.bytes"),
            # Kafka allows 4; an index needs room for several entries.
            index_bytes_max=max(number("segment.index.bytes"), INDEX_BYTES_MIN),
            retention_ms=number("retention.ms") if is_deleted else -1,
            retention_bytes=number("retention.bytes") if is_deleted else -1,
            max_message_bytes=number("max.message.bytes"),
            flush_messages=_unless_forever(number("flush.messages")),
            flush_ms=_unless_forever(number("flush.ms")),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            compaction=compaction if is_compacted else None,
            keeps_recovery_state=True,
            refuses_missing_segments=True,
        ),
        cleanup_policies=tuple(policies),
        compaction=compaction,
        min_insync_replicas=number("min.insync.replicas"),
        is_log_append_time=timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        decompressed_record_bytes_max=number("max.decompressed.message.bytes"),
        leader_throttled=parse_throttled(overrides.get(LEADER_THROTTLED, "")),
        follower_throttled=parse_throttled(overrides.get(FOLLOWER_THROTTLED, "")),
        target_compression=_target_compression(config, overrides),
    )


def _target_compression(
    config: BrokerConfig, overrides: Mapping[str, str]
) -> TargetCompression | None:
    name = str(_value(config, overrides, "compression.type"))
    codec = CODECS.get(name)
    if codec is None:
        return None
    level = None
    if codec in _WITH_LEVEL:
        level = int(_value(config, overrides, f"compression.{name}.level"))
    is_default = codec is Codec.GZIP and level == GZIP_DEFAULT_LEVEL
    return TargetCompression(codec, None if is_default else level)


def _unless_forever(number: int) -> int | None:
    return None if number >= FOREVER else number


class TopicConfigs:
    """Effective configs, one object for all topics with the same settings.

    A broker creates thousands of partitions at once; nearly all have no overrides, or the same few.
    """

    __slots__ = ("_broker", "_resolved")

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        self._resolved: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def of(self, config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """As `resolve`. The same overrides give the same object as long as `config` is the same
        object and at most DISTINCT_MAX others came between."""
        if config is not self._broker or len(self._resolved) > DISTINCT_MAX:
            self._broker = config
            self._resolved.clear()
        key = frozenset(overrides.items())
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = resolve(config, overrides)
        return found


def _value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> int | float | str:
    key = TOPIC_CONFIGS[name]
    text = overrides.get(name)
    parsed = None if text is None else parse(key, text)
    if isinstance(parsed, int | float | str):
        return parsed
    default: int | float | str = getattr(config, key.broker_name.replace(".", "_"))
    return default
