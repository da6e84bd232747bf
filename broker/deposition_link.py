"""Tells brokers that the controllers do not reach what they lead no more. A driver.

A connection of its own for each request: the one that this broker fetched on may have broken with
those to the controllers. Who does not answer is asked again, at ever longer intervals, for as long
as it is fenced: most such brokers are dead.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker.deposition import ask_to_step_down
from broker.failures import report_failure
from broker.fetcher import ANSWER_BYTES_MAX
from broker.former_leaders import FormerLeaders, News
from broker.frame_buffer import FrameBuffer
from metadata.delta import Delta
from metadata.image import EMPTY_IMAGE, ClusterImage
from runtime.errors import WireError
from runtime.tasks import TaskGroup
from wire.replica_fetch_codec import parse_replica_answer

if TYPE_CHECKING:
    from broker.replicas import ReplicaManager

_log = logging.getLogger(__name__)

RETRY_FIRST_MS = 20
RETRY_MAX_MS = 30_000
EXCHANGE_TIMEOUT_MS = 2_000
PARTITIONS_PER_REQUEST_MAX = 2_000


class DepositionLink:
    """One task for each broker that there is something to tell."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._former = FormerLeaders(manager.broker_id)
        self._before: ClusterImage = EMPTY_IMAGE
        self._wakes: dict[int, asyncio.Event] = {}
        """Of those that have a task."""
        self._tasks = TaskGroup(report_failure)
        self._is_stopped = False

    async def stop(self) -> None:
        self._is_stopped = True
        await self._tasks.stop()

    def on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        """The replicas have taken `image` over; delta: None, or what led to it from the last."""
        before, self._before = self._before, image
        for leader in self._former.on_image(before, delta, image):
            wake = self._wakes.get(leader)
            if wake is not None:
                wake.set()
            elif not self._is_stopped:
                self._wakes[leader] = asyncio.Event()
                self._tasks.spawn(self._run(leader), f"deposition of broker {leader}")

    async def _run(self, leader: int) -> None:
        wake, pause_ms = self._wakes[leader], RETRY_FIRST_MS
        try:
            while news := self._former.news_of(
                leader, self._manager.image, PARTITIONS_PER_REQUEST_MAX
            ):
                wake.clear()
                try:
                    async with asyncio.timeout(EXCHANGE_TIMEOUT_MS / 1000):
                        await self._tell(leader, news)
                except (OSError, TimeoutError, WireError) as failure:
                    _log.debug("broker %d may not know who leads: %r", leader, failure)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_ms / 1000):
                            await wake.wait()
                    pause_ms = RETRY_FIRST_MS if wake.is_set() else min(pause_ms * 2, RETRY_MAX_MS)
                else:
                    self._former.on_told(leader, news, self._manager.image)
        finally:
            del self._wakes[leader]

    async def _tell(self, leader: int, news: News) -> None:
        """Returns once it has heard. Raises OSError, TimeoutError, WireError."""
        manager, loop = self._manager, asyncio.get_running_loop()
        address = manager.peer_address(leader)
        if address is None:
            raise ConnectionError(f"broker {leader} has no address")
        frame = ask_to_step_down(
            news, broker_id=manager.broker_id, broker_epoch=manager.controller.broker_epoch
        )
        sock = await manager.connect(loop, address)
        try:
            await _send(loop, sock, frame)
            await _receive(loop, sock)
        finally:
            sock.close()


async def _send(loop: asyncio.AbstractEventLoop, sock: socket.socket, frame: bytes) -> None:
    left = memoryview(frame)
    while left:
        try:
            left = left[sock.send(left) :]
        except BlockingIOError:
            await _until(loop.add_writer, loop.remove_writer, sock.fileno())


async def _receive(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    buffer = FrameBuffer(ANSWER_BYTES_MAX)
    while (found := buffer.next_frame()) is None:
        try:
            if buffer.receive(sock) == 0:
                raise ConnectionError("it has closed the connection")
        except BlockingIOError:
            await _until(loop.add_reader, loop.remove_reader, sock.fileno())
    answer = parse_replica_answer(buffer.view, *found)
    if answer.error:
        raise WireError(f"refused with error {answer.error}")


async def _until(add: Callable[..., Any], remove: Callable[[int], Any], descriptor: int) -> None:
    """Return when the socket is ready for what `add` asks of the loop."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
