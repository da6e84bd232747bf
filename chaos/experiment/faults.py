"""The faults of live experiments. The simulator has a vocabulary of its own (`chaos.sim.faults`).

A fault is plain data: what happens, to whom, for how long. It says nothing about how. With
`duration_ms` set the back end undoes it by itself (a killed node is restarted, a paused one
resumed, a cut healed); without it the fault lasts until restart, resume, heal, or the end of the
method. A one-way fault from A to B concerns bytes that travel from A to B, whoever opened the
connection.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kvorum.chaos.experiment.targets import Target, TargetKind, parse_target

_KILLED = Target(kind=TargetKind.KILLED)
_PAUSED = Target(kind=TargetKind.PAUSED)

#: Longest duration that an experiment may ask for: a day.
DURATION_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL: the process is gone at once, its disk stays as it was."""

    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start killed nodes again on their old disks."""

    target: Target = _KILLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """SIGSTOP: connections stay open, nothing answers."""

    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """SIGCONT for paused nodes."""

    target: Target = _PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Bytes from source to destination vanish; connections stay open (a black hole)."""

    source: Target
    destination: Target
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolate:
    """Cut the target from every node of another set, both ways."""

    target: Target
    away_from: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Delay bytes from source to destination by latency_ms, plus or minus jitter_ms."""

    source: Target
    destination: Target
    latency_ms: int
    jitter_ms: int = 0
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Limit bytes from source to destination to kilobytes_per_second, per connection."""

    source: Target
    destination: Target
    kilobytes_per_second: int
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Cut the byte stream into pieces of about slice_bytes, delay_us apart."""

    source: Target
    destination: Target
    slice_bytes: int
    variation_bytes: int = 0
    delay_us: int = 0
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitData:
    """Close a connection after it has carried limit_bytes from source to destination."""

    source: Target
    destination: Target
    limit_bytes: int
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPeer:
    """Answer connections between the two with a TCP reset after delay_ms."""

    source: Target
    destination: Target
    delay_ms: int = 0
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClose:
    """Hold back a connection's close by delay_ms."""

    source: Target
    destination: Target
    delay_ms: int
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """Close the connections that source opened to destination, and refuse new ones."""

    source: Target
    destination: Target
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """Undo every link fault. Killed and paused nodes stay as they are."""


NodeFault = Kill | Restart | Pause | Resume
ShapingFault = Latency | Bandwidth | Slice | LimitData | ResetPeer | SlowClose
LinkFault = Cut | Isolate | ShapingFault | Down
Fault = NodeFault | LinkFault | Heal

#: Name in an experiment (`func`) -> class.
FAULTS: Mapping[str, type[Fault]] = {
    "kill": Kill,
    "restart": Restart,
    "pause": Pause,
    "resume": Resume,
    "cut": Cut,
    "isolate": Isolate,
    "latency": Latency,
    "bandwidth": Bandwidth,
    "slice": Slice,
    "limit_data": LimitData,
    "reset_peer": ResetPeer,
    "slow_close": SlowClose,
    "down": Down,
    "heal": Heal,
}
_NAMES = {kind: name for name, kind in FAULTS.items()}
#: Arguments that must be at least one to mean anything.
_POSITIVE = frozenset({"kilobytes_per_second", "slice_bytes", "limit_bytes", "duration_ms"})


def fault_name(fault: Fault) -> str:
    """The name under which experiments, histories and reports know this kind of fault."""
    return _NAMES[type(fault)]


def duration_of(fault: Fault) -> int | None:
    """Milliseconds until the back end undoes the fault, None when it lasts until told."""
    duration: int | None = getattr(fault, "duration_ms", None)
    return duration


def describe(fault: Fault) -> str:
    """One line for progress, histories and reports: `cut active-controller -> one:brokers`."""
    match fault:
        case Kill() | Restart() | Pause() | Resume():
            return f"{fault_name(fault)} {fault.target.text()}"
        case Isolate():
            return f"isolate {fault.target.text()} from {fault.away_from.text()}"
        case Heal():
            return "heal"
        case _:
            arrow = "<->" if fault.both_ways else "->"
            details = [
                f"{field.name}={getattr(fault, field.name)}"
                for field in dataclasses.fields(fault)
                if field.name not in ("source", "destination", "both_ways", "duration_ms")
                and getattr(fault, field.name)
            ]
            ends = f"{fault.source.text()} {arrow} {fault.destination.text()}"
            return " ".join([fault_name(fault), ends, *details])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentProblem:
    """A bad argument: `key` is where (empty for the fault as a whole), `message` what is wrong."""

    key: str
    message: str


def build_fault(name: str, arguments: Mapping[str, object]) -> Fault | list[ArgumentProblem]:
    """The fault of that name, or everything that is wrong with its arguments.

    Raises KeyError when no fault has that name: callers look into FAULTS first.
    """
    kind = FAULTS[name]
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    problems: list[ArgumentProblem] = []
    values: dict[str, object] = {}
    for key, value in arguments.items():
        if key not in fields:
            near = get_close_matches(key, list(fields), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(ArgumentProblem(key=key, message=f"unknown argument {key!r}{hint}"))
            continue
        try:
            values[key] = _convert(key, value, hints[key])
        except ValueError as error:
            problems.append(ArgumentProblem(key=key, message=str(error)))
    for key, field in fields.items():
        if key not in arguments and field.default is dataclasses.MISSING:
            problems.append(ArgumentProblem(key="", message=f"{name} needs the argument {key!r}"))
    if problems:
        return problems
    make: Callable[..., Fault] = kind
    return make(**values)


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
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} must be a whole number, got {value!r}")
    low = 1 if key in _POSITIVE else 0
    high = DURATION_MS_MAX if key.endswith("_ms") else 2**31 - 1
    if not low <= value <= high:
        raise ValueError(f"{key} must lie between {low} and {high}, got {value}")
    return value
