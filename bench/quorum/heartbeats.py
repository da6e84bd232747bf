"""The cost of many brokers' heartbeats for the active controller.

A real cluster of three controllers and one broker, with a thousand further brokers that consist
only of a registration and a heartbeat stream, each on its own connection, at the default interval.
They stay fenced, since they do not follow the log; a heartbeat costs the controller the same.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from bench.cluster import HOST, BenchFailed
from bench.kvorum_cluster import KvorumCluster
from bench.processes import CONTROLLER, cpu_percent_over
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import Heartbeat, RegisterBrokerRequest
from kvorum.metadata.rpc.calls import HEARTBEAT_REQUEST, REGISTER_BROKER
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.rpc import controller_pb2_grpc as controller_grpc
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.http2.rpc import Channel, open_channel
from kvorum.runtime.ids import new_uuid

BROKERS = 1_000
INTERVAL_S = 0.5
WATCH_S = 10.0
_FIRST_ID = 10_000
_CONTROLLER_PORT_SHIFT = 10  # as in bench.kvorum_cluster
_CALL_TIMEOUT_MS = 10_000
_READY_TIMEOUT_S = 60.0


class _Broker:
    """A registration and a stream of heartbeats."""

    def __init__(self, broker_id: int, epoch: int, address: str) -> None:
        self.answers = 0
        self._id = broker_id
        self._epoch = epoch
        self._channel: Channel = open_channel(address)

    async def beat(self) -> None:
        """Send heartbeats until cancelled. Raises BenchFailed for an invalid answer."""
        stream = controller_grpc.ControllerStub(self._channel).Heartbeat()
        message = HEARTBEAT_REQUEST.encode(
            Heartbeat(
                broker_id=self._id,
                broker_epoch=self._epoch,
                metadata_offset=0,
                want_shutdown=False,
            )
        )
        loop = asyncio.get_running_loop()
        # Spread over the interval, like those of real brokers.
        due = loop.time() + INTERVAL_S * random.random()
        try:
            while True:
                await asyncio.sleep(due - loop.time())
                due = max(due + INTERVAL_S, loop.time())
                await stream.write(message)
                reply = await stream.read()
                if reply.status.code != ErrorCode.NONE:
                    raise BenchFailed(f"heartbeat of {self._id}: {reply.status.message}")
                self.answers += 1
        finally:
            stream.cancel()
            await self._channel.close()


async def controller_percent(directory: Path, port: int) -> float:
    """CPU of the active controller in per cent of a core. Raises BenchFailed."""
    cluster = KvorumCluster(directory=directory, port=port)
    cluster.prepare()
    cluster.launch()
    addresses = {i + 1: f"{HOST}:{port + _CONTROLLER_PORT_SHIFT + i}" for i in range(3)}
    client = ControllerClient(addresses)
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            cluster_id = await cluster_id_of(client)
            brokers = [
                (_FIRST_ID + number, await register(client, _FIRST_ID + number, cluster_id))
                for number in range(BROKERS)
            ]
        leader = client.leader_id
        pid = next(
            (
                process.pid
                for process in cluster.processes()
                if process.role == CONTROLLER and process.node_id == leader
            ),
            None,
        )
        if leader is None or pid is None:
            raise BenchFailed(f"controller {leader} leads but does not run")
        beating = [_Broker(broker_id, epoch, addresses[leader]) for broker_id, epoch in brokers]
        tasks = [asyncio.create_task(broker.beat()) for broker in beating]
        await asyncio.sleep(2.0)
        before = sum(broker.answers for broker in beating)
        used = await asyncio.to_thread(cpu_percent_over, [pid], WATCH_S)
        rate = (sum(broker.answers for broker in beating) - before) / WATCH_S
        if failed := [task for task in tasks if task.done()]:
            raise BenchFailed(f"{len(failed)} streams ended: {failed[0].exception()}")
        wanted = BROKERS / INTERVAL_S
        if rate < 0.95 * wanted:
            raise BenchFailed(f"{rate:.0f} heartbeats a second came through, not {wanted:.0f}")
        return used[pid]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await asyncio.to_thread(cluster.stop)


async def cluster_id_of(client: ControllerClient) -> str:
    """The cluster's id, once it has a leader."""
    while True:
        reply = await client.describe(_CALL_TIMEOUT_MS)
        if not isinstance(reply, Rejected):
            return str(reply.cluster_id)
        await asyncio.sleep(0.1)


async def register(
    client: ControllerClient, broker_id: int, cluster_id: str, *, rack: str | None = None
) -> int:
    """Register a broker that is nothing else; returns its epoch. Raises BenchFailed."""
    request = RegisterBrokerRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=new_uuid(random.Random()),
        endpoints=(Endpoint("PLAINTEXT", HOST, 1),),
        rack=rack,
        features=SUPPORTED,
    )
    answer = await client.request(REGISTER_BROKER, request, _CALL_TIMEOUT_MS)
    if isinstance(answer, Rejected):
        raise BenchFailed(f"broker {broker_id} was not registered: {answer}")
    return answer.reply.broker_epoch


def main() -> int:
    """Runs in a process of its own, so that its own CPU does not slow other figures."""
    print(asyncio.run(controller_percent(Path(sys.argv[1]), int(sys.argv[2]))))
    return 0


def in_process(directory: Path, port: int, timeout_s: float) -> float:
    """`controller_percent` in a process of its own. Raises BenchFailed."""
    command = [sys.executable, "-m", "bench.quorum.heartbeats", str(directory), str(port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise BenchFailed(done.stderr.strip().rpartition("\n")[2])
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
