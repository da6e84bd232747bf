"""Workloads beside the append load, as an experiment lists them under `configuration.workloads`.

Each entry has one key, the kind, and its arguments: `- keyed: {topic: prices, keys: 50}`. The
append load itself is `configuration.workload`: it measures availability, the others look for broken
guarantees. `chaos.workloads` carries them out.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal


def _bounds(default: int, low: int, high: int) -> Any:
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPlan:
    """Records with keys into a compacted topic: the newest record of each key must stay."""

    topic: str = "prices"
    partitions: int = _bounds(3, 1, 100)
    keys: int = _bounds(50, 1, 100_000)
    records_per_second: int = _bounds(200, 1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCopyPlan:
    """Members of a group copy the append load's topic into `topic`, the committed offsets and the
    copies in one transaction (KIP-447): every record must be in the copy exactly once."""

    topic: str = "copies"
    group: str = "copiers"
    members: int = _bounds(2, 1, 10)
    records_per_transaction: int = _bounds(50, 1, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsPlan:
    """Clients that each send to and poll from several partitions in one transaction, and abort some
    of them on purpose (Jepsen's `txn`)."""

    topic: str = "ledger"
    partitions: int = _bounds(4, 1, 100)
    clients: int = _bounds(3, 1, 20)
    transactions_per_second: int = _bounds(20, 1, 1_000)
    operations_max: int = _bounds(4, 1, 20)
    aborted_percent: int = _bounds(10, 0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group that reads the append load's topic and commits; members leave and join again.

    protocol: classic, or consumer (KIP-848).
    rejoin_ms: time after which one member leaves and another one joins; 0 for never.
    """

    group: str = "readers"
    protocol: Literal["classic", "consumer"] = "classic"
    members: int = _bounds(3, 1, 20)
    commit_interval_ms: int = _bounds(200, 10, 60_000)
    rejoin_ms: int = _bounds(0, 0, 600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupPlan:
    """A share group (KIP-932) that reads the append load's topic from its start. Members accept
    most records, release and reject the others, leave, join, and are killed with records in hand.

    released_percent, rejected_percent: of the records.
    rejoin_ms: time after which one member ends and another one joins; 0 for never.
    killed_percent: of the members that end; the others leave.
    lock_duration_ms: the group's share.record.lock.duration.ms.
    delivery_count_limit: the group's share.delivery.count.limit.
    """

    group: str = "workers"
    members: int = _bounds(3, 1, 20)
    records_per_poll: int = _bounds(50, 1, 2_000)
    released_percent: int = _bounds(5, 0, 100)
    rejected_percent: int = _bounds(2, 0, 100)
    rejoin_ms: int = _bounds(1_000, 0, 600_000)
    killed_percent: int = _bounds(25, 0, 100)
    lock_duration_ms: int = _bounds(15_000, 15_000, 60_000)
    delivery_count_limit: int = _bounds(5, 2, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPlan:
    """Administrators who create and delete topics of a few names, several at once. prefix: of the
    topics' names."""

    prefix: str = "register"
    clients: int = _bounds(3, 1, 10)
    names: int = _bounds(3, 1, 100)
    operations_per_second: int = _bounds(6, 1, 100)


WorkloadKind = (
    KeyedPlan | TransactionalCopyPlan | TransactionsPlan | GroupPlan | ShareGroupPlan | TopicsPlan
)

#: Kind of workload, as an experiment writes it -> its arguments.
WORKLOADS: Mapping[str, type[WorkloadKind]] = {
    "keyed": KeyedPlan,
    "transactional_copy": TransactionalCopyPlan,
    "transactions": TransactionsPlan,
    "group": GroupPlan,
    "share_group": ShareGroupPlan,
    "topics": TopicsPlan,
}


def workload_name(plan: WorkloadKind) -> str:
    """The kind of a plan, as an experiment writes it."""
    return next(name for name, kind in WORKLOADS.items() if kind is type(plan))


def build_workload(name: str, arguments: Mapping[str, Any]) -> WorkloadKind:
    """The plan of that kind.

    Raises ValueError with one sentence: an unknown kind or argument, a value out of range.
    """
    kind = WORKLOADS.get(name)
    if kind is None:
        known = list(WORKLOADS)
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ValueError(f"unknown workload {name!r}; {hint}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key, value in arguments.items():
        field = fields.get(key)
        if field is None:
            near = get_close_matches(key, list(fields), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
            raise ValueError(f"unknown argument {key!r} of {name}; {hint}")
        _check(name, key, value, hints[key], field.metadata)
    return kind(**arguments)


def _check(name: str, key: str, value: Any, hint: Any, bounds: Mapping[str, int]) -> None:
    if typing.get_origin(hint) is Literal:
        words = typing.get_args(hint)
        if value not in words:
            raise ValueError(f"{key} of {name} is one of {', '.join(words)}, got {value!r}")
    elif hint is str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} of {name} must be a name, got {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} of {name} must be a whole number, got {value!r}")
    elif not bounds["low"] <= value <= bounds["high"]:
        raise ValueError(
            f"{key} of {name} must lie between {bounds['low']} and {bounds['high']}, got {value}"
        )
