"""Header blocks (HPACK, RFC 7541), and gRPC's own headers in them.

Sent headers are plain literals that enter no table, so a block does not depend on earlier ones.
Received plain literals are parsed here; `hpack` decodes everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote_to_bytes

import hpack

from kvorum.runtime.http2.frames import COMPRESSION_ERROR, ProtocolError

Pairs = Iterable[tuple[str, str]]

GRPC = "application/grpc"
"""The `content-type` of both directions."""

HEADER_BYTES_MAX = 16_384
"""Limit of a header block, both encoded and decoded."""
MESSAGE_BYTES_MAX = 4_096
"""Limit of an encoded status message: with the other headers it fits into a frame, and into the
default limits of peers."""

_UNITS_NS = {"H": 3_600_000_000_000, "M": 60_000_000_000, "S": 1_000_000_000, "m": 1_000_000}
_UNITS_NS |= {"u": 1_000, "n": 1}
_TIMEOUT_MS_MAX = 99_999_999
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def encode(pairs: Pairs) -> bytes:
    """A header block of literals without indexing."""
    block = bytearray()
    for name, value in pairs:
        block += b"\0"
        for text in (name.encode("latin-1"), value.encode("latin-1")):
            size = len(text)
            if size < 127:
                block.append(size)
            else:
                block.append(127)
                size -= 127
                while size >= 128:
                    block.append(size & 127 | 128)
                    size >>= 7
                block.append(size)
            block += text
    return bytes(block)


class Decoder:
    """The decoder of one connection; the meaning of a block may depend on earlier ones."""

    def __init__(self) -> None:
        self._hpack = hpack.Decoder(max_header_list_size=HEADER_BYTES_MAX)

    def decode(self, block: bytes) -> dict[str, str]:
        """The headers; the last value of a repeated one. Raises ProtocolError."""
        plain = _plain(block)
        if plain is not None:
            return plain
        try:
            pairs = self._hpack.decode(block, raw=True)
        except hpack.HPACKError as error:
            raise ProtocolError(
                f"an unreadable header block: {error}", COMPRESSION_ERROR
            ) from error
        return {_text(name): _text(value) for name, value in pairs}


def _plain(block: bytes) -> dict[str, str] | None:
    """The headers if all are short literals, without indexing and Huffman coding; else None."""
    headers: dict[str, str] = {}
    at, end = 0, len(block)
    while at < end:
        if block[at] or at + 1 >= end:
            return None
        name_end = at + 2 + block[at + 1]
        if block[at + 1] >= 127 or name_end >= end:
            return None
        value_end = name_end + 1 + block[name_end]
        if block[name_end] >= 127 or value_end > end:
            return None
        name = block[at + 2 : name_end].decode("latin-1")
        headers[name] = block[name_end + 1 : value_end].decode("latin-1")
        at = value_end
    return headers


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


# gRPC's own headers, by its PROTOCOL-HTTP2 document.


def encode_timeout(timeout_ms: float) -> str:
    """A `grpc-timeout` value, rounded up to whole milliseconds."""
    return f"{min(max(int(-(-timeout_ms // 1)), 1), _TIMEOUT_MS_MAX)}m"


def parse_timeout(text: str) -> float:
    """A `grpc-timeout` value in milliseconds. Raises ProtocolError."""
    unit_ns = _UNITS_NS.get(text[-1:])
    digits = text[:-1]
    if unit_ns is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 8:
        raise ProtocolError(f"grpc-timeout {text!r} is no time")
    return int(digits) * unit_ns / 1_000_000


def encode_message(text: str) -> str:
    """A `grpc-message` value of at most MESSAGE_BYTES_MAX characters; of a text that is too long,
    the first third of so many bytes."""
    quoted = quote(text, safe=_PRINTABLE, errors="replace")
    if len(quoted) > MESSAGE_BYTES_MAX:
        # A byte takes at most three characters, and no character of the text is split.
        start = text.encode(errors="replace")[: MESSAGE_BYTES_MAX // 3]
        quoted = quote(start.decode(errors="ignore"), safe=_PRINTABLE)
    return quoted


def parse_message(text: str) -> str:
    """The text of a `grpc-message`; UTF-8 without percent-encoding is accepted too."""
    return unquote_to_bytes(text.encode("latin-1", errors="replace")).decode(errors="replace")


def parse_status(text: str) -> int:
    """The number of a `grpc-status`, -1 if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1


def is_grpc(content_type: str) -> bool:
    """True if this `content-type` is gRPC's."""
    return content_type == GRPC or content_type.startswith((GRPC + "+", GRPC + ";"))
