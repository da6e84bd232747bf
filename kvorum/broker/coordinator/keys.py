"""The partition of an internal topic that a group or a transactional id belongs to."""

from __future__ import annotations

import struct


def partition_of(key: str, partition_count: int) -> int:
    """Absolute value of Java's `String.hashCode` (0 for -2^31), modulo the number of partitions.

    Apache Kafka computes the same, and so do tools that look for the partition of a key.
    """
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value % partition_count
