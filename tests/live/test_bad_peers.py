"""A peer that speaks garbage, or for another cluster, epoch or range, gets its own error and
harms nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvorum.rpc import raft_pb2 as pb
from kvorum.rpc import raft_pb2_grpc as pb_grpc
from kvorum.runtime.errors import ErrorCode
from tests.live.by_hand import HandMade
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

TIMEOUT_S = 10.0
GARBAGE = b"\xff" * 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    made = HandMade(tmp_path_factory.mktemp("peers"), controllers=1, brokers=0, is_static=True)
    made.start("controller-1")
    eventually(lambda: made.try_quorum("status").returncode == 0, "it leads")
    yield made
    made.close()


@pytest.fixture
def channel(cluster: HandMade) -> Iterator[grpc.Channel]:
    """A channel to the controller. Afterwards the controller must still lead in the same epoch,
    with an unchanged log.
    """
    before = cluster.quorum("status")
    with grpc.insecure_channel(
        cluster.address("controller-1"), options=[("grpc.enable_http_proxy", 0)]
    ) as channel:
        yield channel
    after = cluster.quorum("status")
    assert (after["leader_id"], after["leader_epoch"]) == (1, before["leader_epoch"])
    assert after["high_watermark"] == before["high_watermark"]


def cluster_id(cluster: HandMade) -> str:
    return str(cluster.properties("controller-1")["cluster.id"])


@pytest.mark.parametrize(
    "method",
    [
        "Raft/Vote",
        "Raft/BeginQuorumEpoch",
        "Raft/FetchSnapshot",
        "Raft/AddVoter",
        "Controller/RegisterBroker",
        "Admin/CreateTopics",
    ],
)
def test_garbage_in_place_of_a_message_is_refused(
    cluster: HandMade, channel: grpc.Channel, method: str
) -> None:
    call = channel.unary_unary(f"/kvorum.rpc.{method}")
    with pytest.raises(grpc.RpcError) as refused:
        call(GARBAGE, timeout=TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"kvorum.rpc.{method}" in str(refused.value.details())
    assert "Traceback" not in cluster.running["controller-1"].errors()


@pytest.mark.parametrize("method", ["Raft/Fetch", "Controller/Heartbeat"])
def test_garbage_on_a_stream_is_refused(
    cluster: HandMade, channel: grpc.Channel, method: str
) -> None:
    call = channel.stream_stream(f"/kvorum.rpc.{method}")
    with pytest.raises(grpc.RpcError) as refused:
        list(call(iter([GARBAGE]), timeout=TIMEOUT_S))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in cluster.running["controller-1"].errors()


def test_unknown_message_is_refused_by_name(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/kvorum.rpc.Raft/Abdicate")(b"", timeout=TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_http2_close_that_connection_only(
    cluster: HandMade, channel: grpc.Channel
) -> None:
    host, port = cluster.address("controller-1").split(":")
    for data in (os.urandom(4_096), b"GET / HTTP/1.0\r\n\r\n", b"\x00" * 100):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as stranger:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4_096):
                pass


class Babbler(grpc.GenericRpcHandler):
    """A voter that answers every message with garbage. `heard`: the methods of the requests that it
    got."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = str(details.method).rpartition("/")[2]
        self.heard.append(method)
        if method == "Fetch":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, _: (GARBAGE for _ in requests)
            )
        return grpc.unary_unary_rpc_method_handler(lambda *_: GARBAGE)


@pytest.fixture
def babbler(cluster_of_two: HandMade) -> Iterator[Babbler]:
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    handler = Babbler()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(cluster_of_two.address("controller-2"))
    server.start()
    yield handler
    server.stop(grace=None).wait()


@pytest.fixture
def cluster_of_two(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=2, brokers=0, is_static=True)
    yield made
    made.close()


def test_a_voter_and_a_leader_that_babble_are_as_good_as_gone(
    cluster_of_two: HandMade, babbler: Babbler
) -> None:
    cluster_of_two.start("controller-1")
    eventually(lambda: babbler.heard.count("Vote") >= 2, "it has asked for a vote twice")
    begin = pb.BeginQuorumEpochRequest(
        cluster_id=cluster_id(cluster_of_two), epoch=500, leader_id=2, voter_id=1
    )
    with grpc.insecure_channel(
        cluster_of_two.address("controller-1"), options=[("grpc.enable_http_proxy", 0)]
    ) as channel:
        stub = pb_grpc.RaftStub(channel)
        assert stub.BeginQuorumEpoch(begin, timeout=TIMEOUT_S).error == ErrorCode.NONE
        eventually(lambda: "Fetch" in babbler.heard, "it has asked its leader for records")
        asked = babbler.heard.count("Vote")
        eventually(lambda: babbler.heard.count("Vote") > asked, "it stands again")
    status = cluster_of_two.try_quorum("status")
    assert "no quorum: 1 of 2 voters reachable" in status.stderr


def vote(cluster: HandMade, **changes: Any) -> pb.VoteRequest:
    fields = {
        "cluster_id": cluster_id(cluster),
        "epoch": 1,
        "candidate_id": 2,
        "voter_id": 1,
        "last_epoch": 0,
        "end_offset": 0,
        **changes,
    }
    return pb.VoteRequest(**fields)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": 9}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_directory_id": bytes(range(16))}, ErrorCode.INVALID_VOTER_KEY),
        ({"epoch": 0, "is_pre_vote": True}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"end_offset": -5}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 7}, ErrorCode.INVALID_REQUEST),
    ],
    ids=["cluster", "voter", "directory", "epoch", "offset", "last-epoch"],
)
def test_each_wrong_vote_request_has_its_own_error(
    cluster: HandMade, channel: grpc.Channel, changes: dict[str, Any], error: ErrorCode
) -> None:
    reply = pb_grpc.RaftStub(channel).Vote(vote(cluster, **changes), timeout=TIMEOUT_S)
    assert (ErrorCode(reply.error), reply.is_granted) == (error, False)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (lambda epoch: {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, 104),
        (lambda epoch: {"epoch": epoch - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        (lambda epoch: {"epoch": epoch + 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (lambda epoch: {"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        (lambda epoch: {"last_fetched_epoch": epoch + 1}, ErrorCode.INVALID_REQUEST),
    ],
    ids=["cluster", "old-epoch", "new-epoch", "offset", "last-epoch"],
)
def test_each_wrong_fetch_has_its_own_error(
    cluster: HandMade,
    channel: grpc.Channel,
    changes: Callable[[int], dict[str, Any]],
    error: int,
) -> None:
    epoch = cluster.quorum("status")["leader_epoch"]
    fields = {"cluster_id": cluster_id(cluster), "epoch": epoch, "replica_id": 101}
    request = pb.FetchRequest(**(fields | changes(epoch)))
    (reply,) = pb_grpc.RaftStub(channel).Fetch(iter([request]), timeout=TIMEOUT_S)
    assert reply.error == error
    assert reply.records == b""


def test_fetch_beyond_the_end_is_told_where_the_log_ends(
    cluster: HandMade, channel: grpc.Channel
) -> None:
    status = cluster.quorum("status")
    request = pb.FetchRequest(
        cluster_id=cluster_id(cluster),
        epoch=status["leader_epoch"],
        replica_id=101,
        fetch_offset=status["high_watermark"] + 1_000,
        last_fetched_epoch=status["leader_epoch"],
    )
    (reply,) = pb_grpc.RaftStub(channel).Fetch(iter([request]), timeout=TIMEOUT_S)
    assert reply.HasField("diverging")
    assert reply.diverging.offset == status["high_watermark"]


def test_snapshot_that_is_not_there_is_refused(cluster: HandMade, channel: grpc.Channel) -> None:
    request = pb.FetchSnapshotRequest(
        cluster_id=cluster_id(cluster),
        epoch=cluster.quorum("status")["leader_epoch"],
        replica_id=101,
        position=0,
        bytes_max=1_000,
    )
    reply = pb_grpc.RaftStub(channel).FetchSnapshot(request, timeout=TIMEOUT_S)
    assert ErrorCode(reply.error) is ErrorCode.SNAPSHOT_NOT_FOUND


def test_static_voters_cannot_be_changed(cluster: HandMade, channel: grpc.Channel) -> None:
    request = pb.AddVoterRequest(cluster_id=cluster_id(cluster), voter=pb.Voter(node_id=2))
    reply = pb_grpc.RaftStub(channel).AddVoter(request, timeout=TIMEOUT_S)
    assert ErrorCode(reply.error) is ErrorCode.UNSUPPORTED_VERSION
    assert "the voter set is static" in reply.message
