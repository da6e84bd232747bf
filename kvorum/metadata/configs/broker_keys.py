"""The properties of a broker, with Apache Kafka's names where Kafka has them.

A property that is the default of a topic config takes type and bounds from it. Such a property may
be changed while the broker runs, as may those in `_DYNAMIC`, most of the log cleaner's and
CERTIFICATE_KEYS. The others are read when the broker starts. A test compares this table with the
classes that bind a broker's properties file.
"""

from __future__ import annotations

import dataclasses
import sys

from kvorum.metadata.configs.group_bounds import BOUND_CONFIGS
from kvorum.metadata.configs.model import INT32_MAX, INT64_MAX, ConfigKey, ConfigType, Update
from kvorum.metadata.configs.security_keys import CERTIFICATE_KEYS, SECURITY
from kvorum.metadata.configs.share_keys import SHARE_CONFIGS
from kvorum.metadata.configs.streams_keys import STREAMS_CONFIGS
from kvorum.metadata.configs.topic_keys import TOPIC_CONFIGS
from kvorum.metadata.image.features import RELEASES

_DOUBLE_MAX = sys.float_info.max
_SHORT, _LIST = ConfigType.SHORT, ConfigType.LIST
_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING

#: Broker properties that are defaults of topic configs.
_TOPIC_DEFAULTS = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.preallocate",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.decompressed.message.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)

#: Name, type, default and documentation of properties that may be changed while the broker runs.
_DYNAMIC: tuple[tuple[str, ConfigType, str, str], ...] = (
    (
        "max.connection.creation.rate",
        _INT,
        str(INT32_MAX),
        "New connections of clients a second above which the broker accepts none for a while.",
    ),
    ("max.connections", _INT, "10000", "Connections of clients above which new ones are closed."),
    ("max.connections.per.ip", _INT, str(INT32_MAX), "Connections that one address may have."),
    ("producer.id.expiration.ms", _INT, "86400000", "Silence after which a producer is forgotten."),
    (
        "errors.deadletterqueue.auto.create.topics.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether a share group's dead-letter topic is made when it is missing.",
    ),
    (
        "errors.deadletterqueue.topic.name.prefix",
        _STRING,
        "dlq.",
        "With this the names of dead-letter topics begin; empty: with anything.",
    ),
    *(
        (
            f"{side}.replication.throttled.rate",
            _LONG,
            str(INT64_MAX),
            f"Bytes a second {way} throttled replicas that are not in sync.",
        )
        for side, way in (("leader", "sent to"), ("follower", "fetched for"))
    ),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        str(INT64_MAX),
        "Bytes a second copied by moves between the data directories of a broker.",
    ),
)

_OVERRIDES = ConfigKey(
    name="max.connections.per.ip.overrides",
    type=_STRING,
    default="",
    pattern=r"(\s*[^,\s]+:[0-9]{1,9}\s*(,\s*[^,\s]+:[0-9]{1,9}\s*)*)?",
    pattern_says="a list of address:count, such as 10.0.0.1:100",
    update=Update.DYNAMIC,
    documentation="address:count,...: connections that these addresses may have, in place of the "
    "others'.",
)

#: Data directories that take no new replicas (KIP-1066).
_CORDONS = ConfigKey(
    name="cordoned.log.dirs",
    type=_LIST,
    default="",
    update=Update.PER_BROKER,
    documentation="Data directories that take no new replicas; * for all.",
)

#: Properties of the log cleaner.
_CLEANER: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="log.cleaner.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        documentation="Whether logs with cleanup.policy=compact are compacted.",
    ),
    ConfigKey(
        name="log.cleaner.dedupe.buffer.size",
        type=_LONG,
        default="134217728",
        low=1 << 20,
        update=Update.DYNAMIC,
        documentation="Memory of the map of keys; an entry takes 192 bytes.",
    ),
    ConfigKey(
        name="log.cleaner.io.buffer.size",
        type=_INT,
        default="524288",
        low=1 << 10,
        update=Update.DYNAMIC,
        documentation="Bytes that the cleaner reads and writes at once.",
    ),
    ConfigKey(
        name="log.cleaner.io.buffer.load.factor",
        type=ConfigType.DOUBLE,
        default="0.9",
        low=0,
        high=1,
        update=Update.DYNAMIC,
        documentation="Share of the map of keys that may be filled.",
    ),
    ConfigKey(
        name="log.cleaner.io.max.bytes.per.second",
        type=ConfigType.DOUBLE,
        default="1.7976931348623157E308",
        low=1,
        high=_DOUBLE_MAX,
        update=Update.DYNAMIC,
        documentation="Bytes that the cleaner reads and writes in a second at most.",
    ),
    ConfigKey(
        name="log.cleaner.backoff.ms",
        type=_LONG,
        default="15000",
        low=0,
        update=Update.DYNAMIC,
        documentation="Pause of a cleaner that has found nothing to clean.",
    ),
)

#: Numbers, read at the start, that may be 0. Those in _MAY_BE_NONE may be -1, which switches them
#: off. All others are at least 1.
_MAY_BE_ZERO = (
    "group.consumer.assignment.interval.ms",
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "controlled.shutdown.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "max.incremental.fetch.session.cache.slots",
    "metadata.log.max.snapshot.interval.ms",
    "node.id",
    "offset.metadata.max.bytes",
    "replica.fetch.backoff.ms",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
)
_MAY_BE_NONE = (
    "connections.max.idle.ms",
    "metadata.max.retention.bytes",
    "metadata.max.retention.ms",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
)

#: Times with properties in larger units, or another one behind them. The former takes precedence.
_COARSER: dict[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.retention.minutes": (("log.retention.hours", 60),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
OTHER_NAMES: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="log.flush.scheduler.interval.ms",
        type=_LONG,
        default=str(INT64_MAX),
        documentation="log.flush.interval.ms where that is not given.",
    ),
    ConfigKey(
        name="broker.id",
        type=_INT,
        default="-1",
        low=-1,
        documentation="Another name of node.id.",
    ),
    ConfigKey(
        name="log.retention.hours",
        type=_INT,
        default="168",
        low=1,
        also=(-1,),
        documentation="log.retention.ms in hours; log.retention.minutes and it go before.",
    ),
    ConfigKey(
        name="log.retention.minutes",
        type=_INT,
        default=None,
        low=1,
        also=(-1,),
        documentation="log.retention.ms in minutes; that goes before.",
        coarser=_COARSER["log.retention.minutes"],
    ),
    ConfigKey(
        name="log.roll.jitter.hours",
        type=_INT,
        default="0",
        low=0,
        documentation="log.roll.jitter.ms in hours; that goes before.",
    ),
    ConfigKey(
        name="log.roll.hours",
        type=_INT,
        default="168",
        low=1,
        documentation="log.roll.ms in hours; that goes before.",
    ),
)

#: Name, type, default and documentation of properties that a broker reads at its start.
_READ_ONLY: tuple[tuple[str, ConfigType, str | None, str], ...] = (
    # Identity and addresses.
    ("node.id", _INT, None, "The node's number, unique in the cluster."),
    ("cluster.id", _STRING, None, "The cluster's uuid."),
    ("listeners", _LIST, None, "Where the broker listens."),
    ("advertised.listeners", _LIST, None, "What clients are told instead of listeners."),
    (
        "controller.listener.names",
        _LIST,
        "CONTROLLER",
        "The listener of the controllers.",
    ),
    ("kvorum.logging.format", _STRING, "text", "How a node logs: text, or json lines."),
    (
        "kvorum.tracing.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether spans of requests are exported to OpenTelemetry (the extra otel).",
    ),
    ("kvorum.logging.levels", _STRING, "", "LOGGER=LEVEL,...: levels of loggers; root for all."),
    ("log.dirs", _LIST, None, "The node's data directories, with commas between them."),
    ("log.dir", _LIST, None, "The data directory, if log.dirs is not given."),
    ("metadata.log.dir", _STRING, None, "Of the metadata log; else the first of log.dirs."),
    (
        "broker.session.timeout.ms",
        _INT,
        "2000",
        "Silence of the controllers after which a leader that no in-sync follower fetches from "
        "refuses acks=all and consumers.",
    ),
    (
        "log.dir.failure.timeout.ms",
        ConfigType.LONG,
        "30000",
        "Patience for the controller to hear of a failed directory, before the broker ends.",
    ),
    ("broker.rack", _STRING, None, "The rack that placement spreads replicas over."),
    (
        "metrics.listener",
        _STRING,
        "",
        "Where Prometheus reads, HTTP://host:port, or nowhere.",
    ),
    (
        "metrics.names",
        _STRING,
        "kvorum",
        "Names of the metrics there: kvorum, kafka (the JMX exporter's), or both.",
    ),
    ("peer.address.overrides", _STRING, "", "Where this node finds peers, id=host:port,..."),
    ("broker.heartbeat.interval.ms", _INT, "500", "Time between two heartbeats."),
    ("controlled.shutdown.timeout.ms", _INT, "3000", "Patience for leaders to move at shutdown."),
    (
        "metadata.version.max",
        _INT,
        str(max(RELEASES)),
        "The highest metadata.version that the node claims to support.",
    ),
    # The quorum, of which a broker is an observer.
    ("controller.quorum.voters", ConfigType.LIST, "", "Static voters, id@host:port,..."),
    ("controller.quorum.bootstrap.servers", ConfigType.LIST, "", "Where to find dynamic voters."),
    ("controller.quorum.election.timeout.ms", _INT, "300", "Patience of a candidate."),
    ("controller.quorum.fetch.timeout.ms", _INT, "900", "Silence after which a leader is lost."),
    ("controller.quorum.request.timeout.ms", _INT, "800", "Patience for one answer."),
    ("controller.quorum.fetch.wait.max.ms", _INT, "400", "How long a leader may hold a fetch."),
    ("controller.quorum.retry.backoff.ms", _INT, "20", "Pause before a request is sent again."),
    ("controller.quorum.leader.loss.grace.ms", _INT, "30", "Grace after a broken stream."),
    ("controller.socket.timeout.ms", _INT, "1000", "Patience for a controller's answer."),
    ("socket.connection.setup.timeout.ms", _LONG, "1000", "Limit of an attempt to connect."),
    ("rpc.keepalive.time.ms", _INT, "1000", "Silence after which a gRPC connection is pinged."),
    ("rpc.keepalive.timeout.ms", _INT, "1000", "Time for something to arrive after that."),
    ("initial.broker.registration.timeout.ms", _INT, "60000", "Time that a start may wait."),
    ("kvorum.preset", ConfigType.STRING, "", "A set of properties: relaxed, or none."),
    (
        "kvorum.allow.unknown.properties",
        ConfigType.BOOLEAN,
        "false",
        "Ignore names in the file that neither Kafka nor Kvorum has.",
    ),
    ("controller.quorum.snapshot.chunk.bytes", _INT, "1048576", "Piece of a fetched snapshot."),
    ("metadata.log.segment.bytes", _INT, "8388608", "Size of a metadata segment."),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        "20971520",
        "Bytes of metadata records after which a snapshot is taken.",
    ),
    ("metadata.log.max.snapshot.interval.ms", _LONG, "3600000", "Age of a snapshot at most."),
    ("metadata.max.retention.bytes", _LONG, "104857600", "Size that snapshots and log may have."),
    ("metadata.max.retention.ms", _LONG, "604800000", "Age at which old snapshots go."),
    # Replication.
    ("replica.lag.time.max.ms", _LONG, "30000", "Lag after which a follower leaves the ISR."),
    ("replica.fetch.max.bytes", _INT, "1048576", "Bytes of a partition in a follower's fetch."),
    ("replica.fetch.min.bytes", _INT, "1", "Bytes that a follower's fetch waits for."),
    ("replica.fetch.wait.max.ms", _INT, "1000", "How long a follower's fetch waits for them."),
    ("replica.fetch.response.max.bytes", _INT, "10485760", "Bytes of a follower's fetch."),
    ("replica.fetch.backoff.ms", _INT, "100", "Pause of a partition that failed to fetch."),
    ("replica.socket.timeout.ms", _INT, "3000", "Silence after which a leader's socket is closed."),
    (
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        "5000",
        "Time between two checkpoints of the high watermarks.",
    ),
    (
        "replica.selector.class",
        _STRING,
        None,
        "Empty: consumers read from leaders. org.apache.kafka.common.replica."
        "RackAwareReplicaSelector: from the replica in their rack.",
    ),
    # Topics.
    ("num.partitions", _INT, "1", "Partitions of a topic made without a count."),
    ("default.replication.factor", _INT, "1", "Replicas of a topic made without a factor."),
    ("delete.topic.enable", ConfigType.BOOLEAN, "true", "False: DeleteTopics is refused."),
    ("auto.create.topics.enable", ConfigType.BOOLEAN, "true", "Whether Metadata makes topics."),
    ("log.retention.check.interval.ms", _LONG, "300000", "Time between two looks at retention."),
    (
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        "60000",
        "Time between two flushes of all logs.",
    ),
    # Coordinators: the configs with which their internal topics are created. Later these are
    # changed like those of any topic.
    ("offsets.topic.num.partitions", _INT, "50", "Partitions of __consumer_offsets."),
    ("offsets.topic.replication.factor", _SHORT, "3", "Replicas of __consumer_offsets."),
    ("offsets.topic.segment.bytes", _INT, "104857600", "Size of its segments."),
    ("transaction.state.log.num.partitions", _INT, "50", "Partitions of __transaction_state."),
    ("transaction.state.log.replication.factor", _SHORT, "3", "Replicas of __transaction_state."),
    ("transaction.state.log.min.isr", _INT, "2", "Its min.insync.replicas."),
    ("transaction.state.log.segment.bytes", _INT, "104857600", "Size of its segments."),
    # The topic __kvorum_events, with the changes of the metadata; Kvorum's own.
    (
        "metadata.events.topic.enable",
        ConfigType.BOOLEAN,
        "false",
        "Changes of the metadata are written to __kvorum_events. The same on every broker.",
    ),
    ("metadata.events.topic.replication.factor", _INT, "3", "Replicas of __kvorum_events."),
    ("metadata.events.topic.min.isr", _INT, "2", "Its min.insync.replicas."),
    ("metadata.events.topic.segment.bytes", _INT, "104857600", "Size of its segments."),
    # Groups.
    (
        "group.consumer.assignment.interval.ms",
        _INT,
        "0",
        "Least time between two targets of a group of the consumer protocol.",
    ),
    (
        "group.initial.rebalance.delay.ms",
        _INT,
        "3000",
        "How long an empty group waits for more members before its first rebalance.",
    ),
    ("group.min.session.timeout.ms", _INT, "6000", "Least session time-out of a member."),
    ("group.max.session.timeout.ms", _INT, "1800000", "Longest session time-out of a member."),
    ("group.max.size", _INT, "2147483647", "Members that a group may have."),
    (
        "group.consumer.session.timeout.ms",
        _INT,
        "45000",
        "Silence after which a member of the consumer protocol is lost.",
    ),
    (
        "group.consumer.heartbeat.interval.ms",
        _INT,
        "5000",
        "Time between two heartbeats, as members of the consumer protocol are told.",
    ),
    (
        "group.consumer.max.size",
        _INT,
        "2147483647",
        "Members that a group of the consumer protocol may have.",
    ),
    (
        "group.consumer.assignors",
        ConfigType.LIST,
        "uniform,range",
        "Assignors that groups may use, the default one first.",
    ),
    (
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Which way a group with members may change its protocol: bidirectional, upgrade (to the "
        "consumer protocol), downgrade (to the classic one) or disabled.",
    ),
    ("offset.metadata.max.bytes", _INT, "4096", "Size of the metadata of a committed offset."),
    (
        "offsets.retention.minutes",
        _INT,
        "10080",
        "How long offsets are kept after the group's last member is gone.",
    ),
    (
        "offsets.retention.check.interval.ms",
        _LONG,
        "600000",
        "Time between two looks for offsets to remove.",
    ),
    ("transaction.max.timeout.ms", _INT, "900000", "Longest transaction.timeout.ms of a producer."),
    (
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "Disuse after which a transactional id is forgotten.",
    ),
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        "10000",
        "Time between two looks for transactions that are over their time.",
    ),
    (
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "Time between two looks for transactional ids to forget.",
    ),
    # Sockets and requests.
    ("socket.request.max.bytes", _INT, "104857600", "The largest request that is read."),
    ("socket.receive.buffer.bytes", _INT, "-1", "SO_RCVBUF of clients; -1 leaves it to the OS."),
    ("socket.send.buffer.bytes", _INT, "-1", "SO_SNDBUF of clients; -1 leaves it to the OS."),
    ("socket.listen.backlog.size", _INT, "50", "Connections that may wait to be accepted."),
    ("quota.window.num", _INT, "11", "Samples that the rate of a client quota is measured over."),
    ("quota.window.size.seconds", _INT, "1", "Length of such a sample."),
    ("connections.max.idle.ms", _LONG, "600000", "Silence after which a connection is closed."),
    ("fetch.max.bytes", _INT, "57671680", "Bytes of a fetch's answer at most."),
    ("max.incremental.fetch.session.cache.slots", _INT, "1000", "Fetch sessions kept."),
    ("request.timeout.ms", _INT, "30000", "How long a request may wait."),
    (
        "connection.requests.in.flight.max",
        _INT,
        "1000",
        "Answers that a connection may have outstanding before it is not read from.",
    ),
    (
        "connection.output.bytes.max",
        _INT,
        "67108864",
        "Unread bytes of answers from which on a connection is not read from.",
    ),
    (
        "kvorum.batch.records.max",
        _INT,
        "1000000",
        "Records of a batch that a client sends, and headers in all of them.",
    ),
    (
        "kvorum.request.items.max",
        _INT,
        "100000",
        "Items of arrays, and tagged fields, in a client's request.",
    ),
)


def _topic_defaults() -> list[ConfigKey]:
    by_broker_name = {key.broker_name: key for key in TOPIC_CONFIGS.values()}
    keys = []
    for name in _TOPIC_DEFAULTS:
        topic_key = by_broker_name[name]
        is_controllers = name == "unclean.leader.election.enable"
        keys.append(
            dataclasses.replace(
                topic_key,
                name=name,
                broker_name="",
                documentation=f"Default of the topic config {topic_key.name}. "
                f"{topic_key.documentation}",
                update=Update.CLUSTER if is_controllers else Update.DYNAMIC,
                coarser=_COARSER.get(name, ()),
                # As in Kafka, where only the property behind it has a default.
                default=None if name in _COARSER else topic_key.default,
            )
        )
    return keys


BROKER_CONFIGS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        (
            *_topic_defaults(),
            *_CLEANER,
            _CORDONS,
            _OVERRIDES,
            *BOUND_CONFIGS,
            *SHARE_CONFIGS,
            *STREAMS_CONFIGS,
            *OTHER_NAMES,
            *(
                ConfigKey(
                    name=name,
                    type=kind,
                    default=default,
                    documentation=text,
                    low=1 if name == "producer.id.expiration.ms" else 0,
                    update=Update.DYNAMIC,
                )
                for name, kind, default, text in _DYNAMIC
            ),
            *(
                ConfigKey(
                    name=name,
                    type=kind,
                    default=default,
                    documentation=text,
                    low=-1 if name in _MAY_BE_NONE else 0 if name in _MAY_BE_ZERO else 1,
                    update=Update.PER_BROKER if name in CERTIFICATE_KEYS else Update.READ_ONLY,
                )
                for name, kind, default, text in (*_READ_ONLY, *SECURITY)
            ),
        ),
        key=lambda key: key.name,
    )
}
