"""The clocks of replicas that fetch: when one is told to be off."""

from __future__ import annotations

import pytest

from kvorum.raft.node.follower_clocks import FollowerClocks
from kvorum.runtime.clock import CLOCK_MS_MAX

NOW_MS = 10_000_000


def told(*ahead_ms: int) -> list[str | None]:
    clocks = FollowerClocks()
    return [clocks.note(2, NOW_MS + ms, NOW_MS) for ms in ahead_ms]


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(7_200_000, "7,200.0 s ahead of"), (-20_000, "20.0 s behind")]
)
def test_a_clock_that_is_off_is_told_once(ahead_ms: int, words: str) -> None:
    line = f"the clock of node 2 is {words} this node's; let NTP set the clocks"
    assert told(*[ahead_ms] * 4) == [None, line, None, None]


def test_it_is_told_again_after_it_was_right() -> None:
    off = CLOCK_MS_MAX + 1
    assert [line is not None for line in told(off, off, CLOCK_MS_MAX, off, off)] == [
        False, True, False, False, True,
    ]  # fmt: skip


def test_a_fetch_that_waited_for_a_leader_that_stood_still_is_no_wrong_clock() -> None:
    assert told(0, -15_000, 0, 0) == [None] * 4


def test_each_replica_has_its_own_clock_and_an_earlier_build_tells_none() -> None:
    clocks = FollowerClocks()
    for replica_id, sent_at_ms in ((2, NOW_MS + 3), (101, NOW_MS - 4), (3, 0)):
        clocks.note(replica_id, sent_at_ms, NOW_MS)
    assert clocks.ahead_ms == {2: 3, 101: -4}
