"""Produce requests to a broker of a harness."""

from __future__ import annotations

import time

from kio.schema.errors import ErrorCode as KioError

from kvorum.storage.format.batch import build_batch
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values


def batch(*values: bytes) -> bytes:
    return bytes(build_batch([(None, v) for v in values], timestamp_ms=int(time.time() * 1000)))


def produce(
    harness: Harness, broker_id: int, *values: bytes, acks: int = -1, timeout_ms: int = 5000
) -> KioError:
    client = RawClient(harness.cluster.brokers[broker_id].port)
    data = produce_values("t", batch(*values), acks=acks, timeout_ms=timeout_ms)
    answer = client.call("produce", 9, data)
    client.close()
    error: KioError = answer.responses[0].partition_responses[0].error_code
    return error
