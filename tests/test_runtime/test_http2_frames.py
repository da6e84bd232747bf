"""The pure parts: frames, header blocks, gRPC's own headers."""

from __future__ import annotations

import string

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.frames import ProtocolError

STREAM_IDS = st.integers(0, frames.WINDOW_MAX)
NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=150)
VALUES = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=300)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@given(st.integers(0, 255), st.integers(0, 255), STREAM_IDS, st.binary(max_size=70_000))
def test_frames_round_trip(kind: int, flags: int, stream_id: int, payload: bytes) -> None:
    made = b"??" + frames.frame(kind, flags, stream_id, payload)
    assert frames.parse_head(made, 2) == (len(payload), kind, flags, stream_id)
    assert made[2 + frames.HEAD_BYTES :] == payload


@given(STREAM_IDS, st.binary(max_size=70_000), st.booleans())
def test_a_message_frame_is_a_data_frame_with_the_messages_head(
    stream_id: int, message: bytes, ends: bool
) -> None:
    payload = frames.message_head(len(message)) + message
    flags = frames.END_STREAM if ends else 0
    expected = frames.frame(frames.DATA, flags, stream_id, payload)
    assert frames.message_frame(stream_id, message, ends_stream=ends) == expected


@given(st.dictionaries(st.integers(0, 65_535), st.integers(0, (1 << 32) - 1), max_size=50))
def test_settings_round_trip(values: dict[int, int]) -> None:
    assert frames.parse_settings(frames.settings(values)[frames.HEAD_BYTES :]) == values


@given(st.binary(max_size=300), st.binary(max_size=255), st.booleans(), st.booleans())
def test_padding_and_priority_are_taken_off(
    content: bytes, padding: bytes, is_padded: bool, has_priority: bool
) -> None:
    payload = (b"12345" if has_priority else b"") + content
    flags = frames.HAS_PRIORITY if has_priority else 0
    if is_padded:
        payload = bytes([len(padding)]) + payload + padding
        flags |= frames.PADDED
    assert frames.without_padding(payload, flags) == content


@given(st.binary(max_size=300), st.integers(0, 255))
def test_any_payload_has_a_content_or_is_refused(payload: bytes, flags: int) -> None:
    try:
        assert frames.without_padding(payload, flags) in payload
    except ProtocolError:
        assert flags & (frames.PADDED | frames.HAS_PRIORITY)


@given(STREAM_IDS, st.integers(0, (1 << 32) - 1), st.text(string.printable, max_size=200))
def test_goaway_round_trips(last: int, code: int, reason: str) -> None:
    payload = frames.goaway(last, code, reason)[frames.HEAD_BYTES :]
    assert frames.parse_goaway(payload) == (last, code, reason)


@given(PAIRS)
def test_our_header_blocks_are_read_by_us_and_by_hpack(pairs: list[tuple[str, str]]) -> None:
    block = headers.encode(pairs)
    assert headers.Decoder().decode(block) == dict(pairs)
    read = hpack.Decoder(max_header_list_size=1 << 20).decode(block, raw=True)
    assert [(n.decode("latin-1"), v.decode("latin-1")) for n, v in read] == pairs


@given(st.lists(st.tuples(PAIRS, st.booleans()), max_size=6))
def test_blocks_of_an_encoder_with_tables_and_huffman_are_read(
    blocks: list[tuple[list[tuple[str, str]], bool]],
) -> None:
    encoder, decoder = hpack.Encoder(), headers.Decoder()
    for pairs, is_huffman in blocks:
        raw = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in pairs]
        assert decoder.decode(encoder.encode(raw, huffman=is_huffman)) == dict(pairs)
        # A block of our encoder in between, which uses no table, leaves the dynamic table
        # unchanged.
        assert decoder.decode(headers.encode(pairs)) == dict(pairs)


@given(st.lists(st.binary(max_size=400), max_size=4))
def test_any_block_is_headers_or_a_protocol_error(blocks: list[bytes]) -> None:
    decoder = headers.Decoder()
    for block in blocks:
        try:
            decoded = decoder.decode(block)
        except ProtocolError:
            return
        assert all(isinstance(text, str) for pair in decoded.items() for text in pair)


def test_a_small_block_that_unpacks_to_much_is_refused() -> None:
    encoder = hpack.Encoder()
    first = encoder.encode([("bomb", "x" * 3_000)], huffman=False)
    bomb = encoder.encode([("bomb", "x" * 3_000)] * 1_000)
    decoder = headers.Decoder()
    assert decoder.decode(first) == {"bomb": "x" * 3_000}
    assert len(bomb) < 2_000
    with pytest.raises(ProtocolError):
        decoder.decode(bomb)


@given(st.text(max_size=340))
def test_words_of_a_status_round_trip_up_to_their_limit(text: str) -> None:
    encoded = headers.encode_message(text)
    assert encoded.isascii() and encoded.isprintable()
    assert headers.parse_message(encoded) == text


@given(st.text(st.characters(), min_size=1_000, max_size=3_000))
def test_long_words_keep_a_beginning_that_ends_with_a_character(text: str) -> None:
    encoded = headers.encode_message(text)
    assert len(encoded) <= headers.MESSAGE_BYTES_MAX
    assert text.encode(errors="replace").decode().startswith(headers.parse_message(encoded))


@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_is_words(text: str) -> None:
    assert isinstance(headers.parse_message(text), str)


def test_utf_8_that_nobody_encoded_is_read() -> None:
    assert headers.parse_message("ü %C3%BC".encode().decode("latin-1")) == "ü ü"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("16", 16), ("\xb2", -1), ("", -1), ("1" * 5_000, -1), ("-1", -1)],
)
def test_a_grpc_status_is_a_small_number(text: str, number: int) -> None:
    assert headers.parse_status(text) == number


@given(st.floats(-1e12, 1e12))
def test_a_timeout_is_sent_as_whole_milliseconds_never_too_short(timeout_ms: float) -> None:
    encoded = headers.encode_timeout(timeout_ms)
    assert len(encoded) <= 9
    sent = headers.parse_timeout(encoded)
    assert sent == 99_999_999 if timeout_ms > 99_999_998 else timeout_ms <= sent
    assert sent - 1 < max(timeout_ms, 1)


@pytest.mark.parametrize(
    ("text", "timeout_ms"),
    [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("4m", 4), ("5000u", 5), ("6000000n", 6)],
)
def test_a_timeout_is_read_in_every_unit(text: str, timeout_ms: float) -> None:
    assert headers.parse_timeout(text) == timeout_ms


@pytest.mark.parametrize("text", ["", "S", "1", "1x", "-1S", "1.5S", "123456789S", "\xb2S", " 1S"])
def test_what_is_no_timeout_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="no time"):
        headers.parse_timeout(text)


@pytest.mark.parametrize(
    ("kind", "is_grpc"),
    [
        ("application/grpc", True),
        ("application/grpc+proto", True),
        ("application/grpc;charset=x", True),
        ("application/grpc-web", False),
        ("text/html", False),
        ("", False),
    ],
)
def test_content_types_of_grpc(kind: str, is_grpc: bool) -> None:
    assert headers.is_grpc(kind) is is_grpc
