"""Ranges of offsets for tasks and micro-batches, on random inputs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import to_arrow_schema

from kvorum.analytics.kafka_source.columns import BatchBuilder, full_schema
from kvorum.analytics.kafka_source.offsets import from_json, to_json
from kvorum.analytics.kafka_source.plan import (
    OffsetRange,
    limit,
    pending_offsets,
    ranges_between,
    split,
)
from kvorum.analytics.kafka_source.pruning import narrow

SIZES = st.dictionaries(st.integers(0, 30), st.integers(0, 200), max_size=8)


def ranges_of(sizes: dict[int, int]) -> list[OffsetRange]:
    return [
        OffsetRange(
            topic="t", partition=number, start_offset=number * 7, end_offset=number * 7 + size
        )
        for number, size in sizes.items()
    ]


FILTERS = st.one_of(
    st.builds(
        lambda kind, value: kind(("offset",), value),
        st.sampled_from(
            [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualNullSafe]
        ),
        st.integers(-3, 250),
    ),
    st.builds(lambda number: EqualTo(("partition",), number), st.integers(0, 30)),
    st.builds(lambda numbers: In(("partition",), numbers), st.sets(st.integers(0, 30)).map(tuple)),
    st.builds(lambda topic: EqualTo(("topic",), topic), st.sampled_from(["t", "u"])),
    st.builds(lambda topics: In(("topic",), topics), st.sampled_from([("t", "v"), ("u",)])),
    st.just(Not(EqualTo(("partition",), 0))),
)


def passes(one, partition: int, offset: int) -> bool:
    """True if a row with this partition and offset passes the filter, by a plain reading of Spark's
    filter classes."""
    actual = {"topic": "t", "partition": partition, "offset": offset}
    match one:
        case EqualTo(attribute=(name,), value=value):
            return actual[name] == value
        case In(attribute=(name,), value=values):
            return actual[name] in values
        case GreaterThan(attribute=(name,), value=value):
            return actual[name] > value
        case GreaterThanOrEqual(attribute=(name,), value=value):
            return actual[name] >= value
        case LessThan(attribute=(name,), value=value):
            return actual[name] < value
        case LessThanOrEqual(attribute=(name,), value=value):
            return actual[name] <= value
    return True


@given(SIZES, st.lists(FILTERS, max_size=3))
def test_filters_leave_the_offsets_that_pass_them(sizes, filters):
    ranges = ranges_of(sizes)
    assert offsets_in(narrow(ranges, filters)) == [
        (partition, offset)
        for partition, offset in offsets_in(ranges)
        if all(passes(one, partition, offset) for one in filters)
    ]


def offsets_in(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [
        (one.partition, offset)
        for one in ranges
        for offset in range(one.start_offset, one.end_offset)
    ]


@given(SIZES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 50))
def test_a_split_has_every_offset_once_and_in_order(sizes, partitions_min, records_max):
    ranges = ranges_of(sizes)
    parts = split(ranges, partitions_min=partitions_min, records_per_partition_max=records_max)
    assert offsets_in(parts) == offsets_in(ranges)
    assert all(part.size > 0 for part in parts)


@given(SIZES, st.integers(1, 60))
def test_a_split_has_as_many_ranges_as_asked_for_if_there_are_offsets(sizes, partitions_min):
    parts = split(ranges_of(sizes), partitions_min=partitions_min)
    whole = sum(size > 0 for size in sizes.values())
    assert len(parts) == max(whole, min(partitions_min, sum(sizes.values())))


@given(SIZES, st.integers(1, 50))
def test_no_range_has_more_than_the_largest_number_of_records(sizes, records_max):
    parts = split(ranges_of(sizes), records_per_partition_max=records_max)
    assert all(part.size <= records_max for part in parts)
    assert len(parts) == sum(-(-size // records_max) for size in sizes.values())


@given(SIZES, st.integers(1, 60))
def test_parts_of_one_range_differ_by_one_record_at_most(sizes, partitions_min):
    by_partition: dict[int, list[int]] = {}
    for part in split(ranges_of(sizes), partitions_min=partitions_min):
        by_partition.setdefault(part.partition, []).append(part.size)
    assert all(max(parts) - min(parts) <= 1 for parts in by_partition.values())


def test_the_largest_range_is_split_first():
    parts = split(ranges_of({0: 10, 1: 90}), partitions_min=4)
    assert [(part.partition, part.size) for part in parts] == [(0, 10), (1, 30), (1, 30), (1, 30)]


@given(SIZES, st.integers(1, 300))
def test_a_limit_is_used_up_exactly(sizes, offsets_max):
    start = {("t", number): 5 for number in sizes}
    latest = {("t", number): 5 + size for number, size in sizes.items()}
    end = limit(start, latest, offsets_max)
    assert pending_offsets(start, end) == min(offsets_max, sum(sizes.values()))
    assert all(start[key] <= end[key] <= latest[key] for key in latest)


@given(SIZES, st.integers(1, 300))
def test_a_limit_is_shared_out_in_proportion_and_starves_nobody(sizes, offsets_max):
    busy = {number: size for number, size in sizes.items() if size}
    if not len(busy) <= offsets_max < sum(busy.values()):
        return
    start = {("t", number): 0 for number in sizes}
    end = limit(start, {("t", number): size for number, size in sizes.items()}, offsets_max)
    for number, size in busy.items():
        share = 1 + (size - 1) * (offsets_max - len(busy)) / (sum(busy.values()) - len(busy))
        assert end["t", number] >= 1
        assert abs(end["t", number] - share) < 1


def test_a_range_needs_a_start_below_its_end():
    start = {("t", 0): 4, ("t", 1): 9, ("u", 0): 0}
    end = {("t", 0): 4, ("t", 1): 3, ("u", 0): 2}
    assert ranges_between(start, end) == [
        OffsetRange(topic="u", partition=0, start_offset=0, end_offset=2)
    ]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a.b_c-1", "z"]), st.integers(0, 99)), st.integers(0)
    )
)
def test_offsets_come_back_from_json_and_have_one_order(offsets):
    shuffled = dict(sorted(offsets.items(), reverse=True))
    assert from_json(to_json(offsets)) == offsets
    assert repr(to_json(shuffled)) == repr(to_json(offsets))


@pytest.mark.parametrize("has_headers", [False, True])
def test_the_arrow_types_are_those_that_spark_expects(has_headers):
    schema = full_schema(has_headers=has_headers)
    built = BatchBuilder(schema.fieldNames(), "t", 0)
    assert built.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert isinstance(built.schema, pa.Schema)
