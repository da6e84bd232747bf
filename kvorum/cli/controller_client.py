"""Blocking gRPC calls to the controllers, for the CLI."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from kvorum.cli.common import EXIT_NO_QUORUM, EXIT_UNREACHABLE, CommandFailed
from kvorum.rpc import admin_pb2 as pb
from kvorum.rpc import admin_pb2_grpc as pb_grpc
from raft.quorum import majority
from runtime.errors import ErrorCode

PROBE_TIMEOUT_S = 1.0
RETRY_PAUSE_S = 0.02


class ControllerClient:
    """Finds the leader from any controller; says what is missing if there is none."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._addresses = [f"{host}:{port}" for host, port in addresses]
        self._channels: dict[str, grpc.Channel] = {}

    def describe(self) -> pb.DescribeQuorumReply:
        """The leader's description of the quorum.

        Raises CommandFailed: unreachable if no controller answers, no quorum if none leads.
        """
        deadline = time.monotonic() + min(self._timeout_s, PROBE_TIMEOUT_S)
        while True:
            replies = self._probe_all()
            for reply in replies:
                if reply.leader_id == reply.node_id:
                    return reply
            if time.monotonic() > deadline:
                raise _no_quorum(replies)
            time.sleep(RETRY_PAUSE_S)

    def call(self, invoke: Callable[[Any, float], Any]) -> Any:
        """`invoke(stub, timeout s)` on the active controller; its reply, which has a status."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            description = self.describe()
            address = _address_of(description, description.leader_id)
            try:
                reply = invoke(self._stub(address), max(deadline - time.monotonic(), 0.1))
            except grpc.RpcError as error:
                raise CommandFailed(
                    f"controller {description.leader_id} at {address}: {_details(error)}",
                    EXIT_UNREACHABLE,
                ) from error
            if reply.status.code != ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline:
                return reply
            time.sleep(RETRY_PAUSE_S)

    def read_metadata_log(self) -> tuple[bytes, int]:
        """All committed metadata batches, and the end.

        Of the leader if one is known, so that what was just acknowledged is among them; else of
        the first controller that answers.
        """
        problems = []
        replies = self._probe_all()
        leader = [
            _address_of(reply, reply.leader_id)
            for reply in replies
            if reply.leader_id == reply.node_id
        ]
        for address in dict.fromkeys([*leader, *self._addresses]):
            try:
                chunks = list(
                    self._stub(address).ReadMetadataLog(
                        pb.ReadMetadataLogRequest(from_offset=0), timeout=self._timeout_s
                    )
                )
            except grpc.RpcError as error:
                problems.append(f"{address} ({_details(error)})")
                continue
            end = chunks[-1].high_watermark if chunks else 0
            return b"".join(chunk.records for chunk in chunks), end
        raise CommandFailed(f"no controller reachable at {', '.join(problems)}", EXIT_UNREACHABLE)

    def _probe_all(self) -> list[pb.DescribeQuorumReply]:
        """Answers of the given controllers and of those they name."""
        replies: dict[int, pb.DescribeQuorumReply] = {}
        problems = []
        todo = list(self._addresses)
        seen = set(todo)
        while todo:
            address = todo.pop(0)
            try:
                reply = self._stub(address).DescribeQuorum(
                    pb.DescribeQuorumRequest(), timeout=min(self._timeout_s, PROBE_TIMEOUT_S)
                )
            except grpc.RpcError as error:
                problems.append(f"{address} ({_details(error)})")
                continue
            replies[reply.node_id] = reply
            if reply.leader_id == reply.node_id:
                break
            # The leader first, if it is known.
            named = sorted(reply.nodes, key=lambda n: n.node_id != reply.leader_id)
            for node in named:
                other = f"{node.host}:{node.port}"
                if other not in seen and node.node_id not in replies:
                    seen.add(other)
                    todo.append(other)
        if not replies:
            raise CommandFailed(
                f"no controller reachable at {', '.join(problems)}", EXIT_UNREACHABLE
            )
        return list(replies.values())

    def _stub(self, address: str) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.insecure_channel(
                address, options=[("grpc.enable_http_proxy", 0)]
            )
        return pb_grpc.AdminStub(channel)


def _no_quorum(replies: list[pb.DescribeQuorumReply]) -> CommandFailed:
    voters = max(len(reply.voters) for reply in replies)
    epoch = max(reply.leader_epoch for reply in replies)
    return CommandFailed(
        f"no quorum: {len(replies)} of {voters} voters reachable, epoch {epoch}, "
        f"need {majority(voters)}",
        EXIT_NO_QUORUM,
    )


def _address_of(description: pb.DescribeQuorumReply, node_id: int) -> str:
    for node in description.nodes:
        if node.node_id == node_id:
            return f"{node.host}:{node.port}"
    raise CommandFailed(f"the quorum names no address for its leader {node_id}")


def _details(error: Any) -> str:
    return f"{error.code().name}: {error.details()}"
