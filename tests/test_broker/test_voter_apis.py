"""AddRaftVoter and RemoveRaftVoter: the requests that the broker forwards, and those that it
refuses itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kvorum.broker.api import add_raft_voter, remove_raft_voter
from kvorum.raft.model.messages import AddVoterRequest, RemoveVoterRequest
from kvorum.raft.model.voters import Voter
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_broker.contexts import request_context

DIRECTORY = UUID(int=7)
LISTENERS = (
    SimpleNamespace(name="OTHER", host="elsewhere", port=1),
    SimpleNamespace(name="CONTROLLER", host="here", port=9101),
)
ANSWERS = [None, Rejected(ErrorCode.DUPLICATE_VOTER, "node 4 is a voter already")]


class Voters:
    def __init__(self, answer: Rejected | None) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, int]] = []

    async def add(self, request: Any, timeout_ms: int) -> Rejected | None:
        self.asked.append((request, timeout_ms))
        return self.answer

    remove = add


def handled(api: Any, voters: Voters, **fields: Any) -> tuple[ErrorCode, str | None]:
    request = SimpleNamespace(**{
        "cluster_id": "named", "timeout": timedelta(seconds=1.5), "voter_id": 4,
        "voter_directory_id": DIRECTORY, "listeners": LISTENERS, **fields,
    })  # fmt: skip
    controller = SimpleNamespace(voters=voters)
    context = request_context(cluster_id="own", controller=controller)
    answer = asyncio.run(api.handle(context, request))
    return answer["error_code"], answer["error_message"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_node_is_added_with_its_controller_listener(answer: Rejected | None) -> None:
    voters = Voters(answer)
    said = handled(add_raft_voter, voters)
    assert said == ((0, None) if answer is None else (answer.code, answer.message))
    voter = Voter(4, DIRECTORY.bytes, "here", 9101)
    assert voters.asked == [(AddVoterRequest(cluster_id="named", voter=voter), 1500)]


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_client_may_have_its_answer_before_the_change_is_committed(is_patient: bool) -> None:
    voters = Voters(None)
    assert handled(add_raft_voter, voters, ack_when_committed=is_patient) == (0, None)
    assert [request.is_answered_early for request, _ in voters.asked] == [not is_patient]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_node_is_removed_by_its_directory(answer: Rejected | None) -> None:
    voters = Voters(answer)
    said = handled(remove_raft_voter, voters, cluster_id=None)
    assert said == ((0, None) if answer is None else (answer.code, answer.message))
    asked = RemoveVoterRequest(cluster_id="own", node_id=4, directory_id=DIRECTORY.bytes)
    assert [request for request, _ in voters.asked] == [asked]


def test_a_node_without_a_listener_for_controllers_is_refused() -> None:
    voters = Voters(None)
    code, message = handled(add_raft_voter, voters, listeners=LISTENERS[:1])
    assert code is ErrorCode.INVALID_REQUEST
    assert message == "node 4 needs a listener CONTROLLER, got ['OTHER']"
    assert voters.asked == []


def test_whoever_names_no_directory_removes_nobody() -> None:
    voters = Voters(None)
    code, _ = handled(remove_raft_voter, voters, voter_directory_id=None)
    assert code is ErrorCode.INVALID_REQUEST
    assert [request.is_dry_run for request, _ in voters.asked] == [True]
    # Other errors come first: in a static quorum no directory id would help.
    static = Rejected(ErrorCode.UNSUPPORTED_VERSION, "the voter set is static")
    code, message = handled(remove_raft_voter, Voters(static), voter_directory_id=None)
    assert (code, message) == (static.code, static.message)
