"""A check of a batch that fails itself."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from storage.batch import build_batch
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
        patch.setattr("broker.batch_checks.validate_client_records", check)
        answer = client.call("produce", 9, produce_values(topic, bytes(batch)))
    row = answer.responses[0].partition_responses[0]
    assert row.error_code is KioError.invalid_record
    assert "int too large to convert" in row.error_message
    assert harness.cluster.replica(1, topic).log.end_offset == 0
    (line,) = [record for record in caplog.records if record.exc_info]
    assert f"{topic}-0: a batch of {len(batch)} bytes could not be checked" in line.message
    answer = client.call("produce", 9, produce_values(topic, bytes(batch)))
    assert answer.responses[0].partition_responses[0].error_code is KioError.none
