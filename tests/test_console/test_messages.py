"""Records as rows, and the questions that ask for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.console.core.message_rows import (
    HEADERS_MAX,
    LIST_BYTES_MAX,
    records_in,
    row_of,
    shown,
)
from kvorum.console.core.views import BadParameter
from kvorum.console.message_reader import question_of
from kvorum.storage.format.batch import BatchError, build_batch
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.markers import build_marker

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=15,
)


@given(json_values)
def test_json_in_lines_means_the_same(value):
    text = json.dumps(value, ensure_ascii=False)
    row = shown(text.encode(), "json", 100_000, in_lines=True)
    assert row["form"] == "json"
    assert json.loads(row["text"]) == value


def test_json_is_laid_out_as_by_hand():
    value = {"a": [1, {"b": []}], "c": {}, "d": "x, {y}: [z]"}
    row = shown(json.dumps(value).encode(), "auto", 1_000, in_lines=True)
    assert row["text"] == json.dumps(value, indent=2)


def test_json_keeps_digits_and_repeated_keys():
    data = b'{"n": 1.10, "n": 12345678901234567890, "e": 1E5}'
    row = shown(data, "auto", 1_000, in_lines=True)
    assert row["text"] == '{\n  "n": 1.10,\n  "n": 12345678901234567890,\n  "e": 1E5\n}'


def test_deep_brackets_do_not_grow_without_bound():
    data = b"[" * 900 + b"]" * 900
    assert shown(data, "auto", 10_000, in_lines=True)["form"] == "json"
    endless = b"[" * 100_000 + b"]" * 100_000
    assert shown(endless, "auto", 1_000_000, in_lines=True)["form"] == "text"


@pytest.mark.parametrize(
    ("data", "decoding", "form", "text"),
    [
        (None, "auto", "null", ""),
        (b"", "auto", "text", ""),
        (b"plain", "auto", "text", "plain"),
        ("größer 🙂\n".encode(), "auto", "text", "größer 🙂\n"),
        (b"\x00\x01\xff", "auto", "hex", "00 01 ff"),
        (b"a\x1b[31mred", "auto", "hex", "61 1b 5b 33 31 6d 72 65 64"),
        (b"abc\xff", "auto", "hex", "61 62 63 ff"),
        (b"abc\xff", "text", "text", "abc\ufffd"),
        (b"abc", "hex", "hex", "61 62 63"),
        (b"12", "auto", "text", "12"),
        (b"12", "json", "json", "12"),
        (b"{not json}", "json", "text", "{not json}"),
        (b"[NaN]", "auto", "text", "[NaN]"),
    ],
)
def test_bytes_are_shown_in_the_form_that_fits(data, decoding, form, text):
    row = shown(data, decoding, 1_000)
    assert (row["form"], row["text"]) == (form, text)


def test_large_value_is_cut_and_said_so():
    data = b"x" * 10_000_000
    row = shown(data, "auto", LIST_BYTES_MAX)
    assert (len(row["text"]), row["bytes"], row["is_cut"]) == (LIST_BYTES_MAX, 10_000_000, True)


def test_cut_inside_a_character_leaves_the_character_out():
    row = shown("é".encode() * 10, "auto", 5)
    assert (row["form"], row["text"], row["is_cut"]) == ("text", "éé", True)


def test_cut_json_is_shown_as_text():
    data = json.dumps(["x" * 50] * 10).encode()
    assert shown(data, "auto", 100)["form"] == "text"


def batch(base, count, **more):
    records = [(f"k{base + n}".encode(), b"v") for n in range(count)]
    return bytes(build_batch(records, timestamp_ms=1_000, base_offset=base, leader_epoch=0, **more))


def test_records_begin_at_the_offset_asked_for():
    data = batch(0, 3) + batch(3, 4, compression=Codec.ZSTD) + batch(7, 2)[:-1]
    assert [found.record.offset for found in records_in(data, 2)] == [2, 3, 4, 5, 6]


def test_damaged_batch_is_refused():
    data = bytearray(batch(0, 3))
    data[-1] ^= 1
    with pytest.raises(BatchError, match="batch at offset 0 has a wrong checksum"):
        list(records_in(bytes(data), 0))


def test_markers_of_transactions_are_named():
    data = bytes(
        build_marker(
            producer_id=1, producer_epoch=0, is_commit=False, coordinator_epoch=1, timestamp_ms=5
        )
    )
    rows = [row_of(found, "auto", 100) for found in records_in(data, 0)]
    assert [(row["marker"], row["is_transactional"]) for row in rows] == [("ABORT", True)]


def test_headers_are_bounded_and_counted():
    headers = tuple((b"h%d" % n, None if n % 2 else b"\xff") for n in range(HEADERS_MAX + 3))
    (found,) = records_in(batch(0, 1), 0)
    record = found.record._replace(headers=headers)
    row = row_of(type(found)(record=record, header=found.header), "auto", 100)
    assert (len(row["headers"]), row["headers_left_out"]) == (HEADERS_MAX, 3)
    assert row["headers"][0] == {
        "key": "h0",
        "value": {"form": "hex", "text": "ff", "bytes": 1, "is_cut": False},
    }
    assert row["headers"][1]["value"]["form"] == "null"


def test_question_has_defaults():
    asked = question_of({"topic": "orders"})
    assert (asked.partition, asked.start, asked.key, asked.limit) == (0, "latest", None, 25)


def test_key_is_text_or_hexadecimal():
    assert question_of({"key": "größe", "partition": "all"}).key == "größe".encode()
    assert question_of({"key": "0x00ff"}).key == b"\x00\xff"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"partition": "all"}, "needs a key"),
        ({"partition": "x"}, "partition=x"),
        ({"from": "never"}, "from=never is none of latest"),
        ({"from": "offset", "value": "-3"}, "value=-3"),
        ({"decode": "avro"}, "decode=avro"),
        ({"key": "0xzz"}, "key=0xzz"),
        ({"limit": "many"}, "limit=many"),
    ],
)
def test_question_that_means_nothing_is_refused(parameters, words):
    with pytest.raises(BadParameter, match=words):
        question_of(parameters)
