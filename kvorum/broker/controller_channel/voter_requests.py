"""A broker's requests about voters to the quorum's leader, over gRPC (see controller_api).

The quorum itself keeps the voter set (`raft.core.voter_changes`), so these requests go to the Raft
service of the controllers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.raft.model.messages import AddVoterRequest, RemoveVoterRequest, VoterChangeResponse
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node import codec
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, Rejected

RETRIABLE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
"""Errors after which a retry may succeed: the leader has changed, the node is still catching up, or
another change is pending."""

ASK_AGAIN_MS = 200
TIMEOUT_MAX_MS = 60_000
"""Limit of a request's time: a client that disconnects does not end its request."""


class VoterRequests:
    """Implements `controller_api.Voters`."""

    def __init__(self, client: ControllerClient, refusal: Callable[[], str] = str) -> None:
        """refusal: returns why the broker refuses the quorum, "" if it does not."""
        self._client = client
        self._refusal = refusal

    async def add(self, request: AddVoterRequest, timeout_ms: int) -> Rejected | None:
        """Add a voter. Returns once the voter set with it is committed, or the reason why it is
        not."""
        message = codec.encode_request(request)
        voter = request.voter
        return await self._change(
            lambda leader_id, timeout_s: self._client.raft_stub(leader_id).AddVoter(
                message, timeout=timeout_s
            ),
            lambda voters: voters.get(voter.node_id) == voter,
            timeout_ms,
        )

    async def remove(self, request: RemoveVoterRequest, timeout_ms: int) -> Rejected | None:
        """Remove a voter. Returns once the voter set without it is committed, or the reason why it
        is not."""
        message = codec.encode_request(request)
        return await self._change(
            lambda leader_id, timeout_s: self._client.raft_stub(leader_id).RemoveVoter(
                message, timeout=timeout_s
            ),
            lambda voters: voters.get(request.node_id) is None,
            timeout_ms,
        )

    async def _change(
        self,
        invoke: Callable[[int, float], Any],
        is_made: Callable[[VoterSet], bool],
        timeout_ms: int,
    ) -> Rejected | None:
        """Send the request to the leader, and to the next leader, until the change is committed or
        refused, or time is over."""
        if refused := self._refusal():
            return Rejected(ErrorCode.REQUEST_TIMED_OUT, refused)
        deadline_ms = monotonic_ms() + min(timeout_ms, TIMEOUT_MAX_MS)
        may_be_made = False
        while True:
            described = await self._client.describe(quorum_report.LEADER_WAIT_MS)
            if isinstance(described, Rejected):
                return described
            leader_id = described.leader_id
            left_ms = max(deadline_ms - monotonic_ms(), ASK_AGAIN_MS)
            try:
                answer = await invoke(leader_id, left_ms / 1000)
            except grpc.aio.AioRpcError as error:
                # This leader may have committed the change before it failed: the next leader's
                # voter set shows it.
                may_be_made = True
                reason = f"controller {leader_id}: {error.code().name} {error.details()}"
                refusal = Rejected(ErrorCode.REQUEST_TIMED_OUT, reason)
            else:
                reply: VoterChangeResponse = codec.decode(answer)
                if reply.error is ErrorCode.NONE or (may_be_made and is_made(reply.voters)):
                    return None
                refusal = Rejected(reply.error, reply.message)
                if reply.error not in RETRIABLE:
                    return refusal
            if monotonic_ms() >= deadline_ms:
                return Rejected(ErrorCode.REQUEST_TIMED_OUT, refusal.message)
            await asyncio.sleep(ASK_AGAIN_MS / 1000)
