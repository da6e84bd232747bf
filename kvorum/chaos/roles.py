"""The roles of nodes at a moment, in Kafka's words. Pure.

The history says of each fault which roles its nodes had. A live run's seed draws roles, not names
(`targets.by_role`): which node leads a partition is decided by elections that no seed repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvorum.chaos.targets import TargetView

#: Partitions that a role names; more are counted.
_NAMED_MAX = 3


def roles_of(nodes: Iterable[str], view: TargetView) -> list[str]:
    """A sentence for each node, for example "broker-101: leader of orders/0, follower of orders/1".

    Nodes without a role at the moment (a killed one, the clients) have no sentence.
    """
    found = []
    for node in nodes:
        roles = _roles(node, view)
        if roles:
            found.append(f"{node}: {', '.join(roles)}")
    return found


def _roles(node: str, view: TargetView) -> list[str]:
    if node in view.controllers:
        if node == view.active_controller:
            return ["active controller"]
        return [] if node in view.killed else ["standby controller"]
    led = [_text(key) for key, part in sorted(view.partitions.items()) if part.leader == node]
    followed = [
        _text(key)
        for key, part in sorted(view.partitions.items())
        if part.leader != node and node in part.replicas
    ]
    roles = []
    if led:
        roles.append(f"leader of {_listed(led)}")
    if followed:
        roles.append(f"follower of {_listed(followed)}")
    return roles


def _text(key: tuple[str, int]) -> str:
    return f"{key[0]}/{key[1]}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else shown
