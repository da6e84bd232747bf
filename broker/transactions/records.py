"""Keys and values of `__transaction_state`, byte for byte Kafka's (TransactionLogKey/Value.json).

Key v0: i16 version, string id. Value: i16 version, then i64 producer id, i16 epoch, i32 timeout,
i8 state, partitions by topic (null while none), i64 last update, i64 start; v1 is flexible and has
tagged fields: 0 previous producer id, 1 next producer id, 2 client's transaction version, 3 next
producer epoch (of two-phase commit, KIP-939, which is not served: read and dropped).
v1 is written from transaction.version 1 on.
"""

from __future__ import annotations

import struct
from itertools import groupby

from broker.transactions.model import NO_PRODUCER_ID, State, TopicPartition, Transaction
from runtime.errors import CorruptData, WireError
from wire.primitives import INT16, INT64, Reader, count_bytes, string_bytes, uvarint_bytes

KEY_VERSION = 0
VALUE_VERSION_MAX = 1
FIRST_FLEXIBLE = 1

_FIXED = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT32 = struct.Struct(">i")

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records; it has at most 32,767 bytes of UTF-8."""
    return INT16.pack(KEY_VERSION) + string_bytes(transactional_id, is_flexible=False)


def encode_value(transaction: Transaction, version: int) -> bytes:
    """The value of one record; version 0 drops what only KIP-890 needs."""
    is_flexible = version >= FIRST_FLEXIBLE
    out = bytearray(
        _FIXED.pack(
            version,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    _put_partitions(out, transaction, is_flexible)
    out += _TIMES.pack(transaction.updated_ms, transaction.start_ms)
    if is_flexible:
        _put_tags(out, transaction)
    return bytes(out)


def _put_partitions(out: bytearray, transaction: Transaction, is_flexible: bool) -> None:
    if transaction.state == State.EMPTY:
        out += count_bytes(-1, is_flexible)
        return
    by_topic = [
        (topic, [partition_id for _, partition_id in members])
        for topic, members in groupby(sorted(transaction.partitions), lambda item: item.topic)
    ]
    out += count_bytes(len(by_topic), is_flexible)
    for topic, partition_ids in by_topic:
        out += string_bytes(topic, is_flexible) + count_bytes(len(partition_ids), is_flexible)
        for partition_id in partition_ids:
            out += _INT32.pack(partition_id)
        if is_flexible:
            out += b"\x00"


def _put_tags(out: bytearray, transaction: Transaction) -> None:
    tags: list[tuple[int, bytes]] = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, INT64.pack(transaction.next_producer_id)))
    if transaction.client_version:
        tags.append((_CLIENT_VERSION, INT16.pack(transaction.client_version)))
    out += uvarint_bytes(len(tags))
    for tag, payload in tags:
        out += uvarint_bytes(tag) + uvarint_bytes(len(payload)) + payload


def decode_key(key: bytes) -> str | None:
    """The id of a key, None if the key is of a kind that came later. Raises CorruptData."""
    try:
        reader = Reader(key, 0, len(key))
        if reader.int16() != KEY_VERSION:
            return None
        return reader.string(is_flexible=False)
    except WireError as error:
        raise CorruptData("__transaction_state", 0, f"a record's key: {error}") from error


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """What a value says. Raises CorruptData."""
    try:
        return _decode(transactional_id, value)
    except (WireError, ValueError, struct.error) as error:
        raise CorruptData(
            "__transaction_state", 0, f"the record of {transactional_id!r}: {error}"
        ) from error


def _decode(transactional_id: str, value: bytes) -> Transaction:
    reader = Reader(value, 0, len(value))
    version, producer_id, epoch, timeout_ms, state = _FIXED.unpack_from(
        value, reader.skip(_FIXED.size)
    )
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise WireError(f"value version {version}, known are 0 to {VALUE_VERSION_MAX}")
    is_flexible = version >= FIRST_FLEXIBLE
    partitions = set()
    for _ in range(reader.array_count(is_flexible)):
        topic = reader.string(is_flexible)
        for _ in range(reader.array_count(is_flexible)):
            partitions.add(TopicPartition(topic, reader.int32()))
        if is_flexible:
            reader.skip_tags()
    updated_ms, start_ms = _TIMES.unpack_from(value, reader.skip(_TIMES.size))
    tags = {}
    if is_flexible:
        for tag, position, length in reader.tags():
            tags[tag] = int.from_bytes(value[position : position + length], signed=True)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=State(state),
        partitions=frozenset(partitions),
        updated_ms=updated_ms,
        start_ms=start_ms,
        previous_producer_id=tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        next_producer_id=tags.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        client_version=tags.get(_CLIENT_VERSION, 0),
    )
