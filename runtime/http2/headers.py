"""Header blocks (HPACK, RFC 7541), and gRPC's own headers in them.

What leaves here is plain: literals that no table remembers, so a block depends on nothing that was
sent before. What comes in plain is read without the decoder; for the rest there is `hpack`.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

import hpack

from runtime.http2.frames import COMPRESSION_ERROR, ProtocolError

Pairs = Iterable[tuple[str, str]]

HEADER_BYTES_MAX = 16_384
_UNITS_NS = {"H": 3_600_000_000_000, "M": 60_000_000_000, "S": 1_000_000_000, "m": 1_000_000}
_UNITS_NS |= {"u": 1_000, "n": 1}
_TIMEOUT_MS_MAX = 99_999_999
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def encode(pairs: Pairs) -> bytes:
    """A header block of literals that are not indexed."""
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
    """Of one connection: what a block means may depend on the blocks before."""

    def __init__(self) -> None:
        self._hpack = hpack.Decoder(max_header_list_size=HEADER_BYTES_MAX)

    def decode(self, block: bytes) -> dict[str, str]:
        """The headers; of one that stands twice the last. Raises ProtocolError."""
        plain = _plain(block)
        if plain is not None:
            return plain
        try:
            return {_text(name): _text(value) for name, value in self._hpack.decode(block)}
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise ProtocolError(
                f"an unreadable header block: {error}", COMPRESSION_ERROR
            ) from error


def _plain(block: bytes) -> dict[str, str] | None:
    """The headers if all are short literals with a name, not indexed and not Huffman coded."""
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


# gRPC's own, by its PROTOCOL-HTTP2 document.


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
    """A `grpc-message` value."""
    return quote(text, safe=_PRINTABLE)


def parse_message(text: str) -> str:
    """The text of a `grpc-message`."""
    return unquote(text, errors="replace")
