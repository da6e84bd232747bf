"""Refuses nulls that Kafka's schema does not allow and kio accepts."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.shapes import shape_of

Check = Callable[[Any], None]
"""Raises WireError for an entity with a null that is not allowed."""


@functools.cache
def null_check(entity: Any) -> Check:
    """The check for kio's class `entity`, built once."""
    required: list[str] = []
    inner: list[tuple[str, bool, Check]] = []
    for field in dataclasses.fields(entity):
        kind, cls, is_optional = shape_of(field.type)
        if not is_optional:
            required.append(field.name)
        if dataclasses.is_dataclass(cls):
            inner.append((field.name, kind == "array", null_check(cls)))  # type: ignore[arg-type]
        elif kind == "array" and not _may_hold_null(field.type):
            inner.append((field.name, True, _refuse_null))
    title = entity.__name__

    def check(value: Any) -> None:
        for name in required:
            if getattr(value, name) is None:
                raise WireError(f"{title}.{name} is null")
        for name, is_array, check_one in inner:
            held = getattr(value, name)
            if held is None:
                continue
            if is_array:
                for item in held:
                    check_one(item)
            else:
                check_one(held)

    return check


def _may_hold_null(annotation: Any) -> bool:
    """True if the items of an array may be null (kio gives None for a zero uuid)."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) is tuple:
            return type(None) in typing.get_args(typing.get_args(part)[0])
    return False


def _refuse_null(value: Any) -> None:
    if value is None:
        raise WireError("an array holds a null")
