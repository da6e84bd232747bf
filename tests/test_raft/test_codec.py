"""Every message of the quorum, to protobuf and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.raft.model import messages as m
from kvorum.raft.node import codec
from kvorum.rpc import raft_pb2 as pb
from kvorum.runtime.errors import WireError
from kvorum.runtime.ids import UUID_ZERO
from tests.test_raft.any_messages import REQUESTS, RESPONSES, messages_of, over_the_wire


@given(st.one_of(*map(messages_of, [*REQUESTS, *RESPONSES])))
def test_there_and_back(message):
    assert over_the_wire(message) == message


def test_an_epoch_that_leaves_no_room_for_elections_is_refused():
    response = m.VoteResponse(epoch=codec.EPOCH_MAX + 1)
    with pytest.raises(WireError, match="epoch 2146435072 is over"):
        over_the_wire(response)


def test_a_fetch_carries_its_correlation_id_both_ways():
    request = m.FetchRequest(
        cluster_id="c",
        epoch=1,
        replica_id=2,
        fetch_offset=0,
        last_fetched_epoch=0,
        high_watermark=-1,
    )
    assert codec.encode_request(request, 7).correlation_id == 7
    assert codec.encode_response(m.FetchResponse(epoch=1), 7).correlation_id == 7


@pytest.mark.parametrize(
    "response", [m.VoteResponse(epoch=1), m.FetchResponse(epoch=1), m.QuorumEpochResponse(epoch=1)]
)
def test_a_response_carries_the_leaders_address_if_it_is_known(response):
    assert codec.decode_address(codec.encode_response(response)) is None
    assert codec.decode_address(codec.encode_response(response, 0, ("h", 1))) == ("h", 1)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_directory_id_of_another_length_is_no_directory_id(length):
    message = pb.RemoveVoterRequest(cluster_id="c", node_id=1, directory_id=b"x" * length)
    assert codec.decode(message).directory_id == UUID_ZERO


# Found in review.


def test_a_response_that_names_a_voter_twice_is_a_broken_protocol():
    message = pb.VoterChangeResponse(voters=[pb.Voter(node_id=1)] * 2)
    with pytest.raises(WireError):
        codec.decode(message)
