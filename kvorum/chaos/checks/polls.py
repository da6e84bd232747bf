"""Guarantees about what one consumer polls: it goes forward and leaves nothing out; and how far it
is behind.

As in Jepsen's Kafka tests, a pair of records that follow each other inside one poll or transaction
is judged by the checks `int-...`, a pair across two polls by those without. A pair across two
assignments of the partition is not judged, nor one that begins in an aborted transaction: the
consumer goes back to the committed offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Ints, blocks_of
from kvorum.chaos.checks.evidence import PartitionEvidence, PartitionReader
from kvorum.chaos.checks.gather import IS_TRANSACTION
from kvorum.chaos.checks.results import Board

_US_PER_MS = 1000
_NEVER = np.iinfo(np.int64).max


def polls_in_order(partition: PartitionEvidence, board: Board) -> None:
    """A poll went back, repeated an offset, or skipped a record that was in the log."""
    must = partition.must_be_polled
    for reader in partition.readers():
        for inside in _inside(reader):
            _judge(
                partition,
                board,
                reader,
                must,
                (inside, inside + 1),
                (catalogue.INT_POLL_SKIP, catalogue.INT_NONMONOTONIC_POLL),
            )
        _judge(
            partition,
            board,
            reader,
            must,
            _across(reader),
            (catalogue.POLL_SKIP, catalogue.NONMONOTONIC_POLL),
        )


def _inside(reader: PartitionReader) -> Iterator[Ints]:
    """The places of records after which another one of the same poll follows, in blocks."""
    events = reader.events
    for block in blocks_of(max(0, len(events) - 1)):
        after = slice(block.start + 1, block.stop + 1)
        yield np.flatnonzero(events[after] == events[block]) + block.start


def _across(reader: PartitionReader) -> tuple[Ints, Ints]:
    """The last record of each poll with outcome ok, and the first record of the next poll, whatever
    its outcome."""
    starts = np.flatnonzero(np.append(True, reader.events[1:] != reader.events[:-1]))
    ends = np.append(starts[1:], len(reader.events)) - 1
    numbers = np.arange(len(starts))
    # For each poll, the number of the last earlier poll whose outcome is ok; -1 without one.
    last_ok = np.maximum.accumulate(np.where(reader.ok[starts], numbers, -1))
    before = np.append(-1, last_ok[:-1])
    chosen = before >= 0
    return ends[before[chosen]], starts[chosen]


def _judge(
    partition: PartitionEvidence,
    board: Board,
    reader: PartitionReader,
    must: Ints,
    pairs: tuple[Ints, Ints],
    checks: tuple[str, str],
) -> None:
    """Compare the offsets of pairs of records, of which the second was polled next."""
    skips, goings_back = board[checks[0]], board[checks[1]]
    before, after = reader.offsets[pairs[0]], reader.offsets[pairs[1]]
    between = np.searchsorted(must, before, side="right")
    skipped = np.searchsorted(must, after, side="left") - between
    skips.examined += len(before)
    goings_back.examined += len(before)

    def enter_skip(at: int) -> None:
        first = int(must[between[at]])
        skips.add(
            f"{reader.process} polled offset {after[at]} after {before[at]} and left out "
            f"{skipped[at]} records, the first at offset {first}",
            topic=partition.topic,
            partition=partition.number,
            value=partition.value_read(reader, int(pairs[1][at])),
            offset=first,
        )

    def enter_back(at: int) -> None:
        goings_back.add(
            f"{reader.process} polled offset {after[at]} after {before[at]}",
            topic=partition.topic,
            partition=partition.number,
            value=partition.value_read(reader, int(pairs[1][at])),
            offset=int(after[at]),
        )

    wrong = np.flatnonzero(skipped > 0)
    skips.add_all(wrong, len(wrong), enter_skip)
    wrong = np.flatnonzero(after <= before)
    goings_back.add_all(wrong, len(wrong), enter_back)


def realtime_lags(partition: PartitionEvidence) -> Ints:
    """For each poll with records, how long the first of them had certainly been in the log when the
    poll began, in microseconds.

    As in Jepsen's realtime lag, an offset certainly exists from the first moment at which it or a
    higher offset was acknowledged or polled. Polls that find nothing are not in a history, so the
    lag is that of the moment before the poll, its highest. Transactions poll when they like: theirs
    do not count.
    """
    counts = partition.polls[:, 4]
    polls = np.flatnonzero((counts > 0) & ((partition.polls[:, 5] & IS_TRANSACTION) == 0))
    if not len(polls):
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(counts)
    read_offsets = partition.read_offsets
    first_offsets, last_offsets = (
        read_offsets[(ends - counts)[polls]],
        read_offsets[ends[polls] - 1],
    )
    del read_offsets
    begun_us = partition.polls[polls, 3]
    acked_offsets, acked_us = partition.acked_offsets, partition.acked_us
    placed = acked_offsets >= 0
    if not placed.all():
        acked_offsets, acked_us = acked_offsets[placed], acked_us[placed]
    # Each poll itself counts as having seen its offsets when it began, so no minimum is _NEVER.
    known_us = np.minimum(
        _known_since(last_offsets, begun_us, first_offsets),
        _known_since(acked_offsets, acked_us, first_offsets),
    )
    lags_us: Ints = np.maximum(begun_us - known_us, 0)
    return lags_us


def _known_since(offsets: Ints, times_us: Ints, wanted: Ints) -> Ints:
    """The earliest of the times of this offset or a higher one, for each wanted offset; _NEVER if
    there is none."""
    if not (offsets[1:] > offsets[:-1]).all():
        order = np.argsort(offsets, kind="stable")
        offsets, times_us = offsets[order], times_us[order]
        del order
    earliest_us = np.minimum.accumulate(times_us[::-1])[::-1]
    at = np.searchsorted(offsets, wanted, side="left")
    known_us = np.full(len(wanted), _NEVER, dtype=np.int64)
    is_known = at < len(offsets)
    known_us[is_known] = earliest_us[at[is_known]]
    return known_us


class RealtimeLag:
    """The lags of all partitions in one figure. limit_ms: what no poll may exceed, None for no
    limit."""

    def __init__(self, limit_ms: float | None) -> None:
        self._limit_ms = limit_ms
        self._parts: list[Ints] = []

    def examine(self, partition: PartitionEvidence, board: Board) -> None:
        """Take in one partition."""
        found = board[catalogue.REALTIME_LAG]
        lags_us = realtime_lags(partition)
        found.examined += len(lags_us)
        self._parts.append(lags_us)
        if self._limit_ms is None:
            return
        wrong = np.flatnonzero(lags_us > self._limit_ms * _US_PER_MS)
        found.add_all(
            wrong,
            len(wrong),
            lambda at: found.add(
                f"a poll of {partition.name} was {lags_us[at] / _US_PER_MS:.1f} ms behind, "
                f"the limit is {self._limit_ms:g} ms",
                topic=partition.topic,
                partition=partition.number,
            ),
        )

    def finish(self, board: Board) -> None:
        """Enter the figures of all partitions."""
        lags_us = np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)
        if len(lags_us):
            figures = board[catalogue.REALTIME_LAG].figures
            figures["p50_ms"] = float(np.percentile(lags_us, 50)) / _US_PER_MS
            figures["p99_ms"] = float(np.percentile(lags_us, 99)) / _US_PER_MS
            figures["max_ms"] = float(lags_us.max()) / _US_PER_MS
