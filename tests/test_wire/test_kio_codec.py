"""Every served cold API: our request encoder and answers are read by kio in every version."""

from __future__ import annotations

import pytest
from kio.serial import entity_reader

from kvorum.broker.api.registry import SERVED
from kvorum.runtime.errors import WireError
from kvorum.wire.kio_codec import OWN_TAGS, encode_response, message_class, read_request
from kvorum.wire.log_dirs_codec import (
    DIRECTORY_ID_TAG,
    OFFLINE_NAMES_MAX,
    OFFLINE_TAG,
    REASON_TAG,
    pack_offline,
    read_answer,
)

ANSWERS = {
    "api_versions": {"error_code": 0, "api_keys": []},
    "create_topics": {
        "topics": [
            {
                "name": "t",
                "topic_id": bytes(16),
                "error_code": 0,
                "error_message": None,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": (),
            }
        ]
    },
    "delete_topics": {"responses": [{"name": "t", "error_code": 3}]},
    "describe_cluster": {
        "error_code": 0,
        "cluster_id": "c",
        "controller_id": 1,
        "brokers": [{"broker_id": 1, "host": "h", "port": 1, "rack": None, "is_fenced": False}],
    },
    "describe_configs": {"results": ()},
    "describe_log_dirs": {"error_code": 0, "results": ()},
    "describe_quorum": {"error_code": 0, "topics": (), "nodes": ()},
    "elect_leaders": {"error_code": 0, "replica_election_results": ()},
    "find_coordinator": {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": 15,
        "error_message": None,
        "coordinators": [
            {
                "key": "g",
                "node_id": -1,
                "host": "",
                "port": -1,
                "error_code": 15,
                "error_message": "no",
            }
        ],
    },
    "init_producer_id": {"error_code": 0, "producer_id": 5, "producer_epoch": 0},
    "list_offsets": {
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "timestamp": 1, "offset": 2}
                ],
            }
        ]
    },
    "metadata": {"brokers": (), "cluster_id": "c", "controller_id": 1, "topics": ()},
    "offset_for_leader_epoch": {"topics": ()},
}
CASES = [
    (api.name, version)
    for key, _, _ in SERVED.advertised()
    if (api := SERVED.get(key)) is not None and api.name in ANSWERS
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_answers_are_read_by_kio(name: str, version: int) -> None:
    body = bytes(encode_response(name, version, ANSWERS[name]))
    _, size = entity_reader(message_class(name, version, "response"))(body, 0)
    assert size == len(body)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_declared_flexible_versions_are_kios(name: str, version: int) -> None:
    api = next(SERVED.get(k) for k, _, _ in SERVED.advertised() if SERVED.get(k).name == name)
    kio_says = message_class(name, version, "request").__flexible__
    assert (version >= api.first_flexible) == kio_says


def test_a_cut_request_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        read_request("metadata", 9, memoryview(b"\x02"))


def test_bytes_left_over_are_ignored_as_kafka_does() -> None:
    request = read_request("metadata", 13, memoryview(b"\x00\x00\x00\x00\x01\x00\x00"))
    assert request.topics is None


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(KeyError, match="brokers"):
        encode_response("metadata", 9, {"topics": ()})


def test_own_tagged_fields_stand_behind_kafkas_and_are_read_by_our_command_line() -> None:
    result = {
        "error_code": 56,
        "log_dir": "/x",
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {
                        "partition_index": p,
                        "partition_size": 10,
                        "offset_lag": 0,
                        "is_future_key": False,
                    }
                    for p in (0, 1)
                ],
            }
        ],
        "total_bytes": 7,
        "usable_bytes": 5,
    }
    values = {"error_code": 0, "results": [result]}
    plain = bytes(encode_response("describe_log_dirs", 4, values))
    error, (described,) = read_answer(plain)
    assert (error, described.error, described.path) == (0, 56, "/x")
    assert (described.replicas, described.size_bytes) == (2, 20)
    assert (described.total_bytes, described.usable_bytes) == (7, 5)
    assert (described.directory_id, described.reason) == (None, "")
    own = [(DIRECTORY_ID_TAG, b"d" * 16), (REASON_TAG, b"gone")]
    told = {"error_code": 0, "results": [{**result, OWN_TAGS: own}]}
    _, (described,) = read_answer(bytes(encode_response("describe_log_dirs", 4, told)))
    assert (described.directory_id, described.reason) == (b"d" * 16, "gone")
    assert (described.offline, described.offline_names) == (None, ())
    own.append((OFFLINE_TAG, pack_offline([f"t-{n}" for n in range(50)])))
    _, (described,) = read_answer(bytes(encode_response("describe_log_dirs", 4, told)))
    assert (described.offline, described.offline_names[:2]) == (50, ("t-0", "t-1"))
    assert len(described.offline_names) == OFFLINE_NAMES_MAX
