"""Filters of a query that leave ranges of offsets out: on topic, partition and offset. Pure.

Spark applies every filter again to what is read, so a filter that is not understood here costs
nothing but time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kvorum.analytics.kafka_source.plan import OffsetRange


def narrow(ranges: Iterable[OffsetRange], filters: Sequence[Filter]) -> list[OffsetRange]:
    """The parts of the ranges that can have records which pass all filters."""
    left = list(ranges)
    for one in filters:
        left = [part for wanted in left for part in _passing(wanted, one)]
    return left


def _passing(wanted: OffsetRange, one: Filter) -> list[OffsetRange]:
    match one:
        case EqualTo(attribute=("topic",), value=topic):
            passes = wanted.topic == topic
        case In(attribute=("topic",), value=topics):
            passes = wanted.topic in topics
        case EqualTo(attribute=("partition",), value=number):
            passes = wanted.partition == number
        case In(attribute=("partition",), value=numbers):
            passes = wanted.partition in numbers
        case _:
            low, high = _offsets(one)
            start = wanted.start_offset if low is None else max(low, wanted.start_offset)
            end = wanted.end_offset if high is None else min(high, wanted.end_offset)
            return [replace(wanted, start_offset=start, end_offset=end)] if start < end else []
    return [wanted] if passes else []


def _offsets(one: Filter) -> tuple[int | None, int | None]:
    """The lowest offset that passes, and the end (exclusive) of those; None: no such limit."""
    match one:
        case EqualTo(attribute=("offset",), value=offset):
            return offset, offset + 1
        case GreaterThan(attribute=("offset",), value=offset):
            return offset + 1, None
        case GreaterThanOrEqual(attribute=("offset",), value=offset):
            return offset, None
        case LessThan(attribute=("offset",), value=offset):
            return None, offset
        case LessThanOrEqual(attribute=("offset",), value=offset):
            return None, offset + 1
        case _:
            return None, None
