"""Positions in topics: how options name them, and offsets as JSON. Pure.

The JSON is Spark's own: `{"topic": {"partition": offset}}`, in which -2 means the earliest offset
and -1 the latest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvorum.analytics.kafka_source.errors import OptionRefused

LATEST = -1
EARLIEST = -2

TopicPartition = tuple[str, int]
"""Topic and partition."""

Offsets = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""

OffsetsJson = dict[str, dict[str, int]]
"""Offsets as Spark stores them in a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnd:
    """Every partition at its earliest offset, or every one at its latest."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset for each partition; EARLIEST and LATEST are allowed."""

    option: str
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamp:
    """The first record of each partition with this timestamp (ms since 1970) or a later one."""

    option: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamps:
    """The same with a timestamp for each partition."""

    option: str
    timestamps_ms: Offsets


Position = AtEnd | AtOffsets | AtTimestamp | AtTimestamps


def name_of(partition: TopicPartition) -> str:
    """topic-partition, as Kafka's tools print it."""
    return f"{partition[0]}-{partition[1]}"


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Sorted names, separated by commas."""
    return ", ".join(name_of(partition) for partition in sorted(partitions))


def to_json(offsets: Offsets) -> OffsetsJson:
    """Offsets for the checkpoint.

    Spark compares the JSON texts of two offsets, so equal offsets must have one order.
    """
    document: OffsetsJson = {}
    for topic, partition in sorted(offsets):
        document.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return document


def from_json(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The reverse of `to_json`."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def parse_partition_numbers(option: str, text: str) -> dict[TopicPartition, int]:
    """`{"topic": {"partition": number}}` from an option. Raises OptionRefused."""
    example = '{"orders": {"0": 23, "1": -2}}'
    document = _parse(option, text, example)
    found: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise _malformed(option, text, example)
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int:
                raise _malformed(option, text, example)
            found[topic, int(partition)] = number
    return found


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [partition, ...]}` from an option. Raises OptionRefused."""
    example = '{"orders": [0, 1]}'
    document = _parse(option, text, example)
    found: set[TopicPartition] = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list):
            raise _malformed(option, text, example)
        for partition in partitions:
            if type(partition) is not int or partition < 0:
                raise _malformed(option, text, example)
            found.add((topic, partition))
    if not found:
        raise _malformed(option, text, example)
    return tuple(sorted(found))


def _parse(option: str, text: str, example: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _malformed(option, text, example) from error
    if not isinstance(document, dict):
        raise _malformed(option, text, example)
    return document


def _malformed(option: str, text: str, example: str) -> OptionRefused:
    return OptionRefused(f"{option} is {text!r}; write JSON such as {example}")
