"""The hand-written Produce and Fetch codecs give the same bytes as kio, in every version."""

from __future__ import annotations

import datetime
import io
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from kvorum.runtime.errors import WireError
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.wire.fetch_codec import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    pack_fetch_response,
    parse_fetch_request,
)
from kvorum.wire.kio_codec import encode_request, encode_response, message_class
from kvorum.wire.produce_codec import (
    NodeEndpoint,
    ProducedPartition,
    ProducedTopic,
    pack_produce_response,
    parse_produce_request,
)
from kvorum.wire.replica_fetch_codec import pack_replica_fetch, parse_replica_answer

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
TOPIC_ID = bytes(range(16))
NODE = {"node_id": 2, "host": "h2", "port": 9092, "rack": "r"}
ENDPOINT = NodeEndpoint(2, "h2", 9092, "r")

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(min_size=0, max_size=200)


class Slice:
    """Stored batches that live in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)

    def read(self) -> bytes:
        return self.data


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.read() if isinstance(part, Slice) else bytes(part) for part in parts)


def kio_read(name: str, version: int, kind: str, body: bytes) -> Any:
    """Read with kio, and check that kio's own writer gives the same bytes back."""
    entity, size = entity_reader(message_class(name, version, kind))(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    entity_writer(message_class(name, version, kind))(out, entity)
    assert out.getvalue() == body
    return entity


def topic_key(version: int, first_id_version: int, name: str = "topic") -> dict[str, Any]:
    return {"topic_id": TOPIC_ID} if version >= first_id_version else {name: "a-topic"}


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=25, deadline=None)
@given(
    acks=st.integers(-1, 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    transactional_id=st.none() | names,
    records=st.lists(st.none() | st.binary(max_size=300), max_size=4),
)
def test_produce_requests_parse_as_kio_wrote_them(
    version: int,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    records: list[bytes | None],
) -> None:
    body = encode_request(
        "produce",
        version,
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": timeout_ms,
            "topic_data": [
                {
                    "name": "a-topic",
                    "topic_id": TOPIC_ID,
                    "partition_data": [
                        {"index": index, "records": data} for index, data in enumerate(records)
                    ],
                }
            ],
        },
    )
    kio_read("produce", version, "request", bytes(body))
    framed = b"before" + bytes(body)
    request = parse_produce_request(memoryview(framed), 6, len(framed), version)
    assert (request.acks, request.timeout_ms) == (acks, timeout_ms)
    assert request.transactional_id == transactional_id
    (topic,) = request.topics
    assert topic.name == ("" if version >= 13 else "a-topic")
    assert topic.topic_id == (TOPIC_ID if version >= 13 else bytes(16))
    found = [
        None if length < 0 else framed[position : position + length]
        for _, position, length in topic.partitions
    ]
    assert found == records


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=25, deadline=None)
@given(
    base_offset=int64s,
    log_append_time_ms=st.integers(0, 4_000_000_000_000) | st.just(-1),
    log_start_offset=int64s,
    message=st.none() | st.text(max_size=50),
    has_leader=st.booleans(),
)
def test_produce_answers_are_the_bytes_kio_writes(
    version: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    message: str | None,
    has_leader: bool,
) -> None:
    partition = ProducedPartition(
        7, 6, base_offset, log_append_time_ms, log_start_offset, message,
        (2, 5) if has_leader else None,
    )  # fmt: skip
    topic = ProducedTopic("a-topic", TOPIC_ID, [partition, ProducedPartition(8)])
    ours = pack_produce_response(version, [topic], (ENDPOINT,) if has_leader else ())

    def row(p: ProducedPartition) -> dict[str, Any]:
        values: dict[str, Any] = {
            "index": p.partition_id,
            "error_code": p.error,
            "base_offset": p.base_offset,
            "log_append_time": p.log_append_time_ms,
            "log_start_offset": p.log_start_offset,
            "record_errors": (),
            "error_message": p.error_message,
        }
        if p.current_leader:
            values["current_leader"] = {"leader_id": 2, "leader_epoch": 5}
        return values

    theirs = encode_response(
        "produce",
        version,
        {
            "responses": [
                {
                    "name": "a-topic",
                    "topic_id": TOPIC_ID,
                    "partition_responses": [row(p) for p in topic.partitions],
                }
            ],
            "node_endpoints": [NODE] if has_leader else (),
        },
    )
    assert ours == theirs
    kio_read("produce", version, "response", bytes(ours))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=25, deadline=None)
@given(
    replica_id=st.integers(-1, 1000),
    waits=st.tuples(st.integers(0, 60_000), int32s, int32s),
    session=st.tuples(int32s, int32s),
    asked=st.lists(st.tuples(int32s, int64s, int32s, int64s, int32s), max_size=4),
    rack=st.text(max_size=20),
)
def test_fetch_requests_parse_as_kio_wrote_them(
    version: int,
    replica_id: int,
    waits: tuple[int, int, int],
    session: tuple[int, int],
    asked: list[tuple[int, int, int, int, int]],
    rack: str,
) -> None:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": start,
            "partition_max_bytes": 4096,
        }
        for index, (epoch, offset, last_epoch, start, _) in enumerate(asked)
    ]
    values: dict[str, Any] = {
        "replica_id": replica_id,
        "max_wait": waits[0],
        "min_bytes": waits[1],
        "max_bytes": waits[2],
        "isolation_level": 1,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{**topic_key(version, 13), "partitions": partitions}],
        "forgotten_topics_data": [{**topic_key(version, 13), "partitions": [3, 4]}],
        "rack_id": rack,
        "cluster_id": "c",
    }
    if version >= 15:
        values["replica_state"] = {"replica_id": replica_id, "replica_epoch": 99}
    body = bytes(encode_request("fetch", version, values))
    kio_read("fetch", version, "request", body)
    request = parse_fetch_request(memoryview(body), 0, len(body), version)
    assert request.replica_id == replica_id
    assert request.replica_epoch == (99 if version >= 15 else -1)
    assert (request.max_wait_ms, request.min_bytes, request.bytes_max) == waits
    assert request.is_read_committed
    assert (request.session_id, request.session_epoch) == (session if version >= 7 else (0, -1))
    name, topic_id = ("", TOPIC_ID) if version >= 13 else ("a-topic", bytes(16))
    assert request.forgotten == ([(name, topic_id, [3, 4])] if version >= 7 else [])
    (topic,) = request.topics
    assert (topic.name, topic.topic_id) == (name, topic_id)
    assert topic.partitions == [
        FetchPartition(
            index,
            epoch if version >= 9 else -1,
            offset,
            last_epoch if version >= 12 else -1,
            start if version >= 5 else -1,
            4096,
        )
        for index, (epoch, offset, last_epoch, start, _) in enumerate(asked)
    ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=25, deadline=None)
@given(
    offsets=st.tuples(int64s, int64s, int64s),
    records=st.binary(max_size=200),
    # Never (-1, -1): that is the default of the field, which kio leaves out.
    diverging=st.none() | st.tuples(st.integers(0, 2**31 - 1), int64s),
    has_leader=st.booleans(),
    session_id=st.integers(0, 2**31 - 1),
    aborted=st.none() | st.lists(st.tuples(int64s, int64s, int64s, int64s), max_size=3),
)
def test_fetch_answers_are_the_bytes_kio_writes(
    version: int,
    offsets: tuple[int, int, int],
    records: bytes,
    diverging: tuple[int, int] | None,
    has_leader: bool,
    session_id: int,
    aborted: list[tuple[int, int, int, int]] | None,
) -> None:
    named = None if aborted is None else [AbortedTransaction(*fields) for fields in aborted]
    partition = FetchedPartition(
        3, 0, *offsets, diverging, (2, 5) if has_leader else None, Slice(records), named
    )
    topic = FetchedTopic("a-topic", TOPIC_ID, [partition, FetchedPartition(4, 6)])
    parts, size = pack_fetch_response(
        version,
        [topic],
        session_id=session_id,
        endpoints=(ENDPOINT,) if has_leader else (),
    )
    ours = joined(parts)
    assert size == len(ours)

    def row(p: FetchedPartition) -> dict[str, Any]:
        values: dict[str, Any] = {
            "partition_index": p.partition_id,
            "error_code": p.error,
            "high_watermark": p.high_watermark,
            "last_stable_offset": p.last_stable_offset,
            "log_start_offset": p.log_start_offset,
            "aborted_transactions": None
            if p.aborted is None
            else [
                {"producer_id": a.producer_id, "first_offset": a.first_offset} for a in p.aborted
            ],
            "preferred_read_replica": -1,
            "records": b"" if p.records is None else p.records.read(),
        }
        if p.diverging:
            values["diverging_epoch"] = {"epoch": p.diverging[0], "end_offset": p.diverging[1]}
        if p.current_leader:
            values["current_leader"] = {"leader_id": 2, "leader_epoch": 5}
        return values

    theirs = encode_response(
        "fetch",
        version,
        {
            "error_code": 0,
            "session_id": session_id,
            "responses": [
                {
                    **topic_key(version, 13),
                    "partitions": [row(p) for p in topic.partitions],
                }
            ],
            "node_endpoints": [NODE] if has_leader else (),
        },
    )
    assert ours == bytes(theirs)
    kio_read("fetch", version, "response", ours)


def test_large_slices_stay_slices_for_sendfile() -> None:
    large = Slice(bytes(70_000))
    row = FetchedPartition(0, records=large)
    parts, size = pack_fetch_response(17, [FetchedTopic("", TOPIC_ID, [row])])
    assert large in parts
    assert size == len(joined(parts))
    kio_read("fetch", 17, "response", joined(parts))


def test_replica_fetch_requests_read_back_with_both_parsers() -> None:
    asked = [FetchPartition(0, 4, 10, 3, 0, 1000), FetchPartition(2, 4, 11, -1, 5, 1000)]
    frame = pack_replica_fetch(
        correlation_id=9,
        client_id=b"me",
        replica_id=2,
        replica_epoch=77,
        max_wait_ms=500,
        min_bytes=1,
        bytes_max=1 << 20,
        session_id=5,
        session_epoch=6,
        topics=[(TOPIC_ID, asked)],
        forgotten=[(TOPIC_ID, [8])],
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    start = 4 + 2 + 2 + 4 + 2 + 2 + 1
    request = parse_fetch_request(frame, start, len(frame), 17)
    assert (request.replica_id, request.replica_epoch) == (2, 77)
    assert request.topics[0].partitions == asked
    assert request.forgotten == [("", TOPIC_ID, [8])]
    theirs = kio_read("fetch", 17, "request", frame[start:])
    assert theirs.topics[0].topic_id == uuid.UUID(bytes=TOPIC_ID)
    assert theirs.replica_state.replica_epoch == 77


def test_replica_answers_read_back_what_the_leader_packed() -> None:
    rows = [
        FetchedPartition(0, 0, 5, 5, 1, None, None, Slice(b"abc")),
        FetchedPartition(1, 0, 5, 5, 1, (2, 40), None, None),
        FetchedPartition(2, 6, current_leader=(3, 9)),
    ]
    parts, _ = pack_fetch_response(17, [FetchedTopic("", TOPIC_ID, rows)], session_id=12)
    frame = b"\x00\x00\x00\x07\x00" + joined(parts)
    answer = parse_replica_answer(frame, 0, len(frame))
    assert (answer.correlation_id, answer.error, answer.session_id) == (7, 0, 12)
    first, second, third = answer.partitions
    assert frame[first.position : first.position + first.length] == b"abc"
    assert (first.high_watermark, first.log_start_offset) == (5, 1)
    assert second.diverging == (2, 40)
    assert third.error == 6


@pytest.mark.parametrize("version", [3, 9, 13])
@given(body=st.binary(max_size=80))
@settings(max_examples=100, deadline=None)
def test_garbage_never_raises_anything_but_wire_error(version: int, body: bytes) -> None:
    for parse, v in ((parse_produce_request, version), (parse_fetch_request, version + 4)):
        try:
            parse(memoryview(body), 0, len(body), v)
        except WireError:
            continue
    try:
        parse_replica_answer(memoryview(body), 0, len(body))
    except WireError:
        return


@pytest.mark.parametrize("version", [4, 9, 12])
def test_our_metadata_bytes_equal_kios_own_writer(version: int) -> None:
    response = message_class("metadata", version, "response")
    entity, _ = entity_reader(response)(
        bytes(
            encode_response(
                "metadata",
                version,
                {
                    "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
                    "cluster_id": "c",
                    "controller_id": 1,
                    "topics": [
                        {
                            "error_code": 0,
                            "name": "t",
                            "topic_id": TOPIC_ID,
                            "partitions": [
                                {
                                    "error_code": 5,
                                    "partition_index": 0,
                                    "leader_id": -1,
                                    "leader_epoch": 3,
                                    "replica_nodes": (1, 2),
                                    "isr_nodes": (1,),
                                    "offline_replicas": (2,),
                                }
                            ],
                        }
                    ],
                },
            )
        ),
        0,
    )
    assert version < 3 or entity.throttle_time == datetime.timedelta(0)
    partition = entity.topics[0].partitions[0]
    assert partition.error_code is KioErrorCode.leader_not_available
    out = io.BytesIO()
    entity_writer(response)(out, entity)
    again, _ = entity_reader(response)(out.getvalue(), 0)
    assert again == entity
