"""Dead letters of share groups (KIP-1191): the topic that may have them, and their records. Pure.

The names of the headers, the texts and the form of the values are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kvorum.broker.share.core.states import DeadLetters
from kvorum.storage.format.batch import HEADER_BYTES, MAGIC, BatchHeader, seal_batch
from kvorum.storage.format.record_codec import encode_record

_HEADER = b"__dlq.errors."
_REJECTED = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
_INTERNAL = "__"

KeyAndValue = tuple[bytes | None, bytes | None]
NO_ORIGINAL: KeyAndValue = (None, None)


class Source(NamedTuple):
    """The share-partition from which dead letters come."""

    group_id: str
    topic: str
    partition: int


def name_problem(name: str, prefix: str) -> str | None:
    """The reason why no topic of this name may have dead letters, or None. prefix: of the brokers'
    configs; "" for any name."""
    if not name:
        return "the group has no dead-letter topic"
    if name.startswith(_INTERNAL):
        return f"the dead-letter topic {name} has an internal topic's name"
    if not name.startswith(prefix):
        return (
            f"the name of the dead-letter topic {name} does not begin with {prefix!r}, as "
            "errors.deadletterqueue.topic.name.prefix asks"
        )
    return None


def letter_batch(
    source: Source,
    letters: Iterable[DeadLetters],
    originals: Mapping[int, KeyAndValue],
    *,
    now_ms: int,
    bytes_max: int,
) -> tuple[bytes, int]:
    """A batch with one record for each dead letter, as many as fit but at least one, and the last
    offset that it has.

    originals: key and value by offset; without them, or where they are too large for the topic, a
    dead letter has its headers alone.
    """
    parts = [bytes(HEADER_BYTES)]
    size = HEADER_BYTES
    last_offset = -1
    for offset, letter in _each(letters):
        headers = _headers(source, offset, letter)
        key, value = originals.get(offset, NO_ORIGINAL)
        record = _encoded(len(parts) - 1, key, value, headers)
        if HEADER_BYTES + len(record) > bytes_max:
            record = _encoded(len(parts) - 1, *NO_ORIGINAL, headers)
        if len(parts) > 1 and size + len(record) > bytes_max:
            break
        parts.append(record)
        size += len(record)
        last_offset = offset
    count = len(parts) - 1
    header = BatchHeader(
        base_offset=0, batch_length=0, leader_epoch=-1, magic=MAGIC, crc=0, attributes=0,
        last_offset_delta=count - 1, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=count,
    )  # fmt: skip
    return bytes(seal_batch(header, parts)), last_offset


def _each(letters: Iterable[DeadLetters]) -> Iterator[tuple[int, DeadLetters]]:
    for letter in letters:
        for offset in range(letter.first_offset, letter.last_offset + 1):
            yield offset, letter


def _encoded(
    delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes]]
) -> bytes:
    return encode_record(
        offset_delta=delta, timestamp_delta_ms=0, key=key, value=value, headers=headers
    )


def _headers(source: Source, offset: int, letter: DeadLetters) -> list[tuple[bytes, bytes]]:
    fields = (
        (b"topic", source.topic.encode()),
        (b"partition", b"%d" % source.partition),
        (b"offset", b"%d" % offset),
        (b"group", source.group_id.encode()),
        (b"delivery.count", b"%d" % letter.delivery_count),
        (b"message", _REJECTED if letter.is_rejected else _DELIVERED_TOO_OFTEN),
    )
    return [(_HEADER + name, text) for name, text in fields]
