"""Calls to the active controller, whoever that is at the moment.

Follows leader hints, goes round the known controllers while there is none, and gives up at the
caller's deadline with a refusal that says what was tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio

from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2_grpc as pb_grpc
from runtime.clock import monotonic_ms
from runtime.errors import ErrorCode, Rejected
from runtime.rpc import open_channel

RETRY_BACKOFF_MS = 20
ATTEMPT_TIMEOUT_MS = 1_000
"""A controller that does not answer for so long is passed over, as long as there is time left."""


class _Superseded(Exception):
    """Another controller was elected while a call was under way."""


class ControllerClient:
    """Channels to the controllers, by id."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = dict(addresses)
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._ids = sorted(self._addresses)
        self._leader_id: int | None = None
        self._turn = 0
        self._epoch = -1
        self._elections: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def leader_id(self) -> int | None:
        """The controller last seen to be active."""
        return self._leader_id

    def note_hint(self, leader_id: int) -> None:
        """Somebody names a leader, perhaps one of yesterday; ids below 0 say that there is none."""
        if leader_id in self._addresses:
            self._leader_id = leader_id

    def note_active(self, controller_id: int) -> None:
        """This controller has just answered as the active one.

        Calls under way to another are given up and sent here: the old leader may hang, and
        nothing would tell so before their time is over.
        """
        self._leader_id = controller_id
        for target, election in self._elections:
            if target != controller_id and not election.done():
                election.set_result(None)

    def note_election(self, leader_id: int, epoch: int) -> None:
        """The quorum's leader of `epoch`, as one knows who follows its log. As note_active."""
        if leader_id in self._addresses and epoch > self._epoch:
            self._epoch = epoch
            self.note_active(leader_id)

    def next_target(self) -> int:
        """Whom to ask now: the known leader, else each controller in turn."""
        if self._leader_id is not None:
            return self._leader_id
        self._turn += 1
        return self._ids[self._turn % len(self._ids)]

    def note_failure(self, controller_id: int) -> None:
        """This controller did not answer, or is not active."""
        if self._leader_id == controller_id:
            self._leader_id = None

    def controller_stub(self, controller_id: int) -> Any:
        return pb_grpc.ControllerStub(self._channel(controller_id))

    def admin_stub(self, controller_id: int) -> Any:
        return admin_grpc.AdminStub(self._channel(controller_id))

    async def call(
        self, invoke: Callable[[ControllerClient, int, float], Any], timeout_ms: int
    ) -> Any:
        """Call `invoke(client, controller id, timeout s)` on the active controller.

        Returns the answer, which must have `status` and `leader_id`, or Rejected. Requests turned
        away with NOT_CONTROLLER or by a broken connection are sent again until timeout_ms is
        over: the caller must be able to bear an outcome that came true twice.
        """
        deadline_ms = monotonic_ms() + timeout_ms
        last = "no controller was reachable"
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            target = self.next_target()
            try:
                timeout_s = min(left_ms, max(ATTEMPT_TIMEOUT_MS, timeout_ms // 3)) / 1000
                reply = await self._attempt(invoke, target, timeout_s)
            except _Superseded:
                last = f"controller {target} was superseded before it answered"
                continue
            except grpc.aio.AioRpcError as error:
                last = f"controller {target}: {error.code().name} {error.details()}"
                self.note_failure(target)
            else:
                if reply.status.code != ErrorCode.NOT_CONTROLLER:
                    self.note_active(target)
                    return reply
                last = reply.status.message
                self.note_failure(target)
                if reply.leader_id != target:
                    self.note_hint(reply.leader_id)
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT, f"no active controller within {timeout_ms} ms: {last}"
        )

    async def _attempt(
        self, invoke: Callable[[ControllerClient, int, float], Any], target: int, timeout_s: float
    ) -> Any:
        """One call, unless another controller is elected first. Raises _Superseded, AioRpcError."""
        call = asyncio.ensure_future(invoke(self, target, timeout_s))
        election: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (target, election)
        self._elections.append(entry)
        try:
            await asyncio.wait({call, election}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise _Superseded
            return call.result()
        finally:
            call.cancel()
            election.cancel()
            self._elections.remove(entry)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _channel(self, controller_id: int) -> grpc.aio.Channel:
        channel = self._channels.get(controller_id)
        if channel is None:
            channel = self._channels[controller_id] = open_channel(self._addresses[controller_id])
        return channel
