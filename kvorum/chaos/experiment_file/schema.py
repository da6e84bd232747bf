"""The JSON Schema of experiments (draft 2020-12), made from the tables that the parser reads.

A schema cannot say everything: `kvorum chaos validate` also checks what needs two values at once,
such as a target against the number of brokers.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from kvorum.chaos.experiment_file.experiment import VERSION
from kvorum.chaos.experiment_file.faults import SIGNED, bounds_of, words_of
from kvorum.chaos.experiment_file.keys import (
    CONFIGURATION_KEYS,
    LOAD_KEYS,
    PAUSE_SECONDS_MAX,
    PROMISE_KEYS,
    SECURE_MEANING,
    STORM_KEYS,
    TOPIC_KEYS,
    IntegerKey,
)
from kvorum.chaos.experiment_file.shorthand import CONTROL_MODULE, TOOLKIT_MODULE
from kvorum.chaos.experiment_file.steps import PROBES
from kvorum.chaos.experiment_file.workloads import WORKLOADS
from kvorum.chaos.faults import LIVE_FAULTS
from kvorum.chaos.targets import Target, target_pattern

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}


def schema() -> Schema:
    """The schema of a whole experiment."""
    fields: Schema = {
        "version": _version(),
        "title": _TEXT,
        "description": _TEXT,
        "tags": {"type": "array", "items": _TEXT},
        "contributions": {"type": "object"},
        "extensions": {"type": "array"},
        "controls": {"type": "array", "items": _control()},
        "configuration": {"$ref": "#/$defs/configuration"},
        "steady-state-hypothesis": _object(
            {"title": _TEXT, "probes": {"type": "array", "items": {"$ref": "#/$defs/steady"}}}
        ),
        "method": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}},
        "rollbacks": {"type": "array", "items": {"$ref": "#/$defs/action"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An experiment of Kvorum",
        **_object(fields, needed=("title", "method")),
        "$defs": {
            "target": {"type": "string", "pattern": target_pattern()},
            "pauses": _pauses(),
            "tolerance": _tolerance(),
            "configuration": _configuration(),
            **{f"fault-{name}": _fault(kind) for name, kind in LIVE_FAULTS.items()},
            "storm": _storm(),
            "action": {
                "anyOf": [*_long_actions(), *_short_actions()],
                "not": _waits_in_background(),
            },
            "probe": {"anyOf": _probes(needed=())},
            "steady": {"anyOf": _probes(needed=("tolerance",))},
            "step": {"anyOf": [{"$ref": "#/$defs/action"}, {"$ref": "#/$defs/probe"}]},
        },
    }


def schema_text() -> str:
    """The schema as the file `kvorum/chaos/experiment_file/schema.json` has it."""
    return json.dumps(schema(), indent=1) + "\n"


def _version() -> Schema:
    major = int(VERSION.partition(".")[0])
    numbers = {"type": "number", "minimum": major, "exclusiveMaximum": major + 1}
    return {"anyOf": [{"type": "string", "pattern": rf"^{major}(\.|$)"}, numbers]}


def _object(fields: Mapping[str, Any], *, needed: Iterable[str] = ()) -> Schema:
    found: Schema = {
        "type": "object",
        "properties": dict(fields),
        "additionalProperties": False,
    }
    return {**found, "required": list(needed)} if needed else found


def _integers(keys: Iterable[IntegerKey]) -> Schema:
    return {
        key.name: {
            "type": "integer",
            "minimum": key.low,
            "maximum": key.high,
            "description": key.meaning,
            **({} if key.default is None else {"default": key.default}),
        }
        for key in keys
    }


def _control() -> Schema:
    provider = {"type": {"const": "python"}, "module": {"const": CONTROL_MODULE}}
    return _object(
        {"name": _TEXT, "provider": _object(provider, needed=provider)},
        needed=("name", "provider"),
    )


def _pauses() -> Schema:
    seconds = {"type": "number", "minimum": 0, "maximum": PAUSE_SECONDS_MAX}
    return _object({"before": seconds, "after": seconds})


def _tolerance() -> Schema:
    numbers = {"type": "array", "items": {"type": "number"}}
    pair = {**numbers, "minItems": 2, "maxItems": 2}
    bounds = {"type": {"const": "range"}, "range": pair}
    return {
        "anyOf": [
            {"type": "number"},
            {**numbers, "minItems": 1},
            _object(bounds, needed=bounds),
        ]
    }


def _configuration() -> Schema:
    return _object(
        {
            **_integers(CONFIGURATION_KEYS),
            "secure": {"type": "boolean", "description": SECURE_MEANING, "default": False},
            "topic": _object({"name": _TEXT, **_integers(TOPIC_KEYS)}),
            "workload": _object(_integers(LOAD_KEYS)),
            "workloads": {
                "type": "array",
                "items": {"oneOf": [_workload(name, kind) for name, kind in WORKLOADS.items()]},
            },
            "promises": _object(_integers(PROMISE_KEYS)),
            "settings": {
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
        }
    )


def _workload(name: str, kind: type[Any]) -> Schema:
    hints = typing.get_type_hints(kind)
    fields: Schema = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if typing.get_origin(hint) is typing.Literal:
            fields[field.name] = {"enum": list(typing.get_args(hint))}
        elif hint is str:
            fields[field.name] = dict(_TEXT)
        else:
            low, high = field.metadata["low"], field.metadata["high"]
            fields[field.name] = {"type": "integer", "minimum": low, "maximum": high}
        fields[field.name]["default"] = field.default
    return _object({name: _or_nothing(_object(fields))}, needed=(name,))


def _or_nothing(found: Schema) -> Schema:
    """The schema, which also allows null: `- heal:` with nothing after the colon."""
    return {**found, "type": [found["type"], "null"]}


def _fault(kind: type[Any]) -> Schema:
    hints = typing.get_type_hints(kind)
    fields: Schema = {}
    needed = []
    for field in dataclasses.fields(kind):
        fields[field.name] = _argument(field.name, hints[field.name])
        if field.default is dataclasses.MISSING:
            needed.append(field.name)
    found = _object(fields, needed=needed) | {"description": " ".join((kind.__doc__ or "").split())}
    return found if needed else _or_nothing(found)


def _argument(name: str, hint: object) -> Schema:
    if hint is Target:
        return {"$ref": "#/$defs/target"}
    if hint is bool:
        return {"type": "boolean"}
    if hint is str:
        return dict(_TEXT)
    if typing.get_origin(hint) is tuple:
        items = _argument(name, typing.get_args(hint)[0])
        return {"type": "array", "minItems": 1, "uniqueItems": True, "items": items}
    if words := words_of(hint):
        return {"enum": list(words)}
    low, high = bounds_of(name)
    kind = ["integer", "null"] if isinstance(hint, types.UnionType) else "integer"
    found: Schema = {"type": kind, "minimum": low, "maximum": high}
    return {**found, "not": {"const": 0}} if name in SIGNED else found


def _storm() -> Schema:
    short = [_object({name: _ref(name)}, needed=(name,)) for name in LIVE_FAULTS]
    long = [
        _object({"func": {"const": name}, "arguments": _ref(name)}, needed=("func",))
        for name in LIVE_FAULTS
    ]
    faults = {"type": "array", "minItems": 1, "items": {"anyOf": short + long}}
    return _object({**_integers(STORM_KEYS), "faults": faults}, needed=("faults",))


def _ref(fault: str) -> Schema:
    return {"$ref": f"#/$defs/fault-{fault}"}


def _beside(kind: str) -> Schema:
    """The keys that may stand beside a step's own key."""
    fields: Schema = {"name": _TEXT, "pauses": {"$ref": "#/$defs/pauses"}}
    return fields | ({"background": {"type": "boolean"}} if kind == "fault" else {})


def _provider(func: str, arguments: Schema | None) -> Schema:
    fields: Schema = {
        "type": {"enum": ["python", "kvorum"]},
        "module": {"const": TOOLKIT_MODULE},
        "func": {"const": func},
    }
    if arguments is not None:
        fields["arguments"] = arguments
    return _object(fields, needed=("type", "func"))


def _long_actions() -> list[Schema]:
    faults = [_provider(name, _ref(name)) for name in LIVE_FAULTS]
    storm = _provider("storm", {"$ref": "#/$defs/storm"})
    return [
        _object(
            {"type": {"const": "action"}, "provider": provider, **_beside(kind)},
            needed=("type", "name", "provider"),
        )
        for kind, provider in (("fault", {"anyOf": faults}), ("storm", storm))
    ]


def _short_actions() -> list[Schema]:
    faults = [
        _object({name: _ref(name), **_beside("fault")}, needed=(name,)) for name in LIVE_FAULTS
    ]
    storm = {"storm": {"$ref": "#/$defs/storm"}}
    return [*faults, _object({**storm, **_beside("storm")}, needed=storm)]


def _waits_in_background() -> Schema:
    """Matches a background step that has pauses, which the parser refuses too."""
    pauses = {"anyOf": [{"required": [key], **_positive(key)} for key in ("before", "after")]}
    return {
        "properties": {"background": {"const": True}, "pauses": pauses},
        "required": ["background", "pauses"],
    }


def _positive(key: str) -> Schema:
    return {"properties": {key: {"exclusiveMinimum": 0}}}


def _probes(*, needed: Iterable[str]) -> list[Schema]:
    tolerance = {"$ref": "#/$defs/tolerance"}
    must = list(needed)
    long = _object(
        {
            "type": {"const": "probe"},
            "provider": {"anyOf": [_provider(name, None) for name in PROBES]},
            "tolerance": tolerance,
            **_beside("probe"),
        },
        needed=("type", "name", "provider", *must),
    )
    value = tolerance if must else {"anyOf": [tolerance, {"type": "null"}]}
    short = [_object({name: value, **_beside("probe")}, needed=(name,)) for name in PROBES]
    return [long, *short]
