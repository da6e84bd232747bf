"""The subscription in JoinGroup and the assignment in SyncGroup, of members of protocol type
`consumer` (Kafka's ConsumerProtocol). Pure.

The coordinator needs both to expire and delete offsets and to describe groups, not to assign.
Clients choose the bytes, which may be anything; bytes that do not parse give None.
"""

from __future__ import annotations

from kvorum.runtime.errors import WireError
from kvorum.wire.primitives import Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription: int16 version, [topic], user data, ... (any version)."""
    reader = Reader(metadata, 0, len(metadata))
    try:
        if reader.int16() < 0:
            return None
        return frozenset(reader.string(False) for _ in range(reader.array_count(False)))
    except WireError:
        return None


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """The partitions of an assignment, by topic: int16 version, [topic, [partition]], user data."""
    if not assignment:
        return {}
    reader = Reader(assignment, 0, len(assignment))
    try:
        if reader.int16() < 0:
            return None
        return {
            reader.string(False): tuple(reader.int32() for _ in range(reader.array_count(False)))
            for _ in range(reader.array_count(False))
        }
    except WireError:
        return None
