"""Asks a live cluster at a moment: the quorum's leader, each partition's leader and ISR.

`chaos.live.observation` watches it all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from kvorum.chaos.addresses import client_of
from kvorum.chaos.live.systems.protocol import NotObservable, System, active_controller
from kvorum.chaos.targets import PartitionView, TargetView
from kvorum.runtime.errors import required

METADATA_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The topic as a client's metadata shows it; broker ids, -1 for no leader."""

    leaders: dict[int, int]
    replicas: dict[int, tuple[int, ...]]
    isr: dict[int, tuple[int, ...]]
    live_brokers: tuple[int, ...]

    @property
    def offline_partitions(self) -> int:
        return sum(1 for leader in self.leaders.values() if leader < 0)

    @property
    def under_replicated_partitions(self) -> int:
        return sum(1 for number in self.isr if len(self.isr[number]) < len(self.replicas[number]))


class TopicWatch:
    """Reads a topic's metadata through the proxies, as any client does."""

    def __init__(self, *, bootstrap: str, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.topic = topic
        self._admin: AdminClient | None = AdminClient({**client_of(bootstrap), "log_level": 2})

    def close(self) -> None:
        """Let the client go now, and not when Python's collector comes by.

        Bad sequence otherwise: 1. An attached cluster's run deletes its topics. 2. A broker of the
        cluster restarts. 3. The client asks for its topic's metadata again, and a broker with
        auto.create.topics.enable makes the topic anew.
        """
        self._admin = None

    def state(self) -> TopicState:
        """Raises NotObservable when no broker answers or the topic is unknown."""
        from confluent_kafka import KafkaException

        admin = required(self._admin, "a closed watch is not asked")
        try:
            metadata = admin.list_topics(self.topic, timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            raise NotObservable(f"no metadata: {error}") from error
        topic = metadata.topics[self.topic]
        if topic.error is not None:
            raise NotObservable(f"topic {self.topic}: {topic.error}")
        partitions = topic.partitions
        return TopicState(
            leaders={number: partitions[number].leader for number in sorted(partitions)},
            replicas={number: tuple(partitions[number].replicas) for number in sorted(partitions)},
            isr={number: tuple(partitions[number].isrs) for number in sorted(partitions)},
            live_brokers=tuple(sorted(metadata.brokers)),
        )


def view_of(system: System, topic: str, state: TopicState | None) -> TargetView:
    """The view that targets are resolved against. Asks for the active controller."""
    names = {node.node_id: node.name for node in system.nodes()}
    partitions: dict[tuple[str, int], PartitionView] = {}
    if state is not None:
        for number, leader in state.leaders.items():
            partitions[(topic, number)] = PartitionView(
                leader=names.get(leader),
                replicas=tuple(names[broker] for broker in state.replicas[number]),
                isr=tuple(names[broker] for broker in state.isr[number]),
            )
    return TargetView(**facts_of(system), partitions=partitions)


class SystemFacts(TypedDict):
    """The fields of a `TargetView` that follow from the system, without the partitions."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    killed: frozenset[str]
    paused: frozenset[str]
    active_controller: str | None


def facts_of(system: System) -> SystemFacts:
    """The facts about the nodes that targets need now. Asks for the active controller."""
    try:
        active: str | None = active_controller(system)
    except NotObservable:
        active = None
    return SystemFacts(
        controllers=system.plan.controllers,
        brokers=system.plan.brokers,
        killed=system.killed.union(system.died_unasked()),
        paused=system.paused,
        active_controller=active,
    )
