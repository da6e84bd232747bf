"""Lines of text, or JSON, as new records.

JSON: one object a line with any of key, value, headers, partition and timestamp. A text in base64
is under key_base64 or value_base64. `kvorum consume -f json` prints the same form.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvorum.cli.records.times import time_ms
from kvorum.storage.format.record_codec import INT32_MAX, INT64_MAX

_KEYS = {
    "key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "topic",
    "offset",
}  # fmt: skip

Headers = tuple[tuple[bytes, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to be sent. partition: None lets the key decide. timestamp_ms: None means the time
    at which it is sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadRecord(ValueError):
    """A line that is no record; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The parts that options give to every record. key_separator: splits a line into key and value.

    empty_is_null: an empty value is a tombstone.
    """

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    empty_is_null: bool = False

    @property
    def is_plain(self) -> bool:
        """True if a line of text is a value, and records differ in nothing else."""
        has_more = self.key_separator is not None or self.headers or self.empty_is_null
        return not has_more and self.timestamp_ms is None

    def from_text(self, line: bytes) -> NewRecord:
        """The record of a line. Raises BadRecord."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                raise BadRecord(f"there is no key separator {_shown(self.key_separator)}")
        return NewRecord(
            key,
            None if self.empty_is_null and not value else value,
            self.headers,
            self.partition,
            self.timestamp_ms,
        )

    def from_json(self, line: bytes) -> NewRecord:
        """The record of a JSON object; what it lacks comes from the options. Raises BadRecord."""
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadRecord(f"no JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadRecord("no JSON object")
        unknown = sorted(row.keys() - _KEYS)
        if unknown:
            raise BadRecord(f"unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
        key, value = _bytes_of(row, "key"), _bytes_of(row, "value")
        partition = row.get("partition")
        if partition is not None and not _is_int(partition, INT32_MAX):
            raise BadRecord(f"partition {partition!r} is no number of a partition")
        return NewRecord(
            self.key if key is None else key,
            None if self.empty_is_null and not value else value,
            self.headers + _headers(row.get("headers")),
            self.partition if partition is None else partition,
            _timestamp(row.get("timestamp"), self.timestamp_ms),
        )


def parser(template: Template, form: str) -> Callable[[bytes], NewRecord]:
    """The function from lines to records. form: text or json."""
    return template.from_json if form == "json" else template.from_text


def _bytes_of(row: dict[str, Any], name: str) -> bytes | None:
    encoded = row.get(f"{name}_base64")
    if encoded is not None:
        if row.get(name) is not None:
            raise BadRecord(f"{name} and {name}_base64 are both given")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadRecord(f"{name}_base64 is no base64: {error}") from error
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadRecord(f"{name} has half a surrogate pair: {error}") from error
    # An object, list, number or truth value is stored as its JSON text.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _headers(value: Any) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        value = [{"key": key, "value": item} for key, item in value.items()]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRecord('headers is no list of {"key": ..., "value": ...} and no object')
    headers = []
    for item in value:
        key = _bytes_of(item, "key")
        if key is None:
            raise BadRecord("a header has no key")
        headers.append((key, _bytes_of(item, "value")))
    return tuple(headers)


def _timestamp(value: Any, default: int | None) -> int | None:
    if value is None:
        return default
    if _is_int(value, INT64_MAX):
        return int(value)
    if not isinstance(value, str):
        raise BadRecord(f"timestamp {value!r} is no time")
    try:
        return time_ms(value)
    except ValueError as error:
        raise BadRecord(f"timestamp {error}") from error


def _is_int(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _shown(separator: bytes) -> str:
    return repr(separator.decode("utf-8", "backslashreplace"))
