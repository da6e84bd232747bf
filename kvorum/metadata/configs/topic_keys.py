"""The topic configs, with Apache Kafka's names, types, defaults and bounds (4.4).

A key with `served` can only have the values in it, because this build does not obey the others.
"""

from __future__ import annotations

from kvorum.metadata.configs.model import INT64_MAX, ConfigKey, ConfigType

_FOREVER = str(INT64_MAX)

_CLEANING: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default="delete",
        values=("compact", "delete"),
        broker_name="log.cleanup.policy",
        documentation="What becomes of old records: delete drops whole segments by age and size, "
        "compact keeps the latest record of each key; empty keeps all for ever.",
    ),
    ConfigKey(
        name="delete.retention.ms",
        type=ConfigType.LONG,
        default="86400000",
        low=0,
        broker_name="log.cleaner.delete.retention.ms",
        documentation="How long compaction keeps a tombstone.",
    ),
    ConfigKey(
        name="max.compaction.lag.ms",
        type=ConfigType.LONG,
        default=_FOREVER,
        low=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
        documentation="How long a record may stay uncompacted at most.",
    ),
    ConfigKey(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.DOUBLE,
        default="0.5",
        low=0,
        high=1,
        broker_name="log.cleaner.min.cleanable.ratio",
        documentation="Share of uncompacted bytes from which on a log is compacted.",
    ),
    ConfigKey(
        name="min.compaction.lag.ms",
        type=ConfigType.LONG,
        default="0",
        low=0,
        broker_name="log.cleaner.min.compaction.lag.ms",
        documentation="How long a record stays uncompacted at least.",
    ),
)

_RETENTION_AND_SEGMENTS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="file.delete.delay.ms",
        type=ConfigType.LONG,
        default="60000",
        low=0,
        broker_name="log.segment.delete.delay.ms",
        documentation="How long a deleted segment's files stay on disk, for readers under way.",
    ),
    ConfigKey(
        name="flush.messages",
        type=ConfigType.LONG,
        default=_FOREVER,
        low=1,
        broker_name="log.flush.interval.messages",
        documentation="Records after which the log is forced to disk; checked every second.",
    ),
    ConfigKey(
        name="flush.ms",
        type=ConfigType.LONG,
        default=_FOREVER,
        low=0,
        broker_name="log.flush.interval.ms",
        documentation="Time after which the log is forced to disk; checked every second.",
    ),
    ConfigKey(
        name="index.interval.bytes",
        type=ConfigType.INT,
        default="4096",
        low=0,
        broker_name="log.index.interval.bytes",
        documentation="Bytes of a log between two entries of its offset index.",
    ),
    ConfigKey(
        name="preallocate",
        type=ConfigType.BOOLEAN,
        default="false",
        broker_name="log.preallocate",
        documentation="Whether the disk space of a segment is reserved when it is begun (Linux).",
    ),
    ConfigKey(
        name="retention.bytes",
        type=ConfigType.LONG,
        default="-1",
        broker_name="log.retention.bytes",
        documentation="Size of a partition above which its oldest segments go; -1 for no limit.",
    ),
    ConfigKey(
        name="retention.ms",
        type=ConfigType.LONG,
        default="604800000",
        low=-1,
        broker_name="log.retention.ms",
        documentation="Age at which segments go; -1 for never.",
    ),
    ConfigKey(
        name="segment.bytes",
        type=ConfigType.INT,
        default=str(1 << 30),
        low=1 << 20,
        broker_name="log.segment.bytes",
        documentation="Size at which a new segment is begun; no batch may be larger.",
    ),
    ConfigKey(
        name="segment.index.bytes",
        type=ConfigType.INT,
        default=str(10 << 20),
        low=4,
        broker_name="log.index.size.max.bytes",
        documentation="Size of an index at which a new segment is begun; below 36 counts as 36.",
    ),
    ConfigKey(
        name="segment.jitter.ms",
        type=ConfigType.LONG,
        default="0",
        low=0,
        broker_name="log.roll.jitter.ms",
        documentation="Up to so much is taken off segment.ms, for each segment another part.",
    ),
    ConfigKey(
        name="segment.ms",
        type=ConfigType.LONG,
        default="604800000",
        low=1,
        broker_name="log.roll.ms",
        documentation="Age at which a new segment is begun even if the last one is not full.",
    ),
)

_RECORDS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="compression.type",
        type=ConfigType.STRING,
        default="producer",
        values=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_name="compression.type",
        documentation="How batches are compressed on disk; producer leaves them as they come.",
    ),
    ConfigKey(
        name="compression.gzip.level",
        type=ConfigType.INT,
        default="-1",
        low=1,
        high=9,
        also=(-1,),
        broker_name="compression.gzip.level",
        documentation="Level of gzip where compression.type is gzip; -1 for zlib's own.",
    ),
    ConfigKey(
        name="compression.lz4.level",
        type=ConfigType.INT,
        default="9",
        low=1,
        high=17,
        broker_name="compression.lz4.level",
        documentation="Level of lz4 where compression.type is lz4; above 12 counts as 12.",
    ),
    ConfigKey(
        name="compression.zstd.level",
        type=ConfigType.INT,
        default="3",
        low=-131072,
        high=22,
        broker_name="compression.zstd.level",
        documentation="Level of zstd where compression.type is zstd.",
    ),
    ConfigKey(
        name="max.message.bytes",
        type=ConfigType.INT,
        default="1048588",
        low=0,
        broker_name="message.max.bytes",
        documentation="The largest batch of records that producers may send.",
    ),
    ConfigKey(
        name="max.decompressed.message.bytes",
        type=ConfigType.INT,
        default="2147483639",
        low=1,
        high=2147483639,
        broker_name="max.decompressed.message.bytes",
        documentation="The largest record in a compressed batch.",
    ),
    ConfigKey(
        name="message.timestamp.after.max.ms",
        type=ConfigType.LONG,
        default="3600000",
        low=0,
        broker_name="log.message.timestamp.after.max.ms",
        documentation="How far a record's timestamp may lie ahead of the broker's clock.",
    ),
    ConfigKey(
        name="message.timestamp.before.max.ms",
        type=ConfigType.LONG,
        default=_FOREVER,
        low=0,
        broker_name="log.message.timestamp.before.max.ms",
        documentation="How far a record's timestamp may lie behind the broker's clock.",
    ),
    ConfigKey(
        name="message.timestamp.type",
        type=ConfigType.STRING,
        default="CreateTime",
        values=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
        documentation="Whose clock stamps records: the producer's or the leader's.",
    ),
)

_UNSERVED: tuple[ConfigKey, ...] = tuple(
    ConfigKey(
        name=name,
        type=kind,
        default=default,
        low=None if kind is ConfigType.BOOLEAN else low,
        served=(default,),
        unserved="as logs have no remote tier",
        broker_name=broker_name,
        documentation=text,
    )
    for name, kind, default, low, broker_name, text in (
        (
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            "false",
            0,
            "",
            "True: segments are copied to a remote tier.",
        ),
        (
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            "false",
            0,
            "",
            "True: the remote tier takes no more segments.",
        ),
        (
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            "false",
            0,
            "",
            "True: the remote tier is emptied when it is switched off.",
        ),
        (
            "remote.copy.lag.bytes",
            ConfigType.LONG,
            "-1",
            -1,
            "log.remote.copy.lag.bytes",
            "Bytes that stay out of the remote tier; -1 for no limit.",
        ),
        (
            "remote.copy.lag.ms",
            ConfigType.LONG,
            "0",
            -1,
            "log.remote.copy.lag.ms",
            "Time that records stay out of the remote tier.",
        ),
        (
            "local.retention.ms",
            ConfigType.LONG,
            "-2",
            -2,
            "log.local.retention.ms",
            "Age at which segments in the remote tier leave the disk; -2 for retention.ms.",
        ),
        (
            "local.retention.bytes",
            ConfigType.LONG,
            "-2",
            -2,
            "log.local.retention.bytes",
            "Size above which segments in the remote tier leave the disk; -2 for retention.bytes.",
        ),
    )
)
"""Configs of what Kvorum does not have: tools copy them between clusters, so values without an
effect pass."""

_REPLICATION: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="min.insync.replicas",
        type=ConfigType.INT,
        default="1",
        low=1,
        broker_name="min.insync.replicas",
        documentation="Members of the ISR without which acks=all is refused.",
    ),
    ConfigKey(
        name="unclean.leader.election.enable",
        type=ConfigType.BOOLEAN,
        default="false",
        broker_name="unclean.leader.election.enable",
        documentation="Whether a replica outside the ISR may lead, at the price of lost records.",
    ),
    *(
        ConfigKey(
            name=f"{side}.replication.throttled.replicas",
            type=ConfigType.LIST,
            default="",
            pattern=r"[0-9]{1,10}:[0-9]{1,10}",
            documentation=f"Replicas held to {side}.replication.throttled.rate while they are not "
            "in sync, partition:broker,... or *.",
        )
        for side in ("leader", "follower")
    ),
)

DEAD_LETTERS_ENABLE = "errors.deadletterqueue.group.enable"
_DEAD_LETTERS = ConfigKey(
    name=DEAD_LETTERS_ENABLE,
    type=ConfigType.BOOLEAN,
    default="false",
    documentation="Whether share groups may write their dead letters to the topic.",
)

TOPIC_CONFIGS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        (
            *_CLEANING,
            *_RETENTION_AND_SEGMENTS,
            *_RECORDS,
            *_REPLICATION,
            *_UNSERVED,
            _DEAD_LETTERS,
        ),
        key=lambda k: k.name,
    )
}
