"""Brokers that consist of a registration and a stream of heartbeats, in a process of their own.

`python -m bench.scale.fleet FIRST COUNT CLUSTER_ID ID=HOST:PORT...` prints `ready` once all are
unfenced, and goes on. RACK_SIZE brokers are a rack. Killing the process is the death of its racks.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Mapping

import grpc

from bench.quorum.heartbeats import INTERVAL_S, register
from kvorum.metadata.requests.controller_requests import Heartbeat
from kvorum.metadata.rpc.calls import HEARTBEAT_REQUEST
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.rpc import controller_pb2_grpc as controller_grpc
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.http2.rpc import open_channel

RACK_SIZE = 100
REGISTERING_AT_ONCE = 20
_CALL_TIMEOUT_MS = 30_000
_AGAIN_S = 0.1


def rack_of(broker_id: int) -> str:
    """The rack of a broker."""
    return f"rack-{broker_id // RACK_SIZE}"


class Fleet:
    """Brokers `first` to `first + count - 1`."""

    def __init__(self, first: int, count: int, cluster_id: str, controllers: Mapping[int, str]):
        self._ids = range(first, first + count)
        self._cluster_id = cluster_id
        self._controllers = dict(controllers)
        self._client = ControllerClient(self._controllers)
        self._room = asyncio.Semaphore(REGISTERING_AT_ONCE)
        self._unfenced: set[int] = set()
        self.is_ready = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._live(broker_id) for broker_id in self._ids))

    async def _live(self, broker_id: int) -> None:
        async with self._room:
            epoch = await register(
                self._client, broker_id, self._cluster_id, rack=rack_of(broker_id)
            )
        message = HEARTBEAT_REQUEST.encode(
            Heartbeat(broker_id=broker_id, broker_epoch=epoch, metadata_offset=epoch + 1)
        )
        while True:
            channel = open_channel(self._controllers[await self._leader()])
            stream = controller_grpc.ControllerStub(channel).Heartbeat()
            due = asyncio.get_running_loop().time() + INTERVAL_S * random.random()
            with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                while True:
                    await asyncio.sleep(due - asyncio.get_running_loop().time())
                    due = max(due + INTERVAL_S, asyncio.get_running_loop().time())
                    await stream.write(message)
                    reply = await stream.read()
                    if reply.status.code != ErrorCode.NONE:
                        break  # another controller leads
                    if not reply.is_fenced:
                        self._unfenced.add(broker_id)
                        if len(self._unfenced) == len(self._ids):
                            self.is_ready.set()
            stream.cancel()
            await channel.close()
            await asyncio.sleep(_AGAIN_S)

    async def _leader(self) -> int:
        while True:
            reply = await self._client.describe(_CALL_TIMEOUT_MS)
            if not isinstance(reply, Rejected) and reply.leader_id in self._controllers:
                return int(reply.leader_id)
            await asyncio.sleep(_AGAIN_S)


async def _main(first: int, count: int, cluster_id: str, controllers: Mapping[int, str]) -> None:
    fleet = Fleet(first, count, cluster_id, controllers)
    running = asyncio.create_task(fleet.run())
    await fleet.is_ready.wait()
    print("ready", flush=True)
    await running


if __name__ == "__main__":
    named = (word.partition("=") for word in sys.argv[4:])
    asyncio.run(
        _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], {int(a): b for a, _, b in named})
    )
