"""The partition of a new record, as Kafka's default partitioner chooses it.

A key always goes to the same partition: murmur2 of its bytes. Records without a key stay with one
partition for a while, so that batches fill (KIP-480, KIP-794).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from random import Random

STICKY_BYTES = 16 * 1024
"""Bytes without keys before another partition is chosen: Kafka's default batch.size."""

_SEED, _MULTIPLIER = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF


@functools.lru_cache(maxsize=1 << 16)
def murmur2(data: bytes) -> int:
    """Kafka's hash of a key (Utils.murmur2) without its sign: 0 to 2^31 - 1."""
    size = len(data)
    value = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < size:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


class Partitioner:
    """Chooses partitions of one topic. leaders: broker id of each partition, -1 for none."""

    def __init__(self, leaders: Mapping[int, int], random: Random) -> None:
        self._random = random
        self._sticky = 0
        self._bytes_left = 0
        self.update(leaders)

    def update(self, leaders: Mapping[int, int]) -> None:
        """Use the partitions of a newer answer."""
        self._count = len(leaders)
        self._available = [p for p, leader in sorted(leaders.items()) if leader >= 0] or [*leaders]
        if self._sticky not in self._available:
            self._bytes_left = 0

    def partition(self, key: bytes | None, size_bytes: int) -> int:
        """The partition of a record of that size."""
        if key is not None:
            return murmur2(key) % self._count
        if self._bytes_left <= 0:
            others = [p for p in self._available if p != self._sticky] or self._available
            self._sticky = self._random.choice(others)
            self._bytes_left = STICKY_BYTES
        self._bytes_left -= size_bytes
        return self._sticky
