"""The properties of one node: those of its file, of the environment and of the command line.

`--set` overrides the environment, and the environment overrides the file. The variable of a
property has its name in capitals, `_` for `.` and `-`, behind KVORUM_: KVORUM_LOG_DIRS is log.dirs.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping, Sequence

from kvorum.launch.config.kafka_properties import reject_unknown
from kvorum.launch.config.listeners import PREFIX as LISTENER_PREFIX
from kvorum.launch.config.listeners import SUFFIXES, of_listeners
from kvorum.launch.config.property_classes import BROKER_NAMES, CONTROLLER_NAMES
from kvorum.launch.config.secret_properties import refuse_on_command_line
from kvorum.metadata.configs.config_keys import broker_key
from kvorum.runtime.config import Properties, load_properties, parse_assignment
from kvorum.runtime.errors import ConfigError

PREFIX = "KVORUM_"
_OWN = "kvorum."
"""Prefix of properties that Kafka does not have; the names of their variables leave it out."""
_ALMOST = 0.85
"""Likeness to a property that makes a variable a mistake (see difflib). Less is no mistake:
Kubernetes sets variables such as KVORUM_BROKER_PORT_9092_TCP."""
FOLDERS = ("log.dirs", "log.dir", "metadata.log.dir")
FILES = ("ssl.keystore.location", "ssl.truststore.location", "kvorum.audit.file")
"""Properties that name files. Those of TLS may also stand behind `listener.name.NAME.`."""


def load_node_file(path: str) -> Properties:
    """The properties of a node's file. Relative folders and files in it are below the file's own
    folder, so that a node can be moved as a whole. Raises ConfigError."""
    properties = load_properties(path)
    base = os.path.dirname(os.path.abspath(path))
    for name in [*FOLDERS, *(name for name in properties if name.endswith(FILES))]:
        text = properties.get(name)
        if isinstance(text, str) and text.strip():
            properties[name] = ",".join(_below(base, part) for part in text.split(","))
    return properties


def node_properties(
    path: str | None, settings: Sequence[str], environment: Mapping[str, str]
) -> Properties:
    """All properties of a node.

    path: None for a node without a file.
    settings: `key=value` of the command line.

    Relative folders in the environment and in settings are below the working directory, as in
    Kafka. Raises ConfigError for what cannot be read, for unknown names outside of the file, and
    for passwords on the command line.
    """
    properties = load_node_file(path) if path is not None else {}
    given = dict(parse_assignment(text) for text in settings)
    _refuse_passwords(given)
    reject_unknown(given, BROKER_NAMES | CONTROLLER_NAMES | of_listeners(given))
    return {**properties, **_of_environment(environment), **given}


def with_source(
    problem: str, path: str | None, settings: Sequence[str], environment: Mapping[str, str]
) -> str:
    """A sentence about refused properties, with the place that they come from: the variables and
    options that gave those it names; else the file."""
    places = {name: variable_of(name) for name in _of_environment(environment)}
    places |= {parse_assignment(text)[0]: "--set" for text in settings}
    said = [
        f"{name} is given by {place}"
        for name, place in sorted(places.items())
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", problem)
    ]
    if said:
        return f"{problem} ({', '.join(said)})"
    return problem if path is None or path in problem else f"{path}: {problem}"


def _refuse_passwords(given: Collection[str]) -> None:
    for name in given:
        refuse_on_command_line(
            [name],
            f"put it into the node's file (--config FILE) or the variable {variable_of(name)}",
        )


def variable_of(name: str) -> str:
    """The variable for a property: KVORUM_LOG_DIRS for log.dirs, KVORUM_PRESET for
    kvorum.preset."""
    return PREFIX + name.removeprefix(_OWN).upper().replace(".", "_").replace("-", "_")


def _of_environment(environment: Mapping[str, str]) -> Properties:
    found: Properties = {}
    known = BROKER_NAMES | CONTROLLER_NAMES
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        if variable.startswith(variable_of(LISTENER_PREFIX)):
            found[_of_listener(variable)] = value
            continue
        name = variable.removeprefix(PREFIX).lower().replace("_", ".")
        if f"{_OWN}{name}" in known:
            name = f"{_OWN}{name}"
        if name in known or broker_key(name) is not None:
            found[name] = value
        elif near := difflib.get_close_matches(name, known, n=1, cutoff=_ALMOST):
            raise ConfigError(
                f"{variable} in the environment is no property; did you mean "
                f"{variable_of(near[0])}?"
            )
    return found


def _of_listener(variable: str) -> str:
    """The property of a single listener, whose name may have `_` itself. Raises ConfigError for a
    mistyped variable: if it were ignored, the listener might stay open."""
    # The longest first: a mechanism's property ends in the name of a listener's.
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        begin, end = variable_of(LISTENER_PREFIX), f"_{variable_of(suffix).removeprefix(PREFIX)}"
        listener = variable.removeprefix(begin).removesuffix(end)
        if listener and variable == f"{begin}{listener}{end}":
            return f"{LISTENER_PREFIX}{listener.lower()}.{suffix}"
    raise ConfigError(
        f"{variable} in the environment ends in no property of a listener; there are "
        f"{', '.join(sorted(SUFFIXES))}"
    )


def _below(base: str, path: str) -> str:
    path = path.strip()
    return os.path.join(base, path) if path else path
