"""The controller that is asked next, and calls under way when another controller is elected."""

import asyncio
import socket
from types import SimpleNamespace

import grpc
import pytest

from kvorum.metadata.inspect.quorum_report import LEADER_WAIT_MS
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.rpc import admin_pb2 as pb
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.http2.status import rpc_error, unsent


def answer(code=ErrorCode.NONE, leader_id=-1, message=""):
    return SimpleNamespace(status=SimpleNamespace(code=code, message=message), leader_id=leader_id)


@pytest.fixture
def client():
    return ControllerClient({1: "one:1", 2: "two:2", 3: "three:3"})


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_a_leader_that_no_list_named_is_asked_once_its_address_is_known():
    client = ControllerClient({-2: "bootstrap:1"})
    client.note_election(3, 1)
    assert client.next_target() == -2
    client.add_address(3, "three:3")
    client.add_address(-2, "elsewhere:1")
    client.note_election(3, 1)
    assert client.next_target() == 3
    assert client.addresses == {-2: "bootstrap:1", 3: "three:3"}


def test_a_bootstrap_server_is_named_by_its_address_as_its_id_is_not_known():
    client = ControllerClient({-2: "bootstrap:1"})

    async def invoke(_, target, timeout):
        raise unsent(grpc.StatusCode.UNAVAILABLE, "failed to connect")

    refused = run(client.call(invoke, 100))
    assert "the controller at bootstrap:1: " in refused.message


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


def gone():
    return rpc_error(grpc.StatusCode.UNAVAILABLE, "it is gone")


def test_a_request_that_two_controllers_were_lost_with_is_not_sent_to_the_third():
    """Bad sequence: 1. A request ends the process of the active controller. 2. The client sends it
    to the next active controller, which ends as well. 3. So does the last one."""
    client = Probed([described(2, leader_id=2)])
    client.note_active(1)
    asked = []

    async def invoke(_, target, timeout):
        asked.append(target)
        raise gone()

    refused = run(client.call(invoke, 5_000, leader_wait_ms=LEADER_WAIT_MS))
    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked == [1, 2]


def test_a_request_is_sent_again_to_the_controller_whose_link_broke():
    client = Probed([described(1, leader_id=1)])
    client.note_active(1)
    errors = [gone() for _ in range(3)]

    async def invoke(_, target, timeout):
        if errors:
            raise errors.pop()
        return answer()

    reply = run(client.call(invoke, 5_000, leader_wait_ms=LEADER_WAIT_MS))
    assert reply.status.code == ErrorCode.NONE


@pytest.mark.parametrize(
    "error",
    [
        unsent(grpc.StatusCode.UNAVAILABLE, "refused"),
        rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "late"),
    ],
    ids=["not sent", "late"],
)
def test_a_request_that_no_controller_ended_over_goes_to_the_third(error):
    client = Probed([described(2, 2, epoch=8)], [described(3, 3, epoch=9)])
    client.note_active(1)

    async def invoke(_, target, timeout):
        if target < 3:
            raise error
        return answer()

    reply = run(client.call(invoke, 5_000, leader_wait_ms=LEADER_WAIT_MS))
    assert reply.status.code == ErrorCode.NONE


class Probed(ControllerClient):
    """A client with fake controllers. rounds: their descriptions of the quorum, round by round."""

    def __init__(self, *rounds):
        super().__init__({1: "one:1", 2: "two:2", 3: "three:3"})
        self.rounds = list(rounds)
        self.asked = 0
        self.was_asked = asyncio.Event()

    async def _probe_all(self):
        self.asked += 1
        self.was_asked.set()
        return self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]


def described(node_id, leader_id=-1, *, epoch=7, leaderless_ms=0):
    return pb.DescribeQuorumReply(
        node_id=node_id,
        leader_id=leader_id,
        leader_epoch=epoch,
        leaderless_ms=leaderless_ms,
        voters=[pb.QuorumReplica(node_id=i) for i in (1, 2, 3)],
    )


OUTAGE = [described(3, leaderless_ms=60_000)]
ELECTION = [described(2, leaderless_ms=40), described(3, leaderless_ms=30)]


def test_an_outage_is_told_at_once_with_the_sentence():
    client = Probed(OUTAGE)

    async def invoke(_, target, timeout):
        return answer(ErrorCode.NOT_CONTROLLER)

    refused = run(client.call(invoke, 60_000, leader_wait_ms=60_000))
    assert refused == Rejected(
        ErrorCode.REQUEST_TIMED_OUT,
        "no quorum: 1 of 3 voters reachable (3), missing 1 at one:1, 2 at two:2; epoch 7; need 2",
    )
    assert client.asked == 1


def test_an_election_is_ridden_out():
    client = Probed(ELECTION, ELECTION, [described(2, 2, epoch=8), described(3, 2, epoch=8)])
    client.note_active(1)
    asked = []

    async def invoke(_, target, timeout):
        asked.append(target)
        return answer(ErrorCode.NOT_CONTROLLER if target == 1 else ErrorCode.NONE)

    assert run(client.call(invoke, 60_000, leader_wait_ms=60_000)).status.code == ErrorCode.NONE
    assert asked == [1, 2]


def test_a_call_that_hangs_is_given_up_when_nobody_leads_any_more():
    client = Probed(ELECTION)
    client.note_active(1)

    async def invoke(_, target, timeout):
        await asyncio.Event().wait()

    refused = run(client.call(invoke, 60_000, leader_wait_ms=10))
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT
    assert refused.message.startswith("no leader: 2 of 3 voters reachable (2, 3), missing 1 at")


def test_a_slow_leader_is_waited_for_on_its_followers_word():
    client = Probed([described(2, 1), described(3, 1)])
    client.note_active(1)
    go = []

    async def invoke(_, target, timeout):
        await client.was_asked.wait()
        go.append(target)
        return answer()

    assert run(client.call(invoke, 60_000, leader_wait_ms=0)).status.code == ErrorCode.NONE
    assert go == [1]


def test_a_call_without_patience_of_its_own_is_not_cut_short():
    client = Probed(OUTAGE)
    asked = []

    async def invoke(_, target, timeout):
        asked.append(target)
        return answer(ErrorCode.NONE if len(asked) > 30 else ErrorCode.NOT_CONTROLLER)

    assert run(client.call(invoke, 60_000)).status.code == ErrorCode.NONE
    assert client.asked == 0


def test_the_description_is_the_leaders_own_or_what_is_wrong():
    leader = described(2, 2)
    assert run(Probed([described(3, 2)], [leader, described(3, 2)]).describe(60_000)) == leader
    refused = run(Probed(OUTAGE).describe(LEADER_WAIT_MS))
    assert refused.message.endswith("; epoch 7; need 2")


def test_controllers_that_refuse_the_connection_are_all_missing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

    async def ask():
        client = ControllerClient({1: address})
        try:
            return await client.describe(0)
        finally:
            await client.close()

    message = f"no quorum: 0 of 1 voters reachable, missing 1 at {address}; epoch unknown; need 1"
    assert run(ask()) == Rejected(ErrorCode.REQUEST_TIMED_OUT, message)


def test_late_word_of_a_bootstrap_server_is_not_followed():
    # Bad sequence: 1. A bootstrap server is asked under its stand-in id, -2. 2. The voter set
    # replaces the stand-ins. 3. The answer comes, but no channel to -2 exists any more.
    client = ControllerClient({-2: "127.0.0.1:1", -3: "127.0.0.1:2"})
    client.note_active(-2)
    client.update_addresses({1: "127.0.0.1:1", 2: "127.0.0.1:2"})
    client.note_active(-2)
    assert client.next_target() in (1, 2)
    client.note_active(2)
    assert client.next_target() == 2
