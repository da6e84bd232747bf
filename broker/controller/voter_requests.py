"""What a broker asks of the quorum's leader about its voters, over gRPC (see controller_api).

The voter set is the quorum's own (`raft.roles.voter_changes`), so these go to the service that the
controllers speak among themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.raft import codec
from kvorum.raft.messages import AddVoterRequest, RemoveVoterRequest, VoterChangeResponse
from kvorum.raft.voters import VoterSet
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, Rejected

PASSING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
"""Refusals that may pass: as of a node that still catches up, or a change before this one."""

ASK_AGAIN_MS = 200
TIMEOUT_MAX_MS = 60_000
"""A client that goes away does not end its request; none is asked for longer than this."""


class VotersLink:
    """The part of `forwarding.Forwarding` that is about the quorum's voters."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client

    async def add(self, request: AddVoterRequest, timeout_ms: int) -> Rejected | None:
        """Returns once the set with the new voter is committed, or why it is not."""
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
        """Returns once the set without that voter is committed, or why it is not."""
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
        """Ask the leader, and the next one, until the change is made, refused, or time is over."""
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
                # It may have committed the change before it went: the next one knows.
                may_be_made = True
                reason = f"controller {leader_id}: {error.code().name} {error.details()}"
                refusal = Rejected(ErrorCode.REQUEST_TIMED_OUT, reason)
            else:
                reply: VoterChangeResponse = codec.decode_voter_change_response(answer)
                if reply.error is ErrorCode.NONE or (may_be_made and is_made(reply.voters)):
                    return None
                refusal = Rejected(reply.error, reply.message)
                if reply.error not in PASSING:
                    return refusal
            if monotonic_ms() >= deadline_ms:
                return Rejected(ErrorCode.REQUEST_TIMED_OUT, refusal.message)
            await asyncio.sleep(ASK_AGAIN_MS / 1000)
