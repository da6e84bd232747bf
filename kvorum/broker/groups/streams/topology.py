"""The topology of a Streams application, as its first member brings it. Pure data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ANY_PARTITIONS = 0
ANY_REPLICATION_FACTOR = 0
NO_TOPOLOGY_EPOCH = -1


class InternalTopic(NamedTuple):
    """A topic that belongs to the application.

    num_partitions: 0 if it follows from the inputs, as always for changelogs.
    replication_factor: 0 for the cluster's default.
    """

    name: str
    num_partitions: int = ANY_PARTITIONS
    replication_factor: int = ANY_REPLICATION_FACTOR
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that must have the same number of partitions: positions in the subtopology's lists."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of the topology whose tasks work alone.

    source_topics: inputs that the application does not make.
    source_topic_regex: always empty, as in Apache Kafka 4.4, which refuses expressions.
    repartition_sink_topics: outputs that another subtopology reads.
    repartition_source_topics: inputs that another subtopology writes.
    """

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of all topics that its tasks read."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))

    @property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        """The topics that are made for it."""
        return (*self.repartition_source_topics, *self.state_changelog_topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """subtopologies: sorted by id, so that two topologies with the same parts are equal."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def required_topics(self) -> set[str]:
        """Names of all topics whose metadata matter."""
        return {name for part in self.subtopologies for name in _topics_of(part)}

    def readers(self) -> dict[str, str]:
        """The id of the subtopology that reads each input."""
        return {name: part.subtopology_id for part in self.subtopologies for name in part.inputs}

    def all_names(self) -> set[str]:
        """Names of all topics that it mentions."""
        sinks = {name for part in self.subtopologies for name in part.repartition_sink_topics}
        return self.required_topics() | sinks


def _topics_of(part: Subtopology) -> Iterator[str]:
    yield from part.inputs
    for topic in part.state_changelog_topics:
        yield topic.name
