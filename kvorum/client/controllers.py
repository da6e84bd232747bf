"""Blocking gRPC calls to the controllers, for the CLI."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from kvorum.client.connection_hints import connection_hint
from kvorum.client.current import current_security, profile_clause
from kvorum.client.failures import (
    EXIT_NO_QUORUM,
    EXIT_NOT_AUTHORIZED,
    EXIT_UNREACHABLE,
    CommandFailed,
    warn,
)
from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.inspect.history import MetadataCopy
from kvorum.metadata.requests.config_requests import ConfigOperation
from kvorum.metadata.rpc.calls import CONFIG_OPERATION, ControllerCall, Reply, Request
from kvorum.metadata.rpc.metadata_log_reader import read_copy
from kvorum.rpc import admin_pb2 as pb
from kvorum.rpc import admin_pb2_grpc as pb_grpc
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.text import address_text

UNREACHABLE_AFTER_S = 0.6
"""A client gives up after this many seconds without an answer from any controller; after refused
connections it gives up at once."""

LEADER_WAIT_S = quorum_report.LEADER_WAIT_MS / 1000
PROBE_TIMEOUT_S = quorum_report.PROBE_TIMEOUT_MS / 1000
RETRY_PAUSE_S = 0.02

#: By default gRPC waits a second or more before it reconnects.
_CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
]

Replies = dict[int, pb.DescribeQuorumReply]


class BlockingControllerClient:
    """Finds the leader through any controller; if there is none, explains why.

    no_quorum: the error about the quorum from the broker that named these controllers. It becomes
    the command's error if no controller can be reached from here either.
    """

    def __init__(
        self, addresses: list[tuple[str, int]], timeout_s: float, *, no_quorum: str | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._no_quorum = no_quorum
        self._addresses = [address_text(*address) for address in addresses]
        self._address_by_id: dict[int, str] = {}
        self._channels: dict[str, Any] = {}
        # Taken now: one command has one security, and other threads use this client.
        self._security = current_security()
        self._of_profile = profile_clause()
        self._maker = self._security.channels()
        self._has_warned = False

    def describe(self) -> pb.DescribeQuorumReply:
        """The leader's description of the quorum.

        Raises CommandFailed: unreachable if no controller answers, no quorum if none leads.
        """
        return self._leader_within(time.monotonic() + LEADER_WAIT_S)

    def describe_all(self) -> Replies:
        """Every reachable controller's description of itself and of the quorum, by node id. Raises
        CommandFailed if none answers."""
        return self._probe(is_leader_enough=False)

    def addresses(self) -> dict[int, str]:
        """host:port of the controllers that answered, or were named by one that did."""
        return dict(self._address_by_id)

    def outage(self, replies: Replies) -> str:
        """The sentence that says why these answers show no leader."""
        return self._sentence(replies)

    def close(self) -> None:
        """End every connection."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def address_of(self, node_id: int) -> str:
        """The controller's host:port, from its own answer or from another controller's. Raises
        CommandFailed if neither is known."""
        address = self._address_by_id.get(node_id)
        if address is None:
            known = ", ".join(map(str, sorted(self._address_by_id)))
            raise CommandFailed(f"no controller has the id {node_id}; there are {known}")
        return address

    def request(self, call: ControllerCall[Request, Reply], request: Request) -> Reply | Rejected:
        """The active controller's reply to a call of the table of calls, or its refusal. Raises
        CommandFailed if no controller leads, or the call fails."""
        message = call.encode_request(request)
        start = time.monotonic()
        deadline = start + self._timeout_s
        while True:
            leader_id = self._leader_within(start + LEADER_WAIT_S).node_id
            address = self._address_by_id[leader_id]
            try:
                timeout_s = max(deadline - time.monotonic(), 0.1)
                answer = call.method(self._channel(address))(message, timeout=timeout_s)
            except grpc.RpcError as error:
                raise _failed(leader_id, address, error) from error
            if answer.status.code != ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline:
                return call.decode_reply(answer)
            time.sleep(RETRY_PAUSE_S)

    def read_metadata_log(self, from_offset: int = 0) -> MetadataCopy:
        """All committed metadata from an offset on; the whole log if that offset has been trimmed.

        The leader is asked, so that records that were just acknowledged are included. Without a
        leader the copy comes from the reachable controller with the highest committed offset;
        stderr says so, and how old the copy is.
        """
        replies, leader = self._await_leader(time.monotonic() + LEADER_WAIT_S)
        source = leader or max(replies.values(), key=lambda reply: reply.high_watermark)
        if leader is None and not self._has_warned:
            self._has_warned = True
            who = f"Controller {source.node_id}"
            sentence = self._sentence(replies)
            text = quorum_report.with_age(sentence, who, source.leaderless_ms)
            warn(f"{text}: this is its view")
        address = self._address_by_id[source.node_id]
        try:
            return read_copy(
                self._channel(address), timeout_s=self._timeout_s, from_offset=from_offset
            )
        except grpc.RpcError as error:
            raise CommandFailed(
                f"controller {source.node_id} at {address}: {_details(error)}", EXIT_UNREACHABLE
            ) from error

    def read_timelines(
        self, only_id: int | None = None, *, is_missing_told: bool = True
    ) -> list[tuple[int, int, str]]:
        """(milliseconds since 1970, node, text) of every reachable controller, by time.

        only_id: lines of this controller alone. is_missing_told: stderr names the controllers that
        did not answer.
        Raises CommandFailed if none answered, or if no controller knows only_id.
        """
        lines: list[tuple[int, int, str]] = []
        replies = self._probe(is_leader_enough=False)
        missing = {node.node_id for reply in replies.values() for node in reply.nodes}
        if only_id is not None:
            address = self.address_of(only_id)
            if only_id not in replies:
                raise CommandFailed(
                    f"controller {only_id} at {address} is not reachable", EXIT_UNREACHABLE
                )
            replies, missing = {only_id: replies[only_id]}, set()
        for node_id in replies:
            address = self._address_by_id[node_id]
            try:
                reply = self._stub(address).ReadElectionTimeline(
                    pb.ReadElectionTimelineRequest(), timeout=self._timeout_s
                )
            except grpc.RpcError as error:
                raise _failed(node_id, address, error) from error
            lines += [(line.timestamp_ms, node_id, line.text) for line in reply.lines]
            missing.discard(node_id)
        for node_id in sorted(missing) if is_missing_told else ():
            at = self._address_by_id.get(node_id, "an unknown address")
            warn(f"controller {node_id} at {at} is not reachable: its lines are missing")
        # By time only: lines of one node keep their order within a millisecond.
        return sorted(lines, key=lambda line: line[0])

    def describe_loggers(self, node_id: int) -> list[tuple[str, str]]:
        """The loggers of one controller with their levels. Raises CommandFailed."""
        reply = self._ask_one(node_id, "DescribeLoggers", pb.DescribeLoggersRequest())
        return [(each.name, each.level) for each in reply.loggers]

    def alter_loggers(
        self, node_id: int, operations: Sequence[ConfigOperation], *, dry_run: bool
    ) -> Rejected | None:
        """Change the levels of one controller's loggers. Raises CommandFailed."""
        request = pb.AlterLoggersRequest(validate_only=dry_run)
        request.operations.extend(CONFIG_OPERATION.encode(each) for each in operations)
        status = self._ask_one(node_id, "AlterLoggers", request).status
        if status.code == ErrorCode.NONE:
            return None
        return Rejected(ErrorCode(status.code), status.message)

    def _ask_one(self, node_id: int, method: str, request: Any) -> Any:
        """The answer of one controller about itself."""
        self._probe(is_leader_enough=False)
        address = self.address_of(node_id)
        try:
            return getattr(self._stub(address), method)(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise _failed(node_id, address, error) from error

    def read_flight_record(self, node_id: int) -> Iterator[bytes]:
        """The flight record of one controller, in chunks. Raises CommandFailed."""
        self._probe(is_leader_enough=False)
        address = self.address_of(node_id)
        try:
            for chunk in self._stub(address).ReadFlightRecord(
                pb.ReadFlightRecordRequest(), timeout=self._timeout_s
            ):
                yield chunk.lines
        except grpc.RpcError as error:
            raise _failed(node_id, address, error) from error

    def _leader_within(self, deadline: float) -> pb.DescribeQuorumReply:
        replies, leader = self._await_leader(deadline)
        if leader is None:
            raise CommandFailed(self._sentence(replies), EXIT_NO_QUORUM)
        return leader

    def _await_leader(self, deadline: float) -> tuple[Replies, pb.DescribeQuorumReply | None]:
        """The controllers' answers, and the leader if one is known before the deadline.

        Returns early if every controller that answered has had no leader for longer than an
        election. Raises CommandFailed if no controller answers.
        """
        answered: Replies = {}
        while True:
            replies = self._probe()
            answered |= replies
            now = list(replies.values())
            leader: pb.DescribeQuorumReply | None = quorum_report.leader_of(now)
            is_over = time.monotonic() >= deadline or quorum_report.is_outage(now)
            if leader is not None or is_over:
                return answered, leader
            time.sleep(RETRY_PAUSE_S)

    def _probe(self, *, is_leader_enough: bool = True) -> Replies:
        """Answers of the given controllers and of those that they name. Raises CommandFailed if
        none answers."""
        start = time.monotonic()
        while True:
            replies, problems, is_silent = self._probe_round(is_leader_enough)
            if replies:
                return replies
            waited_s = time.monotonic() - start
            # A broker that reported an error of the quorum has already waited for the controllers.
            is_hopeless = not is_silent or self._no_quorum is not None
            if is_hopeless or waited_s > min(self._timeout_s, UNREACHABLE_AFTER_S):
                break
        if self._no_quorum is not None:
            raise CommandFailed(self._no_quorum, EXIT_NO_QUORUM)
        if all("PERMISSION_DENIED" in problem for problem in problems):
            raise CommandFailed(problems[0], EXIT_NOT_AUTHORIZED)
        hints = dict.fromkeys(
            connection_hint(self._security, problem, is_controller=True) for problem in problems
        )
        hint = "".join(hints)
        raise CommandFailed(
            f"no controller reachable at {', '.join(problems)}",
            EXIT_UNREACHABLE,
            hint=hint and hint + self._of_profile,
        )

    def _probe_round(self, is_leader_enough: bool) -> tuple[Replies, list[str], bool]:
        """Asks all controllers at once. Returns (answers, failures with reasons, True if a
        controller only did not answer in time)."""
        replies: Replies = {}
        problems: list[str] = []
        is_silent = False
        done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        pending: dict[str, Any] = {}

        def ask(address: str) -> None:
            call = self._stub(address).DescribeQuorum.future(
                pb.DescribeQuorumRequest(), timeout=min(self._timeout_s, PROBE_TIMEOUT_S)
            )
            pending[address] = call
            call.add_done_callback(lambda ended: done.put((address, ended)))

        asked = list(dict.fromkeys([*self._addresses, *self._address_by_id.values()]))
        for address in asked:
            ask(address)
        while pending:
            address, call = done.get()
            del pending[address]
            try:
                reply: pb.DescribeQuorumReply = call.result()
            except grpc.RpcError as error:
                is_silent = is_silent or call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                problems.append(f"{address} ({_details(error)})")
                continue
            replies[reply.node_id] = reply
            # The address at which it answered, which may differ from the one that it advertises.
            self._address_by_id[reply.node_id] = address
            if is_leader_enough and quorum_report.leader_of(list(replies.values())) is not None:
                break
            for node in reply.nodes:
                named = address_text(node.host, node.port)
                known = self._address_by_id.setdefault(node.node_id, named)
                if known == named and named not in asked:
                    asked.append(named)
                    ask(named)
        for call in pending.values():
            call.cancel()
        return replies, problems, is_silent

    def _sentence(self, replies: Replies) -> str:
        return quorum_report.describe_outage(list(replies.values()), self._address_by_id)

    def _stub(self, address: str) -> Any:
        return pb_grpc.AdminStub(self._channel(address))

    def _channel(self, address: str) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._maker.open_blocking(address, _CHANNEL_OPTIONS)
        return channel


def _failed(node_id: int, address: str, error: Any) -> CommandFailed:
    is_denied = error.code() is grpc.StatusCode.PERMISSION_DENIED
    return CommandFailed(
        f"controller {node_id} at {address}: {_details(error)}",
        EXIT_NOT_AUTHORIZED if is_denied else EXIT_UNREACHABLE,
    )


def open_channel(address: str) -> Any:
    """A blocking channel with the security of the command that runs."""
    return current_security().channels().open_blocking(address)


def _details(error: Any) -> str:
    # gRPC tells of every attempt; the last one has the reason.
    text = str(error.details())
    reason = text.rpartition(": ")[2] if "last error: " in text else text
    return f"{error.code().name}: {reason}"
