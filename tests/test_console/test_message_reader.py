"""Reading messages, page by page, from a fake leader."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from kvorum.console.message_reader import MessageReader, question_of
from kvorum.storage.format.batch import CRC_START, build_batch
from tests.test_console.samples import cluster_records, image_with


def batch(base, keys, end):
    """A batch that ends at `end` and holds one record for each key; the records after them were
    compacted away."""
    records = [(key, b"v") for key in keys]
    data = build_batch(records, timestamp_ms=1_000, base_offset=base)
    struct.pack_into(">i", data, CRC_START + 2, end - 1 - base)
    struct.pack_into(">I", data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
    return end, bytes(data)


class Reader(MessageReader):
    """The leader sends one batch in each answer, as it does with batches of FETCH_BYTES_MAX."""

    def __init__(self, *batches):
        super().__init__(image_with(*cluster_records()), 1.0)
        self.batches = batches

    def _range(self, topic, partition):
        return 0, self.batches[-1][0]

    def _fetch(self, topic, partition, offset):
        return next(data for end, data in self.batches if end > offset)


@pytest.fixture
def reader():
    return Reader(batch(0, [b"a", b"b"], 4), batch(4, [b"a"], 6), batch(6, [b"c", b"a"], 8))


def page_of(reader, **parameters):
    return reader.page(question_of({"topic": "orders", "from": "earliest", **parameters}))


def offsets(page):
    return [row["offset"] for row in page["rows"]]


def test_page_goes_on_behind_a_batch_whose_last_records_were_compacted_away(reader):
    page = page_of(reader)
    assert (offsets(page), page["next"]) == ([0, 1, 4, 6, 7], 8)


def test_search_goes_on_behind_such_a_batch(reader):
    page = page_of(reader, key="a")
    assert (offsets(page), page["next"]) == ([0, 4, 7], 8)
    assert page["note"] == "3 of 5 messages looked at have the key"


def test_pages_follow_each_other_without_a_gap(reader):
    seen, at = [], 0
    while at < 8:
        page = page_of(reader, **{"from": "offset", "value": str(at), "limit": "2"})
        seen += offsets(page)
        assert page["next"] > at
        at = page["next"]
    assert seen == [0, 1, 4, 6, 7]


def test_page_before_an_offset_ends_there(reader):
    page = page_of(reader, before="7", limit="6")
    assert (offsets(page), page["start"], page["next"]) == ([1, 4, 6], 1, 7)
