"""An experiment as Chaos Toolkit's own command runs it: every step in the long form, YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from kvorum.chaos.experiment_file.document import Document, Path, parse_document
from kvorum.chaos.experiment_file.experiment import VERSION
from kvorum.chaos.experiment_file.shorthand import CONTROLS, TOOLKIT_MODULE, long_choice, long_step


def to_toolkit(path: str, text: str, probes: Iterable[str]) -> str:
    """A valid experiment as YAML in the form that Chaos Toolkit runs."""
    document = parse_document(path, text)
    known = list(probes)
    given: Mapping[str, Any] = document.value
    whole: dict[str, Any] = {"version": VERSION}
    whole |= {key: given[key] for key in given if key not in ("method", "rollbacks")}
    whole.setdefault("description", whole["title"])
    whole["controls"] = CONTROLS
    hypothesis = whole.get("steady-state-hypothesis")
    if hypothesis is not None:
        whole["steady-state-hypothesis"] = {
            "title": hypothesis.get("title", "steady state"),
            "probes": _ordered_all(document, hypothesis.get("probes"), known),
        }
    whole["method"] = _ordered_all(document, given.get("method"), known)
    if given.get("rollbacks"):
        whole["rollbacks"] = _ordered_all(document, given["rollbacks"], known)
    order = ("version", "title", "description", "tags", "contributions", "extensions", "controls")
    first = {key: whole[key] for key in order if key in whole}
    return dump({**first, **whole})


def dump(value: Mapping[str, Any]) -> str:
    """YAML that keeps the order of keys, with the innermost mappings and lists on one line."""
    return yaml.dump(
        value,
        Dumper=_PlainDumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=96,
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes equal values out again; experiments have no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _ordered_all(document: Document, items: Any, probes: Iterable[str]) -> list[Any]:
    return [_ordered(document, (at,), item, probes) for at, item in enumerate(items or ())]


def _ordered(document: Document, where: Path, item: Any, probes: Iterable[str]) -> Any:
    step = dict(long_step(document, where, item, probes))
    provider = {
        "type": "python",
        "module": TOOLKIT_MODULE,
        "func": step["provider"]["func"],
    }
    arguments = step["provider"].get("arguments")
    if arguments:
        provider["arguments"] = dict(arguments)
        if provider["func"] == "storm":
            provider["arguments"]["faults"] = [
                long_choice(document, where, choice) for choice in arguments["faults"]
            ]
    step["provider"] = provider
    order = ("type", "name", "tolerance", "provider", "pauses", "background")
    return {key: step[key] for key in order if key in step}
