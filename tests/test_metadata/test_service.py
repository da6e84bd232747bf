"""The controller's answers to operators about itself."""

import asyncio
import random
from collections import deque
from types import SimpleNamespace

import grpc
import pytest

from kvorum.metadata.controller.core.controller import DecisionFailed
from kvorum.metadata.controller.core.metrics import ControllerMetrics
from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.rpc.service import AdminServicer
from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.core.states import Follower
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.values import RaftConfig, VoteState
from kvorum.raft.node.flight_recorder import FlightRecorder, replay
from kvorum.rpc import admin_pb2 as pb
from kvorum.runtime.errors import ErrorCode


class Aborted(Exception):
    pass


class Context:
    async def abort(self, code, details):
        raise Aborted(code, details)


def node_of(*, voters=(1, 2, 3)):
    config = RaftConfig(node_id=1, cluster_id="c", voters=voters)
    core = RaftCore(config, vote_state=VoteState(), log=LogTail(), rng=random.Random(1), now_ms=0)
    return SimpleNamespace(config=config, core=core, timeline=deque())


def servicer(node):
    loop = SimpleNamespace(node=node, leader_id=-1, leaderless_ms=0)
    return AdminServicer(loop, cluster_id="c", nodes={})


async def collected(chunks):
    return b"".join([chunk.lines async for chunk in chunks])


def test_timeline_lines_come_apart_into_time_and_text():
    node = node_of()
    node.timeline += ["1700000000001 epoch=1 leader=2", "1700000000002 epoch=1 lost leader=2"]
    reply = asyncio.run(
        servicer(node).ReadElectionTimeline(pb.ReadElectionTimelineRequest(), Context())
    )
    assert reply.node_id == 1
    assert [(line.timestamp_ms, line.text) for line in reply.lines] == [
        (1700000000001, "epoch=1 leader=2"),
        (1700000000002, "epoch=1 lost leader=2"),
    ]


def test_flight_record_is_sent_in_chunks_of_whole_lines():
    node = node_of()
    node.recorder = FlightRecorder(node.core)
    chunks = servicer(node).ReadFlightRecord(pb.ReadFlightRecordRequest(), Context())
    text = asyncio.run(collected(chunks))
    assert text.endswith(b"\n")
    assert replay(text.decode().splitlines()).is_whole


def test_a_node_without_recorder_says_so():
    node = node_of()
    chunks = servicer(node).ReadFlightRecord(pb.ReadFlightRecordRequest(), Context())
    with pytest.raises(Aborted) as aborted:
        asyncio.run(collected(chunks))
    assert aborted.value.args == (
        grpc.StatusCode.UNIMPLEMENTED, "node 1 keeps no flight record",
    )  # fmt: skip


def test_a_follower_that_has_lost_its_leader_names_none():
    async def leaders():
        loop = ControllerLoop(None, on_failure=lambda error: None)
        loop._node = node_of()
        core = loop._node.core
        named = [loop.leader_id]
        for is_lost in (False, True, False):
            core.role = Follower(leader_id=2, fetch_deadline_ms=1, is_leader_lost=is_lost)
            core._leadership = SimpleNamespace(leader_id=2)
            named.append(loop.leader_id)
            if not is_lost:
                assert loop.leaderless_ms == 0
        return named

    assert asyncio.run(leaders()) == [-1, 2, -1, 2]


def test_who_asks_what_cannot_be_decided_is_told_and_the_controller_lives_on(caplog):
    async def asked():
        failures = []
        controller = SimpleNamespace(is_active=True, metrics=ControllerMetrics())
        loop = ControllerLoop(controller, on_failure=failures.append)
        loop._node = node_of()

        def submit(*_, **__):
            raise DecisionFailed("no decision") from ValueError("digits")

        loop._core.submit = submit
        return await loop.submit(None, 1_000), failures, controller.metrics

    reply, failures, metrics = asyncio.run(asked())
    assert (metrics.failed_decisions, metrics.decisions) == (1, 0)
    assert reply.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert failures == []
    assert "ValueError: digits" in caplog.text
