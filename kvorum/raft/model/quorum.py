"""Majority arithmetic and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def majority(voter_count: int) -> int:
    """The number of votes that is a majority of voter_count voters."""
    return voter_count // 2 + 1


def committed_offset(end_offsets: Sequence[int]) -> int:
    """The greatest offset that a majority of voters has reached.

    end_offsets: one for each voter, -1 for a voter that has not fetched yet (KIP-595).
    """
    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]


def is_lost(voter_count: int, rejected: Iterable[int]) -> bool:
    """True if no majority is possible any more, however the voters that are still silent answer."""
    return voter_count - len(set(rejected)) < majority(voter_count)
