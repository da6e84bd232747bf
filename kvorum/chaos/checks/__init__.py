"""Checks: folds over a history that report broken guarantees, one partition at a time.

Memory holds the columns of the largest partition, the transactions' edges and at most
`columns.BUFFERED_BYTES_MAX` of the others, whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvorum.chaos.checks import (
    leadership,
    polls,
    records,
    sends,
    topics,
    transactions,
)
from kvorum.chaos.checks.catalogue import CHECKS
from kvorum.chaos.checks.columns import Spool
from kvorum.chaos.checks.cycles import Cycles
from kvorum.chaos.checks.evidence import PartitionEvidence
from kvorum.chaos.checks.gather import Fold, Gathered, Key
from kvorum.chaos.checks.groups import GroupFold
from kvorum.chaos.checks.results import Board, CheckResult, Finding
from kvorum.chaos.checks.share_groups import ShareGroups
from kvorum.chaos.history import Event, read_history

__all__ = [
    "CHECKS", "CheckResult", "Finding", "Rules", "run_checks", "run_checks_of",
]  # fmt: skip

_OF_A_PARTITION: tuple[Callable[[PartitionEvidence, Board], None], ...] = (
    records.lost_write,
    records.inconsistent_offsets,
    records.phantom,
    records.aborted_read,
    records.unseen,
    records.unread,
    polls.polls_in_order,
    transactions.precommitted_read,
)
_OF_IDEMPOTENT_PRODUCERS: tuple[Callable[[PartitionEvidence, Board], None], ...] = (
    records.duplicate,
    records.reordered,
    sends.nonmonotonic_send,
    sends.int_nonmonotonic_send,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Facts of a run that its history does not tell.

    compacted_topics: only the newest record of each key must stay.
    trimmed_topics: retention or DeleteRecords may remove records from the log's start.
    retried_topics: written by producers that are not idempotent, so a retry may write a record
        twice or after later ones: `duplicate`, `reordered` and the order of sends are not judged
        there.
    realtime_lag_max_ms: what no poll may be behind, None to measure only.
    """

    compacted_topics: frozenset[str] = frozenset()
    trimmed_topics: frozenset[str] = frozenset()
    retried_topics: frozenset[str] = frozenset()
    realtime_lag_max_ms: float | None = None


def run_checks(path: str, rules: CheckRules | None = None) -> list[CheckResult]:
    """Every check over the history in a file, in a fixed order.

    Raises CorruptData for a damaged file, or one of another version.
    """
    return run_checks_of(read_history(path), rules)


def run_checks_of(
    events: Iterable[Event], rules: CheckRules | None = None, spool: Spool | None = None
) -> list[CheckResult]:
    """Every check over a history, in a fixed order. spool: where columns go that exceed memory."""
    rules = rules or CheckRules()
    board = Board(CHECKS)
    leaders, groups = leadership.Leadership(board), GroupFold(board)
    administration, shares = topics.Topics(board), ShareGroups(board)
    folds: dict[str, list[Fold]] = {}
    for fold in (leaders, groups, administration, shares):
        for function, take in fold.folds().items():
            folds.setdefault(function, []).append(take)
    gathered = Gathered(
        compacted_topics=rules.compacted_topics,
        trimmed_topics=rules.trimmed_topics,
        retried_topics=rules.retried_topics,
        spool=spool,
    )
    with gathered:
        gathered.read(events, folds)
        _look_at_partitions(gathered, board, leaders, shares, rules)
    administration.finish()
    return board.results()


def _look_at_partitions(
    gathered: Gathered,
    board: Board,
    leaders: leadership.Leadership,
    shares: ShareGroups,
    rules: CheckRules,
) -> None:
    lag, cycles = polls.RealtimeLag(rules.realtime_lag_max_ms), Cycles()
    atomicity = transactions.Atomicity()
    copied: list[Key] = []
    collectors = (lag, cycles, atomicity, shares)
    for key in gathered.partitions():
        if _look_at(PartitionEvidence(gathered, key), board, leaders, collectors):
            copied.append(key)
    for collector in collectors:
        collector.finish(board)
    # The copy needs to know which transactions of unknown outcome committed, so it comes last.
    for key in copied:
        transactions.copies(PartitionEvidence(gathered, key), board, atomicity)


class _Collector(Protocol):
    def examine(self, partition: PartitionEvidence, board: Board) -> None: ...


def _look_at(
    partition: PartitionEvidence,
    board: Board,
    leaders: leadership.Leadership,
    collectors: Sequence[_Collector],
) -> bool:
    """Judge one partition, which is freed on return. True if transactions commit offsets in it."""
    for check in _OF_A_PARTITION:
        check(partition, board)
    if not partition.is_retried:
        for check in _OF_IDEMPOTENT_PRODUCERS:
            check(partition, board)
    leaders.finish(partition)
    for collector in collectors:
        collector.examine(partition, board)
    return len(partition.committed) > 0
