"""What a consumer's protocol metadata says: which topics it subscribes to. Pure.

The coordinator does not need to know for assigning; it does for expiring and deleting offsets. The
blob is the client's, so anything may be in it: what does not parse is None.
"""

from __future__ import annotations

from runtime.errors import WireError
from wire.primitives import Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a subscription: int16 version, [topic], user data, ... (any version)."""
    reader = Reader(metadata, 0, len(metadata))
    try:
        if reader.int16() < 0:
            return None
        return frozenset(reader.string(False) for _ in range(reader.array_count(False)))
    except WireError:
        return None
