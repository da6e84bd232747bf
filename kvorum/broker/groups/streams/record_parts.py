"""The parts of a Streams group's records: tasks, pairs of strings, the topology. Pure.

Each has the layout of Kafka's schemas, flexible, version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from kvorum.broker.groups.streams.tasks import Task, by_subtopology
from kvorum.broker.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from kvorum.wire.primitives import Reader, count_bytes, string_bytes, uvarint_bytes

NO_TAGS = b"\x00"
_EPOCHS_TAG = 0
_INT32 = struct.Struct(">i")
_PARTITIONS_AND_REPLICATION = struct.Struct(">ih")


def tagged(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """The tagged fields (tag, value), ascending."""
    out = bytearray(uvarint_bytes(len(fields)))
    for tag, value in fields:
        out += uvarint_bytes(tag) + uvarint_bytes(len(value)) + value
    return bytes(out)


# --- tasks ---------------------------------------------------------------------------------------


def encode_tasks(tasks: Iterable[Task], epochs: Mapping[Task, int] | None = None) -> bytes:
    """The array of tasks. epochs: the assignment epoch of each, None to leave them out."""
    rows = by_subtopology(tasks)
    out = bytearray(count_bytes(len(rows), True))
    for subtopology_id, partitions in rows:
        out += string_bytes(subtopology_id, True) + _int32s(partitions)
        if epochs is None:
            out += NO_TAGS
        else:
            numbers = [epochs[subtopology_id, partition] for partition in partitions]
            out += tagged([(_EPOCHS_TAG, _int32s(numbers))])
    return bytes(out)


def read_tasks(reader: Reader, default_epoch: int) -> dict[Task, int]:
    """The assignment epoch of each task; default_epoch where the record has none."""
    found: dict[Task, int] = {}
    for _ in range(reader.array_count(True)):
        subtopology_id = reader.string(True)
        partitions = _read_int32s(reader)
        epochs = [default_epoch] * len(partitions)
        for tag, position, length in reader.tags():
            if tag == _EPOCHS_TAG:
                told = _read_int32s(Reader(reader.buffer, position, position + length))
                epochs = told if len(told) == len(partitions) else epochs
        found.update(
            ((subtopology_id, partition), epoch)
            for partition, epoch in zip(partitions, epochs, strict=True)
        )
    return found


def _int32s(numbers: Sequence[int]) -> bytes:
    return count_bytes(len(numbers), True) + struct.pack(f">{len(numbers)}i", *numbers)


def _read_int32s(reader: Reader) -> list[int]:
    return [reader.int32() for _ in range(reader.array_count(True))]


# --- pairs ---------------------------------------------------------------------------------------


def encode_pairs(pairs: Sequence[tuple[str, str]]) -> bytes:
    """The array of (key, value)."""
    out = bytearray(count_bytes(len(pairs), True))
    for key, value in pairs:
        out += string_bytes(key, True) + string_bytes(value, True) + NO_TAGS
    return bytes(out)


def read_pairs(reader: Reader) -> tuple[tuple[str, str], ...]:
    """As `encode_pairs` wrote them."""
    pairs = []
    for _ in range(reader.array_count(True)):
        pairs.append((reader.string(True), reader.string(True)))
        reader.skip_tags()
    return tuple(pairs)


# --- the topology --------------------------------------------------------------------------------


def encode_topology(topology: Topology) -> bytes:
    """The value of a topology's record, after its version."""
    out = bytearray(_INT32.pack(topology.epoch))
    out += count_bytes(len(topology.subtopologies), True)
    for part in topology.subtopologies:
        out += string_bytes(part.subtopology_id, True)
        out += _strings(part.source_topics) + _strings(part.source_topic_regex)
        out += _topics(part.state_changelog_topics)
        out += _strings(part.repartition_sink_topics)
        out += _topics(part.repartition_source_topics)
        out += count_bytes(len(part.copartition_groups), True)
        for group in part.copartition_groups:
            for positions in group:
                out += count_bytes(len(positions), True)
                out += struct.pack(f">{len(positions)}h", *positions)
            out += NO_TAGS
        out += NO_TAGS
    return bytes(out + NO_TAGS)


def read_topology(reader: Reader) -> Topology:
    """As `encode_topology` wrote it."""
    epoch = reader.int32()
    parts = [_read_subtopology(reader) for _ in range(reader.array_count(True))]
    parts.sort(key=lambda part: part.subtopology_id)
    return Topology(epoch=epoch, subtopologies=tuple(parts))


def _read_subtopology(reader: Reader) -> Subtopology:
    part = Subtopology(
        subtopology_id=reader.string(True),
        source_topics=_read_strings(reader),
        source_topic_regex=_read_strings(reader),
        state_changelog_topics=_read_topics(reader),
        repartition_sink_topics=_read_strings(reader),
        repartition_source_topics=_read_topics(reader),
        copartition_groups=tuple(_read_group(reader) for _ in range(reader.array_count(True))),
    )
    reader.skip_tags()
    return part


def _read_group(reader: Reader) -> CopartitionGroup:
    lists = [tuple(reader.int16() for _ in range(reader.array_count(True))) for _ in range(3)]
    reader.skip_tags()
    return CopartitionGroup(*lists)


def _topics(topics: Sequence[InternalTopic]) -> bytes:
    out = bytearray(count_bytes(len(topics), True))
    for topic in topics:
        out += string_bytes(topic.name, True)
        out += _PARTITIONS_AND_REPLICATION.pack(topic.num_partitions, topic.replication_factor)
        out += encode_pairs(topic.configs) + NO_TAGS
    return bytes(out)


def _read_topics(reader: Reader) -> tuple[InternalTopic, ...]:
    topics = []
    for _ in range(reader.array_count(True)):
        name, partitions, replicas = reader.string(True), reader.int32(), reader.int16()
        topics.append(InternalTopic(name, partitions, replicas, read_pairs(reader)))
        reader.skip_tags()
    return tuple(topics)


def _strings(texts: Sequence[str]) -> bytes:
    return count_bytes(len(texts), True) + b"".join(string_bytes(text, True) for text in texts)


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.string(True) for _ in range(reader.array_count(True)))
