"""The table of readings of a topic."""

from __future__ import annotations

import pytest

from bench.spark_source import RECORD_BYTES, Reader, measure, table


def test_the_share_is_of_the_first_readers_median():
    rows = table({"one consumer": [100.0, 400.0, 200.0], "Spark": [50.0, 60.0, 40.0]})
    assert rows[2:] == [
        "| one consumer | 200 | 100 | 400 | 100% |",
        "| Spark | 50 | 40 | 60 | 25% |",
    ]


def test_readers_take_turns_and_the_first_round_is_not_counted():
    calls: list[str] = []

    def reader(name: str) -> Reader:
        return Reader(name=name, read=lambda: calls.append(name) or 3 * RECORD_BYTES)

    rates = measure([reader("a"), reader("b")], records=3, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert {name: len(found) for name, found in rates.items()} == {"a": 2, "b": 2}


def test_a_reader_that_leaves_a_record_out_is_found():
    with pytest.raises(RuntimeError, match="short read 200 bytes of 300"):
        measure([Reader(name="short", read=lambda: 2 * RECORD_BYTES)], records=3, rounds=1)
