"""Observes a live cluster: the quorum's leader, each partition's leader and ISR."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kvorum.chaos.experiment.history import INFO, OBSERVE, OBSERVER, OK, HistoryWriter, Type
from kvorum.chaos.live.systems.protocol import NotObservable, System, active_controller
from kvorum.chaos.targets import ClusterView, PartitionView
from kvorum.runtime.errors import KvorumError

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
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def state(self) -> TopicState:
        """Raises NotObservable when no broker answers or the topic is unknown."""
        from confluent_kafka import KafkaException

        try:
            metadata = self._admin.list_topics(self.topic, timeout=METADATA_TIMEOUT_S)
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


def view_of(system: System, topic: str, state: TopicState | None) -> ClusterView:
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
    try:
        active: str | None = active_controller(system)
    except NotObservable:
        active = None
    return ClusterView(
        controllers=system.plan.controllers,
        brokers=system.plan.brokers,
        killed=system.killed.union(system.died_unasked()),
        paused=system.paused,
        active_controller=active,
        partitions=partitions,
    )


class Observer(threading.Thread):
    """Writes observations of the cluster to the history until it is stopped.

    It reads the topic every topic_interval_ms and writes it if it changed. It asks the quorum,
    which costs a process, every quorum_interval_ms, one controller after the other.
    """

    def __init__(
        self,
        *,
        system: System,
        watch: TopicWatch,
        history: HistoryWriter,
        topic_interval_ms: int = 250,
        quorum_interval_ms: int = 2_000,
    ) -> None:
        super().__init__(name="chaos-observer", daemon=True)
        self._system = system
        self._watch = watch
        self._history = history
        self._topic_interval_ms = topic_interval_ms
        self._quorum_interval_ms = quorum_interval_ms
        self._stop_wanted = threading.Event()
        self._last: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._turn = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._loop()
        except (KvorumError, OSError, ValueError, KeyError) as error:
            # The runner reports it: after this error there are no more observations.
            self.failure = error

    def stop(self, *, timeout_ms: int) -> None:
        """Ask the thread to end and wait for it."""
        self._stop_wanted.set()
        self.join(timeout_ms / 1000)

    def _loop(self) -> None:
        next_quorum_ms = 0.0
        while not self._stop_wanted.wait(self._topic_interval_ms / 1000):
            self._look_at_topic()
            if self._history.now_ms() >= next_quorum_ms:
                self._look_at_quorum()
                next_quorum_ms = self._history.now_ms() + self._quorum_interval_ms

    def _look_at_topic(self) -> None:
        try:
            state = self._watch.state()
        except NotObservable as error:
            self._note(INFO, {"what": "partition"}, error=str(error))
            return
        for number, leader in state.leaders.items():
            seen = (leader, state.isr[number])
            if self._last.get(number) == seen:
                continue
            self._last[number] = seen
            details: dict[str, object] = {
                "what": "partition",
                "leader": leader,
                "isr": list(state.isr[number]),
            }
            self._note(OK, details, partition=number)

    def _look_at_quorum(self) -> None:
        names = self._system.quorum_witnesses()
        if not names:
            return
        self._turn += 1
        try:
            status = self._system.quorum_status(names[self._turn % len(names)])
        except NotObservable as error:
            self._note(INFO, {"what": "quorum"}, error=str(error))
            return
        details: dict[str, object] = {
            "what": "quorum",
            "leader_id": status.leader_id,
            "leader_epoch": status.leader_epoch,
            "high_watermark": status.high_watermark,
        }
        self._note(OK, details)

    def _note(
        self,
        type: Type,
        details: dict[str, object],
        *,
        partition: int | None = None,
        error: str | None = None,
    ) -> None:
        self._history.append(
            process=OBSERVER,
            type=type,
            f=OBSERVE,
            topic=None if partition is None else self._watch.topic,
            partition=partition,
            details=details,
            error=error,
        )
