"""One partition's records, read back from the columns of a history as numpy arrays.

An array of all records is read again by each check that asks for it, and freed with the check: ten
million records of one partition must fit beside the results that several checks share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kvorum.chaos.checks.columns import Bools, Ints, blocks_of, fits, narrow
from kvorum.chaos.checks.gather import (
    IS_OK,
    IS_POSITION,
    IS_TRANSACTION,
    Gathered,
    Key,
)

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReader:
    """The reads of one process while it kept its position: from one assignment of the partition to
    the next. Arrays have an entry per record.

    places: its index among all reads of the partition.
    events: the number of the poll or transaction that returned it.
    ok: False for a record of an aborted transaction, after which the consumer may not continue.
    """

    process: str
    offsets: Ints
    places: Ints | slice
    events: Ints
    ok: Bools


class PartitionEvidence:
    """One partition's records in a history. The arrays of one kind have the same length.

    is_compacted: only the newest value of a key must stay.
    is_trimmed: records below the log's start may be gone, by retention or DeleteRecords.
    is_retried: its producers are not idempotent.
    """

    def __init__(self, gathered: Gathered, key: Key) -> None:
        self.topic, self.number = key
        self.is_compacted = self.topic in gathered.compacted_topics
        self.is_trimmed = self.topic in gathered.trimmed_topics
        self.is_retried = self.topic in gathered.retried_topics
        self.final_read = gathered.final_reads.get(key)
        self._gathered = gathered
        self._columns = gathered.columns[key]
        self.failed = distinct(self._columns.failed.field())
        self.polls = self._columns.polls.rows()
        self.written = self._columns.written.rows()
        self.committed = self._columns.committed.rows()
        self.shared = self._columns.shared.rows()

    @property
    def acked_values(self) -> Ints:
        return self._columns.acked.field(0)

    @property
    def acked_offsets(self) -> Ints:
        """The offsets of `acked_values`; -1 for an acknowledgement without one."""
        return self._columns.acked.field(1)

    @property
    def acked_processes(self) -> Ints:
        return self._columns.acked.field(2)

    @property
    def acked_us(self) -> Ints:
        return self._columns.acked.field(4)

    @property
    def acked_latency_us(self) -> Ints:
        return self._columns.acked.field(5)

    @property
    def read_offsets(self) -> Ints:
        return self._columns.read_offsets.field()

    @property
    def read_values(self) -> Ints:
        return self._columns.read_values.field()

    @property
    def final_offsets(self) -> Ints:
        return self._columns.final_offsets.field()

    @property
    def final_values(self) -> Ints:
        return self._columns.final_values.field()

    @property
    def name(self) -> str:
        """As Kafka names its folders."""
        return f"{self.topic}-{self.number}"

    @property
    def known_values(self) -> Ints:
        """Every value that a producer wrote or tried to write, sorted."""
        known = distinct(self._columns.invoked.field())
        values = self.acked_values
        more = [values[~is_in(values, known)], self.failed[~is_in(self.failed, known)]]
        elsewhere = self._gathered.columns.get((self.topic, -1))
        if elsewhere is not None:
            for values in (elsewhere.invoked.field(), elsewhere.failed.field()):
                more.append(values[~is_in(values, known)])
        return distinct(np.concatenate((known, *more))) if sum(map(len, more)) else known

    @cached_property
    def failed_values(self) -> Ints:
        """Every value whose write certainly had no effect, sorted."""
        elsewhere = self._gathered.columns.get((self.topic, -1))
        if elsewhere is None:
            return self.failed
        return distinct(np.concatenate((self.failed, elsewhere.failed.field())))

    @cached_property
    def sightings(self) -> tuple[Ints, Ints]:
        """(offsets, values) of every record seen anywhere: acknowledged, polled, or in the final
        read. Each pair is there once; sorted by offset, then by value."""
        offsets, values = self.acked_offsets, self.acked_values
        placed = offsets >= 0
        if not placed.all():
            offsets, values = offsets[placed], values[placed]
        offsets, values = _distinct_pairs(offsets, values)
        # Nearly all reads are of records that were seen before: only the others are added.
        for is_final in (False, True):
            more_offsets = self.final_offsets if is_final else self.read_offsets
            more_values = self.final_values if is_final else self.read_values
            is_new = ~_are_among(more_offsets, more_values, offsets, values)
            if is_new.any():
                offsets, values = _distinct_pairs(
                    np.concatenate((offsets, more_offsets[is_new])),
                    np.concatenate((values, more_values[is_new])),
                )
        return offsets, values

    @cached_property
    def must_be_polled(self) -> Ints:
        """The offsets that certainly held a record whenever a consumer passed them, sorted."""
        if self.is_compacted:
            return distinct(self.final_offsets)
        offsets = self.sightings[0]
        if self.is_trimmed and self.final_read is not None:
            offsets = offsets[offsets >= self.final_read.start_offset]
        return distinct(offsets)

    @property
    def present(self) -> Ints:
        """The values of the final read; without one, of all polls. Sorted."""
        values = self.final_values
        if self.final_read is not None or len(values):
            return distinct(values)
        return distinct(self.read_values)

    @property
    def read_to(self) -> int:
        """The offset below which every record of the log was read. A complete final read has no
        limit: a record that was acknowledged above the log's end is not in the log."""
        if self.final_read is not None:
            final = self.final_read
            return _NO_LIMIT if final.is_complete else final.next_offset
        return int(self.read_offsets.max(initial=-1)) + 1

    @cached_property
    def keys(self) -> tuple[Ints, Ints]:
        """(values, keys) of a compacted topic's records, sorted by value, each value once."""
        rows = self._columns.keyed.rows()
        values, first = np.unique(rows[:, 0], return_index=True)
        return values, rows[first, 1]

    def process(self, number: int) -> str:
        """The name of a process."""
        return self._gathered.processes[number]

    def group(self, number: int) -> str:
        """The name of a group."""
        return self._gathered.groups[number]

    @property
    def is_polled(self) -> bool:
        """True if a consumer polled the partition during the run, outside transactions."""
        return bool(((self.polls[:, 5] & IS_TRANSACTION) == 0).any())

    @property
    def is_topic_polled(self) -> bool:
        """True if a consumer polled any partition of the topic, outside transactions."""
        return self.topic in self._gathered.polled_topics

    def producers(self) -> Iterator[tuple[str, Bools | slice]]:
        """(name, places of its acknowledged records that have an offset) of each producer."""
        placed = self.acked_offsets >= 0
        processes = self.acked_processes
        numbers = np.unique(processes[placed] if not placed.all() else processes)
        if len(numbers) == 1 and placed.all():
            yield self.process(int(numbers[0])), slice(None)
            return
        for number in numbers.tolist():
            yield self.process(number), placed & (processes == number)

    def reader_at(self, place: int) -> str:
        """The process that polled the record at this place of `read_values`."""
        poll = int(np.searchsorted(np.cumsum(self.polls[:, 4]), place, side="right"))
        return self.process(int(self.polls[poll, 0]))

    def readers(self) -> Iterator[PartitionReader]:
        """The readers of the partition, the final read left out."""
        counts = self.polls[:, 4]
        if not len(counts):
            return
        read_offsets = self.read_offsets
        tenures = self.polls[:, 0] * (int(self.polls[:, 1].max()) + 1) + self.polls[:, 1]
        order = np.argsort(tenures, kind="stable")
        begins = np.flatnonzero(np.diff(tenures[order], prepend=-1))
        for mine in np.split(order, begins[1:]):
            places = self._records_of(mine)
            polls = self.polls[mine]
            yield PartitionReader(
                process=self.process(int(polls[0, 0])),
                offsets=read_offsets[places],
                places=places,
                events=np.repeat(narrow(polls[:, 2]), polls[:, 4]),
                ok=np.repeat((polls[:, 5] & IS_POSITION) != 0, polls[:, 4]),
            )

    def value_read(self, reader: PartitionReader, at: int) -> int:
        """The value of a reader's record."""
        values = self.read_values
        return int(values[reader.places][at])

    def _records_of(self, polls: Ints) -> Ints | slice:
        """The places of the records of these polls."""
        counts = self.polls[:, 4]
        if len(polls) == len(counts):
            return slice(None)
        starts = np.cumsum(counts) - counts
        return _ranges(starts[polls], counts[polls])

    def seers(self) -> Iterator[tuple[str, bool, Ints, int]]:
        """(name, True for a group, values seen, sorted, and the highest offset) of each group and
        of each process without a group. Clients that poll in transactions only now and then are
        left out."""
        marks = self.polls[:, 5]
        processes: dict[tuple[str, bool], list[int]] = {}
        for number in np.unique(self.polls[(marks & IS_TRANSACTION) == 0, 0]).tolist():
            processes.setdefault(self._gathered.seer(number), []).append(number)
        for (name, is_group), numbers in sorted(processes.items()):
            mine = np.flatnonzero(np.isin(self.polls[:, 0], numbers))
            chosen = self._records_of(mine)
            highest = int(self.read_offsets[chosen].max(initial=-1))
            yield name, is_group, distinct(self.read_values[chosen]), highest

    def reads_of_transactions(self) -> tuple[Ints, Ints, Ints]:
        """(events, values, offsets) of the records that committed transactions polled."""
        counts, marks = self.polls[:, 4], self.polls[:, 5]
        both = IS_OK | IS_TRANSACTION
        mine = np.flatnonzero((marks & both) == both)
        chosen = self._records_of(mine)
        events = np.repeat(self.polls[mine, 2], counts[mine])
        return events, self.read_values[chosen], self.read_offsets[chosen]


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """The numbers start, start + 1, ... of each range, one after the other."""
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(counts)
    numbers = np.repeat(narrow(starts - (ends - counts)), counts)
    count = len(numbers)
    if not fits(np.array([count + int(numbers.max(initial=0))])):
        numbers = numbers.astype(np.int64)
    numbers += np.arange(count, dtype=numbers.dtype)
    return numbers


def is_in(values: Ints, known: Ints) -> Bools:
    """For each value if it is among the sorted, unique known ones."""
    found = np.zeros(len(values), dtype=np.bool_)
    if not len(known):
        return found
    values, known = _alike(values, known)
    for block in blocks_of(len(values)):
        at = np.searchsorted(known, values[block])
        at[at == len(known)] = 0
        found[block] = known[at] == values[block]
    return found


def _alike(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Both in the same number of bits: NumPy would widen the whole of one for each block."""
    kind = np.promote_types(one.dtype, other.dtype)
    return one.astype(kind, copy=False), other.astype(kind, copy=False)


def distinct(values: Ints) -> Ints:
    """The values, sorted, each once. Free if they rise already, as those of a history mostly do."""
    if (values[1:] > values[:-1]).all():
        return values
    ordered = np.sort(values)
    once: Ints = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return once


def _distinct_pairs(offsets: Ints, values: Ints) -> tuple[Ints, Ints]:
    """The pairs sorted by offset, then by value, each once."""
    if (offsets[1:] > offsets[:-1]).all():
        return offsets, values
    order = np.lexsort((values, offsets))
    offsets, values = offsets[order], values[order]
    first = np.append(True, (offsets[1:] != offsets[:-1]) | (values[1:] != values[:-1]))
    return offsets[first], values[first]


def _are_among(offsets: Ints, values: Ints, known_offsets: Ints, known_values: Ints) -> Bools:
    """For each pair if it is the first known one at its offset."""
    found = np.zeros(len(offsets), dtype=np.bool_)
    if not len(known_offsets):
        return found
    offsets, known_offsets = _alike(offsets, known_offsets)
    for block in blocks_of(len(offsets)):
        at = np.searchsorted(known_offsets, offsets[block])
        at[at == len(known_offsets)] = 0
        found[block] = (known_offsets[at] == offsets[block]) & (known_values[at] == values[block])
    return found
