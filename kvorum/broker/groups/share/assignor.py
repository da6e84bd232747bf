"""The assignor of share groups, `simple`: members share partitions evenly. Pure.

  more partitions than members    each partition has one member; shares differ by one at most
  more members than partitions    each member has one partition; partitions differ by one member

Members keep what they have as far as that allows. With different subscriptions the rule holds for
each topic, and members with less come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from kvorum.broker.groups.consumer.member import NO_PARTITIONS, Partitions, TopicPartition

NAME = "simple"
Hand = TypeVar("Hand")
Card = TypeVar("Card")


class Sharer(NamedTuple):
    """A member, as the assignor sees it. topics: ids that it subscribes to. has: its last
    target."""

    topics: frozenset[bytes]
    has: Partitions = NO_PARTITIONS


def assign_simple(
    members: Mapping[str, Sharer], partitions: Iterable[TopicPartition]
) -> dict[str, Partitions]:
    """The partitions of each member. partitions: those that have a state in the share
    coordinator."""
    given: dict[str, set[TopicPartition]] = {name: set() for name in members}
    every = sorted(set(partitions), key=lambda row: (row[1], row[0]))
    if len({member.topics for member in members.values()}) <= 1:
        topics = next(iter(members.values())).topics if members else frozenset()
        rows = [row for row in every if row[0] in topics]
        _share(rows, sorted(members), members, given)
    else:
        by_topic: dict[bytes, list[TopicPartition]] = {}
        for row in every:
            by_topic.setdefault(row[0], []).append(row)
        for topic_id, rows in sorted(by_topic.items()):
            names = [name for name in members if topic_id in members[name].topics]
            names.sort(key=lambda name: (len(given[name]), name))
            _share(rows, names, members, given)
    return {name: frozenset(rows) for name, rows in given.items()}


def _share(
    rows: list[TopicPartition],
    names: list[str],
    members: Mapping[str, Sharer],
    given: dict[str, set[TopicPartition]],
) -> None:
    """Share `rows` among the members `names`; in a tie, those first in order get more."""
    if not rows or not names:
        return
    if len(rows) >= len(names):
        for name, mine in _dealt(names, rows, {n: members[n].has for n in names}).items():
            given[name].update(mine)
        return
    # The same the other way round: partitions are dealt members.
    has: dict[TopicPartition, list[str]] = {row: [] for row in rows}
    for name in names:
        held = next((row for row in rows if row in members[name].has), None)
        if held is not None:
            has[held].append(name)
    for row, sharers in _dealt(rows, names, has).items():
        for name in sharers:
            given[name].add(row)


def _dealt(
    hands: list[Hand], cards: list[Card], has: Mapping[Hand, Iterable[Card]]
) -> dict[Hand, list[Card]]:
    """Each card in one hand, the numbers of cards as equal as can be. A hand keeps what it has."""
    free = dict.fromkeys(cards)
    kept: dict[Hand, list[Card]] = {}
    for hand in hands:
        held = set(has[hand])
        kept[hand] = [card for card in cards if card in held and card in free]
        for card in kept[hand]:
            del free[card]
    least, with_one_more = divmod(len(cards), len(hands))
    order = sorted(hands, key=lambda hand: -len(kept[hand]))
    dealt: dict[Hand, list[Card]] = {}
    for place, hand in enumerate(order):
        quota = least + (place < with_one_more)
        dealt[hand] = kept[hand][:quota]
        free.update(dict.fromkeys(kept[hand][quota:]))
    left = iter([card for card in cards if card in free])
    for place, hand in enumerate(order):
        quota = least + (place < with_one_more)
        dealt[hand] += [next(left) for _ in range(quota - len(dealt[hand]))]
    return dealt
