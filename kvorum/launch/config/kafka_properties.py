"""Properties in a node's file that no class in `launch.config.properties` binds.

They come with files of Apache Kafka: other names of bound properties, configs without an effect
here or of earlier releases, configs of the other role, names of plug-ins. Pure: the node logs the
lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from kvorum.broker.config.dynamic_config import text_of
from kvorum.metadata.configs.broker_keys import BROKER_CONFIGS
from kvorum.metadata.configs.config_keys import broker_key, broker_value_problem, ignored_config
from kvorum.metadata.configs.earlier_keys import is_earlier_key
from kvorum.metadata.configs.effective import in_finer_units
from kvorum.runtime.config import Properties
from kvorum.runtime.errors import ConfigError

NODE_ID, BROKER_ID = "node.id", "broker.id"
ALLOW_UNKNOWN = "kvorum.allow.unknown.properties"


def with_bound_names(properties: Mapping[str, Any]) -> Properties:
    """The properties under the names that `bind` knows: node.id in place of broker.id, and times in
    ms in place of minutes and hours. Raises ConfigError."""
    own = dict(properties)
    if BROKER_ID in own:
        broker_id = own.pop(BROKER_ID)
        if str(own.setdefault(NODE_ID, broker_id)) != str(broker_id):
            raise ConfigError(
                f"{BROKER_ID}={broker_id} and {NODE_ID}={own[NODE_ID]} are names of one thing; "
                f"leave {BROKER_ID} out"
            )
    for key in BROKER_CONFIGS.values():
        for name, unit in key.coarser:
            if name not in properties or key.name in properties:
                continue
            problem = broker_value_problem(name, text_of(properties[name]))
            if problem is not None:
                raise ConfigError(problem)
            number = int(text_of(properties[name]))
            own[key.name] = int(in_finer_units(number, unit))
            break
    return own


def unbound(
    properties: Mapping[str, Any],
    bound: Collection[str],
    other: Collection[str],
    role: str,
    *,
    allow_unknown: bool = False,
) -> tuple[str, ...]:
    """A log line for each property that this node does not bind, by name.

    bound: the names that it binds.
    other: names of the other role, which a shared file may have.
    allow_unknown: names that neither Kafka nor Kvorum has or had get a line too. Kafka ignores
        them, but a mistyped property is believed in until the day it is needed.

    Raises ConfigError for invalid values, for settings that would be misleading if ignored, and for
    unknown names that are not allowed.
    """
    lines = []
    problems = []
    unheard_of = []
    for name in sorted(set(properties) - set(bound)):
        text = text_of(properties[name])
        problem = broker_value_problem(name, text)
        if problem is not None:
            problems.append(problem)
        elif name == "process.roles" and text.strip() != role:
            problems.append(f"process.roles={text!r} in the file of a {role}; make it {role!r}")
        elif name in other:
            lines.append(f"{name} is kept and changes nothing: a {role} does not read it")
        elif (line := ignored_config(name, text)) is not None:
            if broker_key(name) is None and not is_earlier_key(name):
                hint = _hint(name, {*bound, *other})
                unheard_of.append(f"{name!r}{hint}")
                line += hint
            lines.append(line)
    if unheard_of and not allow_unknown:
        plural = len(unheard_of) > 1
        problems.append(
            f"unknown propert{'ies' if plural else 'y'} {', '.join(unheard_of)}; correct or remove "
            f"{'them' if plural else 'it'}, or set {ALLOW_UNKNOWN}=true to ignore what belongs to "
            "plug-ins of Kafka"
        )
    if problems:
        raise ConfigError("; ".join(problems))
    return tuple(lines)


def reject_unknown(settings: Mapping[str, Any], bound: Collection[str]) -> None:
    """Raise ConfigError for command-line settings whose names neither Kafka nor Kvorum has.

    In a file such a name may belong to a plug-in; on a command line it is a mistake.
    """
    unheard_of = [
        f"unknown property {name!r}{_hint(name, bound)}"
        for name in sorted(set(settings) - set(bound))
        if broker_key(name) is None and name != BROKER_ID
    ]
    if unheard_of:
        raise ConfigError(
            f"{', '.join(unheard_of)}; a plug-in's property belongs in the node's file, beside "
            f"{ALLOW_UNKNOWN}=true"
        )


def _hint(name: str, bound: Collection[str]) -> str:
    near = difflib.get_close_matches(name, bound, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""
