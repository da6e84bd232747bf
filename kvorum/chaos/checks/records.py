"""Guarantees about the records of one partition: none is lost, duplicated, moved or invented, and
consumers see all.

Names and meanings follow Jepsen's Kafka tests (jepsen.tests.kafka). Every check sorts at most, so
its cost is n log n of the partition's records.
"""

from __future__ import annotations

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Bools, Ints
from kvorum.chaos.checks.evidence import PartitionEvidence, distinct, is_in
from kvorum.chaos.checks.results import Board


def lost_write(partition: PartitionEvidence, board: Board) -> None:
    """An acknowledged record is missing from the final read.

    If the final read stopped early, the check `unread` covers the records from there on. Without a
    final read the polls of all consumers take its place, up to the highest offset polled. Of a
    compacted topic only the newest acknowledged record of a key must stay, until a newer one is
    there. A record that was acknowledged without an offset must be in a complete final read.
    """
    found = board[catalogue.LOST_WRITE]
    offsets, values = partition.acked_offsets, partition.acked_values
    due = offsets < partition.read_to
    if partition.final_read is None or not partition.final_read.is_complete:
        due &= offsets >= 0
    if partition.is_trimmed and partition.final_read is not None:
        due &= offsets >= partition.final_read.start_offset
    if partition.is_compacted:
        due &= _is_newest_of_its_key(partition)
    found.examined += int(due.sum())
    missing = np.flatnonzero(due & ~is_in(values, partition.present))
    found.add_all(
        missing,
        len(missing),
        lambda at: found.add(
            f"value {values[at]} was acknowledged {_at(int(offsets[at]))} and is gone",
            topic=partition.topic,
            partition=partition.number,
            value=int(values[at]),
            offset=int(offsets[at]) if offsets[at] >= 0 else None,
        ),
    )


def _at(offset: int) -> str:
    return f"at offset {offset}" if offset >= 0 else "without an offset"


def _is_newest_of_its_key(partition: PartitionEvidence) -> Bools:
    """For each acknowledged record if no record of its key has a higher offset, among the
    acknowledged ones and those of the final read."""
    values, keys = partition.keys
    acked_offsets = partition.acked_offsets
    if not len(values) or not len(acked_offsets):
        return np.ones(len(acked_offsets), dtype=np.bool_)
    offsets = np.concatenate((acked_offsets, partition.final_offsets))
    own = np.concatenate((partition.acked_values, partition.final_values))
    at = np.searchsorted(values, own)
    at[at == len(values)] = 0
    # A record whose key the history does not tell is a key of its own.
    key_of = np.where(values[at] == own, keys[at], -1 - np.arange(len(own)))
    order = np.lexsort((offsets, key_of))
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = key_of[order][1:] != key_of[order][:-1]
    newest_offset = np.zeros(len(order), dtype=np.int64)
    run = np.cumsum(np.concatenate(([0], is_last[:-1].astype(np.int64))))
    newest_offset[order] = offsets[order][is_last][run]
    newest: Bools = acked_offsets == newest_offset[: len(acked_offsets)]
    return newest


def unread(partition: PartitionEvidence, board: Board) -> None:
    """The final read did not reach the high watermark, or the partition did not answer."""
    found = board[catalogue.UNREAD]
    found.examined += 1
    reached = partition.final_read
    if reached is None:
        reason, offset = "there was no final read", None
    elif reached.end_offset < 0:
        reason, offset = "the partition gave no answer after healing", None
    elif not reached.is_complete:
        offset = reached.next_offset
        reason = f"the final read stopped at offset {offset} of {reached.end_offset}"
    else:
        return
    found.add(reason, topic=partition.topic, partition=partition.number, offset=offset)


def duplicate(partition: PartitionEvidence, board: Board) -> None:
    """One value was seen at two offsets: in acknowledgements, polls or the final read."""
    found = board[catalogue.DUPLICATE]
    offsets, values = partition.sightings
    # Records that are not the load's have no value of their own.
    is_own = values >= 0
    if not is_own.all():
        offsets, values = offsets[is_own], values[is_own]
    found.examined += len(values)
    ordered = np.sort(values)
    twice = distinct(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return
    chosen = is_in(values, twice)
    offsets, values = offsets[chosen], values[chosen]
    order = np.argsort(values, kind="stable")
    offsets, values = offsets[order], values[order]
    again = np.flatnonzero(values[1:] == values[:-1]) + 1
    found.add_all(
        again,
        len(again),
        lambda at: found.add(
            f"value {values[at]} is at offsets {offsets[at - 1]} and {offsets[at]}",
            topic=partition.topic,
            partition=partition.number,
            value=int(values[at]),
            offset=int(offsets[at]),
        ),
    )


def inconsistent_offsets(partition: PartitionEvidence, board: Board) -> None:
    """Two values were seen at one offset: in acknowledgements, polls or the final read."""
    found = board[catalogue.INCONSISTENT_OFFSETS]
    offsets, values = partition.sightings
    found.examined += len(offsets)
    again = np.flatnonzero(offsets[1:] == offsets[:-1]) + 1

    def enter(at: int) -> None:
        offset, one, other = (int(number) for number in (offsets[at], values[at - 1], values[at]))
        found.add(
            f"offset {offset} holds {one} ({_seen_by(partition, offset, one)}) and "
            f"{other} ({_seen_by(partition, offset, other)})",
            topic=partition.topic,
            partition=partition.number,
            value=other,
            offset=offset,
        )

    found.add_all(again, len(again), enter)


def reordered(partition: PartitionEvidence, board: Board) -> None:
    """Two acknowledged records of one producer are in the log in the wrong order.

    A producer writes rising values to a partition, so offsets must rise with the values.
    """
    found = board[catalogue.REORDERED]
    for _, mine in partition.producers():
        values, offsets = partition.acked_values[mine], partition.acked_offsets[mine]
        if not (values[1:] > values[:-1]).all():
            order = np.argsort(values, kind="stable")
            values, offsets = values[order], offsets[order]
        highest = np.maximum.accumulate(offsets)
        found.examined += len(values)
        wrong = np.flatnonzero(offsets[1:] < highest[:-1]) + 1

        def enter(
            at: int, values: Ints = values, offsets: Ints = offsets, highest: Ints = highest
        ) -> None:
            found.add(
                f"value {values[at]} is at offset {offsets[at]}, "
                f"an earlier value is at {highest[at - 1]}",
                topic=partition.topic,
                partition=partition.number,
                value=int(values[at]),
                offset=int(offsets[at]),
            )

        found.add_all(wrong, len(wrong), enter)


def phantom(partition: PartitionEvidence, board: Board) -> None:
    """A consumer read a value that no producer wrote."""
    _reads_of(
        partition,
        board,
        catalogue.PHANTOM,
        ~is_in(_read_values(partition), partition.known_values),
        "nobody wrote it",
    )


def aborted_read(partition: PartitionEvidence, board: Board) -> None:
    """A consumer read a value whose write certainly failed, or whose transaction was aborted."""
    _reads_of(
        partition,
        board,
        catalogue.ABORTED_READ,
        is_in(_read_values(partition), partition.failed_values),
        "its write failed",
    )


def _read_values(partition: PartitionEvidence) -> Ints:
    return np.concatenate((partition.read_values, partition.final_values))


def _reads_of(
    partition: PartitionEvidence, board: Board, check: str, wrong: Bools, reason: str
) -> None:
    """Enter the reads that are wrong; a record that a reader read twice counts twice."""
    found = board[check]
    found.examined += len(wrong)
    places = np.flatnonzero(wrong)
    if not len(places):
        return
    values, count = _read_values(partition), len(partition.read_values)
    offsets = np.concatenate((partition.read_offsets, partition.final_offsets))

    def enter(at: int) -> None:
        value, offset = int(values[at]), int(offsets[at])
        who = "the final read" if at >= count else partition.reader_at(at)
        found.add(
            f"{who} read value {value}, but {reason}",
            topic=partition.topic,
            partition=partition.number,
            value=value,
            offset=offset,
        )

    found.add_all(places, len(places), enter)


def unseen(partition: PartitionEvidence, board: Board) -> None:
    """A consumer that reads from the start did not get an acknowledged record; or no consumer
    polled the partition at all, though one read its topic.

    The members of a group count as one. A group may be stopped before it has read everything, so
    it must have seen what lies below the highest offset that it polled.
    """
    found = board[catalogue.UNSEEN]
    values, offsets = partition.acked_values, partition.acked_offsets
    placed = offsets >= 0
    if partition.is_compacted or (partition.is_trimmed and partition.final_read is not None):
        # Compaction or deletion may have been quicker than the consumer.
        placed &= is_in(values, partition.present)
    if not placed.all():
        values, offsets = values[placed], offsets[placed]
    if not len(values):
        return
    if not partition.is_polled:
        _never_polled(partition, board, len(values))
        return
    for name, is_group, seen, highest in partition.seers():
        due = offsets <= highest if is_group else np.ones(len(offsets), dtype=np.bool_)
        found.examined += int(due.sum())
        missing = np.flatnonzero(due & ~is_in(values, seen))

        def enter(at: int, name: str = name) -> None:
            found.add(
                f"{name} never saw value {values[at]}, acknowledged at offset {offsets[at]}",
                topic=partition.topic,
                partition=partition.number,
                value=int(values[at]),
                offset=int(offsets[at]),
            )

        found.add_all(missing, len(missing), enter)


def _never_polled(partition: PartitionEvidence, board: Board, count: int) -> None:
    found = board[catalogue.UNSEEN]
    if not partition.is_topic_polled:
        found.note(f"no consumer that keeps reading polled {partition.name}")
        return
    found.examined += count
    found.add(
        f"no consumer ever polled {partition.name}, {count} acknowledged records are unseen",
        topic=partition.topic,
        partition=partition.number,
    )


def _seen_by(partition: PartitionEvidence, offset: int, value: int) -> str:
    """Where a record was seen first: acknowledged, the name of a consumer, or the final read."""
    acked = (partition.acked_offsets == offset) & (partition.acked_values == value)
    if acked.any():
        return "acknowledged"
    read = np.flatnonzero((partition.read_offsets == offset) & (partition.read_values == value))
    return partition.reader_at(int(read[0])) if len(read) else "final read"
