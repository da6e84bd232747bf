"""Any message that a peer can send, to a node in any role: the core refuses or obeys, and its
effects can be carried out. An exception would end the node."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.raft.model import messages as m
from kvorum.raft.model.effects import Reply, SendRequest
from kvorum.raft.model.events import RequestReceived, ResponseReceived
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node import codec
from kvorum.runtime.errors import ErrorCode, NodeRefused, WireError
from tests.test_raft.any_messages import REQUESTS, RESPONSES, messages_of, over_the_wire
from tests.test_raft.driver import CLUSTER, Driven

SMALL_POSITIONS = st.builds(OffsetAndEpoch, st.integers(0, 6), st.integers(0, 4))
SMALL = {
    "epoch": st.integers(-1, 4),
    "leader_id": st.integers(-2, 4),
    "candidate_id": st.integers(-1, 4),
    "voter_id": st.integers(0, 4),
    "replica_id": st.integers(-1, 5),
    "fetch_offset": st.integers(-1, 9),
    "end_offset": st.integers(-1, 9),
    "high_watermark": st.integers(-1, 9),
    "last_epoch": st.integers(-1, 4),
    "last_fetched_epoch": st.integers(-1, 4),
    "cluster_id": st.just(CLUSTER),
    "error": st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND]),
    "diverging": st.none() | SMALL_POSITIONS,
    "snapshot": st.none() | SMALL_POSITIONS,
}
"""Values near those that the nodes here have: random ones are refused at the first look."""


def near(kind: Any) -> Any:
    """Messages of a kind whose fields are mostly near the node's own."""
    names = set(SMALL) & set(kind.__dataclass_fields__)
    if kind is m.FetchSnapshotRequest:
        names.remove("snapshot")  # it must have one
    changes = st.fixed_dictionaries({name: SMALL[name] for name in names})
    return st.builds(
        lambda message, changed: dataclasses.replace(message, **changed), messages_of(kind), changes
    )


EVENTS = st.lists(
    st.one_of(*(st.one_of(messages_of(kind), near(kind)) for kind in (*REQUESTS, *RESPONSES))),
    min_size=1,
    max_size=6,
)


def node_of(role: str, *, is_dynamic: bool) -> Driven:
    node = Driven(epochs=[1, 1, 2], is_dynamic=is_dynamic)
    if role == "leader":
        node.become_leader()
    elif role == "follower":
        node.follow(leader=2, epoch=3)
        node.fetched(hw=3)
    elif role == "candidate":
        node.wait(node.config.election_timeout_ms * 3)
    node.take()
    return node


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("role", ["leader", "follower", "candidate", "unattached"])
@given(events=EVENTS, from_id=st.integers(-1, 4), wait_ms=st.integers(0, 5_000))
@settings(max_examples=150, deadline=None)
def test_no_message_ends_a_node(
    role: str, is_dynamic: bool, events: list[Any], from_id: int, wait_ms: int
) -> None:
    node = node_of(role, is_dynamic=is_dynamic)
    for message in events:
        try:
            received = over_the_wire(message)
        except WireError:
            continue  # the transport refuses it
        event: Any
        if isinstance(received, REQUESTS):
            event = RequestReceived(received, 7)
        else:
            in_flight = getattr(node.core.role, "correlation_id", -1)
            event = ResponseReceived(from_id, in_flight, received)
        # Another process that leads under this node's id is the one thing that ends it, in words.
        with contextlib.suppress(NodeRefused):
            for effect in node.step(event):
                if isinstance(effect, SendRequest):
                    codec.encode_request(effect.request)
                elif isinstance(effect, Reply):
                    codec.encode_response(effect.response)
    node.wait(wait_ms)
    assert isinstance(node.core.summary(), str)
    assert node.core.epoch <= codec.EPOCH_MAX + 2
