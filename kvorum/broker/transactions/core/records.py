"""Keys and values of `__transaction_state`, byte for byte Kafka's (TransactionLogKey/Value.json).

Key v0: i16 version, string id. Value: i16 version, then i64 producer id, i16 epoch, i32 timeout, i8
state, partitions by topic (null if none), i64 last update, i64 start. v1 is flexible and has tagged
fields: 0 previous producer id (as in Kafka 4.4 the current one, if there is no other; earlier
versions leave it out then), 1 next producer id, 2 client's transaction version, 3 next producer
epoch (of two-phase commit, KIP-939, which is not served: it is ignored).

v1 is written from transaction.version 1 on, and always for clients of KIP-890 part 2
(`TransactionShard`).
"""

from __future__ import annotations

import json
import struct
from itertools import groupby

from kvorum.broker.transactions.core.model import (
    NAMES,
    NO_PRODUCER_ID,
    State,
    TopicPartition,
    Transaction,
)
from kvorum.runtime.errors import CorruptData, WireError
from kvorum.wire.primitives import INT16, INT64, Reader, count_bytes, string_bytes, uvarint_bytes

KEY_VERSION = 0
VALUE_VERSION_MAX = 1
FIRST_FLEXIBLE = 1

_FIXED = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT32 = struct.Struct(">i")

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records; the id has at most 32,767 bytes of UTF-8."""
    return INT16.pack(KEY_VERSION) + string_bytes(transactional_id, is_flexible=False)


def encode_value(transaction: Transaction, version: int) -> bytes:
    """The value of a record; version 0 drops the fields that only KIP-890 needs."""
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
    previous_id = transaction.previous_producer_id
    if previous_id == NO_PRODUCER_ID:
        previous_id = transaction.producer_id
    tags = [(_PREVIOUS_PRODUCER_ID, INT64.pack(previous_id))]
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, INT64.pack(transaction.next_producer_id)))
    if transaction.client_version:
        tags.append((_CLIENT_VERSION, INT16.pack(transaction.client_version)))
    out += uvarint_bytes(len(tags))
    for tag, payload in tags:
        out += uvarint_bytes(tag) + uvarint_bytes(len(payload)) + payload


def decode_key(key: bytes) -> str | None:
    """The transactional id of a key; None if a later version of Kafka wrote the key. Raises
    CorruptData."""
    try:
        reader = Reader(key, 0, len(key))
        if reader.int16() != KEY_VERSION:
            return None
        return reader.string(is_flexible=False)
    except WireError as error:
        raise CorruptData("__transaction_state", 0, f"a record's key: {error}") from error


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Decode a value of any version. Raises CorruptData."""
    try:
        return _decode(transactional_id, value)
    except (WireError, ValueError, struct.error) as error:
        raise CorruptData(
            "__transaction_state", 0, f"the record of {transactional_id!r}: {error}"
        ) from error


def key_text(key: bytes) -> str:
    """A key as kafka-dump-log prints it. Raises CorruptData."""
    transactional_id = decode_key(key)
    if transactional_id is None:
        return f"Unknown record type {int.from_bytes(key[:2], signed=True)}, skipping..."
    return _json({"type": str(KEY_VERSION), "data": {"transactionalId": transactional_id}})


def value_text(value: bytes) -> str:
    """A value as kafka-dump-log prints it, with the partitions in the order of the bytes.

    Raises CorruptData.
    """
    held = decode_value("", value)
    version = int.from_bytes(value[:2], signed=True)
    is_flexible = version >= FIRST_FLEXIBLE
    reader = Reader(value, _FIXED.size, len(value))
    partitions = _partitions(reader, is_flexible=is_flexible)
    reader.skip(_TIMES.size)
    tags = _tags(value, reader) if is_flexible else {}
    previous_id = tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID)
    data: dict[str, object] = {"producerId": held.producer_id}
    if previous_id != NO_PRODUCER_ID:
        data["previousProducerId"] = previous_id
    if held.next_producer_id != NO_PRODUCER_ID:
        data["nextProducerId"] = held.next_producer_id
    data |= {
        "producerEpoch": held.producer_epoch,
        "transactionTimeoutMs": held.timeout_ms,
        "transactionStatus": NAMES[held.state],
        "transactionPartitions": partitions
        if partitions is None
        else [{"topic": topic, "partitionIds": ids} for topic, ids in partitions],
        "transactionLastUpdateTimestampMs": held.updated_ms,
        "transactionStartTimestampMs": held.start_ms,
    }
    if held.client_version:
        data["clientTransactionVersion"] = held.client_version
    return _json({"version": str(version), "data": data})


def _json(tree: object) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def _partitions(reader: Reader, *, is_flexible: bool) -> list[tuple[str, list[int]]] | None:
    """Topics and partition ids in the order of the bytes; None for the null array."""
    count = reader.array_count(is_flexible)
    if count < 0:
        return None
    found = []
    for _ in range(count):
        topic = reader.string(is_flexible)
        found.append((topic, [reader.int32() for _ in range(reader.array_count(is_flexible))]))
        if is_flexible:
            reader.skip_tags()
    return found


def _tags(value: bytes, reader: Reader) -> dict[int, int]:
    """The tagged fields at the reader's position; all that are known are numbers."""
    return {
        tag: int.from_bytes(value[position : position + length], signed=True)
        for tag, position, length in reader.tags()
    }


def _decode(transactional_id: str, value: bytes) -> Transaction:
    reader = Reader(value, 0, len(value))
    version, producer_id, epoch, timeout_ms, state = _FIXED.unpack_from(
        value, reader.skip(_FIXED.size)
    )
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise WireError(f"value version {version}, known are 0 to {VALUE_VERSION_MAX}")
    is_flexible = version >= FIRST_FLEXIBLE
    partitions = {
        TopicPartition(topic, partition_id)
        for topic, partition_ids in _partitions(reader, is_flexible=is_flexible) or ()
        for partition_id in partition_ids
    }
    updated_ms, start_ms = _TIMES.unpack_from(value, reader.skip(_TIMES.size))
    tags = _tags(value, reader) if is_flexible else {}
    previous_id = tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=State(state),
        partitions=frozenset(partitions),
        updated_ms=updated_ms,
        start_ms=start_ms,
        previous_producer_id=NO_PRODUCER_ID if previous_id == producer_id else previous_id,
        next_producer_id=tags.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        client_version=tags.get(_CLIENT_VERSION, 0),
    )
