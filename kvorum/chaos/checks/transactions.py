"""Guarantees about transactions: all or nothing, nothing read before its commit, and the
transactional copy, which reads records and commits their offsets with its output exactly once."""

from __future__ import annotations

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Ints
from kvorum.chaos.checks.evidence import PartitionEvidence, is_in
from kvorum.chaos.checks.gather import ABORTED, COMMITTED, UNKNOWN
from kvorum.chaos.checks.results import Board


def precommitted_read(partition: PartitionEvidence, board: Board) -> None:
    """A transaction polled a record that it had written itself: Kafka's consumers see records of
    committed transactions only."""
    found = board[catalogue.PRECOMMITTED_READ]
    written = partition.written
    if not len(written):
        return
    events, values, offsets = partition.reads_of_transactions()
    found.examined += len(written)
    order = np.argsort(written[:, 0], kind="stable")
    own_values, own_events = written[order, 0], written[order, 2]
    at = np.minimum(np.searchsorted(own_values, values), len(order) - 1)
    wrong = np.flatnonzero((own_values[at] == values) & (own_events[at] == events))
    found.add_all(
        wrong,
        len(wrong),
        lambda place: found.add(
            f"the transaction of event {events[place]} polled its own value {values[place]}",
            topic=partition.topic,
            partition=partition.number,
            value=int(values[place]),
            offset=int(offsets[place]),
        ),
    )


#: Above every offset.
_NO_OFFSET = (1 << 63) - 1


class Atomicity:
    """The records of each transaction that are in the log, over all partitions."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []
        self._outcomes: dict[int, bool] = {}

    def examine(self, partition: PartitionEvidence, _: Board) -> None:
        """Take in one partition. A compacted one proves nothing of a record that is not there."""
        written = partition.written
        if not len(written):
            return
        is_there = is_in(written[:, 0], partition.present)
        reached = partition.final_read
        is_whole = reached is not None and reached.is_complete and reached.start_offset <= 0
        is_below = (written[:, 1] >= 0) & (written[:, 1] < partition.read_to)
        is_gone = ~is_there & (is_below | is_whole) & (not partition.is_compacted)
        if partition.is_trimmed:
            is_gone &= is_whole
        self._parts.append(np.column_stack((written[:, 2], written[:, 3], is_there, is_gone)))

    def finish(self, board: Board) -> None:
        """Enter the torn transactions, and remember which ones of unknown outcome committed."""
        found = board[catalogue.PARTIAL_TRANSACTION]
        if not self._parts:
            return
        rows = np.concatenate(self._parts)
        events, place = np.unique(rows[:, 0], return_inverse=True)
        states = np.zeros(len(events), dtype=np.int64)
        states[place] = rows[:, 1]
        there = np.bincount(place, weights=rows[:, 2]).astype(np.int64)
        gone = np.bincount(place, weights=rows[:, 3]).astype(np.int64)
        found.examined += len(events)
        # Records of an aborted transaction that were read are the business of `aborted-read`.
        wrong = np.flatnonzero((states != ABORTED) & (there > 0) & (gone > 0))
        found.add_all(
            wrong,
            len(wrong),
            lambda at: found.add(
                f"the transaction of event {events[at]} has {there[at]} records in the log, "
                f"and {gone[at]} are missing"
            ),
        )
        for at in np.flatnonzero(states == UNKNOWN):
            if there[at] or gone[at]:
                self._outcomes[int(events[at])] = bool(there[at])

    def is_committed(self, event: int, state: int) -> bool | None:
        """True or False if it is certain, None if nothing tells."""
        if state == UNKNOWN:
            return self._outcomes.get(event)
        return state == COMMITTED


def copies(partition: PartitionEvidence, board: Board, atomicity: Atomicity) -> None:
    """Judge the transactional copy of an input partition, by group.

    Each record below the group's committed offset was polled by exactly one committed transaction
    that committed its offset. If none did, the offset was committed without the output; if two
    did, the output is there twice. That a committed transaction's output is in the log is what
    `lost-write` and `partial-transaction` check.
    """
    committed = partition.committed
    offsets_by_event = _polled_by_event(partition)
    for number in np.unique(committed[:, 1]):
        rows = committed[committed[:, 1] == number]
        certain: list[Ints] = []
        possible: list[Ints] = []
        begin, highest = _NO_OFFSET, -1
        for event, _, offset, state in rows.tolist():
            outcome = atomicity.is_committed(event, state)
            polled = offsets_by_event.get(event)
            if polled is None:
                continue
            # Aborted transactions count here: they too begin at the group's committed offset.
            begin = min(begin, int(polled.min())) if len(polled) else begin
            if outcome is False:
                continue
            covered = polled[polled < offset]
            possible.append(covered)
            if outcome:
                certain.append(covered)
                highest = max(highest, offset)
        if certain:
            _judge_copy(partition, board, int(number), (certain, possible, begin, highest))


def _polled_by_event(partition: PartitionEvidence) -> dict[int, Ints]:
    """The offsets that each transaction polled."""
    ends = np.cumsum(partition.polls[:, 4])
    read_offsets = partition.read_offsets
    found: dict[int, Ints] = {}
    for row, end in zip(partition.polls.tolist(), ends.tolist(), strict=True):
        event, count = row[2], row[4]
        offsets = read_offsets[end - count : end]
        found[event] = np.append(found[event], offsets) if event in found else offsets
    return found


def _judge_copy(
    partition: PartitionEvidence,
    board: Board,
    group: int,
    coverage: tuple[list[Ints], list[Ints], int, int],
) -> None:
    certain, possible, begin, highest = coverage
    lost, twice = board[catalogue.COMMITTED_WITHOUT_OUTPUT], board[catalogue.COPIED_TWICE]
    covered, times = np.unique(np.concatenate(certain), return_counts=True)
    maybe = np.unique(np.concatenate(possible))
    due = partition.must_be_polled
    due = due[(due >= begin) & (due < highest)]
    name = partition.group(group)
    lost.examined += len(due)
    twice.examined += len(covered)
    missing = due[~is_in(due, maybe)]
    lost.add_all(
        missing,
        len(missing),
        lambda offset: lost.add(
            f"group {name} committed {highest} in {partition.name}, but no committed transaction "
            f"polled offset {offset}",
            topic=partition.topic,
            partition=partition.number,
            offset=int(offset),
        ),
    )
    again = covered[times > 1]
    twice.add_all(
        again,
        len(again),
        lambda offset: twice.add(
            f"two committed transactions of group {name} polled offset {offset} of "
            f"{partition.name}",
            topic=partition.topic,
            partition=partition.number,
            offset=int(offset),
        ),
    )
