"""Records as rows of the page: keys, values and headers as text, JSON or hexadecimal. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
    iter_records,
)
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.markers import read_marker
from kvorum.storage.format.record_codec import Record

DECODINGS = ("auto", "text", "json", "hex")
LIST_BYTES_MAX = 2_000
"""How much of a key or a value a list of messages shows."""
WHOLE_BYTES_MAX = 256_000
"""How much of a key or a value the page of a single message shows."""
HEADERS_MAX = 32
HEADER_BYTES_MAX = 200
DECOMPRESSED_BYTES_MAX = 128 << 20
"""A batch that unpacks to more is not opened."""

GROWTH_MAX = 8
DEPTH_SHOWN_MAX = 20
"""Deeper levels of JSON are not indented further."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record and what its batch says of it."""

    record: Record
    header: BatchHeader
    marker: str = ""


def end_position(data: bytes, first: int) -> int:
    """The offset behind the last whole batch of an answer, at least `first`."""
    position = first
    for _, header in iter_headers(data):
        position = max(position, header.end_offset)
    return position


def records_in(data: bytes, first: int) -> Iterator[Found]:
    """The records from offset `first` on. Raises BatchError for a batch that is damaged, or that
    unpacks to too much."""
    for position, header in iter_headers(data):
        if header.end_offset <= first:
            continue
        if not check_crc(data, position, header):
            reason = f"the batch at offset {header.base_offset} has a wrong checksum"
            raise BatchError(ErrorCode.CORRUPT_MESSAGE, reason)
        marker = ""
        if header.is_control:
            outcome = read_marker(data, position, header)
            if outcome is not None:
                marker = "COMMIT" if outcome.is_commit else "ABORT"
        for record in iter_records(
            data, position, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        ):
            if record.offset >= first:
                yield Found(record=record, header=header, marker=marker)


def row_of(
    found: Found, decoding: str, bytes_max: int, *, in_lines: bool = False
) -> dict[str, Any]:
    """A record as a row.

    decoding: one of DECODINGS, for key and value.
    in_lines: as of `shown`.
    """
    record, header = found.record, found.header
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "key": shown(record.key, decoding, bytes_max, in_lines=in_lines),
        "value": shown(record.value, decoding, bytes_max, in_lines=in_lines),
        "headers": [
            {
                "key": shown(key, "auto", HEADER_BYTES_MAX)["text"],
                "value": shown(value, "auto", HEADER_BYTES_MAX),
            }
            for key, value in record.headers[:HEADERS_MAX]
        ],
        "headers_left_out": max(len(record.headers) - HEADERS_MAX, 0),
        "codec": _codec(header.compression_code),
        "is_transactional": header.is_transactional,
        "marker": found.marker,
    }


def shown(
    data: bytes | None, decoding: str, bytes_max: int, *, in_lines: bool = False
) -> dict[str, Any]:
    """Bytes for a person.

    form: null, text, json or hex; text: at most bytes_max bytes of it; bytes: the whole length;
    is_cut: more bytes are there. in_lines: json is laid out in lines. `auto` takes json for
    objects and arrays, text where it is UTF-8 without control characters, else hex.
    """
    if data is None:
        return {"form": "null", "text": "", "bytes": 0, "is_cut": False}
    head = data[:bytes_max]
    row: dict[str, Any] = {"bytes": len(data), "is_cut": len(data) > len(head)}
    if decoding in ("auto", "json") and not row["is_cut"]:
        laid_out = _json(head, is_any=decoding == "json", in_lines=in_lines)
        if laid_out is not None:
            return {"form": "json", "text": laid_out, **row}
    if decoding != "hex":
        text = _text(head, is_cut=row["is_cut"])
        if text is not None:
            return {"form": "text", "text": text, **row}
        if decoding in ("text", "json"):
            return {"form": "text", "text": head.decode("utf-8", "replace"), **row}
    return {"form": "hex", "text": head.hex(" "), **row}


def _json(data: bytes, *, is_any: bool, in_lines: bool) -> str | None:
    """The text of JSON, None if it is none. In lines or not, its tokens stay as they were sent: a
    number keeps its digits, an object its repeated keys."""
    if not is_any and data[:1] not in (b"{", b"["):
        return None
    try:
        text = data.decode("utf-8")
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not in_lines:
        return text
    laid_out = "".join(_lines(_TOKEN.findall(text)))
    # Deeply nested brackets would grow to many times their size.
    return laid_out if len(laid_out) <= GROWTH_MAX * max(len(text), 100) else text


def _lines(tokens: list[str]) -> Iterator[str]:
    depth = 0
    for token, follower in zip(tokens, [*tokens[1:], ""], strict=True):
        if token in "{[":
            depth += 1
            yield token
            if follower not in "}]":
                yield _new_line(depth)
        elif token in "}]":
            depth -= 1
            yield token
        elif token == ",":
            yield token + _new_line(depth)
        else:
            yield ": " if token == ":" else token
        if token not in "{[,:" and follower and follower in "}]":
            yield _new_line(depth - 1)


def _new_line(depth: int) -> str:
    return "\n" + "  " * min(depth, DEPTH_SHOWN_MAX)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """UTF-8 without control characters; a character that the cut parted is left out."""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            text = data[:end].decode("utf-8")
        except UnicodeDecodeError:
            if is_cut:
                continue
            return None
        return None if _CONTROL.search(text) else text
    return None


def _codec(code: int) -> str:
    try:
        return Codec(code).name.lower()
    except ValueError:
        return f"codec {code}"
