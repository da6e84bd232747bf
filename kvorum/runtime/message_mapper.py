"""Conversion of dataclasses to protobuf messages and back, by field names and types.

A `MessageMapper` is made once for a dataclass and its message. Fields with equal names correspond,
and the type of the dataclass field decides the form in the message:

| type of the field | form in the message |
| --- | --- |
| int, str, bool, float, bytes | the scalar |
| a subclass of IntEnum | its number; an unknown number raises WireError |
| Uuid | bytes; a value of another length than 16 is read as UUID_ZERO |
| a dataclass or NamedTuple | a message, field by field |
| tuple[X, ...] | a repeated field; if the field is a message, its only field |
| tuple[A, B] | a message with that many fields, by position |
| X or None | a field with presence, absent for None |

A field of any other form is declared `ByHand`.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from kvorum.runtime.errors import WireError, invariant
from kvorum.runtime.ids import UUID_ZERO, Uuid

Value = TypeVar("Value")

Convert = Callable[[Any], Any]

SCALARS = (int, str, bool, float, bytes)


@dataclass(frozen=True, slots=True)
class ByHand:
    """A field whose two forms differ in more than their types.

    encode: converts the dataclass's value to the message's (plain values; dicts for messages).
    decode: the reverse.
    message_field: the field's name in the message, if it is another.
    """

    encode: Convert
    decode: Convert
    message_field: str = ""


class _Field(NamedTuple):
    name: str
    message_field: str
    encode: Convert | None
    """None: the value is used as it is."""
    decode: Convert | None
    has_presence: bool


class MessageMapper(Generic[Value]):
    """Converts between a dataclass (or NamedTuple) and a generated message class.

    apart: fields of the message that the dataclass does not have, such as a status; left to the
        caller.
    derived: fields of the dataclass that the message does not have, each with a function that
        computes it from the message.

    Raises TypeError if the two classes do not match in a field.
    """

    def __init__(
        self,
        value_class: Callable[..., Value],
        message_class: Any,
        *,
        apart: Collection[str] = (),
        by_hand: Mapping[str, ByHand] = types.MappingProxyType({}),
        derived: Mapping[str, Convert] = types.MappingProxyType({}),
    ) -> None:
        self._value_class = value_class
        self._message_class = message_class
        self._derived = dict(derived)
        self._fields = _fields_of(value_class, message_class.DESCRIPTOR, by_hand, derived)
        mapped = {field.message_field for field in self._fields}
        extra = {field.name for field in message_class.DESCRIPTOR.fields} - mapped - set(apart)
        if extra:
            raise TypeError(f"{value_class} has nothing for {sorted(extra)} of the message")

    def encode(self, value: Value, **apart: Any) -> Any:
        """The message of a value. apart: values of the message's additional fields."""
        return self._message_class(**self.to_dict(value), **apart)

    def to_dict(self, value: Value) -> dict[str, Any]:
        """The fields of a value's message; nested messages are dicts too."""
        return {
            message_field: getattr(value, name) if encode is None else encode(getattr(value, name))
            for name, message_field, encode, _, _ in self._fields
        }

    def decode(self, message: Any) -> Value:
        """The value in a message. Raises WireError for a number that its enum does not have."""
        values: dict[str, Any] = {}
        for name, message_field, _, decode, has_presence in self._fields:
            if has_presence and not message.HasField(message_field):
                values[name] = None
                continue
            value = getattr(message, message_field)
            values[name] = value if decode is None else decode(value)
        for name, derive in self._derived.items():
            values[name] = derive(message)
        return self._value_class(**values)


def items_converters(item_type: Any, field: Any) -> tuple[Convert, Convert]:
    """Encoder and decoder of a tuple whose items are a repeated field of a message.

    field: descriptor of the repeated field. Raises TypeError like MessageMapper.
    """
    encode, decode = _converters(item_type, field)
    return _encoder_of_items(encode), _decoder_of_items(decode)


def _fields_of(
    value_class: Any, descriptor: Any, by_hand: Mapping[str, ByHand], derived: Collection[str]
) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(value_class, include_extras=True)
    found = []
    for name in _field_names(value_class):
        if name in derived:
            continue
        hand = by_hand.get(name)
        message_field = (hand.message_field if hand else "") or name
        field = descriptor.fields_by_name.get(message_field)
        if field is None:
            raise TypeError(f"{descriptor.full_name} has no field {message_field}")
        if hand is not None:
            found.append(_Field(name, message_field, hand.encode, hand.decode, False))
        else:
            found.append(_field(name, hints[name], field))
    return tuple(found)


def _field_names(value_class: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value_class):
        return tuple(field.name for field in dataclasses.fields(value_class))
    return tuple(value_class._fields)


def _field(name: str, hint: Any, field: Any) -> _Field:
    """The conversion of one dataclass field to the message field of the same name."""
    inner = _without_none(hint)
    if inner is None:
        encode, decode = _value_converters(hint, field)
        return _Field(name, name, encode, decode, False)
    if not field.has_presence:
        raise TypeError(f"{field.full_name} must be optional: its value may be None")
    encode, decode = _value_converters(inner, field)
    if encode is not None:
        encode = _encoder_unless_none(encode)
    return _Field(name, name, encode, decode, True)


def _value_converters(hint: Any, field: Any) -> tuple[Convert | None, Convert | None]:
    """Encoder and decoder of a value in a field, repeated or not."""
    item_type = _item_type(hint)
    if item_type is None:
        return _converters(hint, field)
    if field.is_repeated:
        return items_converters(item_type, field)
    # A nested message can be absent; an absent repeated field looks like an empty one.
    return _wrapped(item_type, field.message_type)


def _wrapped(item_type: Any, descriptor: Any) -> tuple[Convert, Convert]:
    """Encoder and decoder of a tuple of items in a message whose only field is repeated."""
    (only,) = descriptor.fields
    encode, decode = items_converters(item_type, only)
    return lambda value: {only.name: encode(value)}, lambda message: decode(
        getattr(message, only.name)
    )


def _converters(hint: Any, field: Any) -> tuple[Convert | None, Convert | None]:
    """Encoder and decoder of a single value; None if it is used as it is."""
    if hint == Uuid:
        return None, _uuid
    if hint in SCALARS:
        return None, None
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return None, _decoder_of_enum(hint)
    if field.message_type is None:
        raise TypeError(f"{field.full_name} is no message, its value a {hint}")
    if typing.get_origin(hint) is tuple:
        return _by_position(hint, field.message_type)
    mapper: MessageMapper[Any] = MessageMapper(hint, field.message_type._concrete_class)
    return mapper.to_dict, mapper.decode


def _by_position(hint: Any, descriptor: Any) -> tuple[Convert, Convert]:
    """Encoder and decoder of a tuple whose items are the fields of a message, in order."""
    item_type = _item_type(hint)
    if item_type is not None:
        return _wrapped(item_type, descriptor)
    item_types = typing.get_args(hint)
    if len(item_types) != len(descriptor.fields):
        raise TypeError(f"{descriptor.full_name} has not {len(item_types)} fields, as {hint} has")
    fields = [
        _field(field.name, item, field)
        for item, field in zip(item_types, descriptor.fields, strict=True)
    ]

    def encode_tuple(value: tuple[Any, ...]) -> dict[str, Any]:
        return {
            field.name: item if field.encode is None else field.encode(item)
            for field, item in zip(fields, value, strict=True)
        }

    def decode_tuple(message: Any) -> tuple[Any, ...]:
        return tuple(_read(message, field) for field in fields)

    return encode_tuple, decode_tuple


def _read(message: Any, field: _Field) -> Any:
    if field.has_presence and not message.HasField(field.message_field):
        return None
    value = getattr(message, field.message_field)
    return value if field.decode is None else field.decode(value)


def _item_type(hint: Any) -> Any:
    """X of tuple[X, ...], None for any other type."""
    if typing.get_origin(hint) is not tuple:
        return None
    arguments = typing.get_args(hint)
    return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None


def _without_none(hint: Any) -> Any:
    """X of X | None, None for any other type."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return None
    others = [one for one in typing.get_args(hint) if one is not types.NoneType]
    invariant(len(others) == 1, f"no form in a message for {hint}")
    return others[0]


def _encoder_of_items(encode: Convert | None) -> Convert:
    if encode is None:
        return list
    return lambda items: [encode(item) for item in items]


def _decoder_of_items(decode: Convert | None) -> Convert:
    if decode is None:
        return tuple
    return lambda items: tuple([decode(item) for item in items])


def _encoder_unless_none(encode: Convert) -> Convert:
    return lambda value: None if value is None else encode(value)


def _decoder_of_enum(kind: type[enum.IntEnum]) -> Convert:
    by_number = {int(member): member for member in kind}

    def decode(number: int) -> enum.IntEnum:
        member = by_number.get(number)
        if member is None:
            raise WireError(f"{number} is no {kind.__name__}")
        return member

    return decode


def _uuid(value: bytes) -> bytes:
    return value if len(value) == len(UUID_ZERO) else UUID_ZERO
