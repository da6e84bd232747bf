"""Records as text: a format string, or JSON lines."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from kvorum.client.failures import CommandFailed

Record = Any
"""A Message of confluent_kafka, whose hints let each of its parts be missing."""
Formatter = Callable[[Record], bytes]
"""A record to the bytes that are printed."""

DEFAULT = "%v\\n"
WITH_KEY = "%k\\t%v\\n"
_TOKEN = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKENS = {
    "t": "topic", "p": "partition", "o": "offset", "k": "key", "v": "value", "h": "headers",
    "T": "timestamp in ms", "K": "length of the key", "V": "length of the value",
    "H": "number of headers", "%": "a percent sign",
}  # fmt: skip
_ALIASES = {"s": "v", "S": "V", "d": "T"}
"""kcat's %s and %S, rpk's %d."""


def formatter(form: str, null: bytes) -> Formatter:
    """The function that prints records in a form: json, or a format string. null: in place of a
    missing key or value. Raises ValueError for an unknown token."""
    if form == "json":
        return json_line
    parts = [_part(token, null) for token in _tokens(form)]
    if form == DEFAULT:
        line_of_null = null + b"\n"

        def line(record: Record) -> bytes:
            value = record.value()
            return line_of_null if value is None else value + b"\n"

        return line

    def render(record: Record) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return render


def _tokens(form: str) -> list[bytes | str]:
    """Literal bytes, and the letters of tokens."""
    tokens: list[bytes | str] = []
    at = 0
    for match in _TOKEN.finditer(form):
        tokens.append(form[at : match.start()].encode())
        at = match.end()
        letter, escape = match.groups()
        if letter is not None:
            letter = _ALIASES.get(letter, letter)
            if letter not in TOKENS:
                known = ", ".join(f"%{name} {text}" for name, text in TOKENS.items())
                raise ValueError(f"%{letter} is unknown; there are {known}")
            tokens.append(b"%" if letter == "%" else letter)
        elif escape.startswith("x") and len(escape) > 1:
            tokens.append(bytes([int(escape[1:], 16)]))
        elif escape in _ESCAPES:
            tokens.append(_ESCAPES[escape])
        else:
            raise ValueError(f"\\{escape} is unknown; there are \\n, \\t, \\r, \\0, \\\\ and \\xNN")
    if form[at:].endswith(("%", "\\")):
        raise ValueError(f"{form[-1]!r} at its end says nothing")
    tokens.append(form[at:].encode())
    return [token for token in tokens if token]


def _part(token: bytes | str, null: bytes) -> bytes | Formatter:
    if isinstance(token, bytes):
        return token
    parts: dict[str, Formatter] = {
        "t": lambda record: str(record.topic()).encode(),
        "p": lambda record: b"%d" % record.partition(),
        "o": lambda record: b"%d" % record.offset(),
        "k": lambda record: _or(record.key(), null),
        "v": lambda record: _or(record.value(), null),
        "h": lambda record: _header_text(record, null),
        "T": lambda record: b"%d" % record.timestamp()[1],
        # As kcat has it, a missing key or value has a length of -1.
        "K": lambda record: b"%d" % _length(record.key()),
        "V": lambda record: b"%d" % _length(record.value()),
        "H": lambda record: b"%d" % len(_headers(record)),
    }
    return parts[token]


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _or(value: bytes | None, null: bytes) -> bytes:
    return null if value is None else value


def _headers(record: Record) -> list[tuple[str, bytes | None]]:
    try:
        found: list[tuple[str, bytes | None]] = record.headers() or []
        return found
    except (SystemError, UnicodeDecodeError) as error:
        # A header of Kafka has a text as its name; librdkafka's Python client reads no other.
        place = f"{record.topic()}-{record.partition()}, offset {record.offset()}"
        raise CommandFailed(f"{place}: the name of a header is not UTF-8") from error


def _header_text(record: Record, null: bytes) -> bytes:
    return b",".join(key.encode() + b"=" + _or(value, null) for key, value in _headers(record))


def json_line(record: Record) -> bytes:
    """A record as a line of JSON, in the form that `kvorum produce -f json` reads."""
    row: dict[str, Any] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record.timestamp()[1],
    }
    _put(row, "key", record.key())
    _put(row, "value", record.value())
    headers = []
    for key, value in _headers(record):
        header: dict[str, Any] = {"key": key}
        _put(header, "value", value)
        headers.append(header)
    row["headers"] = headers
    return json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n"


def _put(row: dict[str, Any], name: str, value: bytes | None) -> None:
    """Put the value into the row: under its name as text, or under name_base64 if it is not
    UTF-8."""
    if value is None:
        row[name] = None
        return
    try:
        row[name] = value.decode("utf-8")
    except UnicodeDecodeError:
        row[f"{name}_base64"] = base64.b64encode(value).decode("ascii")
