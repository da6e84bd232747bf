"""Conversion of the core's values to JSON and back, for the flight recorder.

It handles any dataclass, plain class and usual container, so that a new message, event or role
needs no code here. Of a byte string longer than `BYTES_KEPT_MAX`, only length and CRC-32C are
written, because the core never reads a payload. `encode(decode(form)) == form` for every form that
`encode` made. Format: ../docs/protocol/flight-recorder.md.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import importlib
import json
import random
import struct
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from crc32c import crc32c

from kvorum.runtime.errors import KvorumError, invariant

BYTES_KEPT_MAX = 32
"""Directory ids and the like stay readable; records do not."""

MODULES = (
    "kvorum.raft.model.values",
    "kvorum.raft.model.messages",
    "kvorum.raft.model.events",
    "kvorum.raft.model.effects",
    "kvorum.raft.model.progress",
    "kvorum.raft.model.log_tail",
    "kvorum.raft.model.voters",
    "kvorum.raft.core.states",
    "kvorum.runtime.errors",
)
"""Classes of these modules are written by their bare names, all others by module and name."""

PACKAGES = ("kvorum.raft.", "kvorum.runtime.")
"""A record may only name classes of these packages, so that reading it runs no foreign code."""

_RANDOM_STATE = struct.Struct(">625I")


class UndecodableValue(KvorumError):
    """A text that `encode` of this version cannot have made; the message says why."""


class ElidedBytes(bytes):
    """Stands for a payload that was not kept: it has its length and CRC-32C but not its content."""

    size: int
    checksum: int

    def __new__(cls, size: int, checksum: int) -> ElidedBytes:
        value = super().__new__(cls)
        value.size = size
        value.checksum = checksum
        return value

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ElidedBytes):
            return False
        return (self.size, self.checksum) == (other.size, other.checksum)

    def __hash__(self) -> int:
        return hash((self.size, self.checksum))

    def __repr__(self) -> str:
        return f"ElidedBytes({self.size}, {self.checksum})"


def dumps(value: Any) -> str:
    """The JSON text of an encoded value: one line, and always the same for the same value."""
    return json.dumps(value, separators=(",", ":"))


def encode(value: Any) -> Any:
    """The JSON form of a value. Raises InvariantViolated for a type that has none."""
    kind: Any = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is tuple:
        return [encode(item) for item in value]
    if isinstance(value, enum.Enum):
        return {"$enum": f"{_name_of(kind)}.{value.name}"}
    if isinstance(value, bytes | bytearray | memoryview):
        return _encode_bytes(value)
    encoder = _CONTAINERS.get(kind)
    if encoder is not None:
        return encoder(value)
    # json.dumps(default=...) would not do: it writes a tuple as a list and loses the type.
    return {"$": _name_of(kind)} | encode_attributes(value)


def encode_attributes(value: Any) -> dict[str, Any]:
    """Every attribute of an object, by name."""
    return {name: encode(getattr(value, name)) for name in attributes_of(value)}


def attributes_of(value: Any) -> list[str]:
    """Names of the attributes that an object has, whether in slots or not."""
    kind: Any = type(value)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    slots = [name for name in _slots_of(kind) if hasattr(value, name)]
    return slots + list(getattr(value, "__dict__", ()))


def decode(form: Any) -> Any:
    """The value whose JSON form this is. Raises UndecodableValue."""
    if isinstance(form, list):
        return tuple(decode(item) for item in form)
    if not isinstance(form, dict):
        return form
    if isinstance(form.get("$"), str):
        return _decode_object(form)
    for tag, decoder in _DECODERS.items():
        if tag in form:
            try:
                return decoder(form)
            except (TypeError, ValueError, KeyError, struct.error) as error:
                raise UndecodableValue(f"{_brief(form)} is no {tag[1:]}: {error}") from error
    raise UndecodableValue(f"{_brief(form)} has no known kind")


def restore_attributes(target: Any, form: dict[str, Any]) -> None:
    """Set the attributes of an encoded object on `target`, which was made without its
    constructor."""
    for name, item in form.items():
        if name != "$":
            object.__setattr__(target, name, decode(item))


# Bytes.


def _encode_bytes(value: bytes | bytearray | memoryview) -> dict[str, Any]:
    if isinstance(value, ElidedBytes):
        return {"$bytes": value.size, "crc32c": value.checksum}
    if len(value) > BYTES_KEPT_MAX:
        return {"$bytes": len(value), "crc32c": crc32c(value)}
    return {"$hex": value.hex()}


def _decode_elided(form: dict[str, Any]) -> ElidedBytes:
    return ElidedBytes(int(form["$bytes"]), int(form["crc32c"]))


# Containers. A tuple is a plain JSON list, because it is by far the most frequent.


def _encode_set(tag: str) -> Callable[[Iterable[Any]], dict[str, Any]]:
    def encode_members(value: Iterable[Any]) -> dict[str, Any]:
        return {tag: sorted(map(encode, value), key=dumps)}

    return encode_members


def _encode_random(value: random.Random) -> dict[str, Any]:
    version, internal, gauss_next = value.getstate()
    packed = base64.b64encode(_RANDOM_STATE.pack(*internal)).decode()
    return {"$random": [version, packed, gauss_next]}


def _decode_random(form: dict[str, Any]) -> random.Random:
    version, packed, gauss_next = form["$random"]
    # The seed is replaced at once; a fixed one avoids reading the system's entropy.
    rng = random.Random(0)
    rng.setstate((version, _RANDOM_STATE.unpack(base64.b64decode(packed)), gauss_next))
    return rng


_CONTAINERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    list: lambda value: {"$list": [encode(item) for item in value]},
    # Pairs, because keys may have any type. The order is kept: the core may depend on it.
    dict: lambda value: {"$dict": [[encode(k), encode(v)] for k, v in value.items()]},
    set: _encode_set("$set"),
    frozenset: _encode_set("$frozenset"),
    deque: lambda value: {"$deque": [encode(item) for item in value], "maxlen": value.maxlen},
    random.Random: _encode_random,
}

_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$hex": lambda form: bytes.fromhex(form["$hex"]),
    "$bytes": _decode_elided,
    "$enum": lambda form: _member_of(*form["$enum"].rpartition(".")[::2]),
    "$list": lambda form: [decode(item) for item in form["$list"]],
    "$dict": lambda form: {decode(key): decode(item) for key, item in form["$dict"]},
    "$set": lambda form: {decode(item) for item in form["$set"]},
    "$frozenset": lambda form: frozenset(decode(item) for item in form["$frozenset"]),
    "$deque": lambda form: deque(map(decode, form["$deque"]), form["maxlen"]),
    "$random": _decode_random,
}


# Classes.


@cache
def _name_of(kind: Any) -> str:
    bare: str = kind.__qualname__
    if _by_bare_name().get(bare) is kind:
        return bare
    full = f"{kind.__module__}.{bare}"
    invariant(full.startswith(PACKAGES), f"the flight recorder cannot write a {full}")
    return full


@cache
def _class_named(name: str) -> type:
    module_name, _, bare = name.rpartition(".")
    if not module_name:
        kind: Any = _by_bare_name().get(bare)
    elif not module_name.startswith(PACKAGES):
        kind = None
    else:
        try:
            kind = getattr(importlib.import_module(module_name), bare, None)
        except ModuleNotFoundError:
            kind = None
    if not isinstance(kind, type):
        raise UndecodableValue(f"no class {name!r} in this version")
    return kind


@cache
def _by_bare_name() -> dict[str, type]:
    found: dict[str, type] = {}
    for module_name in MODULES:
        for value in vars(importlib.import_module(module_name)).values():
            if isinstance(value, type) and value.__module__ == module_name:
                found[value.__qualname__] = value
    return found


@cache
def _slots_of(kind: Any) -> tuple[str, ...]:
    return tuple(
        name
        for base in kind.__mro__
        for name in getattr(base, "__slots__", ())
        if name not in ("__dict__", "__weakref__")
    )


def _member_of(class_name: str, member: str) -> enum.Enum:
    kind = _class_named(class_name)
    if not issubclass(kind, enum.Enum) or member not in kind.__members__:
        raise UndecodableValue(f"no {class_name}.{member} in this version")
    return kind[member]


def _decode_object(form: dict[str, Any]) -> Any:
    kind = _class_named(form["$"])
    if dataclasses.is_dataclass(kind):
        known = {field.name for field in dataclasses.fields(kind)}
        if known != form.keys() - {"$"}:
            different = sorted(known ^ (form.keys() - {"$"}))
            raise UndecodableValue(
                f"{form['$']} has other fields in this version: {', '.join(different)}"
            )
    try:
        value: Any = object.__new__(kind)
        restore_attributes(value, form)
    except (AttributeError, TypeError) as error:
        raise UndecodableValue(f"{_brief(form)} is no {form['$']}: {error}") from error
    return value


def _brief(form: dict[str, Any]) -> str:
    return dumps(form)[:80]
