"""Node properties: Kafka's dotted names in TOML files, bound to typed dataclasses.

The dataclass field `log_segment_bytes` is the property `log.segment.bytes`. Values are checked
against the field's type.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

from kvorum.runtime.errors import ConfigError

DataclassT = TypeVar("DataclassT")

Properties = dict[str, Any]
"""Property name to value (str, int, float or bool)."""


def load_properties(path: str) -> Properties:
    """The properties in a TOML file. Table names become prefixes: `dirs` in `[log]` is `log.dirs`.

    Raises ConfigError for a file that cannot be read or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return _flatten(tomllib.load(file), "", path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: it is not UTF-8, see byte {error.start}") from error


def parse_assignment(text: str) -> tuple[str, str]:
    """Name and value of `key=value` from a command line. Raises ConfigError if there is no `=`."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{text!r} is not of the form key=value")
    return name.strip(), value.strip()


def dump_properties(properties: Mapping[str, Any]) -> str:
    """The properties as TOML, one a line; names are quoted, so that none becomes a table."""
    lines = []
    for name in sorted(properties):
        value = properties[name]
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int | float):
            text = str(value)
        else:
            # A JSON string is a TOML basic string.
            text = json.dumps(str(value), ensure_ascii=False)
        lines.append(f'"{name}" = {text}')
    return "\n".join(lines) + "\n"


def property_names(*classes: type[Any]) -> list[str]:
    """All property names that these dataclasses understand."""
    return [_name(field) for cls in classes for field in dataclasses.fields(cls)]


def bind(cls: type[DataclassT], properties: Mapping[str, Any]) -> DataclassT:
    """An instance of `cls` from the properties that are its fields; other properties are ignored.

    Raises ConfigError with each property of a wrong type, its value and the expected type, and each
    required property that is missing.
    """
    values, problems = _converted(cls, properties)
    if problems:
        raise ConfigError("; ".join(problems))
    return cls(**values)


def check_types(classes: Iterable[type[Any]], properties: Mapping[str, Any]) -> None:
    """Raise the ConfigError that `bind` of these classes would, with the problems of all."""
    problems: dict[str, None] = {}
    for cls in classes:
        problems.update(dict.fromkeys(_converted(cls, properties)[1]))
    if problems:
        raise ConfigError("; ".join(problems))


def _converted(cls: type[Any], properties: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values of the fields of a dataclass, and the problems of those that have none."""
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in dataclasses.fields(cls):
        name = _name(field)
        if name in properties:
            try:
                values[field.name] = _convert(name, properties[name], hints[field.name])
            except ConfigError as error:
                problems.append(str(error))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"property {name!r} is required")
    return values, problems


def _name(field: dataclasses.Field[Any]) -> str:
    return field.name.replace("_", ".")


def _flatten(table: Mapping[str, Any], prefix: str, path: str) -> Properties:
    flat: Properties = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{name}.", path))
        elif isinstance(value, str | int | float | bool):
            flat[name] = value
        else:
            raise ConfigError(f"{path}: {name!r} must be a string, a number or a boolean")
    return flat


def _convert(name: str, value: Any, kind: Any) -> Any:
    try:
        if kind is bool:
            return _boolean(value)
        if kind is int:
            if isinstance(value, bool | float):
                raise ValueError
            return int(value)
        if kind is float:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        if not isinstance(value, str):
            raise ValueError
    except ValueError:
        expected = _KINDS.get(kind, "string (in quotes)")
        # The value is not shown: it may be a password without its quotes.
        kind_found = "" if kind is str else f", not {value!r}"
        raise ConfigError(f"property {name!r} must be a {expected}{kind_found}") from None
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_KINDS = {bool: "boolean (true or false)", int: "whole number", float: "number"}
