"""Targets of faults as an experiment writes them, and how they resolve to node names.

The words are Jepsen's (one, minority, majority, all) and Kafka's roles (active-controller,
leader:topic/partition). A target is resolved at the moment of the fault. A live run resolves it
against a `TargetView` (`resolve`), with the run's own random source. The simulator resolves it
against its simulated cluster (`chaos.sim.quorum.nemesis`), which knows names, active-controller,
brokers and all.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from kvorum.runtime.errors import KvorumError


class TargetKind(enum.Enum):
    """The words an experiment may use."""

    NODE = "node"
    ACTIVE_CONTROLLER = "active-controller"
    STANDBY_CONTROLLER = "standby-controller"
    STANDBY_CONTROLLERS = "standby-controllers"
    CONTROLLERS = "controllers"
    BROKERS = "brokers"
    ALL = "all"
    CLIENTS = "clients"
    ONE = "one"
    MINORITY = "minority"
    MAJORITY = "majority"
    LEADER = "leader"
    FOLLOWER = "follower"
    KILLED = "killed"
    PAUSED = "paused"


#: The id of the first broker in a cluster that a run starts; controllers begin with 1.
FIRST_BROKER_ID = 101

#: The clients of the brokers' listeners, usable as one end of a link.
CLIENTS = "clients"

#: The meaning of each target, by how an experiment writes it.
MEANINGS: Mapping[TargetKind, tuple[str, str]] = {
    TargetKind.NODE: ("`broker-101`, `controller-1`", "the node of that name"),
    TargetKind.ACTIVE_CONTROLLER: ("`active-controller`", "the leader of the quorum"),
    TargetKind.STANDBY_CONTROLLER: ("`standby-controller`", "one of the other controllers"),
    TargetKind.STANDBY_CONTROLLERS: ("`standby-controllers`", "all other controllers"),
    TargetKind.CONTROLLERS: ("`controllers`", "every controller"),
    TargetKind.BROKERS: ("`brokers`", "every broker"),
    TargetKind.ALL: ("`all`", "every node"),
    TargetKind.CLIENTS: ("`clients`", "the clients of the brokers, as one end of a link"),
    TargetKind.ONE: (
        "`one`, `one:brokers`, `one:controllers`",
        "one node that is neither killed nor paused, drawn from the seed",
    ),
    TargetKind.MINORITY: (
        "`minority`, `minority:brokers`, `minority:all`",
        "the most nodes that are not half of them, drawn from the seed; controllers by default",
    ),
    TargetKind.MAJORITY: (
        "`majority`, `majority:brokers`, `majority:all`",
        "the fewest nodes that are more than half, drawn from the seed; controllers by default",
    ),
    TargetKind.LEADER: ("`leader:orders/0`", "the leader of a partition of the load's topic"),
    TargetKind.FOLLOWER: (
        "`follower:orders/0`",
        "one of the partition's other replicas, neither killed nor paused, drawn from the seed",
    ),
    TargetKind.KILLED: ("`killed`", "the nodes that faults killed"),
    TargetKind.PAUSED: ("`paused`", "the nodes that faults paused"),
}

_SCOPES = ("all", "controllers", "brokers")
_SCOPED = (TargetKind.ONE, TargetKind.MINORITY, TargetKind.MAJORITY)
_PARTITIONED = (TargetKind.LEADER, TargetKind.FOLLOWER)
_NODE_NAME = re.compile(r"(controller|broker)-[0-9]+")
_PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]+)")


class UnresolvableTarget(KvorumError):
    """No node matches the target at the moment; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parsed target. `nodes` are names; `scope` is for one, minority, majority; `topic` for
    leader, follower."""

    kind: TargetKind
    nodes: tuple[str, ...] = ()
    scope: str = "all"
    topic: str = ""
    partition: int = -1

    def text(self) -> str:
        """The target as an experiment writes it."""
        if self.kind is TargetKind.NODE:
            return ",".join(self.nodes)
        if self.kind in _SCOPED:
            return f"{self.kind.value}:{self.scope}"
        if self.kind in _PARTITIONED:
            return f"{self.kind.value}:{self.topic}/{self.partition}"
        return str(self.kind.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition in the metadata. `leader` is None while it has no leader."""

    leader: str | None
    replicas: tuple[str, ...]
    isr: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """The facts of the cluster that a fault needs. Names are `controller-1`, `broker-101`."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    killed: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    active_controller: str | None = None
    partitions: Mapping[tuple[str, int], PartitionView] = field(default_factory=dict)

    def every_node(self) -> tuple[str, ...]:
        """Every node once: a node may be both controller and broker."""
        return tuple(dict.fromkeys(self.controllers + self.brokers))


def parse_target(text: str) -> Target:
    """Read a target. Raises ValueError with the nearest known word when it is not one."""
    word, _, rest = text.partition(":")
    if _NODE_NAME.fullmatch(text):
        return Target(kind=TargetKind.NODE, nodes=(text,))
    words = {kind.value: kind for kind in TargetKind if kind is not TargetKind.NODE}
    kind = words.get(word)
    if kind is None:
        near = get_close_matches(word, list(words), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown target {text!r}{hint} (known: node names, {', '.join(words)})")
    if kind in _PARTITIONED:
        match = _PARTITION.fullmatch(rest)
        if match is None:
            raise ValueError(f"target {text!r} must be written {word}:TOPIC/PARTITION")
        return Target(kind=kind, topic=match[1], partition=int(match[2]))
    if kind in _SCOPED:
        # `majority` and `minority` default to the controllers; `one` may be any node.
        scope = rest or ("all" if kind is TargetKind.ONE else "controllers")
        if scope not in _SCOPES:
            raise ValueError(f"target {text!r}: the scope is one of {', '.join(_SCOPES)}")
        return Target(kind=kind, scope=scope)
    if rest:
        raise ValueError(f"target {text!r}: nothing may follow {word}")
    return Target(kind=kind)


def target_pattern() -> str:
    """A regular expression of the texts that parse_target reads."""
    plain = [
        kind.value for kind in TargetKind if kind not in (TargetKind.NODE, *_SCOPED, *_PARTITIONED)
    ]
    shares = "|".join(kind.value for kind in _SCOPED)
    replicas = "|".join(kind.value for kind in _PARTITIONED)
    parts = [
        _NODE_NAME.pattern,
        *plain,
        f"({shares})(:({'|'.join(_SCOPES)}))?",
        f"({replicas}):{_PARTITION.pattern}",
    ]
    return f"^({'|'.join(parts)})$"


def resolve(target: Target, view: TargetView, rng: random.Random) -> tuple[str, ...]:
    """The node names that the target matches now, in a fixed order. A drawn target is drawn by role
    (`by_role`), so that one seed strikes the same roles in every run.

    `clients` resolves to the pseudo node of that name. Raises UnresolvableTarget if no node
    matches.
    """
    chosen = _candidates(target, view, rng)
    if not chosen:
        raise UnresolvableTarget(f"nobody is {target.text()!r} now")
    return chosen


def by_role(names: Sequence[str], view: TargetView) -> tuple[str, ...]:
    """The names with the active controller first, then the leaders of the lowest partitions, then
    their followers; names without a role last, in alphabetical order."""
    return tuple(sorted(names, key=lambda name: _rank(name, view)))


def _rank(name: str, view: TargetView) -> tuple[object, ...]:
    led = [key for key, part in sorted(view.partitions.items()) if part.leader == name]
    places = [
        (key, part.replicas.index(name))
        for key, part in sorted(view.partitions.items())
        if name in part.replicas
    ]
    return (name != view.active_controller, not led, led, not places, places, name)


def _candidates(target: Target, view: TargetView, rng: random.Random) -> tuple[str, ...]:
    match target.kind:
        case TargetKind.NODE:
            for name in target.nodes:
                if name not in view.every_node():
                    known = ", ".join(view.every_node())
                    raise UnresolvableTarget(f"no node is named {name!r} (nodes: {known})")
            return target.nodes
        case TargetKind.ACTIVE_CONTROLLER:
            return (view.active_controller,) if view.active_controller else ()
        case TargetKind.STANDBY_CONTROLLER:
            return _pick(_standbys(view), 1, rng)
        case TargetKind.STANDBY_CONTROLLERS:
            return _standbys(view)
        case TargetKind.CONTROLLERS:
            return view.controllers
        case TargetKind.BROKERS:
            return view.brokers
        case TargetKind.ALL:
            return view.every_node()
        case TargetKind.CLIENTS:
            return (CLIENTS,)
        case TargetKind.ONE | TargetKind.MINORITY | TargetKind.MAJORITY:
            return _share(target, view, rng)
        case TargetKind.LEADER | TargetKind.FOLLOWER:
            return _of_partition(target, view, rng)
        case TargetKind.KILLED:
            return tuple(sorted(view.killed))
        case TargetKind.PAUSED:
            return tuple(sorted(view.paused))


def _share(target: Target, view: TargetView, rng: random.Random) -> tuple[str, ...]:
    scopes = {"all": view.every_node(), "controllers": view.controllers, "brokers": view.brokers}
    members = scopes[target.scope]
    if target.kind is TargetKind.MAJORITY:
        return _pick(by_role(members, view), len(members) // 2 + 1, rng)
    if target.kind is TargetKind.MINORITY:
        return _pick(by_role(members, view), (len(members) - 1) // 2, rng)
    able = tuple(name for name in members if name not in view.killed | view.paused)
    return _pick(by_role(able, view), 1, rng)


def _of_partition(target: Target, view: TargetView, rng: random.Random) -> tuple[str, ...]:
    partition = view.partitions.get((target.topic, target.partition))
    if partition is None:
        raise UnresolvableTarget(f"no partition {target.topic}/{target.partition}")
    if target.kind is TargetKind.LEADER:
        return (partition.leader,) if partition.leader else ()
    able = [name for name in partition.replicas if name != partition.leader]
    return _pick(tuple(name for name in able if name not in view.killed | view.paused), 1, rng)


def _standbys(view: TargetView) -> tuple[str, ...]:
    gone = view.killed | view.paused | {view.active_controller}
    return tuple(name for name in view.controllers if name not in gone)


def _pick(names: tuple[str, ...], count: int, rng: random.Random) -> tuple[str, ...]:
    return tuple(sorted(rng.sample(names, min(count, len(names)))))
