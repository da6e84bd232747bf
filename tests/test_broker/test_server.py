"""One broker over real sockets: pipelining, waiting, sessions, fencing, garbage, back-pressure."""

from __future__ import annotations

import dataclasses
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.api import metadata
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.metadata_answers import sliced_answer
from kvorum.broker.network import connection
from kvorum.metadata.image.records import BrokerRegistrationChange
from kvorum.storage.format.batch import build_batch, iter_headers
from kvorum.wire.kio_codec import uuid_bytes
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values

CONFIG = BrokerConfig(
    socket_request_max_bytes=2 << 20,
    connection_output_bytes_max=1 << 20,
    connection_requests_in_flight_max=20,
)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("one"), count=1, config=CONFIG)
    yield harness
    harness.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"topic-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1,), (1,)]))
    return name


def batch(*values: bytes, **fields: int) -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([(None, v) for v in values], timestamp_ms=now_ms, **fields))


def produced(client: RawClient, topic: str, data: bytes, *, version: int = 9, acks: int = -1):
    answer = client.call("produce", version, produce_values(topic, data, acks=acks))
    return answer.responses[0].partition_responses[0]


def fetched(client: RawClient, values: dict, version: int = 12):
    return client.call("fetch", version, values).responses[0].partitions[0]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version_appends(client: RawClient, topic: str, version: int) -> None:
    assert produced(client, topic, batch(b"a", b"b"), version=version).base_offset == 0
    assert produced(client, topic, batch(b"c"), version=version, acks=1).base_offset == 2


@pytest.mark.parametrize("version", range(4, 13))
def test_every_fetch_version_reads_back(client: RawClient, topic: str, version: int) -> None:
    data = batch(b"hello")
    produced(client, topic, data)
    row = fetched(client, fetch_values(topic, 0), version)
    assert row.high_watermark == 1
    assert bytes(row.records)[21:] == data[21:], "bytes under the CRC are untouched"


def test_topic_ids_replace_names_from_v13_on(
    client: RawClient, harness: Harness, topic: str
) -> None:
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    values = produce_values("", batch(b"x"))
    values["topic_data"][0]["topic_id"] = topic_id
    answer = client.call("produce", 13, values)
    assert answer.responses[0].partition_responses[0].base_offset == 0
    values = fetch_values("", 0)
    values["topics"][0]["topic_id"] = topic_id
    for version in (13, 17):
        row = fetched(client, values, version)
        assert row.high_watermark == 1
    values["topics"][0]["topic_id"] = bytes(15) + b"\x09"
    assert fetched(client, values, 13).error_code is KioError.unknown_topic_id


def test_answers_keep_the_order_of_pipelined_requests(client: RawClient, topic: str) -> None:
    parked = client.send("fetch", 12, fetch_values(topic, 0, max_wait_ms=5000))
    later = [client.send("produce", 9, produce_values(topic, batch(b"x"))) for _ in range(5)]
    last = client.send(
        "api_versions", 3, {"client_software_name": "a", "client_software_version": "1"}
    )
    got = [client.receive()[0] for _ in range(7)]
    assert got == [parked, *later, last]


@pytest.mark.parametrize("is_named", [True, False], ids=["one topic", "all topics"])
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept by topic", "not kept"])
def test_metadata_in_slices_is_the_same_answer(
    client: RawClient, topic: str, is_named: bool, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"topics": [{"topic_id": None, "name": topic}] if is_named else None}
    # Kept answers and partitions are of one version.
    for version, other in ((9, 10), (12, 13)):
        monkeypatch.undo()
        whole = client.call("metadata", version, values)
        for module in (metadata, sliced_answer):
            monkeypatch.setattr(module, "PARTITIONS_AT_ONCE", 1)
        if not is_kept:
            monkeypatch.setattr(metadata, "KEPT_PARTITIONS_MAX", 1)
        monkeypatch.setattr(connection, "SEND_TURN_BYTES", 10)
        for _ in range(2):
            sliced = client.call("metadata", other, values)
            assert [t.name for t in sliced.topics] == [t.name for t in whole.topics]
            found = [[dataclasses.astuple(p) for p in t.partitions] for t in sliced.topics]
            assert found == [[dataclasses.astuple(p) for p in t.partitions] for t in whole.topics]


def test_a_parked_fetch_is_woken_by_the_append(
    client: RawClient, harness: Harness, topic: str
) -> None:
    other = RawClient(harness.cluster.brokers[1].port)
    client.send("fetch", 12, fetch_values(topic, 0, max_wait_ms=60_000))
    produced(other, topic, batch(b"wake"))
    row = client.answer("fetch", 12).responses[0].partitions[0]
    assert row.high_watermark == 1
    other.close()


def test_a_fetch_without_data_is_answered_at_its_deadline(client: RawClient, topic: str) -> None:
    row = fetched(client, fetch_values(topic, 0, max_wait_ms=30))
    assert not row.records
    assert row.error_code is KioError.none


def test_min_bytes_keeps_a_fetch_waiting(client: RawClient, harness: Harness, topic: str) -> None:
    other = RawClient(harness.cluster.brokers[1].port)
    client.send("fetch", 12, fetch_values(topic, 0, max_wait_ms=60_000, min_bytes=150))
    produced(other, topic, batch(b"x"))
    produced(other, topic, batch(b"y" * 100))
    row = client.answer("fetch", 12).responses[0].partitions[0]
    assert len(list(iter_headers(bytes(row.records)))) == 2
    other.close()


def test_acks_0_gets_no_answer(client: RawClient, topic: str) -> None:
    client.send("produce", 9, produce_values(topic, batch(b"x"), acks=0))
    assert produced(client, topic, batch(b"y")).base_offset == 1


def test_a_failed_append_with_acks_0_closes_the_connection(client: RawClient) -> None:
    client.send("produce", 9, produce_values("no-such-topic", batch(b"x"), acks=0))
    assert client.is_closed_by_peer()


def test_bad_appends_are_refused_one_by_one(client: RawClient, topic: str) -> None:
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    assert produced(client, topic, bytes(damaged)).error_code is KioError.corrupt_message
    assert produced(client, topic, b"").error_code is KioError.invalid_record
    large = batch(b"x" * 1_100_000)
    assert produced(client, topic, large).error_code is KioError.message_too_large
    row = produced(client, topic, batch(b"x"), acks=5)
    assert row.error_code is KioError.invalid_required_acks
    unknown = produced(client, "nobody", batch(b"x"))
    assert unknown.error_code is KioError.unknown_topic_or_partition
    assert produced(client, topic, batch(b"x")).base_offset == 0


def test_idempotent_duplicates_get_the_first_answer_again(client: RawClient, topic: str) -> None:
    first = batch(b"a", b"b", producer_id=4000, producer_epoch=0, base_sequence=0)
    second = batch(b"c", producer_id=4000, producer_epoch=0, base_sequence=2)
    assert produced(client, topic, first).base_offset == 0
    assert produced(client, topic, second).base_offset == 2
    assert produced(client, topic, first).base_offset == 0
    gap = batch(b"d", producer_id=4000, producer_epoch=0, base_sequence=9)
    assert produced(client, topic, gap).error_code is KioError.out_of_order_sequence_number
    assert produced(client, topic, batch(b"e")).base_offset == 3


def test_fetch_offsets_outside_the_log_are_refused(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"x"))
    row = fetched(client, fetch_values(topic, 7))
    assert row.error_code is KioError.offset_out_of_range
    row = fetched(client, fetch_values(topic, 0, leader_epoch=9))
    assert row.error_code is KioError.unknown_leader_epoch


def test_an_incremental_fetch_tells_only_what_changed(client: RawClient, topic: str) -> None:
    both = [fetch_partition(0), fetch_partition(0, partition=1)]
    full = client.call("fetch", 12, fetch_values(topic, 0, session=(0, 0), partitions=both))
    assert full.session_id != 0
    assert len(full.responses[0].partitions) == 2
    session = full.session_id
    nothing = client.call("fetch", 12, fetch_values(topic, 0, session=(session, 1), partitions=[]))
    assert nothing.responses == ()
    data = produce_values(topic, batch(b"x"), partition=1)
    client.call("produce", 9, data)
    some = client.call("fetch", 12, fetch_values(topic, 0, session=(session, 2), partitions=[]))
    (row,) = some.responses[0].partitions
    assert (row.partition_index, row.high_watermark) == (1, 1)
    again = client.call("fetch", 12, fetch_values(topic, 0, session=(session, 3), partitions=[]))
    assert again.responses[0].partitions[0].records == row.records, "not told: read again"
    moved = [fetch_partition(1, partition=1)]
    done = client.call("fetch", 12, fetch_values(topic, 0, session=(session, 4), partitions=moved))
    assert done.responses == ()
    wrong = client.call("fetch", 12, fetch_values(topic, 0, session=(session, 9), partitions=[]))
    assert wrong.error_code is KioError.invalid_fetch_session_epoch
    wrong = client.call("fetch", 12, fetch_values(topic, 0, session=(12345, 1), partitions=[]))
    assert wrong.error_code is KioError.fetch_session_id_not_found


def test_session_partitions_of_a_deleted_topic_turn_into_errors(
    client: RawClient, harness: Harness, topic: str
) -> None:
    full = client.call("fetch", 12, fetch_values(topic, 0, session=(0, 0)))
    client.send(
        "fetch", 12,
        fetch_values(topic, 0, session=(full.session_id, 1), partitions=[], max_wait_ms=60_000),
    )  # fmt: skip
    other = RawClient(harness.cluster.brokers[1].port)
    gone = other.call("delete_topics", 4, {"topic_names": [topic], "timeout": 5000})
    assert gone.responses[0].error_code is KioError.none
    row = client.answer("fetch", 12).responses[0].partitions[0]
    assert row.error_code is KioError.unknown_topic_or_partition
    other.close()


def test_a_topic_to_delete_is_named_by_name_or_by_id(
    client: RawClient, harness: Harness, topic: str
) -> None:
    # An id beside the name shall keep another topic of that name from being deleted.
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    for name, asked_id in (
        ("", topic_id), (topic, topic_id), (topic, b"\7" * 16), (None, None), (None, bytes(16)),
    ):  # fmt: skip
        body = {"topics": [{"name": name, "topic_id": asked_id}], "timeout": 5000}
        (row,) = client.call("delete_topics", 6, body).responses
        assert row.error_code is KioError.invalid_request
        assert row.error_message
        assert harness.cluster.controller.image.topic_ids.get(topic) == topic_id
    body = {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 5000}
    (row,) = client.call("delete_topics", 6, body).responses
    assert (row.error_code, row.name) == (KioError.none, topic)


def test_a_too_new_api_versions_request_gets_a_v0_answer(client: RawClient) -> None:
    client.sock.sendall(bytes.fromhex("0000000a" + "0012" + "0063" + "00000007" + "ffff"))
    correlation_id, body = client.receive()
    assert correlation_id == 7
    assert body.hex() == "0023" + "00000001" + "0012" + "0000" + "0005"


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 2 << 30 >> 1),
        struct.pack(">i", 12) + struct.pack(">hhih", 999, 0, 1, -1) + b"\x00\x00",
        struct.pack(">i", 12) + struct.pack(">hhih", 0, 2, 1, -1) + b"\x00\x00",
        struct.pack(">i", 12) + struct.pack(">hhih", 1, 12, 1, -1) + b"\x00\x00",
        struct.pack(">i", 12) + struct.pack(">hhih", 3, 9, 1, -1) + b"\x00\x09",
        struct.pack(">i", 12) + struct.pack(">hhih", 3, 1, 1, 500) + b"\x00\x00",
    ],
)
def test_garbage_closes_its_own_connection_only(
    client: RawClient, harness: Harness, topic: str, garbage: bytes
) -> None:
    bystander = RawClient(harness.cluster.brokers[1].port)
    client.sock.sendall(garbage)
    assert client.is_closed_by_peer()
    assert produced(bystander, topic, batch(b"x")).base_offset == 0
    bystander.close()


def test_a_reader_that_does_not_read_is_not_read_from(
    client: RawClient, harness: Harness, topic: str
) -> None:
    for _ in range(4):
        produced(client, topic, batch(b"x" * 500_000))
    slow = RawClient(harness.cluster.brokers[1].port)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    asked = 60
    for _ in range(asked):
        slow.send("fetch", 12, fetch_values(topic, 0))
    server = harness.cluster.brokers[1].server

    def paused() -> bool:
        return any(not c._is_reading for c in server._connections)

    eventually(lambda: harness.call(paused), "the server stops reading from the slow client")
    assert produced(client, topic, batch(b"y")).error_code is KioError.none
    for _ in range(asked):
        _, body = slow.receive()
        assert len(body) > 1_000_000
    slow.close()


def test_a_connection_that_goes_away_takes_its_waiting_requests_along(
    harness: Harness, topic: str
) -> None:
    manager = harness.cluster.brokers[1].manager
    leaver = RawClient(harness.cluster.brokers[1].port)
    leaver.send("fetch", 12, fetch_values(topic, 0, max_wait_ms=60_000))
    replica = harness.cluster.replica(1, topic)
    eventually(lambda: replica.watchers, "the fetch is parked")
    leaver.close()
    eventually(lambda: not replica.watchers, "the parked fetch is gone")
    assert not harness.call(lambda: any(manager.deadlines._buckets.values()))


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id_looks_at_nothing_else(
    client: RawClient, harness: Harness, topic: str, version: int
) -> None:
    # Java's consumer and its admin send an empty name beside the id.
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    unknown = b"\x07" * 16
    for name in (None, "", topic, "another"):
        asked = [
            {"name": name, "topic_id": topic_id},
            {"name": name, "topic_id": unknown},
            {"name": topic, "topic_id": None},
        ]
        known, missing = client.call("metadata", version, {"topics": asked}).topics
        assert (known.name, uuid_bytes(known.topic_id)) == (topic, topic_id)
        assert known.partitions
        assert missing.error_code is KioError.unknown_topic_id
        assert (missing.name, uuid_bytes(missing.topic_id)) == (None, unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_knows_no_ids_before_version_12(
    client: RawClient, harness: Harness, topic: str, version: int
) -> None:
    topic_id = harness.cluster.controller.image.topic_ids[topic]
    for item in ({"name": topic, "topic_id": topic_id}, {"name": None, "topic_id": topic_id}):
        (row,) = client.call("metadata", version, {"topics": [item]}).topics
        assert row.error_code is KioError.invalid_request
        assert row.name == (item["name"] or "")


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(
    client: RawClient, harness: Harness, topic: str, version: int
) -> None:
    answer = client.call(
        "metadata", version, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    )
    assert answer.brokers[0].port == harness.cluster.brokers[1].port
    assert answer.topics[0].name == topic
    assert answer.topics[0].partitions[0].leader_id == 1
    every = client.call("metadata", version, {"topics": None if version else ()})
    assert topic in {t.name for t in every.topics}
    again = client.call("metadata", version, {"topics": None if version else ()})
    assert again == every


def test_unknown_topics_answer_3_and_are_made_in_the_background(
    client: RawClient, harness: Harness
) -> None:
    answer = client.call("metadata", 9, {"topics": [{"name": "auto-made"}]})
    assert answer.topics[0].error_code is KioError.unknown_topic_or_partition
    image = harness.cluster.controller
    eventually(lambda: image.image.topic("auto-made"), "auto-creation")
    answer = client.call("metadata", 9, {"topics": [{"name": "auto-made"}, {"name": "no/good"}]})
    assert answer.topics[0].error_code is KioError.none
    assert answer.topics[1].error_code is KioError.invalid_topic_exception


def test_fenced_brokers_are_hidden_once_their_listing_time_is_over(
    client: RawClient, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kvorum.broker.metadata_answers.fenced_broker_visibility.FENCED_LISTING_MS", 0
    )
    controller = harness.cluster.controller
    epoch = controller.image.brokers[1].broker_epoch

    def set_fenced(value: bool) -> None:
        controller.commit(BrokerRegistrationChange(1, epoch, is_fenced=value))

    harness.call(lambda: set_fenced(True))
    assert client.call("metadata", 9, {"topics": ()}).brokers == ()
    described = client.call(
        "describe_cluster",
        2,
        {
            "include_fenced_brokers": True,
            "include_cluster_authorized_operations": False,
            "endpoint_type": 1,
        },
    )
    assert described.brokers[0].is_fenced
    harness.call(lambda: set_fenced(False))
    assert len(client.call("metadata", 9, {"topics": ()}).brokers) == 1


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_in_every_version(client: RawClient, topic: str, version: int) -> None:
    now_ms = int(time.time() * 1000)
    for at in (now_ms - 2000, now_ms - 1000, now_ms):
        produced(client, topic, bytes(build_batch([(None, b"x")], timestamp_ms=at)))

    def offset(timestamp: int) -> int:
        row = asked(timestamp)
        assert row.error_code is KioError.none
        return row.offset

    def asked(timestamp: int) -> Any:
        partition = {"partition_index": 0, "timestamp": timestamp}
        answer = client.call("list_offsets", version, {
            "replica_id": -1, "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [partition]}], "timeout": 1000,
        })  # fmt: skip
        return answer.topics[0].partitions[0]

    assert offset(-1) == 3
    assert offset(-2) == 0
    for special, first_version, found in ((-3, 7, 2), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)):
        if version >= first_version:
            assert offset(special) == found
        else:
            assert asked(special).error_code is KioError.unsupported_version
    assert asked(-9).error_code is KioError.unsupported_version
    assert offset(now_ms - 1500) == 1
    assert offset(now_ms + 1) == -1


def test_a_partition_listed_twice_is_refused_in_one_entry(client: RawClient, topic: str) -> None:
    once, other = ({"partition_index": i, "timestamp": -1} for i in (0, 7))
    for topics in ([[once, once, other]], [[once], [other, once]]):
        answer = client.call("list_offsets", 6, {
            "replica_id": -1, "isolation_level": 0, "timeout": 1000,
            "topics": [{"name": topic, "partitions": rows} for rows in topics],
        })  # fmt: skip
        (found,) = answer.topics
        assert found.name == topic
        assert [(row.partition_index, row.error_code) for row in found.partitions] == [
            (0, KioError.invalid_request), (7, KioError.unknown_topic_or_partition),
        ]  # fmt: skip


def test_topics_without_an_id_are_unknown_ids(client: RawClient, topic: str) -> None:
    values = produce_values("", bytes(build_batch([(None, b"x")], timestamp_ms=1)))
    values["topic_data"][0]["topic_id"] = None
    (row,) = client.call("produce", 13, values).responses
    assert row.partition_responses[0].error_code is KioError.unknown_topic_id
    values = fetch_values("", 0)
    values["topics"][0]["topic_id"] = None
    assert fetched(client, values, 13).error_code is KioError.unknown_topic_id
    # An empty name is no id.
    empty = produce_values("", bytes(build_batch([(None, b"x")], timestamp_ms=1)))
    (row,) = client.call("produce", 12, empty).responses
    assert row.partition_responses[0].error_code is KioError.unknown_topic_or_partition


def test_cold_apis_answer(client: RawClient, topic: str) -> None:
    nobody = client.call("find_coordinator", 2, {"key": "g", "key_type": 0})
    assert nobody.error_code is KioError.coordinator_not_available
    many = client.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    assert many.coordinators[0].error_code is KioError.coordinator_not_available
    init = {"transactional_id": None, "transaction_timeout": 1000}
    first = client.call("init_producer_id", 4, init)
    second = client.call("init_producer_id", 4, init)
    assert second.producer_id == first.producer_id + 1
    refused = client.call("init_producer_id", 4, {**init, "transactional_id": "t"})
    assert refused.error_code is KioError.not_coordinator
    quorum = client.call("describe_quorum", 2, {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    })  # fmt: skip
    assert quorum.topics[0].partitions[0].leader_id == 100
    dirs = client.call("describe_log_dirs", 5, {"topics": None})
    assert topic in {t.name for t in dirs.results[0].topics}
    assert not dirs.results[0].is_cordoned
    elected = client.call("elect_leaders", 2, {
        "election_type": 0, "topic_partitions": [{"topic": topic, "partitions": [0]}],
        "timeout": 1000,
    })  # fmt: skip
    partition = elected.replica_election_results[0].partition_result[0]
    assert partition.error_code is KioError.election_not_needed
    ends = client.call("offset_for_leader_epoch", 4, {
        "replica_id": -1,
        "topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    })  # fmt: skip
    assert ends.topics[0].partitions[0].end_offset == 0


def test_topic_configs_are_described_and_bad_ones_refused(
    client: RawClient, harness: Harness
) -> None:
    def create(name: str, **configs: str):
        answer = client.call("create_topics", 7, {
            "topics": [{
                "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (),
                "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
            }],
            "timeout": 5000, "validate_only": False,
        })  # fmt: skip
        return answer.topics[0]

    made = create("configured", retention_ms="1234")
    assert made.error_code is KioError.none
    assert {c.name: c.value for c in made.configs}["retention.ms"] == "1234"
    assert harness.cluster.replica(1, "configured").log.config.retention_ms == 1234
    typed = {c.name: c.value for c in create("typed", retention_ms=" +7 ").configs}
    assert typed["retention.ms"] == " +7 ", "as in Kafka, as it was typed"
    assert create("shredded", cleanup_policy="shred").error_code is KioError.invalid_config
    assert create("a/b").error_code is KioError.invalid_topic_exception
    assert create("configured").error_code is KioError.topic_already_exists
    described = client.call("describe_configs", 4, {
        "resources": [
            {"resource_type": 2, "resource_name": "configured", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]},
        ],
        "include_synonyms": True, "include_documentation": False,
    })  # fmt: skip
    topic, broker = described.results
    assert {c.name: c.config_source for c in topic.configs}["retention.ms"] == 1
    assert [c.name for c in broker.configs] == ["num.partitions"]


def test_files_are_made_at_the_first_append_only(
    client: RawClient, harness: Harness, topic: str
) -> None:
    directory = Path(harness.cluster.replica(1, topic).log.directory)
    assert not directory.exists()
    produced(client, topic, batch(b"x"))
    assert (directory / "partition.metadata").exists()
