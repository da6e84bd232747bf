"""The failure of a member whose group is of a type that the member does not speak."""

from __future__ import annotations

from kvorum.client.cluster.brokers import Brokers
from kvorum.client.failures import CommandFailed
from kvorum.client.groups.group_offsets import GroupOffsets
from kvorum.client.groups.share_offsets import group_type

_OPTIONS = {"classic": "--group", "consumer": "--group", "share": "--share-group"}


def refused_by_type(brokers: Brokers, group: str, option: str) -> CommandFailed | None:
    """The failure with the option that the group's type needs. None if `option` is that one, or the
    cluster has no such group. Raises CommandFailed."""
    offsets = GroupOffsets(brokers, group)
    offsets.state()  # asks the coordinator, which then lists the group
    kind = group_type(brokers, offsets)
    if kind is None or _OPTIONS.get(kind) == option:
        return None
    reads = f"kvorum consume {_OPTIONS[kind]} {group} reads as its member, " * (kind in _OPTIONS)
    return CommandFailed(
        f"group {group} is of type {kind}, which {option} cannot join: {reads}kvorum groups "
        f"describe {group} shows it"
    )
