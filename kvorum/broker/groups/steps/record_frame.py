"""The shared frame of the records of newer types of groups: keys, and the version of values. Pure.

A key has the record's type, the group id and, of some types, an item. The formats are Kafka's;
those of classic groups and of committed offsets are in `records`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from kvorum.broker.groups.steps.records import TOPIC
from kvorum.runtime.errors import CorruptData, WireError
from kvorum.wire.primitives import Reader, string_bytes

_INT16 = struct.Struct(">h")
K = TypeVar("K", bound=tuple[int, str, str])
V = TypeVar("V")


class KeyFormat(Generic[K]):
    """The keys of one type of group.

    make: a key from its type, group id and item; without an item, from the first two.
    with_item, without_item: the types of records of either kind.
    """

    def __init__(
        self,
        make: Callable[..., K],
        *,
        without_item: Collection[int],
        with_item: Collection[int],
    ) -> None:
        self._make = make
        self._without_item = frozenset(without_item)
        self._with_item = frozenset(with_item)

    def encode(self, key: K) -> bytes:
        """Encode a key. Keys are not flexible: strings have an int16 length."""
        record_type, group_id, item = key
        encoded = _INT16.pack(record_type) + string_bytes(group_id, False)
        return encoded if record_type in self._without_item else encoded + string_bytes(item, False)

    def decode(self, key: bytes) -> K | None:
        """Decode a key; None if it is one of another type of group. Raises CorruptData."""
        reader = Reader(key, 0, len(key))
        try:
            record_type = reader.int16()
            if record_type in self._without_item:
                return self._make(record_type, reader.string(False))
            if record_type in self._with_item:
                return self._make(record_type, reader.string(False), reader.string(False))
        except WireError as error:
            reason = f"the key {key!r} is cut off: {error}"
            raise CorruptData(TOPIC, reader.position, reason) from error
        return None


def decode_version_0(key: K, data: bytes, read: Callable[[K, Reader, bytes], V]) -> V:
    """Decode the value of a record with this key. Raises CorruptData, for another version too.

    read: called behind the version, with the key, the reader and `data`; may raise WireError.
    """
    reader = Reader(data, 0, len(data))
    try:
        version = reader.int16()
        if version != 0:
            reason = f"a record of type {key[0]} and version {version} is not known"
            raise CorruptData(TOPIC, 0, reason)
        return read(key, reader, data)
    except WireError as error:
        reason = f"the value of {key} is cut off: {error}"
        raise CorruptData(TOPIC, reader.position, reason) from error
