"""Columns of a history: narrow where the numbers fit, whole where not, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from kvorum.chaos.checks.columns import BLOCK, Spool, blocks_of, narrow
from kvorum.chaos.checks.evidence import PartitionEvidence, is_in
from kvorum.chaos.checks.gather import Gathered
from kvorum.chaos.history import Event, Poll

BIG = 1 << 40


@pytest.mark.parametrize("buffered_bytes_max", [0, 1 << 30])
@pytest.mark.parametrize("last", [7, BIG, -BIG])
def test_a_field_has_every_number_in_as_many_bits_as_they_need(buffered_bytes_max, last):
    spool = Spool(buffered_bytes_max=buffered_bytes_max)
    column = spool.column(2)
    rows = 3 * BLOCK + 5
    for begin in range(0, rows, BLOCK):
        for number in range(begin, min(begin + BLOCK, rows)):
            column.extend((number, last if number == rows - 2 else 0))
        spool.trim()
    second = column.field(1)
    assert second.dtype == (np.int32 if last == 7 else np.int64)
    assert (second[rows - 2], int(np.abs(second).sum())) == (last, abs(last))
    assert (column.field(0) == np.arange(rows)).all()
    assert (column.rows()[:, 0] == np.arange(rows)).all()
    spool.close()


def test_an_empty_column_is_empty():
    spool = Spool()
    assert len(spool.column(3).field(2)) == len(spool.column().rows()) == 0


def test_blocks_cover_every_place_once():
    for count in (0, 1, BLOCK, BLOCK + 1):
        covered = [place for block in blocks_of(count) for place in range(count)[block]]
        assert covered == list(range(count))


def test_numbers_of_either_width_are_found_among_those_of_the_other():
    few, many = np.array([1, BIG, 5]), np.arange(10, dtype=np.int32)
    assert is_in(few, many).tolist() == [True, False, True]
    assert is_in(many[:3], np.sort(few)).tolist() == [False, True, False]
    assert narrow(few).dtype == np.int64 and narrow(few[::2]).dtype == np.int32


def test_long_polls_are_spooled_before_many_events_have_come():
    offsets = tuple(range(1 << 16))
    spool = Spool(buffered_bytes_max=1 << 20)
    held = 0

    def polls():
        nonlocal held
        for index in range(64):
            held = max(held, sum(len(column.buffer) for column in spool._columns))
            poll = Poll("orders", 0, offsets, offsets)
            yield Event(
                index=index, time_ms=index, process="final-read", type="ok", f="poll", ops=(poll,)
            )

    with Gathered(spool=spool) as gathered:
        gathered.read(polls(), {})
        # 64 polls are 8 million numbers.
        assert held < 2_000_000
        assert len(PartitionEvidence(gathered, ("orders", 0)).final_offsets) == 64 << 16
