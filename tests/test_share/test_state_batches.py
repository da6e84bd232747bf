"""State batches: newer ones replace older ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.share_state.batches import StateBatch, batches_problem, combined


@st.composite
def ascending(draw):
    position, rows = 0, []
    for _ in range(draw(st.integers(0, 6))):
        first = position + draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 4))
        state, count = draw(st.sampled_from([0, 2, 4])), draw(st.integers(0, 2))
        rows.append(StateBatch(first, last, state, count))
        position = last + 1
    return rows


def by_offset(rows):
    return {o: row[2:] for row in rows for o in range(row.first_offset, row.last_offset + 1)}


@given(ascending(), ascending(), st.integers(0, 12))
def test_each_record_has_its_newest_state(older, newer, start):
    found = combined(older, newer, start)
    wanted = {o: v for o, v in (by_offset(older) | by_offset(newer)).items() if o >= start}
    assert by_offset(found) == wanted
    assert batches_problem(found) is None
    for left, right in pairwise(found):
        assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:]


@pytest.mark.parametrize(
    "rows",
    [
        [StateBatch(5, 4, 0, 1)],
        [StateBatch(-1, 4, 0, 1)],
        [StateBatch(0, 4, 1, 1)],
        [StateBatch(0, 4, 5, 1)],
        [StateBatch(0, 4, 0, -1)],
        [StateBatch(0, 4, 0, 1), StateBatch(4, 5, 0, 1)],
    ],
)
def test_what_no_leader_would_write_is_refused(rows):
    assert batches_problem(rows) is not None
