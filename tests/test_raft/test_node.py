"""Three nodes on real files and sockets in one loop: the order in which their drivers do things."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvorum.raft.model.effects import AppendProposed, LeaderChanged
from kvorum.raft.model.events import Propose, RequestReceived
from kvorum.raft.model.messages import RemoveVoterRequest
from kvorum.raft.model.values import OffsetAndEpoch, RaftConfig
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node import raft_node as node_module
from kvorum.raft.node.flush_pace import FlushPace
from kvorum.raft.node.metadata_log import open_metadata_log
from kvorum.raft.node.raft_node import RaftNode
from kvorum.raft.node.servicer import RaftServicer
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.http2.rpc import RpcServer
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import build_batch
from tests.polling import until
from tests.test_raft.driver import CLUSTER
from tests.test_runtime.http2_peers import free_port, run

NODES = (1, 2, 3)


class Heard:
    """A state machine that records its calls."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_committed(self, high_watermark: int) -> None:
        self.told.append(high_watermark)

    def on_leader_changed(self, change: LeaderChanged) -> None:
        self.told.append((change.epoch, change.leader_id))

    def on_voters_changed(self, voters: VoterSet) -> None:
        """The voters of this quorum are static, so nothing to record."""

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        raise AssertionError("nobody takes a snapshot")


class Quorum:
    """nodes, heard: nodes and their state machines by id."""

    def __init__(self) -> None:
        self.nodes: dict[int, RaftNode] = {}
        self.heard: dict[int, Heard] = {}
        self.failures: list[BaseException] = []
        self._servers: dict[int, RpcServer] = {}
        self._addresses = {node_id: ("127.0.0.1", free_port()) for node_id in NODES}

    async def start(self, folder: Path) -> None:
        for node_id in NODES:
            directory = str(folder / str(node_id))
            OsDisk().make_dirs(directory)
            files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), directory))
            log = await open_metadata_log(OsDisk(), directory, files, is_dynamic=False, now_ms=0)
            heard = self.heard[node_id] = Heard()
            node = self.nodes[node_id] = RaftNode(
                RaftConfig(
                    node_id=node_id,
                    cluster_id=CLUSTER,
                    voters=NODES,
                    address=self._addresses[node_id],
                ),
                log,
                peer_address=self._addresses.get,
                listener=heard,
                on_failure=self.failures.append,
                rng=random.Random(node_id),
            )
            server = self._servers[node_id] = RpcServer()
            server.add_service(raft_grpc.add_RaftServicer_to_server, node.servicer)
            host, port = self._addresses[node_id]
            await server.listen(f"{host}:{port}")
        for node in self.nodes.values():
            node.start()
        await until(self.is_led, "all follow one leader")

    def is_led(self) -> bool:
        leaders = {node.core.leader_id for node in self.nodes.values()}
        return len(leaders) == 1 and leaders < set(NODES)

    @property
    def leader(self) -> RaftNode:
        return self.nodes[self.nodes[1].core.leader_id]

    def followers(self) -> list[RaftNode]:
        return [node for node in self.nodes.values() if node is not self.leader]

    async def commit(self, count: int) -> None:
        for _ in range(count):
            end_offset = self.leader.propose(build_batch([(None, b"v")], timestamp_ms=1), 1) + 1
            await until(lambda end=end_offset: self.leader.core.high_watermark >= end, "committed")

    async def commit_until_quick(self) -> None:
        """Commit until every node counts its disk as quick and has nothing left to fsync."""
        while not all(node._flush_pace.is_quick for node in self.nodes.values()):
            await self.commit(1)
        logs = [node.log for node in self.nodes.values()]
        await until(lambda: all(x.durable_end_offset == x.end_offset for x in logs), "flushed")

    async def stop(self) -> None:
        for node_id in sorted(self.nodes, key=lambda n: self.nodes[n].is_leader):
            await self.nodes[node_id].stop()
            await self._servers[node_id].stop(0)
            self.nodes[node_id].log.close()
        assert self.failures == []


@asynccontextmanager
async def quorum(folder: Path) -> AsyncIterator[Quorum]:
    made = Quorum()
    await made.start(folder)
    try:
        yield made
    finally:
        await made.stop()


def take_the_disk_for_quick(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    """Every fsync is real, is written down, and counts as one that took a microsecond."""
    timed = node_module._timed

    def noted_fsync(ticket: Any) -> float:
        done.append("fsync")
        timed(ticket)
        return 1.0

    monkeypatch.setattr(node_module, "_timed", noted_fsync)


def test_on_a_quick_disk_the_records_leave_before_the_leader_waits_for_its_own_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    reply = RaftServicer.reply

    def noted_reply(self: RaftServicer, token: int, response: Any) -> None:
        done.append("answer")
        reply(self, token, response)

    async def case() -> None:
        async with quorum(tmp_path) as made:
            take_the_disk_for_quick(monkeypatch, done)
            await made.commit_until_quick()
            monkeypatch.setattr(RaftServicer, "reply", noted_reply)
            leader = made.leader
            await until(lambda: len(leader.core.role.parked) == 2, "both wait for more")
            done.clear()
            leader.propose(build_batch([(None, b"v")], timestamp_ms=1), 1)
            leader._append_proposals()
            # All within one call, without a turn of the loop, so no other task can have run.
            assert done == ["answer", "answer", "fsync"]
            assert leader.log.durable_end_offset == leader.log.end_offset

    run(case())


def test_a_follower_asks_for_more_before_its_state_machine_hears_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        async with quorum(tmp_path) as made:
            order: list[str] = []
            take_the_disk_for_quick(monkeypatch, order)
            await made.commit_until_quick()
            follower = made.followers()[0]
            await until(
                lambda: (
                    made.leader.core.role.voters[follower.config.node_id].end_offset
                    == made.leader.core.log.end_offset
                ),
                "it has all",
            )
            send = follower._transport.send

            def noted_send(*args: Any) -> None:
                order.append("fetch")
                send(*args)

            monkeypatch.setattr(follower._transport, "send", noted_send)
            heard = made.heard[follower.config.node_id]
            monkeypatch.setattr(heard, "on_committed", lambda _: order.append("committed"))
            order.clear()
            await made.commit(1)
            await until(lambda: "committed" in order, "the follower heard")
            # The answer with the next record also brings the high watermark of the previous ones.
            told = [what for what in order if what != "fsync"]
            at = told.index("committed")
            assert told[max(at - 1, 0)] == "fetch"

    run(case())


def watermarks_of(heard: Heard) -> list[int]:
    return [what for what in heard.told if isinstance(what, int)]


def test_what_is_committed_is_heard_once_and_in_order_across_leaders(tmp_path: Path) -> None:
    async def case() -> None:
        async with quorum(tmp_path) as made:
            await made.commit(5)
            first = made.leader
            heard = made.heard
            end_offset = first.core.log.end_offset
            first.resign()
            await until(
                lambda: made.is_led() and made.leader is not first and made.leader.is_leader,
                "another leads",
            )
            await made.commit(1)
            for told in heard.values():
                await until(lambda told=told: max(watermarks_of(told)) > end_offset, "it heard")
                assert watermarks_of(told) == sorted(set(watermarks_of(told)))

    run(case())


def test_a_disk_that_takes_no_proposal_ends_the_node_once_and_before_a_change_of_voters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        async with quorum(tmp_path) as made:
            await made.commit(1)
            leader = made.leader
            tried: list[Any] = []

            def full(effect: Any, *, wall_ms: int) -> None:
                tried.append(type(effect))
                raise OSError(errno.ENOSPC, "no space left")

            monkeypatch.setattr(leader.replica_log, "carry_out", full)
            monkeypatch.setattr(leader.core, "step", noted(leader.core.step, tried))
            leader.propose(build_batch([(None, b"v")], timestamp_ms=1), 1)
            change = RemoveVoterRequest(cluster_id=CLUSTER, node_id=3)
            leader._deliver(RequestReceived(change, 0))
            assert tried == [Propose, AppendProposed]
            assert [type(failure) for failure in made.failures] == [OSError]
            made.failures.clear()

    run(case())


def test_a_node_that_is_stopped_in_the_middle_of_a_flush_leaves_a_log_that_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        async with quorum(tmp_path) as made:
            leader = made.leader
            may_end, timed = threading.Event(), node_module._timed

            def held(ticket: Any) -> float:
                may_end.wait(10)
                return timed(ticket)

            monkeypatch.setattr(node_module, "_timed", held)
            for node in made.nodes.values():
                node._flush_pace = FlushPace()  # every fsync in the thread
            for value in (b"one", b"two"):
                # The second asks for another flush while the first is under way.
                leader.propose(build_batch([(None, value)], timestamp_ms=1), 1)
                leader._append_proposals()
            assert leader._is_flushing
            stopping = asyncio.ensure_future(leader.stop())
            await asyncio.sleep(0)
            may_end.set()
            await stopping
            leader.log.flush()

    run(case())


def noted(step: Callable[..., Any], tried: list[Any]) -> Callable[..., Any]:
    def noted_step(event: Any, now_ms: int) -> Any:
        tried.append(type(event))
        return step(event, now_ms)

    return noted_step


def test_a_pending_word_of_commitment_comes_before_the_word_of_another_leader(
    tmp_path: Path,
) -> None:
    async def case() -> None:
        async with quorum(tmp_path) as made:
            await made.commit(1)
            follower = made.followers()[0]
            heard = made.heard[follower.config.node_id]
            follower._told_committed -= 1  # as if the turn of the event loop were still to come
            heard.told.clear()
            made.leader.resign()
            await until(lambda: any(isinstance(what, tuple) for what in heard.told), "it heard")
            assert isinstance(heard.told[0], int)

    run(case())
