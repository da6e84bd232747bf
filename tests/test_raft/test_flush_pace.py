"""The disks that are quick enough for a voter to call fsync on its event loop."""

from __future__ import annotations

from kvorum.raft.node.flush_pace import QUICK_IN_A_ROW, QUICK_US, FlushPace


def noted(*took_us: float) -> FlushPace:
    pace = FlushPace()
    for one in took_us:
        pace.note(one)
    return pace


def test_a_disk_is_trusted_after_some_quick_fsyncs_in_a_row() -> None:
    assert not noted(*[QUICK_US] * (QUICK_IN_A_ROW - 1)).is_quick
    assert noted(*[QUICK_US] * QUICK_IN_A_ROW).is_quick


def test_one_slow_fsync_sends_the_next_ones_to_the_thread() -> None:
    pace = noted(*[QUICK_US] * 100, QUICK_US + 1)
    assert not pace.is_quick
    for _ in range(QUICK_IN_A_ROW):
        assert not pace.is_quick
        pace.note(100)
    assert pace.is_quick
