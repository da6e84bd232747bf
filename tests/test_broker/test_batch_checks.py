"""A bug in the check of a batch, and how much one Produce request may bring."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.client_batch import UNPACKED_BYTES_MAX
from kvorum.storage.format.compression import Codec
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values


@pytest.fixture
def topic(harness: Harness) -> str:
    harness.call(lambda: harness.cluster.controller.create("checked", [(1,)]))
    return "checked"


def test_a_bug_in_a_check_costs_the_batch_and_not_the_broker(
    client: RawClient,
    harness: Harness,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def check(*_: Any, **__: Any) -> None:
        raise struct.error("int too large to convert")

    batch = build_batch([(None, b"x")], timestamp_ms=1)
    with monkeypatch.context() as patch:
        patch.setattr(
            "kvorum.broker.partition.core.batch_validation.validate_client_records", check
        )
        answer = client.call("produce", 9, produce_values(topic, bytes(batch)))
    row = answer.responses[0].partition_responses[0]
    assert row.error_code is KioError.invalid_record
    assert "int too large to convert" in row.error_message
    assert harness.cluster.replica(1, topic).log.end_offset == 0
    (line,) = [record for record in caplog.records if record.exc_info]
    assert f"{topic}-0: a batch of {len(batch)} bytes could not be checked" in line.message
    answer = client.call("produce", 9, produce_values(topic, bytes(batch)))
    assert answer.responses[0].partition_responses[0].error_code is KioError.none


def test_a_partition_named_twice_in_a_request_gets_its_first_batch_alone(
    client: RawClient, harness: Harness
) -> None:
    # Bug: a request could hold any number of batches for one partition, each of which was unpacked
    # and checked.
    topic = "named-twice"
    harness.call(lambda: harness.cluster.controller.create(topic, [(1,)]))
    values = produce_values(topic, bytes(build_batch([(None, b"a")], timestamp_ms=1)))
    data = {"index": 0, "records": bytes(build_batch([(None, b"b")] * 9, timestamp_ms=1))}
    values["topic_data"][0]["partition_data"].append(data)
    values["topic_data"].append({"name": topic, "partition_data": [data]})
    answer = client.call("produce", 9, values)
    rows = [row for part in answer.responses for row in part.partition_responses]
    assert [row.error_code for row in rows] == [
        KioError.none, KioError.invalid_request, KioError.invalid_request,
    ]  # fmt: skip
    assert "names the partition twice" in rows[1].error_message
    assert harness.cluster.replica(1, topic).log.end_offset == 1


def test_the_partitions_of_a_request_share_what_it_may_unpack_to(
    client: RawClient, harness: Harness
) -> None:
    harness.call(lambda: harness.cluster.controller.create("bombs", [(1,), (1,), (1,)]))
    value = bytes(UNPACKED_BYTES_MAX // 2)
    bomb = bytes(build_batch([(None, value)], timestamp_ms=1, compression=Codec.ZSTD))
    values = produce_values("bombs", bomb)
    values["topic_data"][0]["partition_data"] += [
        {"index": at, "records": bomb} for at in range(1, 3)
    ]
    (part,) = client.call("produce", 9, values).responses
    assert [row.error_code for row in part.partition_responses] == [
        KioError.none, KioError.none, KioError.message_too_large,
    ]  # fmt: skip
