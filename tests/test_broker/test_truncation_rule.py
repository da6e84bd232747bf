"""The offset at which a log is cut that diverges from its leader's (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from kvorum.broker.partition.core.truncation import is_of_another_history, truncation_offset
from kvorum.storage.files.leader_epochs import LeaderEpochCache


def epochs(*entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache()
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


@pytest.mark.parametrize(
    ("diverging", "cut"),
    [
        ((2, 25), 25),  # the leader's epoch ended earlier than here
        ((2, 40), 30),  # this log's epoch ended earlier than the leader's
        ((3, 18), 18),  # an epoch that is unknown here: the end of the largest one below, at most
        ((3, 60), 30),
        ((9, 70), 50),  # an epoch above all of this log: all of its records count
        ((9, 45), 45),
        ((0, 3), 10),  # never below the log's start
    ],
)
def test_a_log_is_cut_where_the_first_of_both_histories_ends(
    diverging: tuple[int, int], cut: int
) -> None:
    own = epochs((1, 10), (2, 20), (5, 30))
    assert truncation_offset(diverging, own, start_offset=10, end_offset=50) == cut


def test_a_log_without_epochs_is_cut_where_the_leader_says() -> None:
    assert truncation_offset((1, 5), epochs(), start_offset=0, end_offset=9) == 5
    assert truncation_offset((1, 50), epochs(), start_offset=0, end_offset=9) == 9


def test_an_empty_log_whose_epoch_lies_below_its_start_is_of_another_history() -> None:
    assert is_of_another_history(epochs(), last_epoch=3)
    assert not is_of_another_history(epochs(), last_epoch=-1)
    assert not is_of_another_history(epochs((3, 7)), last_epoch=3)
