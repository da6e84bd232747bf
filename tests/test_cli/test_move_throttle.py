"""The replicas that a move's throttle holds back."""

from __future__ import annotations

from kvorum.cli.move_throttle import throttled_lists


def test_sources_are_held_on_the_leaders_side_and_additions_on_the_followers():
    current = {("t", 0): (1, 2), ("t", 1): (2, 3), ("u", 0): (1,)}
    wanted = {("t", 0): (2, 4), ("t", 1): (4, 5), ("u", 0): (1,)}
    assert throttled_lists(current, wanted) == {"t": ("0:1,0:2,1:2,1:3", "0:4,1:4,1:5")}


def test_move_that_adds_nothing_throttles_nobody():
    assert throttled_lists({("t", 0): (1, 2)}, {("t", 0): (2, 1)}) == {}
