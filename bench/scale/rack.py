"""A cluster of 1,000 brokers and 1,000,000 partitions: memory, the answer with all topics,
fail-over of the controller, the death of a rack of 100.

Three controllers and one broker of `kvorum dev`; all other brokers are registrations with
heartbeats (`bench.scale.fleet`), in two processes: the rack that dies, and the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench.cluster import CONTROLLERS, HOST, BenchFailed, wait_for
from bench.cluster import strike as strike_process
from bench.kvorum_cluster import KvorumCluster
from bench.observe import BrokerView, read_metadata
from bench.processes import BROKER, CONTROLLER, ClusterProcess, cpu_percent_over, resident_mb
from bench.quorum.gaps import PutLoad
from bench.scale.fleet import RACK_SIZE, rack_of
from bench.scale.pings import pinging
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import ErrorCode, KvorumError, Rejected

PARTITIONS_A_TOPIC = 1_000
REPLICAS = 3
QUIET_PERCENT = 45.0
_CONTROLLER_PORT_SHIFT = 10  # as in bench.kvorum_cluster
_FIRST_ID = 10_000
_CALL_TIMEOUT_MS = 60_000
_START_TIMEOUT_S = 120.0
_QUIET_TIMEOUT_S = 300.0
_TOPIC_EVERY_S = 0.05


class TopicRefused(KvorumError):
    """A topic was not created."""


class Rack:
    """The cluster, and its figures.

    brokers: those of the fleet, a multiple of RACK_SIZE; the last rack of them dies.
    """

    def __init__(self, *, directory: Path, port: int, brokers: int, partitions: int) -> None:
        # A rack of their own would get as many replicas as one of 100 brokers.
        rack = f"broker.rack={rack_of(_FIRST_ID)}"
        self._cluster = KvorumCluster(directory=directory, port=port, settings=[rack], brokers=1)
        self._sizes = (brokers - RACK_SIZE, RACK_SIZE)
        self._rack_ids = range(_FIRST_ID + brokers - RACK_SIZE, _FIRST_ID + brokers)
        self._partitions = partitions
        self._addresses = {
            node + 1: f"{HOST}:{port + _CONTROLLER_PORT_SHIFT + node}"
            for node in range(CONTROLLERS)
        }
        self._names: dict[str, bytes] = {}
        self._created = 0

    async def measure(self) -> dict[str, float]:
        """Figures by key. Raises BenchFailed."""
        found: dict[str, float] = {}
        self._cluster.prepare()
        self._cluster.launch()
        client = ControllerClient(self._addresses)
        try:
            async with self._fleets(client) as (_, rack):
                before = self._resident()
                began = time.perf_counter()
                for number in range(self._partitions // PARTITIONS_A_TOPIC):
                    await self._create_patiently(client, number)
                found["created_per_s"] = self._partitions / (time.perf_counter() - began)
                await self._await_quiet()
                after = self._resident()
                for role in (CONTROLLER, BROKER):
                    grown = max(after[p] - before[p] for p in after if p[0] == role)
                    found[f"{role}_bytes_a_replica"] = grown * 1e6 / (self._partitions * REPLICAS)
                found |= await asyncio.to_thread(self._metadata_of_all)
                found["failover_s"] = await self._failover_s(client)
                await self._await_quiet()
                found["rack_s"] = await asyncio.to_thread(self._rack_s, rack)
        finally:
            await client.close()
            await asyncio.to_thread(self._cluster.stop)
        return found

    @contextlib.asynccontextmanager
    async def _fleets(
        self, client: ControllerClient
    ) -> AsyncIterator[list[asyncio.subprocess.Process]]:
        """The processes of the fleet's brokers, all of them unfenced."""
        cluster_id = ""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not cluster_id:
                reply = await client.describe(_CALL_TIMEOUT_MS)
                cluster_id = "" if isinstance(reply, Rejected) else str(reply.cluster_id)
        first, processes = _FIRST_ID, []
        try:
            for count in self._sizes:
                words = [str(first), str(count), cluster_id]
                words += [f"{node}={address}" for node, address in self._addresses.items()]
                processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "bench.scale.fleet", *words, stdout=subprocess.PIPE
                    )
                )
                first += count
            async with asyncio.timeout(_START_TIMEOUT_S):
                for process in processes:
                    if process.stdout is None or await process.stdout.readline() != b"ready\n":
                        raise BenchFailed("a fleet of brokers did not start")
            yield processes
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def _nodes(self, role: str) -> list[ClusterProcess]:
        return [process for process in self._cluster.processes() if process.role == role]

    def _resident(self) -> dict[tuple[str, int], float]:
        nodes = [*self._nodes(CONTROLLER), *self._nodes(BROKER)]
        return {(node.role, node.node_id): resident_mb(node.pid) for node in nodes}

    async def _create_patiently(self, client: ControllerClient, number: int) -> None:
        """Create a topic of PARTITIONS_A_TOPIC partitions, also through an election, which a
        machine of two cores sees when seven nodes take in so much."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                try:
                    return await self._create(client, PARTITIONS_A_TOPIC, f"large-{number}")
                except TopicRefused as refusal:
                    print(refusal, flush=True)
                    await asyncio.sleep(1.0)

    async def _create(
        self, client: ControllerClient, partitions: int, name: str | None = None
    ) -> None:
        """Create one topic. Raises TopicRefused."""
        self._created += 1
        name = name or f"small-{self._created}"
        topic = NewTopic(name=name, num_partitions=partitions, replication_factor=REPLICAS)
        request = CreateTopics(topics=(topic,))
        answer = await client.request(CREATE_TOPICS, request, _CALL_TIMEOUT_MS)
        if isinstance(answer, Rejected):
            raise TopicRefused(f"{name}: {answer.message}")
        (created,) = answer.reply
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise TopicRefused(f"{name}: {created.error.name}")
        if partitions == PARTITIONS_A_TOPIC:
            self._names[name] = created.topic_id

    async def _await_quiet(self) -> None:
        """Return when the nodes have finished the work of what came before."""
        deadline = time.monotonic() + _QUIET_TIMEOUT_S
        while time.monotonic() < deadline:
            pids = [process.pid for process in self._cluster.processes()]
            used = await asyncio.to_thread(cpu_percent_over, pids, 1.0)
            if max(used.values()) < QUIET_PERCENT:
                return
        raise BenchFailed(f"the cluster is not quiet within {_QUIET_TIMEOUT_S:g} s")

    def _metadata_of_all(self) -> dict[str, float]:
        """Seconds of a broker's answer with all topics, and the longest answer to another client
        meanwhile, in ms."""
        address = self._cluster.brokers[-1]
        with pinging(address) as pings, BrokerView(address, timeout_s=60.0) as view:
            began = time.perf_counter()
            answer = view.answer_with_all_topics()
            took_s = time.perf_counter() - began
        if sum(map(len, read_metadata(answer).values())) < self._partitions:
            raise BenchFailed("the answer has too few partitions")
        return {"metadata_s": took_s, "metadata_pause_ms": pings[0]}

    async def _failover_s(self, client: ControllerClient) -> float:
        """The gap in the creation of topics when the active controller is killed."""
        async with PutLoad(
            lambda: self._create(client, 1), errors=(TopicRefused,), every_s=_TOPIC_EVERY_S
        ) as load:

            def strike() -> None:
                leader = [p for p in self._nodes(CONTROLLER) if p.node_id == client.leader_id]
                if not leader:
                    raise BenchFailed(f"controller {client.leader_id} leads but does not run")
                strike_process(leader[0], signal.SIGKILL)

            return await load.gap_s(strike)

    def _rack_s(self, rack: asyncio.subprocess.Process) -> float:
        """Kill the rack; returns the seconds until a broker's view has a live leader for every
        partition."""
        dead = {-1, *self._rack_ids}
        # The controller moves partitions in the order of topic ids: the last one is asked first.
        names = sorted(self._names, key=self._names.__getitem__, reverse=True)
        with BrokerView(self._cluster.brokers[-1], timeout_s=60.0) as view:
            led = [leader for name in names[:50] for leader in _leaders(view, name)]
            if not dead & set(led) or -1 in led:
                raise BenchFailed("the rack leads nothing, or a partition has no leader")
            began = time.perf_counter()
            rack.kill()
            took_s = 0.0
            for name in names:

                def is_over(name: str = name) -> bool | None:
                    return None if dead & set(_leaders(view, name)) else True

                if took_s and is_over():
                    continue
                wait_for(is_over, timeout_s=60.0, what="all lead elsewhere", poll_s=0.02)
                took_s = time.perf_counter() - began
            return took_s


def _leaders(view: BrokerView, name: str) -> Sequence[int]:
    return [partition.leader for partition in view.topics([name])[name].values()]
