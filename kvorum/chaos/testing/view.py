"""The state of a whole cluster at one moment, and the conditions that a test waits for."""

from __future__ import annotations

import dataclasses
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.addresses import client_of, joined
from kvorum.chaos.live.observe import facts_of
from kvorum.chaos.live.systems.protocol import (
    RUNNING,
    Node,
    NotObservable,
    System,
)
from kvorum.chaos.targets import PartitionView, TargetView
from kvorum.runtime.errors import KvorumError

_SCRAPE_TIMEOUT_S = 5.0
_METADATA_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState(TargetView):
    """The facts for targets, with the partitions of all topics, and the states of the nodes.

    nodes: name -> state.
    live_brokers: those in the metadata.
    """

    nodes: Mapping[str, str]
    live_brokers: frozenset[str]

    def partitions_of(self, topic: str) -> list[PartitionView]:
        """The partitions of a topic, by number."""
        return [view for (name, _), view in sorted(self.partitions.items()) if name == topic]

    def is_led(self, topic: str | None = None) -> bool:
        """True if every partition, of one topic or of all, has a leader that runs. The metadata
        names a dead leader until the controller has noticed its death."""
        return all(
            view.leader is not None and self.nodes[view.leader] == RUNNING
            for (name, _), view in self.partitions.items()
            if topic in (None, name)
        )

    @property
    def is_isr_full(self) -> bool:
        """True if every ISR has all replicas, and all of them run."""
        return all(
            set(view.isr) == set(view.replicas)
            and all(self.nodes[name] == RUNNING for name in view.isr)
            for view in self.partitions.values()
        )

    @property
    def is_whole(self) -> bool:
        """True if every node runs and every broker is in the metadata."""
        return all(
            state == RUNNING for state in self.nodes.values()
        ) and self.live_brokers == frozenset(self.brokers)

    def view(self, *, alias_prefix: str = "") -> TargetView:
        """The view for targets. Topics with alias_prefix have a name without it, too,
        unless another topic has that name."""
        partitions = dict(self.partitions)
        if alias_prefix:
            for (topic, number), view in self.partitions.items():
                if topic.startswith(alias_prefix):
                    partitions.setdefault((topic.removeprefix(alias_prefix), number), view)
        return dataclasses.replace(self, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition that has a name. meaning: for the error of a wait in vain."""

    meaning: str
    holds: Callable[[ClusterState], bool]


#: Name for `Cluster.wait_until` -> condition.
CONDITIONS: Mapping[str, Condition] = {
    "all-led": Condition(
        meaning="every partition of every topic has a leader that runs",
        holds=lambda state: state.is_led(),
    ),
    "isr-full": Condition(
        meaning="every ISR has all replicas, and all of them run",
        holds=lambda state: state.is_isr_full,
    ),
    "active-controller": Condition(
        meaning="the quorum has a leader", holds=lambda state: state.active_controller is not None
    ),
    "all-alive": Condition(
        meaning="every node runs, and every broker is in the metadata",
        holds=lambda state: state.is_whole,
    ),
}


def nodes_of(system: System) -> list[Node]:
    """Every node. A node that a fault killed or paused has the state killed or paused at once, also
    before the system has noticed its death."""
    states = dict.fromkeys(system.killed, "killed") | dict.fromkeys(system.paused, "paused")
    return [
        dataclasses.replace(node, state=states.get(node.name, node.state))
        for node in system.nodes()
    ]


def _metadata(nodes: Sequence[Node], admin: Any) -> Any:
    """The metadata of any broker that runs. Raises KafkaException.

    A client may keep to a broker that a fault has paused: another one, which knows only brokers
    that run, is asked then.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    running = [node.listener for node in nodes if not node.is_controller and node.state == RUNNING]
    brokers = sum(not node.is_controller for node in nodes)
    try:
        if len(running) == brokers:
            return admin.list_topics(timeout=_METADATA_TIMEOUT_S)
    except KafkaException:
        if not running:
            raise
    if not running:
        return admin.list_topics(timeout=_METADATA_TIMEOUT_S)
    client = AdminClient({**client_of(joined(running)), "log_level": 2})
    return client.list_topics(timeout=_METADATA_TIMEOUT_S)


def read_state(system: System, admin: Any, *, is_required: bool = True) -> ClusterState:
    """Ask the controllers, and through admin (an AdminClient) a broker.

    Raises NotObservable when no broker answers; with is_required=False the state has no partitions
    then.
    """
    from confluent_kafka import KafkaException

    topics: Mapping[str, Any] = {}
    live_brokers: Mapping[int, Any] = {}
    nodes = nodes_of(system)
    try:
        metadata = _metadata(nodes, admin)
        topics, live_brokers = metadata.topics, metadata.brokers
    except KafkaException as error:
        if is_required:
            raise NotObservable(f"no broker sends metadata: {error}") from error
    names = {node.node_id: node.name for node in nodes}
    partitions = {
        (topic.topic, number): PartitionView(
            leader=names.get(partition.leader),
            replicas=tuple(names[broker] for broker in partition.replicas),
            isr=tuple(names[broker] for broker in partition.isrs),
        )
        for topic in topics.values()
        for number, partition in topic.partitions.items()
    }
    return ClusterState(
        **facts_of(system),
        partitions=partitions,
        nodes={node.name: node.state for node in nodes},
        live_brokers=frozenset(names[broker] for broker in live_brokers if broker in names),
    )


def scraped(node: str, address: str) -> dict[str, float]:
    """The metrics on a node's page, by name and labels. Raises KvorumError without an answer."""
    try:
        with urllib.request.urlopen(
            f"http://{address}/metrics", timeout=_SCRAPE_TIMEOUT_S
        ) as answer:
            text = answer.read().decode()
    except OSError as error:
        raise KvorumError(f"{node} gives no metrics: {error}") from error
    lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] not in ("#", ""))
    return {name: float(value) for name, _, value in lines}
