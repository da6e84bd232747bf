"""Moves between the data directories of a broker of the harness: requests, waits, looks."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.image import RESOURCE_BROKER
from kvorum.metadata.image.records import Config
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_broker.several_directories import QUIET, told

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
HELD = dataclasses.replace(
    QUIET,
    replica_alter_log_dirs_io_max_bytes_per_second=0,
    replica_high_watermark_checkpoint_interval_ms=100,
    log_segment_bytes=2_000,
)
"""A move that begins copies nothing before `let_go`."""


def made(harness: Harness, partitions: int = 1, **configs: str) -> bytes:
    configs = {"file.delete.delay.ms": "0", **{k.replace("_", "."): v for k, v in configs.items()}}
    topic_id: bytes = harness.call(
        lambda: harness.cluster.controller.create("t", [(1,)] * partitions, configs)
    )
    eventually(lambda: all(told(harness, "t", p) for p in range(partitions)), "all are told")
    return topic_id


def paths(harness: Harness) -> list[str]:
    return list(harness.cluster.paths_of(1))


def replica(harness: Harness, partition_id: int = 0) -> Replica:
    return harness.cluster.replica(1, "t", partition_id)


def other_than(harness: Harness, *used: str) -> str:
    return next(path for path in paths(harness) if path not in used)


def alter(harness: Harness, path: str, partition_id: int = 0, topic: str = "t") -> KioError:
    client = RawClient(harness.cluster.ports[1])
    try:
        dirs = [{"path": path, "topics": [{"name": topic, "partitions": [partition_id]}]}]
        answer = client.call("alter_replica_log_dirs", 2, {"dirs": dirs})
        return answer.results[0].partitions[0].error_code
    finally:
        client.close()


def let_go(harness: Harness, rate: int = 1 << 40) -> None:
    harness.call(
        lambda: harness.cluster.controller.commit(Config(RESOURCE_BROKER, "1", RATE, str(rate)))
    )


def wait_for(harness: Harness, path: str, partition_id: int = 0) -> None:
    eventually(
        lambda: replica(harness, partition_id).log_dir.path == path, f"the replica is in {path}"
    )


def records(harness: Harness, partition_id: int = 0) -> list[tuple[int, bytes | None]]:
    def read() -> list[tuple[int, bytes | None]]:
        log = replica(harness, partition_id).log
        found, offset = [], log.start_offset
        while offset < log.end_offset:
            part = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset)
            data = part.read()
            for position, header in iter_headers(data):
                found += [(r.offset, r.value) for r in iter_records(data, position, header)]
                offset = header.end_offset
        return [item for item in found if item[0] >= log.start_offset]

    return harness.call(read)


def fill(
    harness: Harness, count: int = 40, partition_id: int = 0, value: bytes = bytes(200)
) -> None:
    client = RawClient(harness.cluster.ports[1])
    try:
        for _ in range(count):
            batch = bytes(build_batch([(b"k", value)], timestamp_ms=int(time.time() * 1000)))
            reply = client.call(
                "produce", 9, produce_values("t", batch, acks=-1, partition=partition_id)
            )
            assert reply.responses[0].partition_responses[0].error_code is KioError.none
    finally:
        client.close()


def folders(path: str) -> list[str]:
    return sorted(item.name for item in Path(path).iterdir() if item.is_dir())
