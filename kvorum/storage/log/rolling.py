"""The decision to roll a log: Kafka's limits of size, age, offsets and index entries."""

from __future__ import annotations

from kvorum.storage.log.append_plan import Placed
from kvorum.storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kvorum.storage.log.model import RELATIVE_OFFSET_MAX, LogConfig
from kvorum.storage.log.segment import Segment


def must_roll(segment: Segment, item: Placed, config: LogConfig, now_ms: int) -> bool:
    """True if the active `segment` cannot or should not take the batch `item`."""
    size = segment.size_bytes
    if size == 0:
        return item.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    if size + item.size_bytes > config.segment_bytes:
        return True
    if segment.first_timestamp_ms >= 0:
        age_ms = item.header.max_timestamp_ms - segment.first_timestamp_ms
    else:
        age_ms = now_ms - segment.created_ms
    if age_ms > config.segment_ms:
        return True
    if item.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    offset_index, time_index = segment.indexes
    return (
        len(offset_index) >= config.index_bytes_max // OFFSET_ENTRY_BYTES
        or len(time_index) >= config.index_bytes_max // TIME_ENTRY_BYTES - 1
    )
