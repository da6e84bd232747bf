"""Faults as an experiment writes them: a name (`func`) and arguments, read into `chaos.faults`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kvorum.chaos.experiment_file.keys import DURATION_MS_MAX
from kvorum.chaos.fault_words import EVERY_CONNECTION
from kvorum.chaos.faults import LIVE_FAULTS, SIMULATED_FAULTS, LiveFault
from kvorum.chaos.targets import Target, parse_target

#: Arguments that must be at least 1.
_POSITIVE = frozenset(
    {
        "kilobytes_per_second",
        "slice_bytes",
        "limit_bytes",
        "sync_delay_ms",
        "duration_ms",
        "throttle",
    }
)
#: Arguments that may be negative, and must not be 0.
SIGNED = frozenset({"step_ms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentProblem:
    """A bad argument: `key` names it (empty for the fault as a whole), `message` explains the
    problem."""

    key: str
    message: str


def build_fault(name: str, arguments: Mapping[str, object]) -> LiveFault | list[ArgumentProblem]:
    """The fault of that name, or every problem of its arguments.

    Raises KeyError if no live fault has that name: callers check LIVE_FAULTS first.
    """
    kind = LIVE_FAULTS[name]
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    problems: list[ArgumentProblem] = []
    values: dict[str, object] = {}
    misspelt: set[str] = set()
    for key, value in arguments.items():
        if key not in fields:
            near = get_close_matches(key, list(fields), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{name} has {', '.join(fields)}"
            message = f"unknown argument {key!r}; {hint}"
            problems.append(ArgumentProblem(key=key, message=message))
            misspelt.update(near)
            continue
        try:
            values[key] = _convert(key, value, hints[key])
        except ValueError as error:
            problems.append(ArgumentProblem(key=key, message=str(error)))
    for key, field in fields.items():
        # A misspelt argument is a problem already; that it is missing follows from it.
        if key in arguments or key in misspelt:
            continue
        if field.default is dataclasses.MISSING:
            problems.append(ArgumentProblem(key="", message=f"{name} needs the argument {key!r}"))
    if problems:
        return problems
    make: Callable[..., LiveFault] = kind
    return make(**values)


def bounds_of(key: str) -> tuple[int, int]:
    """The lowest and the highest value of a whole number among a fault's arguments."""
    if key == "toxicity":
        return 1, EVERY_CONNECTION
    if key == "loss_percent":
        return 1, 100
    if key in SIGNED:
        return -DURATION_MS_MAX, DURATION_MS_MAX
    return (
        1 if key in _POSITIVE else 0,
        DURATION_MS_MAX if key.endswith("_ms") else 2**31 - 1,
    )


def words_of(hint: object) -> tuple[str, ...]:
    """The words that an argument may be, if its type is a Literal: read and write of
    Literal["read", "write"]. Empty for every other type."""
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def why_not_live(name: str) -> str | None:
    """The reason why an experiment cannot use the fault of that name; None if no fault has it."""
    if name not in SIMULATED_FAULTS:
        return None
    return f"{name!r} can only be simulated (kvorum chaos sim): a live run has no hand on it"


def _convert(key: str, value: object, hint: object) -> object:
    if hint is Target:
        if not isinstance(value, str):
            raise ValueError(f"{key} must be a target, got {value!r}")
        return parse_target(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, got {value!r}")
        return value
    if value is None and isinstance(hint, types.UnionType):
        return None
    if hint is str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} must be a text, got {value!r}")
        return value
    if typing.get_origin(hint) is tuple:
        return _convert_list(key, value, typing.get_args(hint)[0])
    if words := words_of(hint):
        if value not in words:
            raise ValueError(f"{key} must be one of {', '.join(words)}, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} must be a whole number, got {value!r}")
    low, high = bounds_of(key)
    if not low <= value <= high:
        raise ValueError(f"{key} must lie between {low} and {high}, got {value}")
    if value == 0 and key in SIGNED:
        raise ValueError(f"{key} must not be 0, which changes nothing")
    return value


def _convert_list(key: str, value: object, hint: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{key} must be a list of at least one, got {value!r}")
    items = tuple(_convert(key, item, hint) for item in value)
    if len(set(items)) < len(items):
        raise ValueError(f"{key} names one of them twice: {value!r}")
    return items
