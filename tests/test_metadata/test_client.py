"""Who is asked next, and what happens to calls under way when somebody else is elected."""

import asyncio
from types import SimpleNamespace

import pytest

from metadata.client import ControllerClient
from runtime.errors import ErrorCode, Rejected


def answer(code=ErrorCode.NONE, leader_id=-1, message=""):
    return SimpleNamespace(status=SimpleNamespace(code=code, message=message), leader_id=leader_id)


@pytest.fixture
def client():
    return ControllerClient({1: "one:1", 2: "two:2", 3: "three:3"})


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_a_standby_names_the_leader_and_is_believed(client):
    asked = []

    async def invoke(_, target, timeout):
        asked.append(target)
        if target == 3:
            return answer()
        return answer(ErrorCode.NOT_CONTROLLER, leader_id=3)

    run(client.call(invoke, 5_000))
    assert asked[-1] == 3
    assert len(asked) == 2
    assert client.leader_id == 3


def test_a_call_to_a_hung_leader_is_sent_to_the_new_one_as_soon_as_it_is_known(client):
    client.note_active(1)
    asked = []

    async def invoke(_, target, timeout):
        asked.append(target)
        if target == 1:
            client.note_election(2, epoch=7)
            await asyncio.Event().wait()
        return answer()

    run(client.call(invoke, 60_000))
    assert asked == [1, 2]


def test_an_election_of_an_old_epoch_diverts_nobody(client):
    client.note_election(2, epoch=7)
    client.note_election(1, epoch=7)
    client.note_election(1, epoch=6)
    assert client.leader_id == 2


def test_without_any_active_controller_the_refusal_says_what_was_tried(client):
    async def invoke(_, target, timeout):
        return answer(ErrorCode.NOT_CONTROLLER, message=f"node {target} does not lead")

    refused = run(client.call(invoke, 100))
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT
    assert "does not lead" in refused.message


def test_other_refusals_are_answers(client):
    async def invoke(_, target, timeout):
        return answer(ErrorCode.STALE_BROKER_EPOCH)

    assert run(client.call(invoke, 1_000)).status.code is ErrorCode.STALE_BROKER_EPOCH
