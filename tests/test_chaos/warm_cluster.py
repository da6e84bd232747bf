"""A cluster that several runs use one after the other, each with topics of its own.

A run on a warm cluster is spared its start and its stop. Before each run the cluster must be whole:
every node runs on a healthy disk and clock, every ISR is full, one controller leads, every
controller has what is committed, no link has a fault, and no broker is throttled. The replicas are
compared once, on the disks, when the cluster has stopped (`compare_replicas`): no report of a
single run can have that check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from kvorum.chaos.checks.replicas import divergent_replicas
from kvorum.chaos.checks.results import CheckResult
from kvorum.chaos.experiment_file.experiment import Configuration
from kvorum.chaos.live.host.packet_filter import PacketFilter
from kvorum.chaos.live.host.processes import NotReached, wait_until
from kvorum.chaos.live.systems.kvorum import KvorumSystem
from kvorum.chaos.live.systems.opening import (
    CLUSTER,
    LOGS,
    OpenedSystem,
    SystemChoice,
    open_system,
)
from kvorum.chaos.live.systems.protocol import (
    RUNNING,
    NotObservable,
    System,
    newest_status,
    running_brokers,
)
from kvorum.chaos.workloads.clients import open_admin
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError, KvorumError, required
from kvorum.runtime.fault_board import HEALTHY

_WHOLE_WITHIN_MS = 60_000
_METADATA_TIMEOUT_S = 3.0
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

#: Two experiments of one shape can share a cluster.
Shape = tuple[int, int, int, tuple[tuple[str, str], ...]]
#: Topic -> partition -> its leader's id, and True if its ISR is full.
Topics = dict[str, dict[int, tuple[int, bool]]]


def shape_of(configuration: Configuration) -> Shape:
    """Controllers, voters, brokers and settings: the part of a configuration that a running cluster
    cannot change."""
    return (
        configuration.controllers,
        configuration.voters,
        configuration.brokers,
        configuration.settings,
    )


class WarmCluster:
    """A running Kvorum cluster behind proxies, in a folder of its own. Use as a context manager.

    The nodes end with the thread that entered it, so runs must be in that thread too.
    """

    def __init__(
        self,
        choice: SystemChoice,
        configuration: Configuration,
        folder: Path,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """configuration: of the first experiment; others must have the same shape."""
        self.choice = choice
        self.shape = shape_of(configuration)
        self.folder = folder
        self._configuration = configuration
        self._progress = progress
        self._stack = ExitStack()
        self._opened: OpenedSystem | None = None
        self._compacted: set[str] = set()

    def __enter__(self) -> WarmCluster:
        if self.choice.name != KvorumSystem.name:
            raise ConfigError(f"a warm cluster is one of Kvorum, not of {self.choice.name!r}")
        (self.folder / LOGS).mkdir(parents=True, exist_ok=True)
        try:
            self._opened = open_system(
                self._stack,
                self.choice,
                shape=self._configuration,
                run_dir=self.folder,
                progress=self._progress,
            )
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened = None
        self._stack.close()

    def open(self, configuration: Configuration, *, prefix: str) -> OpenedSystem:
        """The cluster for one run, whose topics begin with the prefix.

        Raises ConfigError for an experiment of another shape, KvorumError if the cluster is not
        whole in time, or if it has topics with that prefix.
        """
        opened = required(self._opened, "a warm cluster is used inside its `with` block")
        if shape_of(configuration) != self.shape:
            raise ConfigError(
                f"the warm cluster has the shape {self.shape}, and the experiment needs "
                f"{shape_of(configuration)}; run it on a cluster of its own"
            )
        self.await_whole()
        taken = sorted(name for name in self._metadata()[1] if name.startswith(prefix))
        if taken:
            raise KvorumError(f"the warm cluster has {taken[0]} already; choose another prefix")
        if isinstance(opened.system, KvorumSystem):
            opened.system.topic_prefix = prefix
        return opened

    def note_compacted(self, topics: tuple[str, ...]) -> None:
        """Note topics of a run whose replicas may lack different records, because they are
        compacted."""
        self._compacted.update(topics)

    def await_whole(self) -> None:
        """Return when nothing is left of the last run's faults. Raises NotReached, which names what
        is left."""
        try:
            wait_until(
                lambda: not self.why_not_whole(),
                timeout_ms=_WHOLE_WITHIN_MS,
                what="the warm cluster is whole",
            )
        except NotReached as error:
            raise NotReached(f"{error}: {self.why_not_whole()}") from error

    def why_not_whole(self) -> str:
        """The first thing that is not as it was at the start; empty if nothing is."""
        opened = required(self._opened, "a warm cluster is used inside its `with` block")
        system, toxiproxy = opened.system, opened.toxiproxy
        for node in system.nodes():
            if node.state != RUNNING or node.name in system.paused:
                return f"{node.name} is {node.state}, paused: {sorted(system.paused)}"
        for link in system.plan.links:
            toxics = toxiproxy.toxics(link) if toxiproxy is not None else {}
            if toxics:
                return f"the proxy {link.name} has the toxics {sorted(toxics)}"
        for name, board in system.fault_boards.items():
            if board.conditions() != HEALTHY:
                return f"{name} has {board.conditions()}"
        disabled = toxiproxy.disabled() if toxiproxy is not None else []
        if disabled:
            return f"the proxy {disabled[0]} is disabled"
        losing = _losing(opened.packets) if opened.packets is not None else []
        if losing:
            return f"packets are dropped by the rules {', '.join(losing)}"
        return self._why_behind() or self._why_not_replicated() or self._why_throttled()

    def compare_replicas(self) -> CheckResult:
        """The replicas of all runs' topics, on the disks of the stopped brokers."""
        if self._opened is not None:
            raise KvorumError("the warm cluster runs: its replicas are compared when it stops")
        brokers = sorted((self.folder / CLUSTER).glob("broker-*"))
        return divergent_replicas(
            OsDisk(),
            {path.name: [str(path)] for path in brokers},
            compacted_topics=frozenset(self._compacted),
        )

    def _why_behind(self) -> str:
        """Why the quorum is not whole: it needs one leader, and all controllers with its committed
        records. Empty if it is."""
        system = required(self._opened, "checked by the caller").system
        try:
            newest = newest_status(system)
            for name in system.plan.controllers:
                status = system.quorum_status(name)
                if status.leader_id != newest.leader_id:
                    return f"{name} follows {status.leader_id}, the leader is {newest.leader_id}"
                if status.high_watermark < newest.high_watermark:
                    return f"{name} has not all of the {newest.high_watermark} committed records"
        except NotObservable as error:
            return str(error)
        return ""

    def _why_not_replicated(self) -> str:
        system = required(self._opened, "checked by the caller").system
        try:
            alive, topics = self._metadata()
        except NotObservable as error:
            return str(error)
        for name, partitions in sorted(topics.items()):
            for number, (leader, is_full) in sorted(partitions.items()):
                if leader < 0 or not is_full:
                    return f"{name}/{number} has the leader {leader}, its ISR is full: {is_full}"
        if alive != len(system.plan.brokers):
            return f"{alive} of {len(system.plan.brokers)} brokers are in the metadata"
        return ""

    def _why_throttled(self) -> str:
        system = required(self._opened, "checked by the caller").system
        try:
            rates = _throttle_rates(system)
        except NotObservable as error:
            return str(error)
        return "".join(f"{name} has the throttle {rate}" for name, rate in [*rates.items()][:1])

    def _metadata(self) -> tuple[int, Topics]:
        """The number of live brokers, and every topic. Raises NotObservable."""
        system = required(self._opened, "checked by the caller").system
        admin = open_admin(system.bootstrap())
        try:
            found = admin.list_topics(timeout=_METADATA_TIMEOUT_S)
        except KafkaException as error:
            raise NotObservable(f"no metadata: {error}") from error
        topics = {
            name: {
                number: (one.leader, set(one.isrs) == set(one.replicas))
                for number, one in topic.partitions.items()
            }
            for name, topic in found.topics.items()
        }
        return len(found.brokers), topics


def _losing(packets: PacketFilter) -> list[str]:
    """The names of the faults that have rules now. Raises PacketFilterFailed."""
    if packets._process is None:
        return []
    return re.findall(r"chain (\S+) {", packets._list(["table", "inet", packets._table]))


def _throttle_rates(system: System) -> dict[str, str]:
    """Broker -> a rate that is set there. Raises NotObservable if a running broker does not
    answer."""
    admin = open_admin(system.bootstrap())
    found = {}
    for node in running_brokers(system):
        resource = ConfigResource(ResourceType.BROKER, str(node.node_id))
        try:
            described = admin.describe_configs([resource], request_timeout=_METADATA_TIMEOUT_S)
            configs = described[resource].result()
        except KafkaException as error:
            raise NotObservable(f"the throttle of broker {node.node_id}: {error}") from error
        rates = [configs[key] for key in _RATES if key in configs]
        set_there = [str(rate.value) for rate in rates if not rate.is_default]
        if set_there:
            found[node.name] = set_there[0]
    return found
