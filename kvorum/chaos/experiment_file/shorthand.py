"""The short form of steps, rewritten into Chaos Toolkit's.

`- kill: {target: active-controller, duration_ms: 3000}` is an action, and in a steady state
`- active_controllers: 1` is a probe with its tolerance. `name`, `pauses` and `background` may stand
beside. Problems are still reported at the places where the short form has the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from kvorum.chaos.experiment_file.document import Document, Path

#: The module of the actions and probes, and of the control, in Chaos Toolkit's form.
TOOLKIT_MODULE = "kvorum.chaos.toolkit"
CONTROL_MODULE = "kvorum.chaos.toolkit.control"

CONTROLS = [{"name": "kvorum", "provider": {"type": "python", "module": CONTROL_MODULE}}]

_BESIDE = ("name", "pauses", "background")
_LONG = ("type", "provider", "ref")


def long_step(document: Document, where: Path, item: Any, probes: Iterable[str]) -> Any:
    """A step in Chaos Toolkit's form. None for a step that is in no form; its problem is noted.

    probes: the names that are probes; all others are actions.
    """
    if not isinstance(item, dict) or any(key in item for key in _LONG):
        return item
    names = [str(key) for key in item if key not in _BESIDE]
    if len(names) != 1:
        document.problem(where, _not_one_step(names, item))
        return None
    func = names[0]
    value = item[func]
    step: dict[str, Any] = {"name": _name_of(func, value), **_beside(item)}
    provider: dict[str, Any] = {"type": "python", "module": TOOLKIT_MODULE, "func": func}
    written = (*where, func)
    document.alias((*where, "provider", "func"), written)
    if func in probes:
        step["type"] = "probe"
        # Nothing, or `{}` as for an action without arguments: the probe has no tolerance.
        if value is not None and value != {}:
            step["tolerance"] = value
            document.alias((*where, "tolerance"), written)
    else:
        step["type"] = "action"
        provider["arguments"] = value
        document.alias((*where, "provider", "arguments"), written)
        document.alias((*where, "provider"), written)
    step["provider"] = provider
    return step


def short_func(item: Any) -> str | None:
    """The name of a step in the short form; None for any other."""
    if not isinstance(item, dict) or any(key in item for key in _LONG):
        return None
    names = [str(key) for key in item if key not in _BESIDE]
    return names[0] if len(names) == 1 else None


def long_choice(document: Document, where: Path, item: Any) -> Any:
    """A fault of a storm as `func` and `arguments`."""
    if not isinstance(item, dict) or "func" in item or len(item) != 1:
        return item
    ((func, arguments),) = item.items()
    if func == "arguments":
        return item
    document.alias((*where, "func"), (*where, func))
    document.alias((*where, "arguments"), (*where, func))
    return {"func": func, "arguments": arguments}


def _beside(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in _BESIDE if key in item}


def _name_of(func: str, value: Any) -> str:
    ends = value if isinstance(value, dict) else {}
    end = ends.get("target", ends.get("source", ""))
    return f"{func} {end}".strip()


def _not_one_step(names: list[str], item: dict[str, Any]) -> str:
    if not names:
        given = f", got only {', '.join(item)}" if item else ""
        return f"must be an action or a probe{given}"
    for name in names:
        near = get_close_matches(name, _BESIDE, n=1)
        # `pause` with its arguments is an action, and no mistyped `pauses`.
        if near and not isinstance(item[name], dict):
            return f"has {name!r}; did you mean {near[0]!r}?"
    return f"is one step, but names {' and '.join(names)}; write them as steps of their own"
