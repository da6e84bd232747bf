"""Records of Streams groups: read as they were written, and as Kafka's own reader prints them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.groups.streams import records
from kvorum.broker.groups.streams.description import (
    DescribedSubtopology,
    GlobalStore,
    Node,
    TopologyDescription,
    encode_description,
)
from kvorum.broker.groups.streams.member import Endpoint, StreamsMember
from kvorum.broker.groups.streams.records import (
    CurrentAssignment,
    StreamsEpoch,
    StreamsKey,
    TargetEpoch,
    decode_key,
    decode_value,
    encode_key,
)
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import AssignedTasks, Tasks
from kvorum.broker.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from kvorum.runtime.errors import CorruptData
from tests.test_groups.streams.world import tasks

MEMBER = StreamsMember(
    member_id="m",
    instance_id="one",
    rack_id="rack",
    client_id="client",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=60_000,
    topology_epoch=2,
    process_id="process",
    user_endpoint=Endpoint("host", 65_535),
    client_tags=(("zone", "1"),),
)
ASSIGNED = StreamsMember(
    member_id="m",
    member_epoch=7,
    previous_member_epoch=6,
    state=StreamsMemberState.UNREVOKED_TASKS,
    assigned=AssignedTasks(active={("0", 1): 5, ("0", 2): 7}, standby=tasks("1", 0)),
    pending_revocation=AssignedTasks(active={("0", 3): 4}, warmup=tasks("1", 9)),
)
TOPOLOGY = Topology(
    epoch=2,
    subtopologies=(
        Subtopology(
            subtopology_id="0",
            source_topics=("in",),
            state_changelog_topics=(InternalTopic("log", 0, 3, (("cleanup.policy", "compact"),)),),
            repartition_sink_topics=("r",),
            repartition_source_topics=(InternalTopic("s", 4),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
        Subtopology(subtopology_id="1", source_topics=("r",)),
    ),
)
NODE = Node("n", 1, ("in",), None, (), ("m",))
DESCRIPTION = TopologyDescription(
    subtopologies=(DescribedSubtopology("0", (NODE,)),),
    global_stores=(GlobalStore(NODE, NODE._replace(node_type=2, stores=("s",))),),
)


def value_of(record_type: int, data: bytes, member_id: str = "m"):
    return decode_value(StreamsKey(record_type, "group", member_id), data)


@pytest.mark.parametrize(
    ("record_type", "data", "value"),
    [
        (records.GROUP_EPOCH, records.encode_epoch(StreamsEpoch(3)), StreamsEpoch(3)),
        (
            records.GROUP_EPOCH,
            records.encode_epoch(StreamsEpoch(3, -9, 2, (("a", "b"),), 1, 0)),
            StreamsEpoch(3, -9, 2, (("a", "b"),), 1, 0),
        ),
        (records.MEMBER_METADATA, records.encode_member(MEMBER), MEMBER),
        (
            records.TARGET_EPOCH,
            records.encode_target_epoch(TargetEpoch(4, 1_700_000_000_000)),
            TargetEpoch(4, 1_700_000_000_000),
        ),
        (
            records.MEMBER_TARGET,
            records.encode_target(Tasks(tasks("0", 1, 2), tasks("1", 0))),
            Tasks(tasks("0", 1, 2), tasks("1", 0)),
        ),
        (
            records.CURRENT_ASSIGNMENT,
            records.encode_current_assignment(ASSIGNED),
            CurrentAssignment(
                7,
                6,
                StreamsMemberState.UNREVOKED_TASKS,
                ASSIGNED.assigned,
                ASSIGNED.pending_revocation,
            ),
        ),
        (records.TOPOLOGY, records.encode_topology_value(TOPOLOGY), TOPOLOGY),
        (records.TOPOLOGY_DESCRIPTION, encode_description(DESCRIPTION), DESCRIPTION),
    ],
)
def test_a_value_is_read_as_it_was_written(record_type, data, value):
    assert value_of(record_type, data) == value


def test_the_bytes_are_those_of_kafkas_schema():
    assert records.encode_epoch(StreamsEpoch(3, 5, 2, (("a", "b"),))).hex() == (
        "0000" "00000003" "0000000000000005"
        "02" "00" "04" "00000002" "01" "06" "02" "0261" "0262" "00"
    )  # fmt: skip
    assert records.encode_current_assignment(
        StreamsMember(member_id="m", member_epoch=2, assigned=AssignedTasks(active={("0", 1): 2}))
    ).hex() == (
        "0000" "00000002" "00000000" "01"
        "02" "0230" "02" "00000001" "01" "00" "05" "02" "00000002"
        "01" "01" "01" "01" "01" "00"
    )  # fmt: skip


@pytest.mark.parametrize("record_type", [17, 20, 23, 1_000])
def test_a_key_of_a_group_has_no_member(record_type):
    key = StreamsKey(record_type, "group")
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize("record_type", [19, 21, 22])
def test_a_key_of_a_member_has_its_id(record_type):
    key = StreamsKey(record_type, "group", "m")
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize("record_type", [3, 10, 24, 999])
def test_a_key_of_another_type_is_not_of_streams_groups(record_type):
    assert decode_key(record_type.to_bytes(2, "big") + b"\x00\x01g") is None


def test_tasks_without_epochs_have_the_members():
    data = (
        b"\x00\x00" + (9).to_bytes(4, "big") + (8).to_bytes(4, "big") + b"\x01"
        b"\x02\x020\x02\x00\x00\x00\x01\x00" + b"\x01" * 5 + b"\x00"
    )  # fmt: skip
    assert value_of(records.CURRENT_ASSIGNMENT, data).assigned.active == {("0", 1): 9}


def test_a_state_of_a_later_version_is_unknown():
    data = bytearray(records.encode_current_assignment(ASSIGNED))
    data[10] = 9
    found = value_of(records.CURRENT_ASSIGNMENT, bytes(data))
    assert found.state == StreamsMemberState.UNKNOWN


@given(st.sampled_from((17, 19, 20, 21, 22, 23, 1_000)), st.binary(max_size=80))
def test_damaged_values_are_corrupt_data_and_nothing_else(record_type, data):
    with contextlib.suppress(CorruptData):
        value_of(record_type, b"\x00\x00" + data)
