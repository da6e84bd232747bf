"""A cluster of 1,000 brokers and 1,000,000 partitions: memory, the answer with all topics,
fail-over of the controller, the death of a rack of 100.

Three controllers and one broker of `kvorum dev`; all other brokers are registrations with
heartbeats (`bench.scale.fleet`), in two processes: the rack that dies, and the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.cluster import BenchFailed
from bench.observe import BrokerView, read_metadata
from bench.processes import BROKER, CONTROLLER, resident_mb
from bench.quorum.heartbeats import cluster_id_of
from bench.quorum.partitions import PARTITIONS_PER_TOPIC, REPLICAS, Partitions, TopicRefused
from bench.scale.fleet import RACK_SIZE, rack_of
from bench.scale.pings import pinging
from kvorum.metadata.rpc.client import ControllerClient

_FIRST_ID = 10_000
_START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 60.0


class Rack(Partitions):
    """The cluster, and its figures."""

    quiet_percent = 45.0  # the controllers answer heartbeats

    async def measure(self, *, brokers: int, partitions: int) -> dict[str, float]:
        """Figures by key. brokers: of the fleet, a multiple of RACK_SIZE; the last rack of them
        dies. Raises BenchFailed."""
        found: dict[str, float] = {}
        self._cluster.prepare()
        self._cluster.launch()
        client = ControllerClient(self._addresses)
        try:
            async with self._fleets(client, brokers) as rack:
                before = self._resident()
                for _ in range(partitions // PARTITIONS_PER_TOPIC):
                    await self._create_patiently(client)
                await self._await_quiet()
                after = self._resident()
                for role in (CONTROLLER, BROKER):
                    grown = max(after[node] - before[node] for node in after if node[0] == role)
                    found[f"{role}_bytes_a_replica"] = grown * 1e6 / (partitions * REPLICAS)
                found |= await asyncio.to_thread(self._metadata_of_all, partitions)
                names = dict(self._topic_ids)
                found["failover_s"] = await self._kill_gap_s(client)
                self._topic_ids = names
                found["rack_s"] = await asyncio.to_thread(
                    self._lead_elsewhere_s,
                    range(_FIRST_ID + brokers - RACK_SIZE, _FIRST_ID + brokers),
                    partitions * RACK_SIZE // brokers // 2,
                    rack.kill,
                )
        finally:
            await client.close()
            await asyncio.to_thread(self._cluster.stop)
        return found

    @contextlib.asynccontextmanager
    async def _fleets(
        self, client: ControllerClient, brokers: int
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """All brokers of the fleet, unfenced; yields the process of those that die."""
        processes: list[asyncio.subprocess.Process] = []
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                cluster_id = await cluster_id_of(client)
                first = _FIRST_ID
                for count in (brokers - RACK_SIZE, RACK_SIZE):
                    words = [str(first), str(count), cluster_id]
                    words += [f"{node}={address}" for node, address in self._addresses.items()]
                    processes.append(
                        await asyncio.create_subprocess_exec(
                            sys.executable, "-m", "bench.scale.fleet", *words,
                            stdout=subprocess.PIPE,
                        )
                    )  # fmt: skip
                    first += count
                for process in processes:
                    if process.stdout is None or await process.stdout.readline() != b"ready\n":
                        raise BenchFailed("a fleet of brokers did not start")
            yield processes[-1]
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def _resident(self) -> dict[tuple[str, int], float]:
        nodes = [p for p in self._cluster.processes() if p.role in (CONTROLLER, BROKER)]
        return {(node.role, node.node_id): resident_mb(node.pid) for node in nodes}

    async def _create_patiently(self, client: ControllerClient) -> None:
        """Create a topic, also through an election, which a machine of two cores sees when all
        nodes take in so much."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                try:
                    return await self._create(client, PARTITIONS_PER_TOPIC)
                except TopicRefused as refusal:
                    print(refusal, flush=True)
                    await asyncio.sleep(1.0)

    def _metadata_of_all(self, partitions: int) -> dict[str, float]:
        """Seconds of a broker's answer with all topics, and the longest answer to another client
        meanwhile, in ms."""
        address = self._cluster.brokers[-1]
        with (
            pinging(address) as pings,
            BrokerView(address, timeout_s=_ANSWER_TIMEOUT_S) as view,
        ):
            began = time.perf_counter()
            answer = view.answer_with_all_topics()
            took_s = time.perf_counter() - began
        if sum(map(len, read_metadata(answer).values())) < partitions:
            raise BenchFailed("the answer has too few partitions")
        return {"metadata_s": took_s, "metadata_pause_ms": pings[0]}


def cluster_of(directory: Path, port: int) -> Rack:
    """The cluster. Its broker is in the first rack of the fleet: a rack of its own would get as
    many replicas as one of 100 brokers."""
    settings = [f"broker.rack={rack_of(_FIRST_ID)}"]
    return Rack(directory=directory, port=port, brokers=1, settings=settings)
