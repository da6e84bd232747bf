"""Each call to the active controller survives its encoding in protobuf, and is served."""

import asyncio
import dataclasses
import enum
import types
import typing
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.metadata.requests.controller_requests import (
    CreateTopics,
    FeatureUpdate,
    Heartbeat,
    HeartbeatReply,
    UpdateFeatures,
)
from kvorum.metadata.rpc.calls import (
    ADMIN_CALLS,
    ALTER_PARTITION,
    ASSIGN_REPLICAS,
    CONTROLLER_CALLS,
    CREATE_TOPICS,
    HEARTBEAT_REPLY,
    HEARTBEAT_REQUEST,
    UPDATE_FEATURES,
)
from kvorum.metadata.rpc.service import AdminServicer, ControllerServicer
from kvorum.rpc import admin_pb2, controller_pb2
from kvorum.runtime.errors import ErrorCode, Rejected, WireError
from kvorum.runtime.ids import Uuid

CALLS = [*ADMIN_CALLS, *CONTROLLER_CALLS]
OF_A_NODE_ITSELF = {
    "DescribeQuorum",
    "ReadMetadataLog",
    "ReadElectionTimeline",
    "ReadFlightRecord",
    "DescribeLoggers",
    "AlterLoggers",
}
STREAMS = {"Heartbeat"}

texts = st.text(st.characters(codec="utf-8"), max_size=8)


def values_of(hint, name=""):
    """Any value of a type that a request or a reply has."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint == Uuid:
        return st.binary(min_size=16, max_size=16)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(values_of(one, name) for one in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0], name), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(one, name) for one in arguments))
    if hint is int:
        return st.integers(0 if name == "port" else -(1 << 31), (1 << 31) - 1)
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return st.sampled_from(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    names = (
        [f.name for f in dataclasses.fields(hint)]
        if dataclasses.is_dataclass(hint)
        else hint._fields
    )
    hints = typing.get_type_hints(hint, include_extras=True)
    return st.builds(hint, **{each: values_of(hints[each], each) for each in names})


SCALARS = {
    str: texts,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=20),
    types.NoneType: st.none(),
}


def sent(message):
    """The message as the other end reads it."""
    return type(message).FromString(message.SerializeToString())


def in_any_order(request):
    replicas = tuple(sorted(set(request.replicas), key=repr))
    return dataclasses.replace(request, replicas=replicas)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_requests_and_replies_survive(call):
    @settings(max_examples=30)
    @given(values_of(call.request), values_of(call.reply))
    def check(request, reply):
        again = call.decode_request(sent(call.encode_request(request)))
        if call is ASSIGN_REPLICAS:
            # They are grouped by directory and topic on the way.
            request, again = in_any_order(request), in_any_order(again)
        assert again == request
        assert call.decode_reply(sent(call.encode_reply(reply, 3, 17))) == reply

    check()


@given(values_of(Heartbeat), values_of(HeartbeatReply))
def test_heartbeats_survive(heartbeat, reply):
    assert HEARTBEAT_REQUEST.decode(sent(HEARTBEAT_REQUEST.encode(heartbeat))) == heartbeat
    assert HEARTBEAT_REPLY.decode(sent(HEARTBEAT_REPLY.encode(reply))) == reply


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_refusal_survives_in_place_of_any_reply(call):
    refused = Rejected(ErrorCode.NOT_CONTROLLER, "node 2 does not lead")
    message = sent(call.encode_reply(refused, 3, 17))
    assert message.leader_id == 3
    assert call.decode_reply(message) == refused


def test_a_reply_to_a_change_tells_where_the_log_holds_it():
    assert CREATE_TOPICS.encode_reply((), 3, 17).end_offset == 17
    assert not hasattr(ALTER_PARTITION.encode_reply((), 3, 17), "end_offset")


def test_a_number_that_an_enum_does_not_have_is_a_broken_protocol():
    updates = (FeatureUpdate(name="f", max_level=1),)
    message = UPDATE_FEATURES.encode_request(UpdateFeatures(updates=updates))
    message.updates[0].kind = 9
    with pytest.raises(WireError, match="9 is no UpdateKind"):
        UPDATE_FEATURES.decode_request(message)


@pytest.mark.parametrize(
    ("module", "service", "calls", "others"),
    [
        (admin_pb2, "Admin", ADMIN_CALLS, OF_A_NODE_ITSELF),
        (controller_pb2, "Controller", CONTROLLER_CALLS, STREAMS),
    ],
)
def test_every_method_of_a_service_is_in_the_table(module, service, calls, others):
    methods = {method.name for method in module.DESCRIPTOR.services_by_name[service].methods}
    assert methods == {call.name for call in calls} | others


def test_a_service_decides_what_was_asked_and_tells_the_leader():
    asked = []

    class Loop:
        leader_id = 2
        controller = SimpleNamespace(committed=SimpleNamespace(end_offset=41))

        async def submit(self, request, timeout_ms):
            asked.append(request)
            return ()

    request = CreateTopics(topics=())
    servicer = AdminServicer(Loop(), cluster_id="c", nodes={})
    message = asyncio.run(servicer.CreateTopics(CREATE_TOPICS.encode_request(request), None))
    assert asked == [request]
    assert (message.leader_id, message.end_offset, message.status.code) == (2, 41, 0)
    assert {call.name for call in CONTROLLER_CALLS} <= vars(ControllerServicer(Loop())).keys()
