"""The options `kafka.*`: names of Kafka's Java clients, carried over to librdkafka. Pure.

A setting that both know goes through as it is. One that librdkafka calls differently is renamed,
and one that cannot be obeyed is refused with the reason. librdkafka checks the other names and
values when a client is opened (`kvorum.analytics.kafka_source.clients`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from kvorum.analytics.kafka_source.errors import OptionRefused

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"
API_TIMEOUT = "default.api.timeout.ms"
"""Java's name for the time-out of requests for metadata and offsets; librdkafka has none."""

_Settings = dict[str, str | int | float | bool]


def _same(value: str) -> str:
    return value


def _kbytes(value: str) -> str:
    return str(max(1, int(value) // 1024)) if value.isdecimal() else value


#: Java's name, librdkafka's name, and the conversion of the value.
_RENAMED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "request.timeout.ms": ("socket.timeout.ms", _same),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", _same),
    "send.buffer.bytes": ("socket.send.buffer.bytes", _same),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", _same),
    "max.partition.fetch.bytes": ("fetch.message.max.bytes", _same),
    "max.request.size": ("message.max.bytes", _same),
    "buffer.memory": ("queue.buffering.max.kbytes", _kbytes),
}

_SERDE = "{column} arrive as binary; convert the column in the query"
_NO_GROUP = "tasks read the partitions that the driver gives them, not those of a group"
_JAVA_STORE = (
    "it is about a key store of Java; set kafka.ssl.ca.location, kafka.ssl.certificate.location "
    "and kafka.ssl.key.location"
)
_REFUSED: Mapping[str, str] = {
    "sasl.jaas.config": "it is a setting of Java; set kafka.sasl.username and kafka.sasl.password",
    "ssl.truststore.location": _JAVA_STORE,
    "ssl.truststore.password": _JAVA_STORE,
    "ssl.truststore.type": _JAVA_STORE,
    "ssl.keystore.type": _JAVA_STORE,
    "interceptor.classes": "an interceptor could change records",
}
_REFUSED_FOR_READS: Mapping[str, str] = {
    "auto.offset.reset": "the option startingOffsets says where a query starts",
    "enable.auto.commit": "the progress of a query is in its checkpoint, not in a group's offsets",
    "key.deserializer": _SERDE.format(column="keys"),
    "value.deserializer": _SERDE.format(column="values"),
    "max.poll.records": "the source itself decides how many records it takes at once",
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "partition.assignment.strategy": _NO_GROUP,
    "enable.partition.eof": "the source needs it to find the end of a range",
    "enable.auto.offset.store": "the progress of a query is in its checkpoint",
}
_REFUSED_FOR_WRITES: Mapping[str, str] = {
    "key.serializer": "keys are written as they are; convert the column in the query",
    "value.serializer": "values are written as they are; convert the column in the query",
    "transactional.id": "writes are at least once, without transactions",
    "partitioner.class": "it names a Java class; set kafka.partitioner to one of librdkafka's",
    "max.block.ms": "a full queue waits; kafka.delivery.timeout.ms limits the time of a record",
    "delivery.report.only.error": "the writer needs the report of every record that fails",
}

_CONSUMER_DEFAULTS: _Settings = {
    "isolation.level": "read_committed",
    # Without this pause of a second, a full queue of fetched records would make a consumer wait.
    "fetch.queue.backoff.ms": 1,
    # A task reads one partition up to a known end. Records beyond that end are waste.
    "queued.max.messages.kbytes": 16_384,
    # The records of a range exist, so a fetch only waits at the end of the log: for the news that
    # it is the end.
    "fetch.wait.max.ms": 50,
}
_CONSUMER_ALWAYS: _Settings = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset out of range is for failOnDataLoss to judge.
    "auto.offset.reset": "error",
    # Markers and compaction leave gaps at the end of a range: only this event tells that nothing
    # follows.
    "enable.partition.eof": True,
}
_PRODUCER_DEFAULTS: _Settings = {
    "enable.idempotence": True,
    "acks": "all",
    # The partitioner of Java's producer for records with a key.
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    # Java's default.
    "delivery.timeout.ms": 120_000,
}
_PRODUCER_ALWAYS: _Settings = {"delivery.report.only.error": True}

#: Names to suggest for an unknown one.
_COMMON = (
    *_RENAMED, *_CONSUMER_DEFAULTS, *_PRODUCER_DEFAULTS, BOOTSTRAP, API_TIMEOUT, "group.id",
    "client.id", "client.rack", "client.dns.lookup", "fetch.min.bytes", "fetch.max.bytes",
    "check.crcs", "metadata.max.age.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
    "retry.backoff.ms", "connections.max.idle.ms", "security.protocol", "sasl.mechanism",
    "sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm",
    "compression.type", "retries", "delivery.timeout.ms", "max.in.flight.requests.per.connection",
    "message.max.bytes", "socket.timeout.ms", "debug", "log_level",
)  # fmt: skip


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with `kafka.`, without it. Raises OptionRefused without servers."""
    found = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    if not found.get(BOOTSTRAP, "").strip():
        raise OptionRefused(
            "the option kafka.bootstrap.servers is missing; set it to host:port of a broker"
        )
    return found


def consumer_settings(given: Mapping[str, str]) -> _Settings:
    """Settings of a consumer, without group.id unless it is given. Raises OptionRefused."""
    carried = _carried(given, {**_REFUSED, **_REFUSED_FOR_READS})
    return {"log_level": 4, **_CONSUMER_DEFAULTS, **carried, **_CONSUMER_ALWAYS}


def producer_settings(given: Mapping[str, str]) -> _Settings:
    """Settings of a producer. Raises OptionRefused."""
    carried = _carried(given, {**_REFUSED, **_REFUSED_FOR_WRITES})
    defaults = dict(_PRODUCER_DEFAULTS)
    if carried.get("acks", "all") not in ("all", "-1"):
        # An idempotent producer takes acks=all only, in Java too.
        defaults["enable.idempotence"] = False
    return {"log_level": 4, **defaults, **carried, **_PRODUCER_ALWAYS}


def admin_settings(consumer: Mapping[str, str | int | float | bool]) -> _Settings:
    """Settings of the driver's client: those of a consumer that are about connections."""
    own = {*_CONSUMER_DEFAULTS, *_CONSUMER_ALWAYS, "group.id", "check.crcs"}
    return {
        name: value
        for name, value in consumer.items()
        if name not in own and not name.startswith(("fetch.", "queued."))
    }


def nearest_setting(name: str) -> str:
    """A hint for an unknown setting: `; did you mean ...`, or nothing."""
    near = get_close_matches(name, _COMMON, n=1)
    return f"; did you mean {PREFIX}{near[0]}?" if near else ""


def _carried(given: Mapping[str, str], refused: Mapping[str, str]) -> _Settings:
    carried: _Settings = {}
    for name, value in sorted(given.items()):
        if name in refused:
            raise OptionRefused(f"{PREFIX}{name} cannot be set: {refused[name]}")
        if name == API_TIMEOUT:
            continue
        own_name, convert = _RENAMED.get(name, (name, _same))
        carried[own_name] = convert(value)
    return carried
