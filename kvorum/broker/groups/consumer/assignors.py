"""Server-side assignors: the partitions that each member is to get. Pure functions.

Both assign every partition of a subscribed topic to exactly one member that subscribes to it.

  range    of each topic, consecutive partitions to members in order of their names; topics with
           equal partition counts and subscribers are divided alike (co-partitioned)
  uniform  members get equal numbers, and keep what they have as far as that allows. Equal
           subscriptions: sizes differ by one at most, and no partition moves without need.
           Unequal ones: no topic is left with a subscriber that has two partitions fewer than
           the owner of one of the topic's partitions.

Racks are ignored, as in Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvorum.broker.groups.consumer.member import NO_PARTITIONS, Partitions, TopicPartition

UNIFORM = "uniform"
RANGE = "range"


class Subscriber(NamedTuple):
    """A member, as assignors see it.

    topics: ids of its subscribed topics that exist.
    has: its partitions by the last target.
    """

    topics: frozenset[bytes]
    instance_id: str | None = None
    has: Partitions = NO_PARTITIONS


Subscribers = Mapping[str, Subscriber]
"""The subscribers of a group, by member id."""
Assignor = Callable[[Subscribers, Mapping[bytes, int]], dict[str, Partitions]]
"""(subscribers, number of partitions by topic id) -> partitions of each subscriber, by member
id."""


def assign_range(
    members: Subscribers, partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """See the docstring of this module. The order of static members is by instance id."""
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for topic_id, names in _subscribers_by_topic(members).items():
        # Static members first, so that dynamic members that come and go do not shift them.
        names.sort(key=lambda name: (members[name].instance_id is None,
                                     members[name].instance_id or name))  # fmt: skip
        least, with_one_more = divmod(partition_counts[topic_id], len(names))
        start = 0
        for place, name in enumerate(names):
            end = start + least + (place < with_one_more)
            given[name] += [(topic_id, partition) for partition in range(start, end)]
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def assign_uniform(
    members: Subscribers, partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """See the docstring of this module."""
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) > 1:
        return _assign_unequal(members, partition_counts)
    topics = next(iter(subscriptions), frozenset())
    return _assign_equal(members, {topic_id: partition_counts[topic_id] for topic_id in topics})


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""The server-side assignors by name; the first is the default."""


def _assign_equal(members: Subscribers, counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    every = {(topic_id, p) for topic_id, count in counts.items() for p in range(count)}
    kept = _kept(members, every)
    least, with_one_more = divmod(len(every), max(len(members), 1))
    # The members with the most partitions may keep one more, so that as few as possible move.
    order = sorted(members, key=lambda name: (-len(kept[name]), name))
    given: dict[str, list[TopicPartition]] = {}
    for place, name in enumerate(order):
        given[name] = sorted(kept[name])[: least + (place < with_one_more)]
    taken = {row for rows in given.values() for row in rows}
    # Sort by partition first: a new member gets partitions of every topic rather than all of one.
    free = iter(sorted(every - taken, key=lambda row: (row[1], row[0])))
    for place, name in enumerate(order):
        quota = least + (place < with_one_more)
        given[name] += [next(free) for _ in range(quota - len(given[name]))]
    return {name: frozenset(given[name]) for name in members}


def _assign_unequal(members: Subscribers, counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    subscribers = _subscribers_by_topic(members)
    every = {(topic_id, p) for topic_id in subscribers for p in range(counts[topic_id])}
    given: dict[str, dict[bytes, list[int]]] = {name: {} for name in members}
    sizes = dict.fromkeys(members, 0)

    def give(name: str, topic_id: bytes, partition: int) -> None:
        given[name].setdefault(topic_id, []).append(partition)
        sizes[name] += 1

    kept = _kept(members, every)
    for name, rows in kept.items():
        for topic_id, partition in sorted(rows):
            give(name, topic_id, partition)
    free = every.difference(*kept.values())
    # Start with topics that have few subscribers: later topics can still even out the sizes.
    for topic_id, partition in sorted(free, key=lambda row: (len(subscribers[row[0]]), row)):
        give(min(subscribers[topic_id], key=lambda name: (sizes[name], name)), topic_id, partition)
    average = -(-len(every) // len(members))
    while (move := _best_move(given, sizes, subscribers)) is not None:
        # Each move reduces the sum of the squared sizes, so the loop ends. It moves as many
        # partitions at once as leave the source at or above the average, and the target at or
        # below.
        source, topic_id, target = move
        count = max(1, min(sizes[source] - average, average - sizes[target]))
        numbers = given[source][topic_id]
        for partition in numbers[-count:]:
            give(target, topic_id, partition)
            sizes[source] -= 1
        del numbers[-count:]
    return {
        name: frozenset((topic_id, p) for topic_id, rows in topics.items() for p in rows)
        for name, topics in given.items()
    }


def _best_move(
    given: Mapping[str, Mapping[bytes, list[int]]],
    sizes: Mapping[str, int],
    subscribers: Mapping[bytes, list[str]],
) -> tuple[str, bytes, str] | None:
    """(source, topic, target): a move from the largest member that can give to one with two
    fewer."""
    lightest = {
        topic_id: min(names, key=lambda name: (sizes[name], name))
        for topic_id, names in subscribers.items()
    }
    for name in sorted(given, key=lambda name: (-sizes[name], name)):
        for topic_id in sorted(given[name]):
            target = lightest[topic_id]
            if given[name][topic_id] and sizes[target] + 1 < sizes[name]:
                return name, topic_id, target
    return None


def _kept(members: Subscribers, every: set[TopicPartition]) -> dict[str, Partitions]:
    """The partitions that each member keeps: those that exist, that it subscribes to, and that no
    other member keeps."""
    taken: set[TopicPartition] = set()
    kept: dict[str, Partitions] = {}
    for name, member in sorted(members.items()):
        mine = {row for row in member.has & every if row[0] in member.topics} - taken
        taken |= mine
        kept[name] = frozenset(mine)
    return kept


def _subscribers_by_topic(members: Subscribers) -> dict[bytes, list[str]]:
    topics: dict[bytes, list[str]] = {}
    for name, member in sorted(members.items()):
        for topic_id in member.topics:
            topics.setdefault(topic_id, []).append(name)
    return topics


def parse_assignors(names: str) -> tuple[str, ...]:
    """Parse group.consumer.assignors, names separated by commas. Raises ValueError."""
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in found if name not in ASSIGNORS]
    if unknown or not found:
        raise ValueError(
            f"group.consumer.assignors is {names!r}: it names one or more of {', '.join(ASSIGNORS)}"
        )
    return found
