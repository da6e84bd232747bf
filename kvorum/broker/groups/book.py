"""The groups of one shard that commit offsets, by id. (Share groups have a book of their own.)"""

from __future__ import annotations

from kvorum.broker.groups.classic import group as classic
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer import group as consumer
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.streams import group as streams
from kvorum.broker.groups.streams.group import StreamsGroup

AnyGroup = ClassicGroup | ConsumerGroup | StreamsGroup
Groups = dict[str, AnyGroup]


def type_of(group: AnyGroup) -> str:
    """The type, as Kafka's tools show it."""
    match group:
        case ClassicGroup():
            return classic.TYPE_NAME
        case ConsumerGroup():
            return consumer.TYPE_NAME
        case StreamsGroup():
            return streams.TYPE_NAME
