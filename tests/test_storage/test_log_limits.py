"""Numbers at their ends, and what one rule leaves for the next: sizes, times, starts, frames."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.retention import deletable_count

# --- retention -----------------------------------------------------------------------------------


@dataclass
class OldSegment:
    base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    modified_ms: int = 0


def three_passes(segments: list[OldSegment], **limits: int) -> int:
    """Kafka's deleteOldSegments: those below the start, then those too many, then those too old."""
    count = 0

    def may_go(at: int) -> bool:
        is_last = at + 1 == len(segments)
        upper = limits["end_offset"] if is_last else segments[at + 1].base_offset
        return upper <= limits["high_watermark"]

    while count + 1 < len(segments) and may_go(count):
        if segments[count + 1].base_offset > limits["start_offset"]:
            break
        count += 1
    excess = sum(segment.size_bytes for segment in segments[count:]) - limits["retention_bytes"]
    while limits["retention_bytes"] >= 0 and count < len(segments) and may_go(count):
        excess -= segments[count].size_bytes
        if excess < 0:
            break
        count += 1
    while limits["retention_ms"] >= 0 and count < len(segments) and may_go(count):
        if limits["now_ms"] - segments[count].max_timestamp_ms <= limits["retention_ms"]:
            break
        count += 1
    return count


@settings(max_examples=400)
@given(st.data())
def test_retention_deletes_what_three_passes_would(data: st.DataObject) -> None:
    # 1. The oldest segment of 100 bytes goes for its age, 2. its bytes were still counted as too
    # many, 3. two young ones of 80 bytes went as well, though 100 were to be kept.
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    segments = [
        OldSegment(10 * at, size, data.draw(st.integers(0, 10))) for at, size in enumerate(sizes)
    ]
    end_offset = 10 * len(segments)
    limits = {
        "start_offset": data.draw(st.integers(0, end_offset)),
        "end_offset": end_offset,
        "high_watermark": data.draw(st.integers(0, end_offset)),
        "retention_ms": data.draw(st.sampled_from((-1, 3, 8))),
        "retention_bytes": data.draw(st.sampled_from((-1, 0, 5, 10))),
        "now_ms": 10,
    }
    assert deletable_count(segments, **limits) == three_passes(segments, **limits)


def test_what_goes_for_its_age_is_no_longer_too_much() -> None:
    segments = [OldSegment(0, 100, 0), OldSegment(10, 30, 10_000), OldSegment(20, 50, 10_000)]
    limits = {"retention_ms": 5_000, "retention_bytes": 100, "now_ms": 10_000}
    count = deletable_count(segments, start_offset=0, end_offset=30, high_watermark=30, **limits)
    assert count == 1
