"""The description of a topology (KIP-1331): its nodes, as `kafka-streams-groups` shows them. Pure.

A member pushes it once for each epoch of the topology. Kafka gives it to a plug-in of the broker;
Kvorum keeps it in a record of its own type, so that every coordinator of the group has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from kvorum.broker.groups.steps.records import TOPIC
from kvorum.runtime.errors import CorruptData

NO_DESCRIPTION = b""
SOURCE, PROCESSOR, SINK = 1, 2, 3
_VERSION = b"\x00\x00"


class Node(NamedTuple):
    """node_type: SOURCE, PROCESSOR or SINK. source_topics are for sources, sink_topic (None: chosen
    for each record) for sinks, stores for processors."""

    name: str
    node_type: int
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class DescribedSubtopology(NamedTuple):
    subtopology_id: str
    nodes: tuple[Node, ...]


class GlobalStore(NamedTuple):
    source: Node
    processor: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescription:
    subtopologies: tuple[DescribedSubtopology, ...]
    global_stores: tuple[GlobalStore, ...]

    def problem(self) -> str | None:
        """The fault of this description, in Kafka's words; None without one."""
        nodes = [node for part in self.subtopologies for node in part.nodes]
        nodes += [node for store in self.global_stores for node in store]
        for node in nodes:
            if node.node_type not in (SOURCE, PROCESSOR, SINK):
                return f"Unknown topology node type: {node.node_type}"
        for store in self.global_stores:
            if (store.source.node_type, store.processor.node_type) != (SOURCE, PROCESSOR):
                return "Global store must be composed of a source and a processor node."
        return None


def encode_description(description: TopologyDescription) -> bytes:
    """The value of the description's record."""
    rows = (description.subtopologies, description.global_stores)
    packed: bytes = msgpack.packb(rows)
    return _VERSION + packed


def decode_description(data: bytes) -> TopologyDescription:
    """As `encode_description` wrote it. Raises CorruptData."""
    try:
        parts, stores = msgpack.unpackb(data[len(_VERSION) :], use_list=False)
        return TopologyDescription(
            subtopologies=tuple(
                DescribedSubtopology(name, tuple(Node(*node) for node in nodes))
                for name, nodes in parts
            ),
            global_stores=tuple(
                GlobalStore(Node(*source), Node(*processor)) for source, processor in stores
            ),
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptData(TOPIC, 0, f"a topology's description is damaged: {error!r}") from error
