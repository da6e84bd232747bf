"""The cost of partitions for the controllers: the gap after kill -9 of the active one, memory, idle
CPU.

A real cluster of `kvorum dev` with default settings; topics are created through the controller's
own Admin RPC. No record is written, so the brokers have metadata and no files.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import BROKERS, CONTROLLERS, HOST, BenchFailed, wait_for
from bench.cluster import strike as strike_process
from bench.kvorum_cluster import KvorumCluster
from bench.observe import BrokerView
from bench.processes import BROKER, CONTROLLER, ClusterProcess, cpu_percent_over, resident_mb
from bench.quorum.gaps import PutLoad
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import ErrorCode, KvorumError, Rejected

PARTITIONS_PER_TOPIC = 1_000
REPLICAS = 3
PARTITIONS_AT_ONCE = 2_000
"""Partitions that are created before the cluster may settle: creation at full speed is another
figure."""

FENCED_LEADERS = 10_000
TOPIC_EVERY_S = 0.02
_FENCE_TIMEOUT_S = 30.0
#: Not shorter: an answer for a topic of a thousand partitions costs the broker milliseconds.
_FENCE_POLL_S = 0.02
_CALL_TIMEOUT_MS = 30_000
_START_TIMEOUT_S = 60.0
_QUIET_TIMEOUT_S = 180.0
_CONTROLLER_PORT_SHIFT = 10  # as in bench.kvorum_cluster


class TopicRefused(KvorumError):
    """A topic was not created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCosts:
    """gaps_s: one for each kill. resident_mb, idle_percent: of each controller, before the
    kills."""

    gaps_s: list[float]
    resident_mb: list[float]
    idle_percent: list[float]


class Partitions:
    """One cluster with a given number of partitions."""

    #: CPU of each process, in percent of a core, below which the cluster rests. Not zero: brokers
    #: check all of their replicas now and then.
    quiet_percent = 30.0

    def __init__(
        self,
        *,
        directory: Path,
        port: int,
        brokers: int = BROKERS,
        settings: Sequence[str] = (),
    ) -> None:
        self._cluster = KvorumCluster(
            directory=directory, port=port, brokers=brokers, settings=settings
        )
        self._addresses = {
            node_id + 1: f"{HOST}:{port + _CONTROLLER_PORT_SHIFT + node_id}"
            for node_id in range(CONTROLLERS)
        }
        self._names = itertools.count()
        self._topic_ids: dict[str, bytes] = {}

    async def run(self, *, partitions: int, kills: int, idle_s: float) -> PartitionCosts:
        """Start, create, measure, stop. Raises BenchFailed."""
        cluster = self._cluster
        cluster.prepare()
        cluster.launch()
        client = ControllerClient(self._addresses)
        try:
            await self._await_start(client)
            created = 0
            for count in _topic_sizes(partitions):
                await self._create(client, count)
                created += count
                if created % PARTITIONS_AT_ONCE == 0:
                    await self._await_quiet()
            await self._await_quiet()
            pids = [process.pid for process in self._controllers()]
            idle = await asyncio.to_thread(cpu_percent_over, pids, idle_s)
            resident = [resident_mb(pid) for pid in pids]
            gaps = [await self._kill_gap_s(client) for _ in range(kills)]
        finally:
            await client.close()
            await asyncio.to_thread(cluster.stop)
        return PartitionCosts(
            gaps_s=gaps,
            resident_mb=resident,
            idle_percent=list(idle.values()),
        )

    def last_words(self) -> str:
        return self._cluster.last_words()

    def _controllers(self) -> list[ClusterProcess]:
        return [p for p in self._cluster.processes() if p.role == CONTROLLER]

    async def fence_s(self) -> float:
        """Start a cluster in which each of three brokers leads FENCED_LEADERS partitions, and kill
        -9 one of them. Returns the seconds until another broker's Metadata shows it as leader of
        none. Raises BenchFailed."""
        cluster = self._cluster
        cluster.prepare()
        cluster.launch()
        client = ControllerClient(self._addresses)
        try:
            await self._await_start(client)
            for number, count in enumerate(_topic_sizes(BROKERS * FENCED_LEADERS), 1):
                await self._create(client, count)
                if number * PARTITIONS_PER_TOPIC % PARTITIONS_AT_ONCE == 0:
                    await self._await_quiet()
            await self._await_quiet()
            victim = next(p for p in cluster.processes() if p.role == BROKER)
            return await asyncio.to_thread(
                self._lead_elsewhere_s,
                {victim.node_id},
                int(0.9 * FENCED_LEADERS),
                functools.partial(strike_process, victim, signal.SIGKILL),
            )
        finally:
            await client.close()
            await asyncio.to_thread(cluster.stop)

    def _lead_elsewhere_s(
        self, victims: Collection[int], least: int, strike: Callable[[], object]
    ) -> float:
        """Strike brokers that lead at least so many partitions; returns the seconds until another
        broker's Metadata shows them as leaders of none. Raises BenchFailed."""
        dead = {-1, *victims}
        # The controller moves partitions in the order of topic ids. The last topic is checked
        # first, since checks of topics that have already moved take time too.
        names = sorted(self._topic_ids, key=self._topic_ids.__getitem__, reverse=True)
        with BrokerView(self._cluster.brokers[-1]) as view:
            # The last broker is asked: the victim may be the first broker of the list.
            leaders = [leader for name in names for leader in _leaders(view, name)]
            if sum(leader in victims for leader in leaders) < least or -1 in leaders:
                raise BenchFailed(f"brokers {min(victims)}... do not lead what they should")
            began = time.perf_counter()
            strike()

            # Topic by topic: a partition that has moved stays there, and a request for all topics
            # at once would cost the broker more than the work that is measured.
            took_s = 0.0
            for name in names:

                def is_over(name: str = name) -> bool | None:
                    return None if dead & set(_leaders(view, name)) else True

                if took_s and is_over():
                    continue
                wait_for(
                    is_over,
                    timeout_s=_FENCE_TIMEOUT_S,
                    what="all lead elsewhere",
                    poll_s=_FENCE_POLL_S,
                )
                took_s = time.perf_counter() - began
            return took_s

    async def _create(self, client: ControllerClient, partitions: int) -> None:
        """Create one topic. Raises TopicRefused."""
        name = f"bench-{next(self._names)}"
        topic = NewTopic(name=name, num_partitions=partitions, replication_factor=REPLICAS)
        request = CreateTopics(topics=(topic,))
        answer = await client.request(CREATE_TOPICS, request, _CALL_TIMEOUT_MS)
        if isinstance(answer, Rejected):
            raise TopicRefused(f"{name}: {answer.message}")
        (created,) = answer.reply
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise TopicRefused(f"{name}: {created.error.name}")
        if created.error is ErrorCode.NONE:
            self._topic_ids[name] = created.topic_id

    async def _await_start(self, client: ControllerClient) -> None:
        async def is_created() -> bool:
            try:
                await self._create(client, 1)
            except TopicRefused:
                return False  # not all brokers are registered yet
            return True

        await _wait_for(is_created, _START_TIMEOUT_S, "a topic with three replicas is created")

    async def _await_quiet(self) -> None:
        """Return when brokers and controllers have finished the work of the creations."""

        async def is_quiet() -> bool:
            pids = [process.pid for process in self._cluster.processes()]
            used = await asyncio.to_thread(cpu_percent_over, pids, 1.0)
            return max(used.values()) < self.quiet_percent

        await _wait_for(is_quiet, _QUIET_TIMEOUT_S, "the cluster is quiet")

    async def _kill_gap_s(self, client: ControllerClient) -> float:
        async with PutLoad(
            lambda: self._create(client, 1), errors=(TopicRefused,), every_s=TOPIC_EVERY_S
        ) as load:
            victim: list[ClusterProcess] = []

            def strike() -> None:
                leader = [p for p in self._controllers() if p.node_id == client.leader_id]
                if not leader:
                    raise BenchFailed(f"controller {client.leader_id} leads but does not run")
                victim.append(leader[0])
                strike_process(leader[0], signal.SIGKILL)

            gap_s = await load.gap_s(strike)
        await asyncio.to_thread(self._cluster.restart, victim[0])
        await self._await_quiet()
        return gap_s


def _leaders(view: BrokerView, name: str) -> list[int]:
    """The leader of every partition of a topic, in one broker's view."""
    return [partition.leader for partition in view.topics([name])[name].values()]


def _topic_sizes(partitions: int) -> list[int]:
    whole, rest = divmod(partitions, PARTITIONS_PER_TOPIC)
    return [PARTITIONS_PER_TOPIC] * whole + ([rest] if rest else [])


async def _wait_for(look: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not await look():
        if time.monotonic() > deadline:
            raise BenchFailed(f"not so within {timeout_s:g} s: {what}")
        await asyncio.sleep(0.05)
