"""Voter changes that a client asks a broker for: the broker asks the leader until the change is
made or refused."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc.aio import Metadata

from kvorum.broker.controller_channel.voter_requests import VoterRequests
from kvorum.metadata.inspect.quorum_report import LEADER_WAIT_MS
from kvorum.raft.model.messages import AddVoterRequest, RemoveVoterRequest, VoterChangeResponse
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node.codec import decode, encode_response
from kvorum.runtime.errors import ErrorCode, Rejected

OLD, NEW = (Voter(i, bytes([i]) * 16, "127.0.0.1", 9100 + i) for i in (1, 2))
ADD = AddVoterRequest(cluster_id="c", voter=NEW)
REMOVE = RemoveVoterRequest(cluster_id="c", node_id=2, directory_id=NEW.directory_id)
LONG_MS = 50_000
GONE = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "it is gone")


class Quorum:
    """A fake client of the quorum, which returns the leaders' answers one after the other."""

    def __init__(self, *answers: VoterChangeResponse | Exception, leaders: tuple[int, ...] = (1,)):
        self.answers = list(answers)
        self.leaders = list(leaders)
        self.asked: list[tuple[int, Any]] = []

    async def describe(self, leader_wait_ms: int) -> Any:
        assert leader_wait_ms == LEADER_WAIT_MS
        if not self.leaders:
            return Rejected(ErrorCode.REQUEST_TIMED_OUT, "no leader: 1 of 3 voters answers")
        leader_id = self.leaders[0] if len(self.leaders) == 1 else self.leaders.pop(0)
        return SimpleNamespace(leader_id=leader_id)

    def raft_stub(self, controller_id: int) -> Any:
        async def answer(request: Any, timeout: float) -> Any:
            assert timeout > 0
            self.asked.append((controller_id, request))
            answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return encode_response(answer)

        return SimpleNamespace(AddVoter=answer, RemoveVoter=answer)


def said(error: ErrorCode, *voters: Voter, message: str = "") -> VoterChangeResponse:
    return VoterChangeResponse(epoch=3, error=error, message=message, voters=VoterSet.of(voters))


def add(quorum: Quorum, timeout_ms: int = LONG_MS) -> Rejected | None:
    return asyncio.run(VoterRequests(quorum).add(ADD, timeout_ms))  # type: ignore[arg-type]


def remove(quorum: Quorum, timeout_ms: int = LONG_MS) -> Rejected | None:
    return asyncio.run(VoterRequests(quorum).remove(REMOVE, timeout_ms))  # type: ignore[arg-type]


def test_the_leader_is_asked_what_the_client_asked() -> None:
    quorum = Quorum(said(ErrorCode.NONE, OLD, NEW), leaders=(7,))
    assert add(quorum) is None
    ((leader_id, message),) = quorum.asked
    assert (leader_id, decode(message)) == (7, ADD)
    quorum = Quorum(said(ErrorCode.NONE, OLD), leaders=(7,))
    assert remove(quorum) is None
    ((leader_id, message),) = quorum.asked
    assert (leader_id, decode(message)) == (7, REMOVE)


def test_a_node_that_catches_up_is_waited_for() -> None:
    late = said(ErrorCode.REQUEST_TIMED_OUT, OLD, message="it has 3 of 9")
    quorum = Quorum(late, late, said(ErrorCode.NONE, OLD, NEW))
    assert add(quorum) is None
    assert len(quorum.asked) == 3


def test_when_time_is_over_the_last_reason_is_said() -> None:
    late = said(ErrorCode.REQUEST_TIMED_OUT, OLD, message="it has 3 of 9")
    assert add(Quorum(late), 0) == Rejected(ErrorCode.REQUEST_TIMED_OUT, "it has 3 of 9")
    refusal = add(Quorum(GONE), 0)
    assert refusal is not None and refusal.code is ErrorCode.REQUEST_TIMED_OUT
    assert "controller 1: UNAVAILABLE it is gone" in refusal.message
    # Java's client would ask NOT_LEADER_OR_FOLLOWER again and again itself.
    moved = said(ErrorCode.NOT_LEADER_OR_FOLLOWER, OLD, message="node 1 does not lead the quorum")
    assert add(Quorum(moved), 0) == Rejected(ErrorCode.REQUEST_TIMED_OUT, moved.message)


def test_nobody_is_waited_for_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvorum.broker.controller_channel.voter_requests.TIMEOUT_MAX_MS", 0)
    late = said(ErrorCode.REQUEST_TIMED_OUT, OLD, message="it has 3 of 9")
    assert add(Quorum(late), (1 << 31) - 1) is not None


def test_a_new_leader_is_asked_when_the_old_one_has_handed_over() -> None:
    quorum = Quorum(
        said(ErrorCode.NOT_LEADER_OR_FOLLOWER, OLD), said(ErrorCode.NONE, OLD), leaders=(2, 1)
    )
    assert remove(quorum) is None
    assert [leader_id for leader_id, _ in quorum.asked] == [2, 1]


@pytest.mark.parametrize("change", [add, remove])
def test_a_refusal_for_good_comes_at_once(change: Any) -> None:
    refused = said(ErrorCode.INVALID_REQUEST, OLD, NEW, message="it would stop the quorum")
    quorum = Quorum(refused)
    assert change(quorum) == Rejected(ErrorCode.INVALID_REQUEST, "it would stop the quorum")
    assert len(quorum.asked) == 1


def test_without_a_leader_it_says_what_the_quorum_lacks() -> None:
    refusal = add(Quorum(leaders=()))
    assert refusal is not None and refusal.message == "no leader: 1 of 3 voters answers"


def test_a_change_that_the_old_leader_made_before_it_went_is_made() -> None:
    assert add(Quorum(GONE, said(ErrorCode.DUPLICATE_VOTER, OLD, NEW))) is None
    assert remove(Quorum(GONE, said(ErrorCode.VOTER_NOT_FOUND, OLD))) is None


def test_a_voter_that_was_there_before_is_a_duplicate() -> None:
    first = add(Quorum(said(ErrorCode.DUPLICATE_VOTER, OLD, NEW)))
    assert first is not None and first.code is ErrorCode.DUPLICATE_VOTER
    # Another disk votes under the id: that is not what was asked for.
    other = Voter(2, bytes([9]) * 16, "127.0.0.1", 9102)
    after = add(Quorum(GONE, said(ErrorCode.DUPLICATE_VOTER, OLD, other)))
    assert after is not None and after.code is ErrorCode.DUPLICATE_VOTER
