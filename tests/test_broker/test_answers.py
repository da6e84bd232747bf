"""Answers that wait, that are too long, or that are not sent yet when a connection ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.api import context
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.storage.format.batch import build_batch
from kvorum.wire.kio_codec import encode_request
from tests.polling import eventually
from tests.test_broker.harness import Harness, connection_of
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values

CONFIG = BrokerConfig(connection_output_bytes_max=1 << 20, socket_request_max_bytes=2 << 20)
NOBODY = "x" * 32_760


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A broker whose topic t has records of 50 kB, two a segment; tests write those of topic u."""
    harness = Harness(tmp_path, count=1, config=CONFIG)
    configs = {"segment.bytes": "120000"}
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)], configs))
    harness.call(lambda: harness.cluster.controller.create("u", [(1,)]))
    client = RawClient(harness.cluster.ports[1])
    for _ in range(6):
        client.call("produce", 9, produce_values("t", record()))
    client.close()
    yield harness
    harness.close()


def record() -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([(None, bytes(50_000))], timestamp_ms=now_ms))


def fetched(client: RawClient, values: dict[str, Any]) -> Any:
    (topic,) = client.call("fetch", 12, values).responses
    return topic.partitions[0]


def test_answers_that_wait_for_an_earlier_one_take_room(
    harness: Harness, client: RawClient
) -> None:
    # Bad sequence: 1. A fetch waits. 2. Hundreds of fetches behind it are answered, and their
    # answers wait for the first one: a gigabyte for one socket.
    client.send("fetch", 12, fetch_values("u", 0, max_wait_ms=60_000))
    for _ in range(200):
        client.send("fetch", 12, fetch_values("t", 0))
    asking = connection_of(harness, client)
    limit = CONFIG.connection_output_bytes_max
    eventually(lambda: asking._output_bytes > limit, "there is enough of them")
    eventually(lambda: not asking._is_reading, "it is not read from any more")
    assert asking._output_bytes < 2 * limit and len(asking.slots) < 50


@pytest.mark.parametrize(
    ("min_bytes", "limit_bytes"),
    [
        (100_000, 100_000),  # the partition's limit, which whole batches do not fill
        (60_000, 50_500),  # min.bytes above the limit of the whole answer
    ],
)
def test_a_fetch_of_all_that_it_may_have_waits_for_nothing(
    client: RawClient, min_bytes: int, limit_bytes: int
) -> None:
    # Bug: each such fetch of existing records waited until its max.wait.ms.
    for _ in range(3):
        client.call("produce", 9, produce_values("u", record()))
    values = fetch_values("u", 0, max_wait_ms=60_000, min_bytes=min_bytes)
    values["topics"][0]["partitions"] = [fetch_partition(0, bytes_max=limit_bytes)]
    values["max_bytes"] = limit_bytes
    assert fetched(client, values).records


def test_what_lies_before_the_end_of_a_segment_goes_at_once(client: RawClient) -> None:
    values = fetch_values("t", 1, max_wait_ms=60_000, min_bytes=90_000)
    assert fetched(client, values).records


def test_a_fetch_that_may_have_more_waits_for_it(client: RawClient) -> None:
    other = RawClient(client.sock.getpeername()[1])
    other.call("produce", 9, produce_values("u", record()))
    client.send("fetch", 12, fetch_values("u", 0, max_wait_ms=60_000, min_bytes=90_000))
    other.call("produce", 9, produce_values("u", record()))
    other.close()
    (topic,) = client.answer("fetch", 12).responses
    assert len(topic.partitions[0].records) > 100_000


def test_a_sentence_is_cut_where_an_old_version_cannot_tell_more(client: RawClient) -> None:
    # Bug: a name of the longest possible string, within a sentence, made an answer that ended the
    # broker.
    asked = {"resource_type": 4, "resource_name": NOBODY, "configuration_keys": None}
    answer = client.call("describe_configs", 1, {"resources": [asked], "include_synonyms": False})
    (result,) = answer.results
    assert result.error_code is not KioError.none
    assert len(result.error_message.encode()) <= 32_767


def test_an_answer_that_cannot_be_written_costs_its_connection_and_not_the_broker(
    harness: Harness, client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    # For example an answer of more than two gigabytes.
    def fail(*_: Any, **__: Any) -> bytes:
        raise ValueError("too long for a frame")

    with monkeypatch.context() as patch:
        patch.setattr(context, "response_head", fail)
        client.send("metadata", 9, {"topics": []})
        assert client.is_closed_by_peer()
    assert "the answer to metadata of" in caplog.text
    other = RawClient(harness.cluster.ports[1])
    assert other.call("api_versions", 0, {}).error_code is KioError.none
    other.close()


def test_what_was_answered_before_garbage_came_goes_out(client: RawClient) -> None:
    # The batch was appended, but no client was answered.
    body = bytes(encode_request("produce", 9, produce_values("u", record(), acks=1)))
    client.sock.sendall(client.frame("produce", 9, body) + b"\0\0\0\x08GARBAGE!")
    answer = client.answer("produce", 9)
    assert answer.responses[0].partition_responses[0].error_code is KioError.none
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("session", [(0, -1), (0, 0)], ids=["without a session", "opens a session"])
def test_what_consumers_read_is_counted_with_its_topic(
    client: RawClient, harness: Harness, session: tuple[int, int]
) -> None:
    """librdkafka has no fetch sessions, Java's consumers do."""
    counted = harness.cluster.replica(1, "t").metrics
    requests, read_bytes = counted.fetch_requests, counted.bytes_out
    answer = client.call("fetch", 12, fetch_values("t", 0, session=session))
    size = len(bytes(answer.responses[0].partitions[0].records))
    assert size > 0
    assert (counted.fetch_requests, counted.bytes_out) == (requests + 1, read_bytes + size)


def test_a_fetch_that_failed_is_counted_with_its_topic(client: RawClient, harness: Harness) -> None:
    counted = harness.cluster.replica(1, "t").metrics
    before = counted.failed_fetch_requests
    answer = client.call("fetch", 12, fetch_values("t", 10_000))
    assert answer.responses[0].partitions[0].error_code is KioError.offset_out_of_range
    assert counted.failed_fetch_requests == before + 1
