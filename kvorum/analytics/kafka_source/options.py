"""The options of reads and writes, checked before anything starts. Pure.

They have the names and meanings of Spark's own Kafka source. Spark gives their names in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kvorum.analytics.kafka_source import client_settings
from kvorum.analytics.kafka_source.durations import parse_duration_ms
from kvorum.analytics.kafka_source.errors import OptionRefused
from kvorum.analytics.kafka_source.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Position,
    TopicPartition,
    names_of,
    parse_partition_numbers,
    parse_partitions,
)

_TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")
READ_OPTIONS = (
    *_TOPIC_OPTIONS, "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)  # fmt: skip
WRITE_OPTIONS = ("topic", "includeHeaders")
#: Options of Spark itself, which Spark hands to the sink of a stream as well.
_SPARKS_OWN = ("checkpointLocation", "queryName", "outputMode", "trigger")

_ENDING_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_API_TIMEOUT_MS = 60_000
_POLL_TIMEOUT_MS = 120_000
_TRIGGER_DELAY_MS = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """All partitions of these topics, those that are made later too."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """All partitions of every topic whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read. Times are in ms; None: the option is not set.

    settings: of a librdkafka consumer. The group id is unique to a query unless settings has one.
    """

    topics: Subscribed | Matching | Assigned
    starting: Position | None
    ending: Position | None
    uses_latest_without_timestamp: bool
    fails_on_data_loss: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_max_ms: int
    partitions_min: int | None
    records_per_partition_max: int | None
    has_headers: bool
    group_id_prefix: str
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    api_timeout_ms: int
    settings: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write.

    topic: overrides the column.
    settings: of a librdkafka producer.
    """

    topic: str | None
    settings: Mapping[str, str | int | float | bool]


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Options with names in lower case. Raises OptionRefused for one that cannot be obeyed."""
    _refuse_unknown(options, READ_OPTIONS, "read", WRITE_OPTIONS)
    given = _Given(options)
    kafka = client_settings.kafka_options(options)
    parsed = ReadOptions(
        topics=_topics(given),
        starting=_position(given, "starting"),
        ending=_position(given, "ending"),
        uses_latest_without_timestamp=given.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        fails_on_data_loss=given.flag("failOnDataLoss", True),
        offsets_per_trigger_max=given.count("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=given.count("minOffsetsPerTrigger"),
        trigger_delay_max_ms=_duration_ms(given, "maxTriggerDelay", _TRIGGER_DELAY_MS),
        partitions_min=given.count("minPartitions"),
        records_per_partition_max=given.count("maxRecordsPerPartition"),
        has_headers=given.flag("includeHeaders", False),
        group_id_prefix=given.text("groupIdPrefix") or "spark-kvorum-source",
        poll_timeout_ms=given.count("kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS,
        offset_retries=given.number("fetchOffset.numRetries", 3),
        offset_retry_interval_ms=given.number("fetchOffset.retryIntervalMs", 1_000),
        api_timeout_ms=_api_timeout_ms(kafka),
        settings=client_settings.consumer_settings(kafka),
    )
    _check_together(parsed)
    return parsed


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Options with names in lower case. Raises OptionRefused for one that cannot be obeyed."""
    _refuse_unknown(options, WRITE_OPTIONS, "write", READ_OPTIONS)
    given = _Given(options)
    given.flag("includeHeaders", False)
    topic = given.text("topic")
    if topic == "":
        raise OptionRefused("the option topic is empty; name a topic, or leave the option out")
    return WriteOptions(
        topic=topic,
        settings=client_settings.producer_settings(client_settings.kafka_options(options)),
    )


def check_batch(options: ReadOptions) -> None:
    """Raise OptionRefused for a start or an end that a batch query cannot have."""
    hint = "a batch query reads from earlier offsets to later ones"
    if _names(options.starting, LATEST):
        raise OptionRefused(f"startingOffsets cannot be latest in a batch query; {hint}")
    if _names(options.ending, EARLIEST):
        raise OptionRefused(f"endingOffsets cannot be earliest in a batch query; {hint}")


def check_stream(options: ReadOptions) -> None:
    """Raise OptionRefused for an end: a streaming query has none."""
    if options.ending is not None:
        raise OptionRefused(
            f"a streaming query has no end, so leave {' and '.join(_ENDING_OPTIONS)} out; "
            "trigger(availableNow=True) ends a query at the present end of its topics"
        )


def _names(position: Position | None, offset: int) -> bool:
    match position:
        case AtEnd():
            return position.offset == offset
        case AtOffsets():
            return offset in position.offsets.values()
        case _:
            return False


class _Given:
    """The options as given, by their documented names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, str], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise OptionRefused(f"{name} is {value!r}; set it to {' or '.join(choices)}")
        return value

    def count(self, name: str) -> int | None:
        """A number above 0."""
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) == 0:
            raise OptionRefused(f"{name} is {value!r}; set it to a whole number above 0")
        return int(value)

    def number(self, name: str, default: int) -> int:
        """A number of 0 or more."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isdecimal():
            raise OptionRefused(f"{name} is {value!r}; set it to a whole number of 0 or more")
        return int(value)


def _refuse_unknown(
    options: Mapping[str, str], known: tuple[str, ...], kind: str, of_others: tuple[str, ...]
) -> None:
    by_lower = {name.lower(): name for name in known}
    others = {name.lower(): name for name in of_others}
    sparks_own = {name.lower() for name in _SPARKS_OWN}
    for name in options:
        if name in by_lower or name in sparks_own or name.startswith(client_settings.PREFIX):
            continue
        if name == "path":
            raise OptionRefused(
                f"a path has no meaning for topics; {'name topics with the option ' + known[0]}, "
                "and call load and save without a path"
            )
        if name in others:
            use = "topic" if kind == "write" else "subscribe"
            raise OptionRefused(
                f"{others[name]} is not an option of a {kind}; leave it out (topics: option {use})"
            )
        near = get_close_matches(name, by_lower, n=1)
        hint = (
            f"did you mean {by_lower[near[0]]}?"
            if near
            else f"known are {', '.join(known)}, kafka.*"
        )
        raise OptionRefused(f"unknown option {name!r} of a {kind}; {hint}")


def _topics(given: _Given) -> Subscribed | Matching | Assigned:
    named = [name for name in _TOPIC_OPTIONS if given.text(name) is not None]
    choices = "subscribe, subscribePattern and assign"
    if not named:
        raise OptionRefused(f"no topics are named; set one of the options {choices}")
    if len(named) > 1:
        raise OptionRefused(f"{' and '.join(named)} are both set; set only one of {choices}")
    (name,) = named
    value = given.text(name) or ""
    match name:
        case "assign":
            return Assigned(partitions=parse_partitions(name, value))
        case "subscribe":
            topics = tuple(sorted({topic.strip() for topic in value.split(",")} - {""}))
            if not topics:
                raise OptionRefused("subscribe is empty; name one topic, or several with commas")
            return Subscribed(topics=topics)
        case _:
            return Matching(pattern=_pattern(value))


def _pattern(value: str) -> str:
    if not value:
        raise OptionRefused("subscribePattern is empty; write a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise OptionRefused(
            f"subscribePattern is {value!r}, which is not a regular expression of Python: {error}"
        ) from error
    return value


def _position(given: _Given, which: str) -> Position | None:
    """The start or the end. As in Spark, a timestamp goes before offsets."""
    timestamp = f"{which}Timestamp"
    by_timestamp = f"{which}OffsetsByTimestamp"
    offsets = f"{which}Offsets"
    if (value := given.text(timestamp)) is not None:
        if not value.isdecimal():
            raise OptionRefused(f"{timestamp} is {value!r}; set it to milliseconds since 1970")
        return AtTimestamp(option=timestamp, timestamp_ms=int(value))
    if (value := given.text(by_timestamp)) is not None:
        return AtTimestamps(option=by_timestamp, timestamps_ms=_numbers(by_timestamp, value, 0))
    value = given.text(offsets)
    match (value or "").lower():
        case "" if value is None:
            return None
        case "earliest":
            return AtEnd(offset=EARLIEST)
        case "latest":
            return AtEnd(offset=LATEST)
    if not (value or "").startswith("{"):
        raise OptionRefused(
            f"{offsets} is {value!r}; set it to earliest, latest or JSON such as "
            '{"orders": {"0": 23, "1": -2}}'
        )
    return AtOffsets(option=offsets, offsets=_numbers(offsets, value or "", EARLIEST))


def _numbers(option: str, value: str, least: int) -> Mapping[TopicPartition, int]:
    numbers = parse_partition_numbers(option, value)
    wrong = [partition for partition, number in numbers.items() if number < least]
    if wrong:
        meaning = " (-1: latest, -2: earliest)" if least == EARLIEST else ""
        raise OptionRefused(
            f"{option} has {numbers[wrong[0]]} for {names_of(wrong[:1])}; set {least} or more"
            f"{meaning}"
        )
    return numbers


def _duration_ms(given: _Given, name: str, default_ms: int) -> int:
    value = given.text(name)
    if value is None:
        return default_ms
    milliseconds = parse_duration_ms(value)
    if milliseconds is None:
        raise OptionRefused(f"{name} is {value!r}; set it to a time such as 500ms, 30s, 15m or 1h")
    return milliseconds


def _api_timeout_ms(kafka: Mapping[str, str]) -> int:
    value = kafka.get(client_settings.API_TIMEOUT, str(_API_TIMEOUT_MS)).strip()
    if not value.isdecimal() or int(value) == 0:
        raise OptionRefused(
            f"kafka.{client_settings.API_TIMEOUT} is {value!r}; set it to milliseconds above 0"
        )
    return int(value)


def _check_together(options: ReadOptions) -> None:
    least, most = options.offsets_per_trigger_min, options.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionRefused(
            f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}; "
            "lower the first or raise the second"
        )
    if not isinstance(options.topics, Assigned):
        return
    for position in (options.starting, options.ending):
        numbers = _partitions_of(position)
        strange = set(numbers) - set(options.topics.partitions)
        if strange:
            raise OptionRefused(
                f"{names_of(strange)} has an offset or a timestamp but is not in assign; "
                "add it to assign or take it out"
            )


def _partitions_of(position: Position | None) -> Mapping[TopicPartition, int]:
    match position:
        case AtOffsets():
            return position.offsets
        case AtTimestamps():
            return position.timestamps_ms
        case _:
            return {}
