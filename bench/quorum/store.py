"""`python -m bench.quorum.store`: one member of a replicated counter of opaque values.

Kvorum's own RaftNode, log, fsync and gRPC under a minimal state machine, so that a figure measures
the quorum alone. It takes no snapshots, so its log only grows: a member that would need one fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from bench.quorum import protocol
from bench.quorum.protocol import Answer, Outcome, Status
from kvorum.launch.daemon.logs import set_up_logging
from kvorum.launch.daemon.process import run_node
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.values import OffsetAndEpoch, RaftConfig
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.metadata_log import open_metadata_log
from kvorum.raft.node.raft_node import RaftNode
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.clock import wall_ms
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import invariant, required
from kvorum.runtime.http2.rpc import RpcServer
from kvorum.runtime.ids import NO_NODE
from kvorum.runtime.tasks import TaskGroup
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import build_batch, iter_headers

CLUSTER_ID = "bench-quorum"
PENDING_MAX = 100_000
"""Limit of proposed values that are not yet committed; further ones are refused."""

_READ_BYTES_MAX = 8 << 20
_STOP_GRACE_S = 0.1


class _Outbox:
    """Answers on their way to one client; those that arrive during a write go into the next one."""

    def __init__(self, context: Any, tasks: TaskGroup) -> None:
        self._context = context
        self._tasks = tasks
        self._outcomes: list[Outcome] = []
        self._leadership = (0, NO_NODE)
        self._is_due = False
        self._is_writing = False
        self.is_closed = False

    def send(self, leadership: tuple[int, int], outcomes: Sequence[Outcome] = ()) -> None:
        if self.is_closed:
            return
        self._leadership = leadership
        self._outcomes += outcomes
        self._is_due = True
        if self._is_writing:
            return
        try:
            if self._context.try_write(self._answer()):
                self._outcomes = []
                self._is_due = False
                return
        except grpc.aio.UsageError:
            self.is_closed = True  # the client closed the stream
            return
        self._is_writing = True
        self._tasks.spawn(self._write(), "answers")

    async def _write(self) -> None:
        try:
            while self._is_due and not self.is_closed:
                message = self._answer()
                self._outcomes = []
                self._is_due = False
                await self._context.write(message)
        except (grpc.aio.InternalError, grpc.aio.UsageError, asyncio.InvalidStateError):
            self.is_closed = True  # the client closed the stream
        finally:
            self._is_writing = False

    def _answer(self) -> bytes:
        epoch, leader_id = self._leadership
        answer = Answer(epoch=epoch, leader_id=leader_id, outcomes=self._outcomes)
        return protocol.encode_answer(answer)


@dataclass(frozen=True, slots=True)
class _Pending:
    base_offset: int
    end_offset: int
    ids: list[int]
    outbox: _Outbox


class Store:
    """The state machine and its gRPC edge; a `raft.node.raft_node.RaftListener`."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks = TaskGroup(on_failure)
        self._node: RaftNode | None = None
        self._pending: deque[_Pending] = deque()
        self._pending_values = 0
        self._outboxes: set[_Outbox] = set()
        self._leadership = (0, NO_NODE)
        self.count = 0
        self.applied_end_offset = 0

    def attach(self, node: RaftNode) -> None:
        """Set the store's node; once, before the node starts."""
        self._node = node

    async def stop(self) -> None:
        await self._tasks.stop()

    # The methods of RaftListener.

    def on_committed(self, high_watermark: int) -> None:
        """Apply the newly committed values and answer the clients that wait for them."""
        pending = self._pending
        outcomes: dict[_Outbox, list[Outcome]] = {}
        while pending and pending[0].end_offset <= high_watermark:
            entry = pending.popleft()
            self._pending_values -= len(entry.ids)
            self._apply_log(entry.base_offset)
            self.count += len(entry.ids)
            self.applied_end_offset = entry.end_offset
            outcome = Outcome(ids=entry.ids, base_offset=entry.base_offset)
            outcomes.setdefault(entry.outbox, []).append(outcome)
        for outbox, committed in outcomes.items():
            outbox.send(self._leadership, committed)
        self._apply_log(high_watermark)

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Give up the values that an earlier leadership proposed: their outcome is unknown."""
        self._leadership = (change.epoch, change.leader_id)
        while self._pending:
            entry = self._pending.popleft()
            self._refuse(entry.outbox, entry.ids)
        self._pending_values = 0
        for outbox in self._outboxes:
            outbox.send(self._leadership)

    def on_voters_changed(self, voters: VoterSet) -> None:
        """No effect: the voters are static."""

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Never called: no member makes a snapshot."""
        invariant(False, f"a snapshot {snapshot} came, but the store has none")

    # The gRPC methods.

    async def append(self, _: Any, context: Any) -> None:
        """Serve one client's stream."""
        outbox = _Outbox(context, self._tasks)
        self._outboxes.add(outbox)
        outbox.send(self._leadership)
        try:
            await context.listen(lambda message: self._propose(message, outbox))
        finally:
            outbox.is_closed = True
            self._outboxes.discard(outbox)

    async def status(self, _: bytes, context: Any) -> bytes:
        epoch, leader_id = self._leadership
        status = Status(
            epoch=epoch,
            leader_id=leader_id,
            count=self.count,
            end_offset=self.applied_end_offset,
        )
        return protocol.encode_status(status)

    def _propose(self, message: bytes, outbox: _Outbox) -> None:
        ids, values = protocol.decode_values(message)
        node = required(self._node, "attached before it serves")
        if not node.is_leader or self._pending_values + len(ids) > PENDING_MAX:
            self._refuse(outbox, ids)
            return
        batch = build_batch([(None, value) for value in values], timestamp_ms=wall_ms())
        base_offset = node.propose(batch, len(values))
        self._pending_values += len(ids)
        self._pending.append(_Pending(base_offset, base_offset + len(ids), ids, outbox))

    def _refuse(self, outbox: _Outbox, ids: list[int]) -> None:
        outbox.send(self._leadership, [Outcome(ids=ids, base_offset=protocol.NO_OFFSET)])

    def _apply_log(self, end_offset: int) -> None:
        """Apply from the log: on followers, and on a leader the records before its own."""
        log = required(self._node, "attached before it serves").log
        while self.applied_end_offset < end_offset:
            data = log.read(
                self.applied_end_offset, bytes_max=_READ_BYTES_MAX, end_offset=end_offset
            ).read()
            for _, header in iter_headers(data):
                if not header.is_control:
                    self.count += header.record_count
                self.applied_end_offset = header.end_offset


class StoreProcess:
    """Implements `launch.daemon.process.NodeProcess`."""

    def __init__(
        self, options: argparse.Namespace, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._options = options
        self._on_failure = on_failure
        self._store = Store(on_failure)
        self._node: RaftNode | None = None
        self._server: RpcServer | None = None

    async def start(self) -> None:
        options = self._options
        disk = OsDisk()
        disk.make_dirs(options.directory)
        files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), options.directory))
        metadata_log = await open_metadata_log(
            disk, options.directory, files, is_dynamic=False, now_ms=wall_ms()
        )
        peers = dict(map(_member, options.peers))
        node = self._node = RaftNode(
            RaftConfig(
                node_id=options.id,
                cluster_id=CLUSTER_ID,
                voters=tuple(sorted(peers)),
                address=peers[options.id],
            ),
            metadata_log,
            peer_address=peers.get,
            listener=self._store,
            on_failure=self._on_failure,
            rng=random.Random(),
        )
        self._store.attach(node)
        await self._serve(node)
        node.start()

    async def _serve(self, node: RaftNode) -> None:
        server = self._server = RpcServer()
        server.add_service(raft_grpc.add_RaftServicer_to_server, node.servicer)
        server.add_service(_add_to_server, self._store)
        await server.listen(self._options.listen)

    async def stop(self, *, is_withdrawn: bool = False) -> None:
        if self._node is not None:
            await self._node.stop()
        await self._store.stop()
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
        if self._node is not None:
            self._node.log.close()


def _add_to_server(store: Store, server: RpcServer) -> None:
    service, _, append = protocol.METHOD.lstrip("/").rpartition("/")
    status = protocol.STATUS_METHOD.rpartition("/")[2]
    server.add_registered_method_handlers(
        service,
        {
            append: grpc.stream_stream_rpc_method_handler(store.append),
            status: grpc.unary_unary_rpc_method_handler(store.status),
        },
    )


def _member(text: str) -> tuple[int, tuple[str, int]]:
    node_id, _, address = text.partition("=")
    host, _, port = address.rpartition(":")
    return int(node_id), (host, int(port))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quorum.store", description=__doc__)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--directory", required=True)
    parser.add_argument("peers", nargs="+", metavar="ID=HOST:PORT", help="every member, itself too")
    options = parser.parse_args()
    set_up_logging("WARN")
    return run_node(lambda on_failure: StoreProcess(options, on_failure))


if __name__ == "__main__":
    sys.exit(main())
