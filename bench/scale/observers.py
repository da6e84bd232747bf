"""Commits of the quorum while many observers follow its log.

Three members of the store (`bench.quorum.store`: the product's RaftNode) and, in a process of their
own, observers that do what a broker's follower does: each has a connection, fetches, and fetches
again behind what it got.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from bench.cluster import BenchFailed
from bench.figures import percentile
from bench.processes import cpu_percent_over
from bench.quorum.client import StoreClient, run_writers
from bench.quorum.members import StoreCluster
from bench.quorum.store import CLUSTER_ID
from kvorum.raft.node.replica_log import fetched_spans
from kvorum.rpc import raft_pb2 as pb
from kvorum.rpc import raft_pb2_grpc as pb_grpc
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.http2.rpc import open_channel
from kvorum.runtime.ids import new_uuid

WARM_COMMITS = 300
COMMITS = 500
SETTLE_S = 2.0
IDLE_S = 5.0
_FIRST_ID = 1_000
_AGAIN_S = 0.05
_READY_TIMEOUT_S = 60.0


class _Observer:
    """A node that follows the log and keeps nothing."""

    def __init__(self, node_id: int, addresses: Sequence[str]) -> None:
        self.has_fetched = asyncio.Event()
        self._end_offset = 0
        self._id = node_id
        self._directory = new_uuid(random.Random(node_id))
        self._addresses = addresses
        self._epoch = self._last_epoch = 0

    async def follow(self) -> None:
        """Fetch until cancelled, from whichever member leads."""
        at = 0
        while True:
            channel = open_channel(self._addresses[at])
            with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                await self._fetch(pb_grpc.RaftStub(channel).Fetch())
            await channel.close()
            at = (at + 1) % len(self._addresses)
            await asyncio.sleep(_AGAIN_S)

    async def _fetch(self, stream: Any) -> None:
        """Fetch until the member refuses."""
        while True:
            request = pb.FetchRequest(
                cluster_id=CLUSTER_ID,
                epoch=self._epoch,
                replica_id=self._id,
                replica_directory_id=self._directory,
                fetch_offset=self._end_offset,
                last_fetched_epoch=self._last_epoch,
            )
            await stream.write(request)
            reply = await stream.read()
            self._epoch = max(self._epoch, reply.epoch)
            if reply.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
                continue
            if reply.error:
                return
            if reply.records:
                last = fetched_spans(reply.records)[-1]
                self._end_offset, self._last_epoch = last.last_offset + 1, last.epoch
                self.has_fetched.set()


async def _follow_all(count: int, addresses: Sequence[str]) -> None:
    """`count` observers; tells by a line that all have fetched something, then goes on."""
    observers = [_Observer(_FIRST_ID + number, addresses) for number in range(count)]
    tasks = [asyncio.create_task(observer.follow()) for observer in observers]
    for observer in observers:
        await observer.has_fetched.wait()
    print("ready", flush=True)
    await asyncio.gather(*tasks)


async def measure(directory: Path, port: int, count: int) -> dict[str, float]:
    """p50_ms and p99_ms of one writer's commits, the leader's CPU at rest in per cent of a core.
    Raises BenchFailed."""
    cluster = StoreCluster(directory=directory, port=port)
    process: asyncio.subprocess.Process | None = None
    try:
        cluster.start()
        async with StoreClient(cluster.addresses) as client:
            await run_writers([client], writers=1, commits=WARM_COMMITS)
            words = ["-m", "bench.scale.observers", str(count), *cluster.addresses.values()]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words, stdout=subprocess.PIPE
            )
            async with asyncio.timeout(_READY_TIMEOUT_S):
                if process.stdout is None or await process.stdout.readline() != b"ready\n":
                    raise BenchFailed(f"{count} observers did not start")
            await asyncio.sleep(SETTLE_S)
            leader = cluster.pid(client.leader_id)
            idle = (await asyncio.to_thread(cpu_percent_over, [leader], IDLE_S))[leader]
            commits = await run_writers([client], writers=1, commits=COMMITS)
        return {
            "p50_ms": statistics.median(commits.latencies_ms),
            "p99_ms": percentile(commits.latencies_ms, 99),
            "idle_percent": idle,
        }
    finally:
        if process is not None:
            process.kill()
            await process.wait()
        cluster.stop()


if __name__ == "__main__":
    asyncio.run(_follow_all(int(sys.argv[1]), sys.argv[2:]))
