"""The TOML file that describes a cluster which runs already, and how its nodes are broken. Pure.

docs/systems.md has an example and every key. All problems of a file are reported at once, each with
its line, its key and the way out.
"""

from __future__ import annotations

import re
import shlex
import string
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import CLIENTS
from kvorum.runtime.errors import ConfigError

COMMANDS = ("kill", "stop", "start", "pause", "resume", "wipe")
_TOP_KEYS = (
    "version",
    "bootstrap",
    "topic_prefix",
    "max_nodes_down",
    "heal_after_ms",
    "command_timeout_ms",
    "commands",
    "node",
    "toxiproxy",
    "link",
)
_NODE_KEYS = ("name", "id", "role", "address", "host", "commands")
_LINK_KEYS = ("source", "destination", "proxy")
_ROLES = ("broker", "controller", "combined")
_FIELDS = ("name", "id", "host")
_NODE_NAME = re.compile(r"(controller|broker)-[0-9]+")
_ADDRESS = re.compile(r"[^\s:,]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{3,100}")
_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.-]+)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*[.=]")

#: Commands that a capability needs, on every node.
_NEEDS: Mapping[Capability, tuple[str, ...]] = {
    Capability.KILL: ("kill", "start"),
    Capability.STOP: ("stop", "start"),
    Capability.RESTART: ("start",),
    Capability.PAUSE: ("pause", "resume"),
    Capability.WIPE: ("wipe", "start"),
}

_T = TypeVar("_T")
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedNode:
    """One node. `commands`: argument lists by the words of COMMANDS, with the fields filled in."""

    name: str
    node_id: int
    is_broker: bool
    is_controller: bool
    address: str
    commands: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedLink:
    """Connections from source to destination pass the proxy of that name."""

    source: str
    destination: str
    proxy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile:
    """A whole file.

    heal_after_ms: silence of the runner after which the dead-man timer heals.
    toxiproxy: host:port of its API, empty without one.
    """

    path: str
    version: str
    bootstrap: str
    topic_prefix: str
    max_nodes_down: int
    heal_after_ms: int
    command_timeout_ms: int
    nodes: tuple[AttachedNode, ...]
    toxiproxy: str
    links: tuple[AttachedLink, ...]

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the commands of every node and the links give, and those that
        need the Kafka protocol alone."""
        able = {Capability.ELECT_LEADERS, Capability.REASSIGN} | {
            capability
            for capability, words in _NEEDS.items()
            if all(word in node.commands for node in self.nodes for word in words)
        }
        for link in self.links:
            able.add(Capability.CLIENT_LINKS if link.source == CLIENTS else Capability.LINKS)
        return frozenset(able)

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.is_controller)


def parse_attached_file(path: str, text: str) -> AttachedFile:
    """Read a file's text; `path` is for messages. Raises ConfigError that lists every problem."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not well formed: {error}") from error
    reader = _Reader(path=path, lines=_lines_of(text))
    reader.refuse_unknown("", values, _TOP_KEYS)
    shared = reader.table("commands", values, "commands")
    reader.refuse_unknown("commands", shared, COMMANDS)
    entries = reader.tables("node", values)
    nodes = [reader.node(at, entry, shared) for at, entry in enumerate(entries)]
    toxiproxy = reader.table("toxiproxy", values, "toxiproxy")
    reader.refuse_unknown("toxiproxy", toxiproxy, ("address",))
    address = reader.address("toxiproxy", toxiproxy, "address") if toxiproxy else ""
    names = [CLIENTS, *(node.name for node in nodes)]
    entries = reader.tables("link", values)
    links = [reader.link(at, entry, names) for at, entry in enumerate(entries)]
    if links and not address:
        reader.problem("link[0]", "", "links need [toxiproxy] with its address")
    reader.check_nodes(nodes)
    found = AttachedFile(
        path=path,
        version=reader.text("", values, "version", "unknown"),
        bootstrap=reader.bootstrap(values),
        topic_prefix=reader.prefix(values),
        max_nodes_down=reader.number("", values, "max_nodes_down", None, 1, 1_000),
        heal_after_ms=reader.number("", values, "heal_after_ms", 15_000, 2_000, 3_600_000),
        command_timeout_ms=reader.number("", values, "command_timeout_ms", 30_000, 100, 600_000),
        nodes=tuple(nodes),
        toxiproxy=address,
        links=tuple(links),
    )
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return found


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Typed access to the tables, and the problems found so far. A table's place is its header:
    `commands`, `node[2]`, or empty for the top."""

    path: str
    lines: Mapping[tuple[str, str], int]
    problems: list[str] = field(default_factory=list)
    #: (place, key) of known keys that a misspelt key resembles: they are not reported as missing.
    misspelt: set[tuple[str, str]] = field(default_factory=set)

    def problem(self, place: str, key: str, message: str) -> None:
        line = self.lines.get((place, key)) or self.lines.get((place, "")) or 1
        dotted = ".".join(part for part in (place, key) if part)
        where = f"{self.path}:{line}: {dotted}: " if dotted else f"{self.path}:{line}: "
        self.problems.append(where + message)

    def refuse_unknown(self, place: str, values: Table, known: Sequence[str]) -> None:
        for key in values:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                self.problem(place, key, f"unknown key; {hint}")
                self.misspelt.update((place, name) for name in near)

    def table(self, place: str, values: Table, key: str) -> Table:
        value = values.get(key, {})
        if isinstance(value, dict):
            return value
        self.problem(place, "", f"must be a table, got {value!r}")
        return {}

    def tables(self, key: str, values: Table) -> list[Table]:
        value = values.get(key, [])
        if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
            return value
        self.problem("", key, f"must be written as tables, [[{key}]]")
        return []

    def text(self, place: str, values: Table, key: str, default: str | None = None) -> str:
        value = self._get(place, values, key, default)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if key in values:
            self.problem(place, key, f"must be a text, got {value!r}")
        return default or ""

    def number(
        self, place: str, values: Table, key: str, default: int | None, low: int, high: int
    ) -> int:
        value = self._get(place, values, key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if key in values:
            self.problem(
                place, key, f"must be a whole number between {low} and {high}, got {value!r}"
            )
        return low

    def address(self, place: str, values: Table, key: str) -> str:
        text = self.text(place, values, key)
        if text and not _ADDRESS.fullmatch(text):
            self.problem(place, key, f"must be host:port, got {text!r}")
        return text

    def bootstrap(self, values: Table) -> str:
        text = self.text("", values, "bootstrap")
        for part in text.split(",") if text else ():
            if not _ADDRESS.fullmatch(part.strip()):
                self.problem("", "bootstrap", f"must be host:port,..., got {part.strip()!r}")
        return text

    def prefix(self, values: Table) -> str:
        text = self.text("", values, "topic_prefix")
        if text and not _PREFIX.fullmatch(text):
            self.problem(
                "",
                "topic_prefix",
                f"must be 3 to 100 letters, digits, dots, dashes or underscores, got {text!r}; "
                "every topic that begins with it is deleted at the end",
            )
        return text

    def node(self, at: int, values: Table, shared: Table) -> AttachedNode:
        place = f"node[{at}]"
        self.refuse_unknown(place, values, _NODE_KEYS)
        name = self.text(place, values, "name")
        if name and not _NODE_NAME.fullmatch(name):
            self.problem(
                place,
                "name",
                f"must be broker-N or controller-N, as experiments write it, got {name!r}; a "
                "command may use {host} for another name",
            )
        node_id = self.number(place, values, "id", None, 0, 2**31 - 1)
        role = self.text(place, values, "role")
        if role and role not in _ROLES:
            self.problem(place, "role", f"must be one of {', '.join(_ROLES)}, got {role!r}")
        address = self.address(place, values, "address")
        host = self.text(place, values, "host", address.rpartition(":")[0])
        own = self.table(place, values, "commands")
        self.refuse_unknown(f"{place}.commands", own, COMMANDS)
        fields = {"name": name, "id": str(node_id), "host": host}
        commands = {}
        for word in COMMANDS:
            where, table = (f"{place}.commands", own) if word in own else ("commands", shared)
            if word in table:
                commands[word] = self._command(where, table, word, fields)
        return AttachedNode(
            name=name,
            node_id=node_id,
            is_broker=role in ("broker", "combined"),
            is_controller=role in ("controller", "combined"),
            address=address,
            commands=commands,
        )

    def link(self, at: int, values: Table, names: Sequence[str]) -> AttachedLink:
        place = f"link[{at}]"
        self.refuse_unknown(place, values, _LINK_KEYS)
        source = self.text(place, values, "source")
        destination = self.text(place, values, "destination")
        for key, end in (("source", source), ("destination", destination)):
            if end and end not in names:
                self.problem(place, key, f"no node is named {end!r}; known: {', '.join(names)}")
        return AttachedLink(
            source=source, destination=destination, proxy=self.text(place, values, "proxy")
        )

    def check_nodes(self, nodes: Sequence[AttachedNode]) -> None:
        if not any(node.is_broker for node in nodes):
            self.problem("", "node", "needs at least one [[node]] with the role broker or combined")
        for at in _repeated(node.name for node in nodes):
            self.problem(f"node[{at}]", "name", f"{nodes[at].name!r} is given to two nodes")
        for at in _repeated(node.node_id for node in nodes):
            self.problem(f"node[{at}]", "id", f"{nodes[at].node_id} is given to two nodes")

    def _command(
        self, place: str, table: Table, word: str, fields: Mapping[str, str]
    ) -> tuple[str, ...]:
        """The argument list of a template. It is split before the fields are filled in, so that a
        field with a space stays one argument; no shell reads it."""
        template = self.text(place, table, word)
        try:
            words = shlex.split(template)
            used = {name for part in words for _, name, _, _ in string.Formatter().parse(part)}
            unknown = sorted(name for name in used if name is not None and name not in _FIELDS)
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in _FIELDS)
                raise ValueError(f"unknown field {{{unknown[0]}}}; known: {known}")
            return tuple(part.format(**fields) for part in words)
        except ValueError as error:
            message = f"{template!r} is no command: {error} (a brace itself is written twice)"
            if not any(message in problem for problem in self.problems):
                self.problem(place, word, message)
            return ()

    def _get(self, place: str, values: Table, key: str, default: _T | None) -> object:
        if key in values:
            return values[key]
        # A misspelt key is a problem already; that it is missing follows from it.
        if default is None and (place, key) not in self.misspelt:
            self.problem(place, "", f"needs the key {key!r}")
        return default


def _repeated(values: Iterable[object]) -> list[int]:
    """Positions of values that occurred before."""
    listed = list(values)
    return [at for at, value in enumerate(listed) if value in listed[:at]]


def _lines_of(text: str) -> dict[tuple[str, str], int]:
    """(place, key) -> line, and (place, "") -> the line of its header. tomllib keeps no lines."""
    lines: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    place = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        key = _KEY.match(line)
        if header is not None:
            name = header[1]
            if line.lstrip().startswith("[["):
                counts[name] = counts.get(name, -1) + 1
                name = f"{name}[{counts[name]}]"
            elif (table := name.partition("."))[0] in counts:
                # [node.commands] belongs to the last [[node]].
                name = f"{table[0]}[{counts[table[0]]}].{table[2]}"
            place = name
            lines.setdefault((place, ""), number)
        elif key is not None:
            lines.setdefault((place, key[1]), number)
            # commands = { kill = ... } within a node.
            inner = f"{place}.{key[1]}" if place else key[1]
            lines.setdefault((inner, ""), number)
    return lines
