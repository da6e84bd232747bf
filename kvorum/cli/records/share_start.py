"""The hint for a share group that begins at the end of topics that have records."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from kvorum.client.cluster.brokers import Brokers, Topic
from kvorum.client.cluster.offsets import bounds_of
from kvorum.client.failures import CommandFailed
from kvorum.client.groups.group_offsets import NO_GROUP
from kvorum.client.groups.share_offsets import ShareOffsets

RESET = "share.auto.offset.reset"
_LATEST = "latest"
_RESOURCE_GROUP = 32


def start_hint(brokers: Brokers, group: str, topics: Mapping[str, Topic]) -> str | None:
    """A line for a group that has not begun with one of these topics and will not read the records
    that the topic has; otherwise None."""
    try:
        offsets = ShareOffsets(brokers, group)
        is_new = offsets.state().state == NO_GROUP
        begun = set() if is_new else {topic for topic, _ in offsets.committed()}
        wanted = sorted(set(topics) - begun)
        if not wanted or _reset(brokers, group) != _LATEST:
            return None
        partitions = [(topic, number) for topic in wanted for number in topics[topic].leaders]
        bounds = bounds_of(brokers, partitions)
    except CommandFailed:
        return None  # the reading itself fails too, and says why, or needs fewer rights
    older = sorted({topic for (topic, _), log in bounds.items() if log.start < log.end})
    return _text(group, older) if older else None


def _text(group: str, topics: list[str]) -> str:
    name, named = shlex.quote(group), " ".join(f"--topic {topic}" for topic in topics)
    return (
        f"share group {group} begins at the end of {', '.join(topics)}, without the older records: "
        f"its {RESET} is {_LATEST}. To read them: kvorum configs alter --entity group --name "
        f"{name} --set {RESET}=earliest before the group begins, kvorum groups reset-offsets "
        f"{name} {named} --to-earliest --execute once it has begun"
    )


def _reset(brokers: Brokers, group: str) -> str | None:
    """The group's config, its default included; None for a user who may not see it."""
    asked = {
        "resource_type": _RESOURCE_GROUP,
        "resource_name": group,
        "configuration_keys": [RESET],
    }
    values = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
    reply = brokers.call("describe_configs", 32, 4, values)
    return next((row.value for found in reply.results for row in found.configs), None)
