"""Topic configs: what those of one topic come to on this broker.

Keys, types and bounds are in `metadata.configs`; a controller lets no unsound value in. One that
does not parse all the same gives way to the broker's own default, since a partition must not go
down over a config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.quotas.replication_quota import NOBODY, ThrottledReplicas, parse_throttled
from kvorum.metadata.configs.config_keys import TOPIC_CONFIGS
from kvorum.metadata.configs.model import list_items, parse
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.recompression import TargetCompression
from kvorum.storage.log.log import LogConfig
from kvorum.storage.log.model import INDEX_BYTES_MIN, CompactionConfig

SEGMENT_BYTES_LIMIT = (1 << 31) - 1
LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"
DISTINCT_MAX = 1_000
"""Different settings remembered."""
FOREVER = 1 << 62
"""From here on a number of records or milliseconds means never."""
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By compression.type; "producer" is none of them."""
_WITH_LEVEL = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
GZIP_DEFAULT_LEVEL = -1
COMPACT = "compact"
DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What the configs of one topic come to. compaction: holds if `log` has it.

    timestamp_before_max_ms: None for any. target_compression: None to keep each batch in the codec
    of its producer.
    """

    cleanup_policies: tuple[str, ...]
    log: LogConfig
    compaction: CompactionConfig
    min_insync_replicas: int
    is_log_append_time: bool
    timestamp_before_max_ms: int | None
    timestamp_after_max_ms: int
    leader_throttled: ThrottledReplicas = NOBODY
    follower_throttled: ThrottledReplicas = NOBODY
    target_compression: TargetCompression | None = None


def resolve(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's settings: its own where set and sound, the broker's elsewhere.

    config: with what is set for this broker at run time (broker.config.dynamic_config).
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
        # The active segment is never compacted, so it must not outlive the lag either.
        segment_ms = min(segment_ms, max_lag_ms)
    # A log that is only compacted loses no segment for its age or size.
    is_deleted = DELETE in policies
    timestamp_type = _value(config, overrides, "message.timestamp.type")
    return TopicConfig(
        log=LogConfig(
            segment_bytes=max(1, min(number("segment.bytes"), SEGMENT_BYTES_LIMIT)),
            segment_ms=segment_ms,
            index_interval_bytes=number("index.interval.bytes"),
            # Kafka lets 4 in; a log needs room for some entries.
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
            epochs_tell_start=True,
        ),
        cleanup_policies=tuple(policies),
        compaction=compaction,
        min_insync_replicas=number("min.insync.replicas"),
        is_log_append_time=timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=_unless_forever(number("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        leader_throttled=parse_throttled(overrides.get(LEADER_THROTTLED, "")),
        follower_throttled=parse_throttled(overrides.get(FOLLOWER_THROTTLED, "")),
        target_compression=_packing(config, overrides),
    )


def _packing(config: BrokerConfig, overrides: Mapping[str, str]) -> TargetCompression | None:
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
    """Resolved configs, one object for all topics with the same settings.

    A broker makes thousands of partitions at once, nearly all of them without a setting of their
    own or with the same few.
    """

    __slots__ = ("_broker", "_resolved")

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        self._resolved: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def of(self, config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """As `resolve`. The same settings give the same object as long as `config` is the same
        object and not more than DISTINCT_MAX others came in between."""
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
