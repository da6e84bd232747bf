"""Requests and answers packed by hand, checked with kio's schemas; and texts of /proc."""

from __future__ import annotations

import io
import struct

import pytest
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest
from kio.schema.list_offsets.v1.request import ListOffsetsRequest
from kio.schema.metadata.v4.request import MetadataRequest
from kio.serial import entity_reader

from bench.observe import (
    PartitionView,
    describe_quorum_request,
    list_offsets_request,
    metadata_request,
    read_list_offsets,
    read_metadata,
    read_quorum_leader,
)
from bench.processes import cpu_ticks, resident_bytes
from kvorum.runtime.errors import WireError


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value)) + value.encode()


def _ints(*values: int) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


def _metadata_answer(error: int = 0) -> bytes:
    broker = struct.pack(">i", 101) + _text("127.0.0.1") + struct.pack(">i", 9092) + _text(None)
    partition = struct.pack(">hii", 0, 0, 101) + _ints(101, 102, 103) + _ints(101, 102)
    other = struct.pack(">hii", 5, 1, -1) + _ints(102) + _ints()
    topic = struct.pack(">h", error) + _text("t") + b"\x00" + struct.pack(">i", 2)
    return (
        struct.pack(">ii", 0, 1)
        + broker
        + _text("cluster")
        + struct.pack(">ii", 101, 1)
        + topic
        + partition
        + other
    )


def test_metadata_request_reads_back_by_schema() -> None:
    request, size = entity_reader(MetadataRequest)(metadata_request(["a", "bc"]), 0)
    assert [topic.name for topic in request.topics] == ["a", "bc"]
    assert request.allow_auto_topic_creation is False
    assert size == len(metadata_request(["a", "bc"]))


def test_list_offsets_request_reads_back_by_schema() -> None:
    body = list_offsets_request({"a": [0, 2]})
    request, size = entity_reader(ListOffsetsRequest)(body, 0)
    assert size == len(body)
    assert [p.partition_index for p in request.topics[0].partitions] == [0, 2]
    assert request.replica_id == -1


def test_describe_quorum_request_reads_back_by_schema() -> None:
    body = describe_quorum_request()
    request, size = entity_reader(DescribeQuorumRequest)(body, 0)
    assert size == len(body)
    assert request.topics[0].topic_name == "__cluster_metadata"
    assert request.topics[0].partitions[0].partition_index == 0


def test_metadata_answer_gives_leaders_and_replicas() -> None:
    assert read_metadata(_metadata_answer()) == {
        "t": {
            0: PartitionView(leader=101, replicas=(101, 102, 103), isr=(101, 102)),
            1: PartitionView(leader=-1, replicas=(102,), isr=()),
        }
    }


def test_a_topic_with_an_error_is_left_out() -> None:
    assert read_metadata(_metadata_answer(error=3)) == {}


def test_a_torn_answer_is_a_wire_error_wherever_it_is_torn() -> None:
    whole = _metadata_answer()
    for size in range(len(whole)):
        with pytest.raises(WireError):
            read_metadata(whole[:size])


def test_only_partitions_without_error_are_served() -> None:
    partitions = struct.pack(">ihqq", 0, 0, -1, 7) + struct.pack(">ihqq", 1, 6, -1, -1)
    answer = struct.pack(">i", 1) + _text("t") + struct.pack(">i", 2) + partitions
    assert read_list_offsets(answer) == [("t", 0)]


def _quorum_answer(error: int, partition_error: int) -> bytes:
    out = io.BytesIO()
    out.write(b"\x00" + struct.pack(">h", error) + b"\x02")
    out.write(bytes([len("__cluster_metadata") + 1]) + b"__cluster_metadata" + b"\x02")
    out.write(struct.pack(">ihi", 0, partition_error, 3))
    return out.getvalue()


def test_quorum_answer_gives_the_leader() -> None:
    assert read_quorum_leader(_quorum_answer(0, 0)) == 3


def test_quorum_answers_with_an_error_name_no_leader() -> None:
    assert read_quorum_leader(_quorum_answer(41, 0)) == -1
    assert read_quorum_leader(_quorum_answer(0, 41)) == -1


def test_resident_memory_is_read_in_bytes() -> None:
    assert resident_bytes("Name:\tx\nVmHWM:\t  99 kB\nVmRSS:\t    2048 kB\n") == 2048 * 1024


def test_an_ended_process_has_no_resident_memory() -> None:
    with pytest.raises(ValueError, match="ended"):
        resident_bytes("Name:\tx\nState:\tZ (zombie)\n")


def test_cpu_is_user_plus_system_whatever_the_name_holds() -> None:
    fields = ["S", *("0" for _ in range(10)), "12", "30", "0", "0"]
    assert cpu_ticks("7 (a) b) " + " ".join(fields)) == 42
