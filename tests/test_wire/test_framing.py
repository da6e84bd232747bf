"""Frames and headers: golden bytes, exceptions, garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.errors import WireError
from kvorum.wire.framing import frame_size, parse_request_header, response_head
from kvorum.wire.primitives import Reader, uvarint_bytes
from kvorum.wire.versions import Api, ServedVersions

SERVED = ServedVersions(
    [
        Api(key=3, name="metadata", min_version=0, max_version=13, first_flexible=9),
        Api(key=18, name="api_versions", min_version=0, max_version=4, first_flexible=3),
        Api(
            key=0,
            name="produce",
            min_version=3,
            max_version=12,
            first_flexible=9,
            advertised_min_version=0,
        ),
    ]
)


def test_golden_api_versions_v3_request_header() -> None:
    frame = bytes.fromhex(
        "0000001c00120003000000070004" + "64656d6f" + "00" + "0871756f72617465" + "04302e3100"
    )
    assert frame_size(frame, 0, 1000) == 0x1C
    header = parse_request_header(frame, 4, len(frame), SERVED)
    assert header == (18, 3, 7, "demo", 19)


def test_golden_metadata_v1_header_has_a_null_client_id() -> None:
    frame = bytes.fromhex("0000000e0003000100000008ffffffffffff")
    header = parse_request_header(frame, 4, len(frame), SERVED)
    assert header == (3, 1, 8, None, 14)


def test_flexible_requests_have_tags_behind_the_old_client_id() -> None:
    frame = bytes.fromhex("0003000900000001000161" + "01" + "05" + "02" + "ffff" + "aa")
    header = parse_request_header(frame, 0, len(frame), SERVED)
    assert header.client_id == "a"
    assert frame[header.body_position :] == b"\xaa"


def test_api_versions_answers_have_header_v0_even_when_flexible() -> None:
    assert response_head(7, 12, is_flexible=False).hex() == "0000001000000007"
    assert response_head(7, 12, is_flexible=True).hex() == "000000110000000700"


def test_unknown_api_keys_are_wire_errors() -> None:
    with pytest.raises(WireError, match="99"):
        parse_request_header(bytes.fromhex("0063000000000001ffff"), 0, 10, SERVED)


@pytest.mark.parametrize("size", [-1, 0, 9, 1001])
def test_insane_frame_sizes_are_wire_errors(size: int) -> None:
    with pytest.raises(WireError):
        frame_size(size.to_bytes(4, "big", signed=True), 0, 1000)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"PRI * HTTP/2.0", "HTTP/2, as nodes do to a controller's listener"),
        (b"GET /metrics HTTP/1.1", "the peer speaks HTTP"),
        (b"\x16\x03\x01\x02\x00", "the peer speaks TLS, and this listener is in clear text"),
    ],
)
def test_a_peer_that_has_the_wrong_port_is_named_by_its_protocol(first: bytes, words: str) -> None:
    for buffer in (first, bytearray(first), memoryview(first)):
        with pytest.raises(WireError, match=words):
            frame_size(buffer, 0, 1000)


@given(st.binary(max_size=60))
def test_garbage_headers_never_raise_anything_but_wire_error(data: bytes) -> None:
    try:
        parse_request_header(data, 0, len(data), SERVED)
    except WireError:
        return


@given(st.integers(0, 2**35 - 1))
def test_uvarints_read_back(value: int) -> None:
    data = uvarint_bytes(value)
    assert Reader(data, 0, len(data)).uvarint() == value


def test_produce_is_advertised_from_zero_but_not_served_there() -> None:
    assert SERVED.advertised() == [(0, 0, 12), (3, 0, 13), (18, 0, 4)]
    assert not SERVED.is_served(0, 2)
