"""Refuses nulls that Kafka's schema does not allow and kio accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvorum.runtime.errors import WireError
from kvorum.wire.schema import Field, SchemaWalk

Check = Callable[[Any], None]
"""Raises WireError for an entity with a null that is not allowed."""


class _Nulls(SchemaWalk[Check]):
    def of_struct(self, entity: Any, fields: Sequence[tuple[Field, Check]]) -> Check:
        required = [field.name for field, _ in fields if not field.is_optional]
        inner = [(field.name, field.is_array, one) for field, one in fields if one is not _accept]
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

    def of_array(self, item: Check, field: Field) -> Check:
        return item

    def of_nullable(self, one: Check) -> Check:
        return one

    def of_primitive(self, field: Field) -> Check:
        return _refuse_null if field.is_array and not field.has_optional_items else _accept


def _refuse_null(value: Any) -> None:
    if value is None:
        raise WireError("an array holds a null")


def _accept(_: Any) -> None:
    return None


#: The check for each of kio's classes.
null_check: Callable[[Any], Check] = _Nulls().of
