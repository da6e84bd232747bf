"""Interprets kio's field annotations: single value or array, inner type, nullable or not."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin


def shape_of(annotation: Any) -> tuple[str, Any, bool]:
    """A type's shape: ("array" or "one", inner type, True if None is allowed)."""
    is_optional = False
    if get_origin(annotation) in (UnionType, Union):
        (annotation,) = [a for a in get_args(annotation) if a is not type(None)]
        is_optional = True
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        if get_origin(inner) in (UnionType, Union):
            (inner,) = [a for a in get_args(inner) if a is not type(None)]
        return "array", inner, is_optional
    return "one", annotation, is_optional
