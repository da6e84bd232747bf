"""The metadata as a tree at any offset, and the difference of two offsets. Blocks for as long as an
image takes to build; images that were built stay for the next question."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from kvorum.console.core.patch import Document
from kvorum.console.core.views import ROWS_MAX, BadParameter, NotThere, Parameters, whole, window
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.metadata.inspect.tree import (
    Folder,
    Node,
    NoSuchPath,
    parts_of,
    resolve,
    root,
)
from kvorum.metadata.inspect.tree_queries import difference, leaf_text
from kvorum.runtime.ids import uuid_text

STOPS_MAX = 24
TEXT_MAX = 2_000
"""Characters of one value."""
RECORDS_SHOWN = 12
"""Records of the metadata log that the page shows with a tree: the last ones before its offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The cluster at an offset.

    timestamp_ms: of the record below it.
    records: the last ones below it, newest first. They are kept because finding them in batches of
        thousands of records takes as long as building the image.
    """

    image: ClusterImage
    timestamp_ms: int
    records: list[Document]


class Travel:
    """The metadata at earlier offsets. Keeps the images of the last offsets asked for, as long as
    the history is the same one or an extension of it. One caller at a time."""

    def __init__(self) -> None:
        self._stops: OrderedDict[int, Stop] = OrderedDict()
        self._origin: object = None

    def tree(self, history: MetadataHistory, parameters: Parameters) -> Document:
        """A folder of the tree. at: the offset (exclusive), the end by default. path: the folder.

        Raises NotThere, BadParameter."""
        at = self._at(history, parameters, "at")
        path = "/" + "/".join(parts_of(parameters.get("path", "/")))
        stop = self._stop(history, at)
        try:
            node = resolve(root(stop.image), path)
        except NoSuchPath as error:
            raise NotThere(f"{error}, at offset {at}") from error
        start, limit = window(parameters)
        document: Document = {
            "path": path,
            "at": at,
            "first": history.first_offset,
            "end": history.end_offset,
            "timestamp_ms": stop.timestamp_ms,
            "records": stop.records,
        }
        if not isinstance(node, Folder):
            return {**document, "entries": [_entry("", node)], "matched": 1, "start": 0}
        entries = node.build()
        names = list(entries)[start : start + limit]
        return {
            **document,
            "matched": len(entries),
            "start": start,
            "limit": limit,
            "entries": [_entry(name, entries[name]) for name in names],
        }

    def difference(self, history: MetadataHistory, parameters: Parameters) -> Document:
        """The paths that differ between the offsets `from` and `to`, the first ROWS_MAX of them.

        Raises NotThere, BadParameter."""
        before = self._at(history, parameters, "from")
        after = self._at(history, parameters, "to")
        old, new = self._stop(history, before), self._stop(history, after)
        rows: list[Document] = []
        count = 0
        for each in difference(root(old.image), root(new.image)):
            count += 1
            if len(rows) < ROWS_MAX:
                rows.append(
                    {
                        "change": each.change,
                        "path": each.path,
                        "before": _value_text(each.before),
                        "after": _value_text(each.after),
                    }
                )
        return {
            "from": before,
            "to": after,
            "first": history.first_offset,
            "end": history.end_offset,
            "from_timestamp_ms": old.timestamp_ms,
            "to_timestamp_ms": new.timestamp_ms,
            "total": count,
            "rows": rows,
        }

    def _at(self, history: MetadataHistory, parameters: Parameters, name: str) -> int:
        at = whole(parameters, name, history.end_offset)
        if not history.first_offset <= at <= history.end_offset:
            raise BadParameter(
                f"{name}={at} is out of reach: the metadata reaches {history.first_offset} to "
                f"{history.end_offset}"
            )
        return at

    def _stop(self, history: MetadataHistory, at: int) -> Stop:
        """The stop at an offset; its image is made from the nearest one below that is known."""
        if history.origin is not self._origin:
            # The log was cut, or another cluster has the address: offsets mean other states now.
            self._stops.clear()
            self._origin = history.origin
        stop = self._stops.get(at)
        if stop is None:
            nearest = max((offset for offset in self._stops if offset <= at), default=None)
            if nearest is None:
                image = history.image_at(at)
            else:
                image = history.advance(self._stops[nearest].image, at)
            records, timestamp_ms = _records(history, at)
            stop = Stop(image=image, records=records, timestamp_ms=timestamp_ms)
            self._stops[at] = stop
        self._stops.move_to_end(at)
        while len(self._stops) > STOPS_MAX:
            self._stops.popitem(last=False)
        return stop


def _entry(name: str, node: Node) -> Document:
    if isinstance(node, Folder):
        return {"name": name, "is_folder": True}
    return {"name": name, "is_folder": False, "text": _cut(leaf_text(node))}


def _value_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return _cut(", ".join(f"{name}: {_inner_text(inner)}" for name, inner in value.items()))
    return _cut(leaf_text(value))


def _inner_text(value: Any) -> str:
    return f"{{{len(value)} entries}}" if isinstance(value, dict) else leaf_text(value)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text):,} characters)"


def _records(history: MetadataHistory, at: int) -> tuple[list[Document], int]:
    """The last records below `at`, the newest first, and the time of the newest."""
    start = max(history.log_start_offset, at - RECORDS_SHOWN)
    rows: list[Document] = []
    for entry in history.entries(start, at):
        rows.append(
            {
                "offset": entry.offset,
                "epoch": entry.epoch,
                "timestamp_ms": entry.timestamp_ms,
                "type": entry.type,
                "text": _cut(", ".join(f"{k}={_field(v)}" for k, v in entry.fields.items())),
            }
        )
    if rows:
        return rows[::-1], int(rows[-1]["timestamp_ms"])
    # The offset is the end of a snapshot, and the log begins there.
    return [], history.timestamp_at(at)


def _field(value: Any) -> str:
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == 16 else value.hex()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_field(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_field(v)}" for k, v in value.items()) + "}"
    return leaf_text(value)
