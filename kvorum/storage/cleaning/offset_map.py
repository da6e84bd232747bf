"""The offset map of one clean: for each key, the offset of its latest record. Bounded.

Keys are stored as 128-bit digests, as in Kafka. Two keys with the same digest would cost a record;
with a million keys the odds are one in 10^26.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 192
"""Memory of an entry: the two objects, for digest and offset, and a share of a dict that may just
have grown. Kafka packs an entry into 24 bytes, so its buffer holds eight times as many."""
_DIGEST_BYTES = 16


class OffsetMap:
    """Offsets by key. latest_offset: of the last batch whose keys are all in the map, or -1."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, *, buffer_bytes: int, load_factor: float) -> None:
        self._capacity = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def capacity(self) -> int:
        """Number of keys that fit; only the first batch of a pass may exceed it."""
        return self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of `key`; `offset` must rise from call to call."""
        self._offsets[blake2b(key, digest_size=_DIGEST_BYTES).digest()] = offset

    def get(self, key: bytes) -> int:
        """Offset of the latest record with `key`, -1 if the key is not in the map."""
        return self._offsets.get(blake2b(key, digest_size=_DIGEST_BYTES).digest(), -1)
