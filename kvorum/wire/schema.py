"""kio's message classes as Kafka's schemas, and the one walk from which a codec is compiled.

A `SchemaWalk` makes a function for a message once, out of those for its parts; afterwards no
message pays for the walk. Its three uses are the encoder (`kio_codec`), the check of lengths
(`length_check`) and the check of nulls (`null_check`).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

PartT = TypeVar("PartT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message.

    tag: its number among the tagged fields; None for a field in its place.
    struct: kio's class of the value or of an array's items; None for a primitive.
    kafka_type: the name of the primitive; empty for a struct.
    is_optional: the value may be null.
    has_optional_items: an array's items may be null (kio gives None for a zero uuid).
    default: dataclasses.MISSING if there is none.
    """

    name: str
    tag: int | None
    is_flexible: bool
    is_array: bool
    struct: Any
    kafka_type: str
    is_optional: bool
    has_optional_items: bool
    default: Any


def fields_of(entity: Any) -> list[Field]:
    """The fields of kio's class `entity`, in the order of the schema."""
    return [_field(field, bool(entity.__flexible__)) for field in dataclasses.fields(entity)]


def _field(field: Any, is_flexible: bool) -> Field:
    inner, is_optional = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    has_optional_items = False
    if is_array:
        inner, has_optional_items = _without_none(get_args(inner)[0])
    return Field(
        name=field.name,
        tag=field.metadata.get("tag"),
        is_flexible=is_flexible,
        is_array=is_array,
        struct=inner if dataclasses.is_dataclass(inner) else None,
        kafka_type=field.metadata.get("kafka_type") or "",
        is_optional=is_optional,
        has_optional_items=has_optional_items,
        default=field.default,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    (inner,) = [each for each in get_args(annotation) if each is not type(None)]
    return inner, True


class SchemaWalk(ABC, Generic[PartT]):
    """Compiles a part of type PartT for each class of kio, from those of its fields."""

    def __init__(self) -> None:
        self._made: dict[Any, PartT] = {}

    def of(self, entity: Any) -> PartT:
        """The part for kio's class `entity`, made once."""
        made = self._made.get(entity)
        if made is None:
            fields = [(field, self._of_field(field)) for field in fields_of(entity)]
            made = self._made[entity] = self.of_struct(entity, fields)
        return made

    def _of_field(self, field: Field) -> PartT:
        one = self.of_primitive(field) if field.struct is None else self.of(field.struct)
        if field.is_array:
            return self.of_array(one, field)
        # Among the tagged fields a null struct is one that is left out.
        if field.struct is not None and field.is_optional and field.tag is None:
            return self.of_nullable(one)
        return one

    @abstractmethod
    def of_struct(self, entity: Any, fields: Sequence[tuple[Field, PartT]]) -> PartT:
        """The part for a whole class, given those of its fields."""

    @abstractmethod
    def of_array(self, item: PartT, field: Field) -> PartT:
        """The part for an array, given that of its items."""

    @abstractmethod
    def of_nullable(self, one: PartT) -> PartT:
        """The part for a struct that may be null and has a byte before it to say so."""

    @abstractmethod
    def of_primitive(self, field: Field) -> PartT:
        """The part for a primitive, or for the items of an array of primitives."""
