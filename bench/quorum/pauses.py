"""`python -m bench.quorum.pauses`: how long work on many partitions blocks a controller's loop.

It runs in a process of its own, set up as a controller's is; the code is the controller's, the disk
is real. Writes one JSON object: seconds, milliseconds and MB by name.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tempfile
import time
from collections.abc import Awaitable
from typing import TypeVar

from bench.processes import resident_mb
from kvorum.metadata.controller.decide.broker_fencing import (
    BrokerFencing,
    begin_fencing,
    fence_next_chunk,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import encode_records
from kvorum.metadata.image.records import Endpoint, Partition, Record, RegisterBroker, Topic
from kvorum.metadata.image.snapshot_job import header_of, load_image, payloads_of
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.errors import invariant, required
from kvorum.runtime.memory import limit_collections, long_lived_objects
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import build_batch

BROKERS = (101, 102, 103)
PARTITIONS_PER_TOPIC = 1_000
_TICK_S = 0.001

T = TypeVar("T")


def image_of(partitions: int) -> ClusterImage:
    """An image with three active brokers and this many partitions with three replicas, leaders
    spread evenly."""
    delta = Delta(EMPTY_IMAGE)
    for broker_id in BROKERS:
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
        delta.replay(RegisterBroker(broker_id, 1, os.urandom(16), endpoints, None, False))
    for topic in range(-(-partitions // PARTITIONS_PER_TOPIC)):
        topic_id = topic.to_bytes(16, "big")
        delta.replay(Topic(f"topic-{topic}", topic_id))
        for at in range(min(PARTITIONS_PER_TOPIC, partitions - topic * PARTITIONS_PER_TOPIC)):
            turn = at % len(BROKERS)
            replicas = BROKERS[turn:] + BROKERS[:turn]
            delta.replay(Partition(topic_id, at, replicas, replicas, replicas[0], 0, 0))
    return delta.apply(end_offset=partitions, epoch=1)


async def watched(work: Awaitable[T]) -> tuple[T, float, float]:
    """Await `work`; returns its result, its duration in seconds, and the loop's longest pause in
    ms."""
    loop = asyncio.get_running_loop()
    before, longest_s = time.perf_counter(), 0.0
    ticker: asyncio.TimerHandle | None = None

    def tick() -> None:
        # A callback, since a sleeping task would wake a whole turn of the loop later.
        nonlocal before, longest_s, ticker
        now = time.perf_counter()
        longest_s, before = max(longest_s, now - before - _TICK_S), now
        ticker = loop.call_later(_TICK_S, tick)

    tick()
    began = time.perf_counter()
    result = await work
    took_s = time.perf_counter() - began
    # The ticker must see the end of the last pause.
    await asyncio.sleep(2 * _TICK_S)
    required(ticker, "it ticks").cancel()
    return result, took_s, longest_s * 1000


async def _measure(partitions: int) -> dict[str, float]:
    image = image_of(partitions)
    with tempfile.TemporaryDirectory(dir=".") as directory:
        files = SnapshotFiles(SnapshotStore(OsAsyncDisk(), directory))
        header = header_of(image, timestamp_ms=0)
        taken, write_s, write_pause_ms = await watched(files.take(header, payloads_of(image)))
        path = files.path(taken.snapshot)
        size_mb = await files.store.disk.size(path) / 1e6
        del image
        gc.collect()
        loaded, load_s, load_pause_ms = await watched(load_image(files.store.disk, path))
    image = loaded[1]
    invariant(sum(len(t.partitions) for t in image.topics.values()) == partitions, "it lost some")
    _, _, fence_pause_ms = await watched(_fence(image))
    return {
        "write_s": write_s,
        "write_pause_ms": write_pause_ms,
        "load_s": load_s,
        "load_pause_ms": load_pause_ms,
        "fence_pause_ms": fence_pause_ms,
        "snapshot_mb": size_mb,
        "resident_mb": resident_mb(os.getpid()),
    }


def _after(image: ClusterImage, records: tuple[Record, ...]) -> ClusterImage:
    delta = Delta(image)
    delta.replay_all(records)
    return delta.apply(end_offset=image.end_offset + len(records), epoch=1)


async def _fence(image: ClusterImage) -> tuple[ClusterImage, ClusterImage]:
    """The work of the controller's loop, chunk by chunk, when a broker's session ends: it decides
    on the speculative image, and then advances the committed one. Only the write is left out. Both
    images are returned, since a running controller does not free them."""
    committed = image
    fencing: BrokerFencing | None = begin_fencing(image, [BROKERS[0]])
    while fencing is not None:
        decision = fence_next_chunk(image, fencing)
        fencing = decision.reply
        image = _after(image, decision.records)
        build_batch([(None, value) for value in encode_records(decision.records)], timestamp_ms=0)
        await asyncio.sleep(0)
        with long_lived_objects():  # as metadata.image.loader does
            committed = _after(committed, decision.records)
        await asyncio.sleep(0)
    invariant(committed.brokers[BROKERS[0]].is_fenced, "it is not fenced")
    return image, committed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quorum.pauses", description=__doc__)
    parser.add_argument("partitions", type=int)
    options = parser.parse_args()
    limit_collections()  # as launch.daemon.process does
    print(json.dumps(asyncio.run(_measure(options.partitions))))


if __name__ == "__main__":
    main()
