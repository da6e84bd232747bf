"""Hand-written packing of a topic's partitions in Metadata responses.

After a failover every client asks at once. Packing a partition here takes less than half the time
of `kio_codec`, and the result is reused for the next client
(`broker.metadata_answers.topic_metadata`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvorum.wire.kio_codec import Packed
from kvorum.wire.primitives import count_bytes

OFFLINE_REPLICAS_VERSION = 5
LEADER_EPOCH_VERSION = 7
FLEXIBLE_VERSION = 9


class PartitionMetadata(NamedTuple):
    """The response fields of one partition; replicas, isr and offline_replicas are broker ids."""

    error: int
    partition_id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def pack_partitions(version: int, partitions: Iterable[PartitionMetadata], count: int) -> Packed:
    """The whole array of `count` partitions, for a response of this version."""
    return Packed(count_bytes(count, version >= FLEXIBLE_VERSION) + pack_rows(version, partitions))


def pack_rows(version: int, partitions: Iterable[PartitionMetadata]) -> bytes:
    """Elements of that array, without its count."""
    has_offline = version >= OFFLINE_REPLICAS_VERSION
    has_epoch = version >= LEADER_EPOCH_VERSION
    parts = []
    for error, partition_id, leader, leader_epoch, replicas, isr, offline in partitions:
        pack, counts = _packer(version, len(replicas), len(isr), len(offline))
        values = [error, partition_id, leader]
        if has_epoch:
            values.append(leader_epoch)
        fields = [*values, counts[0], *replicas, counts[1], *isr]
        if has_offline:
            fields += (counts[2], *offline)
        parts.append(pack(*fields))
    return b"".join(parts)


@functools.lru_cache(maxsize=1_024)
def _packer(
    version: int, replicas: int, isr: int, offline: int
) -> tuple[Callable[..., bytes], tuple[bytes, bytes, bytes]]:
    """The packer for a partition with lists of these lengths, and the encoded lengths."""
    is_flexible = version >= FLEXIBLE_VERSION
    counts = (
        count_bytes(replicas, is_flexible),
        count_bytes(isr, is_flexible),
        count_bytes(offline, is_flexible),
    )
    shape = ">hii" + ("i" if version >= LEADER_EPOCH_VERSION else "")
    shape += f"{len(counts[0])}s{replicas}i{len(counts[1])}s{isr}i"
    if version >= OFFLINE_REPLICAS_VERSION:
        shape += f"{len(counts[2])}s{offline}i"
    if is_flexible:
        shape += "x"  # no tagged fields
    return struct.Struct(shape).pack, counts
