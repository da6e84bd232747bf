"""A Metadata answer of many partitions, packed a slice at a time. Pure.

A partition takes 3 us: packed in one piece, the answer about 1,000,000 of them would stop the
broker for 3 s, longer than its session with the controllers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvorum.broker.metadata_answers.topic_metadata import listed_partitions
from kvorum.metadata.image.image import TopicImage
from kvorum.wire.kio_codec import Packed, encode_response
from kvorum.wire.metadata_codec import FLEXIBLE_VERSION, pack_partitions, pack_rows
from kvorum.wire.primitives import count_bytes

PARTITIONS_AT_ONCE = 1_000
KEPT_PARTITIONS_MAX = 50_000
"""The partitions of a larger answer are not kept topic by topic: they would push out all others."""
TOPICS_AT_ONCE = 100
_NAME = "metadata"
#: Stands for an array in an answer that is encoded without it.
_PLACE = Packed(b"\x00kvorum: the place of an array\x00")

Topic = dict[str, Any]
"""The fields of a topic, whose `partitions` are its image, or () for a refused topic."""


def partition_count(topics: Sequence[Topic]) -> int:
    """The partitions of these topics."""
    return sum(len(_partitions_of(topic)) for topic in topics)


def packed_topics(version: int, topics: Sequence[Topic], live: frozenset[int]) -> list[Topic]:
    """The topics with their partitions packed. live: ids of the brokers that are not fenced."""
    return [{**topic, "partitions": _packed(version, topic, live)} for topic in topics]


def slices(version: int, answer: Mapping[str, Any], live: frozenset[int]) -> Iterator[bytes]:
    """The body of an answer, in pieces of at most PARTITIONS_AT_ONCE partitions."""
    is_flexible = version >= FLEXIBLE_VERSION
    topics: Sequence[Topic] = answer["topics"]
    head, tail = _around(version, {**answer, "topics": _PLACE})
    yield head + count_bytes(len(topics), is_flexible)
    bare = {**answer, "brokers": ()}
    before, behind = map(len, _around(version, {**bare, "topics": _PLACE}))

    def encoded(some: list[Topic]) -> bytes:
        whole = encode_response(_NAME, version, {**bare, "topics": some})
        first = before + len(count_bytes(len(some), is_flexible))
        return bytes(whole[first : len(whole) - behind])

    for group in _groups(topics):
        if len(group) > 1 or partition_count(group) <= PARTITIONS_AT_ONCE:
            yield encoded(packed_topics(version, group, live))
            continue
        (topic,) = group
        opening, _, closing = encoded([{**topic, "partitions": _PLACE}]).partition(_PLACE)
        yield opening
        yield from partition_slices(version, topic["partitions"], live)
        yield closing
    yield tail


def partition_slices(version: int, topic: TopicImage, live: frozenset[int]) -> Iterator[bytes]:
    """The array of a topic's partitions, in pieces of at most PARTITIONS_AT_ONCE."""
    yield count_bytes(len(topic.partitions), version >= FLEXIBLE_VERSION)
    rows = listed_partitions(topic, live)
    while some := list(itertools.islice(rows, PARTITIONS_AT_ONCE)):
        yield pack_rows(version, some)


def _partitions_of(topic: Topic) -> Any:
    image = topic["partitions"]
    return image.partitions if isinstance(image, TopicImage) else ()


def _packed(version: int, topic: Topic, live: frozenset[int]) -> Any:
    image = topic["partitions"]
    if not isinstance(image, TopicImage):
        return image
    return pack_partitions(version, listed_partitions(image, live), len(image.partitions))


def _around(version: int, answer: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The body before the place of an array, and behind it."""
    head, _, tail = bytes(encode_response(_NAME, version, answer)).partition(_PLACE)
    return head, tail


def _groups(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    """Topics to be packed together; a larger one stands alone."""
    group: list[Topic] = []
    size = 0
    for topic in topics:
        count = len(_partitions_of(topic))
        if group and (size + count > PARTITIONS_AT_ONCE or len(group) == TOPICS_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(topic)
        size += count
    if group:
        yield group
