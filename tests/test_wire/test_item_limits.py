"""The limit of items in one request, in any of its arrays."""

from __future__ import annotations

import struct

import pytest

from kvorum.runtime.errors import WireError
from kvorum.wire.fetch_codec import parse_fetch_request
from kvorum.wire.framing import parse_request_header
from kvorum.wire.kio_codec import encode_response, read_request, read_response
from kvorum.wire.primitives import REQUEST_ITEMS_MAX, uvarint_bytes
from kvorum.wire.produce_codec import parse_produce_request
from kvorum.wire.versions import Api, ServedVersions

TOO_MANY = REQUEST_ITEMS_MAX + 1
BOUND = "over the bound of 100000"


def produce(topics: int, version: int) -> bytes:
    """Topics of no partitions; from v9 on in three bytes each."""
    if version >= 9:
        head = b"\0" + struct.pack(">hi", 1, 1000) + uvarint_bytes(topics + 1)
        return head + b"\x01\x01\0" * topics + b"\0"
    return b"\xff\xff" + struct.pack(">hii", 1, 1000, topics) + bytes(6) * topics


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_of_too_many_topics_is_refused(version: int) -> None:
    # 1. A request of 9 MB has three million empty topics, 2. for 11 s nobody else was served.
    body = produce(REQUEST_ITEMS_MAX, version)
    assert len(parse_produce_request(body, 0, len(body), version).topics) == REQUEST_ITEMS_MAX
    body = produce(TOO_MANY, version)
    with pytest.raises(WireError, match=BOUND):
        parse_produce_request(body, 0, len(body), version)


@pytest.mark.parametrize("count", [-2, -(1 << 31)])
def test_a_produce_of_less_than_no_topics_is_refused(count: int) -> None:
    body = b"\xff\xff" + struct.pack(">hii", 1, 1000, count)
    with pytest.raises(WireError, match="announces"):
        parse_produce_request(body, 0, len(body), 3)


def test_items_inside_of_others_are_counted_too() -> None:
    half = b"\x01" + uvarint_bytes(REQUEST_ITEMS_MAX // 2 + 1)
    half += (bytes(4) + b"\0\0") * (REQUEST_ITEMS_MAX // 2) + b"\0"
    body = b"\0" + struct.pack(">hi", 1, 1000) + uvarint_bytes(3) + half * 2 + b"\0"
    with pytest.raises(WireError, match=BOUND):
        parse_produce_request(body, 0, len(body), 9)


def test_a_fetch_of_too_many_topics_is_refused() -> None:
    head = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
    body = head + uvarint_bytes(TOO_MANY + 1) + b"\x01\x01\0" * TOO_MANY + b"\x01\x01\0"
    with pytest.raises(WireError, match=BOUND):
        parse_fetch_request(body, 0, len(body), 12)


def test_tagged_fields_are_items_too() -> None:
    tags = uvarint_bytes(TOO_MANY) + b"\x63\0" * TOO_MANY
    body = produce(0, 9)[:-1] + tags
    with pytest.raises(WireError, match=BOUND):
        parse_produce_request(body, 0, len(body), 9)
    metadata_api = Api(key=3, name="metadata", min_version=0, max_version=13, first_flexible=9)
    served = ServedVersions([metadata_api])
    frame = struct.pack(">hhih", 3, 12, 1, -1) + tags
    with pytest.raises(WireError, match=BOUND):
        parse_request_header(frame, 0, len(frame), served)
    metadata = b"\x01\0\0" + tags
    with pytest.raises(WireError, match=BOUND):
        read_request("metadata", 12, memoryview(metadata))


def test_a_request_of_kio_of_too_many_items_is_refused() -> None:
    # 1. Metadata of three million topics takes 6 MB, 2. for 8 s nobody else was served.
    for count in (REQUEST_ITEMS_MAX, TOO_MANY):
        body = struct.pack(">i", count) + bytes(2) * count + b"\0"
        if count == REQUEST_ITEMS_MAX:
            assert len(read_request("metadata", 4, memoryview(body)).topics) == count
            continue
        with pytest.raises(WireError, match=BOUND):
            read_request("metadata", 4, memoryview(body))


def test_many_small_arrays_are_no_way_around_the_bound() -> None:
    # Each array of this body has a count of at most two bytes; such bodies were once not checked.
    row = b"\x02t" + uvarint_bytes(1_001) + (b"\0\0\0\x01" * 1_000) + b"\0"
    body = uvarint_bytes(101) + row * 100 + bytes(4) + b"\0"
    with pytest.raises(WireError, match=BOUND):
        read_request("elect_leaders", 2, memoryview(b"\0" + body))


def test_an_answer_of_another_broker_has_as_many_items_as_it_needs() -> None:
    rows = [{"name": f"{at}", "error_code": 0} for at in range(TOO_MANY)]
    values = {"throttle_time": 0, "responses": rows}
    body = bytes(encode_response("delete_topics", 1, values))
    assert len(read_response("delete_topics", 1, memoryview(body)).responses) == TOO_MANY
