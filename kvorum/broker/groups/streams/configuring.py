"""A topology beside the topics that exist: how many partitions each internal topic needs, which are
missing, how many tasks there are. Pure.

  source topics there? -> counts of repartition topics -> co-partitioning -> counts of changelogs
                       -> internal topics there, with these counts?

A topology that no topics could make ready is refused (`TopologyRefused`). One whose topics are
missing or do not fit is kept, and members are told its status until somebody mends the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvorum.broker.groups.streams.states import Status
from kvorum.broker.groups.streams.topology import (
    ANY_PARTITIONS,
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from kvorum.metadata.image.image import ClusterImage

_NAMES_SHOWN = 3
TASKS_MAX = 20_000
"""Tasks of a group, and partitions of a repartition topic that a topology may name. All tasks are
assigned in one step of the coordinator, which takes some 15 us each."""


class TopologyRefused(Exception):
    """No topics could make the topology ready (STREAMS_INVALID_TOPOLOGY)."""


class GroupStatus(NamedTuple):
    code: Status
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredSubtopology:
    """num_tasks: the most partitions of an input. is_stateful: it has changelogs, so that standbys
    make sense."""

    num_tasks: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """subtopologies: by id, ascending; empty if counts could not be decided.
    status: what is wrong with the topics, None if the topology is ready.
    missing: internal topics that are to be made.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    status: GroupStatus | None = None
    missing: tuple[InternalTopic, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _TopicsDoNotFit(Exception):
    def __init__(self, code: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = GroupStatus(code, detail)


def configure(topology: Topology, image: ClusterImage) -> ConfiguredTopology:
    """The topology with the counts that follow from the topics of `image`. Raises
    TopologyRefused."""
    _check(topology)
    try:
        counts = _decided_counts(topology, image)
        parts = {
            part.subtopology_id: _configured(part, image, counts) for part in topology.subtopologies
        }
        count = sum(part.num_tasks for part in parts.values())
        if count > TASKS_MAX:
            raise TopologyRefused(f"The topology has {count} tasks; {TASKS_MAX} is the limit.")
        missing = _missing_topics(parts.values(), image)
    except _TopicsDoNotFit as found:
        return ConfiguredTopology(epoch=topology.epoch, status=found.status)
    status = None
    if missing:
        named = _some_of(topic.name for topic in missing)
        status = GroupStatus(
            Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {named}"
        )
    return ConfiguredTopology(
        epoch=topology.epoch, subtopologies=parts, status=status, missing=missing
    )


def _check(topology: Topology) -> None:
    ids = [part.subtopology_id for part in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise TopologyRefused("Two subtopologies have the same id.")
    for part in topology.subtopologies:
        if not part.inputs:
            raise TopologyRefused(f"No source topics found for subtopology {part.subtopology_id}")
        for topic in part.internal_topics:
            if not 0 <= topic.num_partitions <= TASKS_MAX:
                raise TopologyRefused(f"Topic {topic.name} has {topic.num_partitions} partitions.")
        for group in part.copartition_groups:
            if not _has_positions(group, part):
                raise TopologyRefused(
                    f"A copartition group of subtopology {part.subtopology_id} names a topic that "
                    "the subtopology does not have."
                )


def _has_positions(group: CopartitionGroup, part: Subtopology) -> bool:
    sources, repartitions = len(part.source_topics), len(part.repartition_source_topics)
    return all(0 <= position < sources for position in group.source_topics) and all(
        0 <= position < repartitions for position in group.repartition_source_topics
    )


# --- counts of partitions ------------------------------------------------------------------------


def _decided_counts(topology: Topology, image: ClusterImage) -> dict[str, int]:
    """The number of partitions that each internal topic of the topology needs."""
    missing = sorted(
        {
            name
            for part in topology.subtopologies
            for name in part.source_topics
            if image.topic(name) is None
        }
    )
    if missing:
        detail = f"Source topics {_some_of(missing)} are missing."
        raise _TopicsDoNotFit(Status.MISSING_SOURCE_TOPICS, detail)
    counts = _repartition_counts(topology, image)

    def count_of(name: str) -> int:
        """The partitions of an input: those that it has, or those that it needs."""
        topic = image.topic(name)
        return counts[name] if topic is None else len(topic.partitions)

    fixed = {
        topic.name
        for part in topology.subtopologies
        for topic in part.repartition_source_topics
        if topic.num_partitions != ANY_PARTITIONS
    }
    repartitions = {
        topic.name for part in topology.subtopologies for topic in part.repartition_source_topics
    }
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            names = {part.source_topics[position] for position in group.source_topics}
            names |= {
                part.repartition_source_topics[position].name
                for position in group.repartition_source_topics
            }
            counts.update(_copartitioned(names, names & repartitions, fixed, count_of))
    for part in topology.subtopologies:
        most = max(count_of(name) for name in part.inputs)
        counts.update((topic.name, most) for topic in part.state_changelog_topics)
    return counts


def _repartition_counts(topology: Topology, image: ClusterImage) -> dict[str, int]:
    """A repartition topic has the count that it names, or as many partitions as its writer's
    inputs have at most. An input may be one itself, so this goes from the sources on."""
    parts = topology.subtopologies
    counts = {
        topic.name: topic.num_partitions
        for part in parts
        for topic in part.repartition_source_topics
        if topic.num_partitions != ANY_PARTITIONS
    }
    readers: dict[str, list[Subtopology]] = {}
    for part in parts:
        for name in _repartition_names(part):
            readers.setdefault(name, []).append(part)
    # Wave by wave, and each part once: a client may send thousands of parts in any order.
    wave, done = [part for part in parts if part.repartition_sink_topics], set()
    while wave:
        found: dict[str, int] = {}
        for part in wave:
            most = _most_partitions(part, image, counts)
            if most is not None and part.subtopology_id not in done:
                done.add(part.subtopology_id)
                found.update(
                    (name, most) for name in part.repartition_sink_topics if name not in counts
                )
        counts.update(found)
        wave = [part for name in found for part in readers.get(name, ())]
    if any(name not in counts for part in parts for name in part.repartition_sink_topics):
        raise TopologyRefused(
            "Failed to compute number of partitions for all repartition topics. There may be loops "
            "in the topology that cannot be resolved."
        )
    if any(name not in counts for part in parts for name in _repartition_names(part)):
        raise TopologyRefused(
            "Failed to compute number of partitions for all repartition topics, because a "
            "repartition source topic is never used as a sink topic."
        )
    return counts


def _repartition_names(part: Subtopology) -> Iterable[str]:
    return (topic.name for topic in part.repartition_source_topics)


def _most_partitions(
    part: Subtopology, image: ClusterImage, counts: Mapping[str, int]
) -> int | None:
    """The most partitions of an input that is known by now; None if none is."""
    known = [counts[name] for name in _repartition_names(part) if name in counts]
    known += [
        len(topic.partitions)
        for name in part.source_topics
        if (topic := image.topic(name)) is not None
    ]
    return max(known, default=None)


def _copartitioned(
    names: set[str], repartitions: set[str], fixed: set[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    """The counts of the repartition topics of one copartition group. Topics that the application
    does not make, and those with a fixed count, set it for the others."""
    if not names:
        return {}
    leading = names - repartitions or repartitions & fixed
    if leading:
        found = {name: count_of(name) for name in sorted(leading)}
        count = next(iter(found.values()))
        if any(other != count for other in found.values()):
            shown = ", ".join(f"{name}={number}" for name, number in found.items())
            raise _TopicsDoNotFit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{{{shown}}}]",
            )
    else:
        count = max(count_of(name) for name in repartitions)
    for name in sorted(repartitions & fixed):
        if count_of(name) != count:
            raise _TopicsDoNotFit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count_of(name)}] of repartition topic [{name}] doesn't "
                f"match number of partitions [{count}] of the source topic.",
            )
    return dict.fromkeys(repartitions, count)


# --- the result ----------------------------------------------------------------------------------


def _configured(
    part: Subtopology, image: ClusterImage, counts: Mapping[str, int]
) -> ConfiguredSubtopology:
    def sized(topics: tuple[InternalTopic, ...]) -> tuple[InternalTopic, ...]:
        return tuple(
            topic._replace(num_partitions=topic.num_partitions or counts[topic.name])
            for topic in sorted(topics)
        )

    sizes = []
    for name in part.inputs:
        topic = image.topic(name)
        sizes.append(counts[name] if topic is None else len(topic.partitions))
    return ConfiguredSubtopology(
        num_tasks=max(sizes),
        source_topics=tuple(sorted(part.source_topics)),
        repartition_sink_topics=tuple(sorted(part.repartition_sink_topics)),
        repartition_source_topics=sized(part.repartition_source_topics),
        state_changelog_topics=sized(part.state_changelog_topics),
    )


def _missing_topics(
    parts: Iterable[ConfiguredSubtopology], image: ClusterImage
) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist, by name. One that exists must have its count."""
    wanted = {
        topic.name: topic
        for part in parts
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
    }
    missing = []
    for name, topic in sorted(wanted.items()):
        found = image.topic(name)
        if found is None:
            missing.append(topic)
        elif len(found.partitions) != topic.num_partitions:
            raise _TopicsDoNotFit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected "
                f"{topic.num_partitions}, found {len(found.partitions)}",
            )
    return tuple(missing)


def _some_of(names: Iterable[str]) -> str:
    """The first names, and how many others there are."""
    every = list(names)
    others = len(every) - _NAMES_SHOWN
    shown = ", ".join(every[:_NAMES_SHOWN])
    return f"{shown} and {others} additional topics" if others > 0 else shown
