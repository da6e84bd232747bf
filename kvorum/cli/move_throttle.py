"""Throttles of a reassignment, as kafka-reassign-partitions sets and clears them (KIP-73).

The topics' configs list the throttled replicas: on the leaders' side the present replicas, on the
followers' side those that are being added. The brokers' configs have the rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvorum.cli.config_backends import ConfigBackend
    from kvorum.cli.reassignment_file import Assignment
    from kvorum.client.configs.config_rows import Change

SIDES = ("leader", "follower")


def throttled_lists(current: Assignment, wanted: Assignment) -> dict[str, tuple[str, str]]:
    """Topic -> (leaders' list, followers' list), each as the value of its config. Pure."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, partition), target in sorted(wanted.items()):
        there = current.get((topic, partition), ())
        added = [replica for replica in target if replica not in there]
        if added:
            leaders, followers = found.setdefault(topic, ([], []))
            leaders += [f"{partition}:{replica}" for replica in there]
            followers += [f"{partition}:{replica}" for replica in added]
    return {topic: (",".join(a), ",".join(b)) for topic, (a, b) in found.items()}


def set_throttles(
    configs: ConfigBackend, current: Assignment, wanted: Assignment, bytes_per_second: int
) -> None:
    """Set a throttle at each broker for the replicas that `wanted` adds. Raises CommandFailed."""
    lists = throttled_lists(current, wanted)
    brokers = sorted(
        {
            replica
            for key, target in wanted.items()
            if key[0] in lists
            for replica in (*current.get(key, ()), *target)
        }
    )
    rates: list[Change] = [
        ("set", f"{side}.replication.throttled.rate", str(bytes_per_second)) for side in SIDES
    ]
    # The rates first: replicas that a topic lists are not throttled while no rate is set.
    for broker_id in brokers:
        configs.alter_configs("broker", str(broker_id), rates, dry_run=False)
    for topic, values in lists.items():
        changes: list[Change] = [
            ("append", f"{side}.replication.throttled.replicas", value)
            for side, value in zip(SIDES, values, strict=True)
        ]
        configs.alter_configs("topic", topic, changes, dry_run=False)


def clear_throttles(configs: ConfigBackend, topics: list[str], brokers: list[int]) -> bool:
    """Remove the throttles of the topics and the rates of the brokers.

    Returns True if a topic had any. The brokers are not asked for their rates, since one of them
    may be down, and deleting a rate that is not set has no effect. A broker may have a rate
    although no topic has a throttle, since the topic may have been deleted. Raises CommandFailed.
    """
    keys = {f"{side}.replication.throttled.replicas" for side in SIDES}
    throttled = {
        topic
        for topic in topics
        for row in configs.describe_configs("topic", topic, is_all=False)
        if row["name"] in keys
    }
    rates: list[Change] = [("delete", f"{side}.replication.throttled.rate", None) for side in SIDES]
    for broker_id in brokers:
        configs.alter_configs("broker", str(broker_id), rates, dry_run=False)
    # Last: if the command fails before, the lists are still there and the next call clears again.
    for topic in sorted(throttled):
        changes: list[Change] = [("delete", key, None) for key in sorted(keys)]
        configs.alter_configs("topic", topic, changes, dry_run=False)
    return bool(throttled)
