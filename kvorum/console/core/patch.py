"""The difference of two JSON documents as a merge patch (RFC 7396). Pure.

A page gets the whole document once, and then only what changed. Null in a patch removes a key, so
a document holds no null: `without_nulls` leaves such keys out.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def difference(before: Document, after: Document) -> Document:
    """The merge patch that makes `after` out of `before`; empty if they are equal."""
    patch: Document = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            inner = difference(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or type(old) is not type(value) or old != value:
            patch[key] = value
    return patch


def without_nulls(value: Any) -> Any:
    """A document without the keys whose value is None; lists keep their items."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value
