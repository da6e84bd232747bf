"""The cost of judging a history: `python -m bench.checks --operations 10000000`.

The history is made here, as the append workload writes it: idempotent producers send to every
partition, a consumer polls along, transactions copy a hundredth of partition 0, and a final read
ends it. An operation is a record sent: it is invoked, acknowledged, polled and finally read. The
checks run in a process of their own, so that the memory is theirs alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvorum.chaos.checks import CheckResult, run_checks
from kvorum.chaos.history import (
    FINAL_READ,
    HISTORY_VERSION,
    INVOKE,
    OBSERVE,
    OK,
    POLL,
    SEND,
    TRANSACTION,
    Commit,
    Event,
    Header,
    Operation,
    Poll,
    Send,
)

_HEAD = """| operations | partitions | history, MB | checks, s | operations/s | resident, MB |
| --- | --- | --- | --- | --- | --- |
"""
_TOPIC, _COPY = "orders", "copy"
_POLL_RECORDS = 500
_PRODUCERS = 4
_MS_PER_RECORD = 0.01
#: Records of a transaction of the copy; one follows each poll of partition 0.
_COPY_RECORDS = 5


def history_of(operations: int, partitions: int) -> Iterator[Header | Event]:
    """A history without a broken promise."""
    yield Header(history=HISTORY_VERSION, run_id="bench", system="made", wall_start_ms=0)
    index = 0
    polled = [0] * partitions
    copied = 0
    for number in range(operations):
        partition, value = number % partitions, number // partitions
        now_ms = number * _MS_PER_RECORD
        process = f"producer-{partition % _PRODUCERS}"
        send = Send(_TOPIC, partition, value)
        yield Event(index=index, time_ms=now_ms, process=process, type=INVOKE, f=SEND, ops=(send,))
        done = Send(_TOPIC, partition, value, value)
        yield Event(
            index=index + 1, time_ms=round(now_ms + 0.005, 3), process=process, type=OK, f=SEND,
            ops=(done,), latency_ms=0.005,
        )  # fmt: skip
        index += 2
        if value + 1 - polled[partition] == _POLL_RECORDS:
            poll = _poll(_TOPIC, partition, polled[partition], value + 1)
            polled[partition] = value + 1
            yield Event(
                index=index, time_ms=round(now_ms + 0.006, 3), process="consumer-1", type=OK,
                f=POLL, ops=(poll,),
            )  # fmt: skip
            index += 1
            if partition == 0:
                yield _copy(index, round(now_ms + 0.007, 3), copied)
                copied += _COPY_RECORDS
                index += 1
    now_ms = operations * _MS_PER_RECORD
    ends = [
        (operations - partition + partitions - 1) // partitions for partition in range(partitions)
    ]
    for partition, end in enumerate(ends):
        if polled[partition] < end:
            poll = _poll(_TOPIC, partition, polled[partition], end)
            yield Event(
                index=index, time_ms=now_ms, process="consumer-1", type=OK, f=POLL, ops=(poll,)
            )
            index += 1
    for topic, partition, end in [
        *((_TOPIC, n, end) for n, end in enumerate(ends)),
        (_COPY, 0, copied),
    ]:
        for event in _final_read(index, now_ms, topic, partition, end):
            yield event
            index += 1


def _poll(topic: str, partition: int, begin: int, end: int) -> Poll:
    records = tuple(range(begin, end))
    return Poll(topic, partition, records, records)


def _copy(index: int, now_ms: float, begin: int) -> Event:
    end = begin + _COPY_RECORDS
    ops: tuple[Operation, ...] = (
        _poll(_TOPIC, 0, begin, end),
        *(Send(_COPY, 0, value, value) for value in range(begin, end)),
        Commit(_TOPIC, 0, end),
    )
    return Event(
        index=index, time_ms=now_ms, process="copier-1", type=OK, f=TRANSACTION, ops=ops,
        transaction="copier-1", group="copiers", latency_ms=0.001,
    )  # fmt: skip


def _final_read(index: int, now_ms: float, topic: str, partition: int, end: int) -> Iterator[Event]:
    for begin in range(0, end, 2000):
        poll = _poll(topic, partition, begin, min(begin + 2000, end))
        yield Event(index=index, time_ms=now_ms, process=FINAL_READ, type=OK, f=POLL, ops=(poll,))
        index += 1
    details = {"what": FINAL_READ, "start_offset": 0, "next_offset": end, "end_offset": end}
    yield Event(
        index=index, time_ms=now_ms, process=FINAL_READ, type=OK, f=OBSERVE, topic=topic,
        partition=partition, details=details,
    )  # fmt: skip


def write(path: str, operations: int, partitions: int) -> None:
    """Write the history into a file."""
    encode = msgspec.json.Encoder().encode
    with open(path, "wb", buffering=1 << 20) as file:
        for item in history_of(operations, partitions):
            file.write(encode(item) + b"\n")


def _judge(path: str) -> None:
    began = time.perf_counter()
    results = run_checks(path)
    seconds = time.perf_counter() - began
    resident_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds} {resident_mb}")
    broken: list[CheckResult] = [result for result in results if result.count]
    if broken:
        raise SystemExit(f"the history breaks nothing, but: {broken[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--judge", metavar="HISTORY", help="judge this file and print the cost")
    options = parser.parse_args()
    if options.judge:
        _judge(options.judge)
        return
    with tempfile.TemporaryDirectory(prefix="kvorum-bench-") as folder:
        path = str(Path(folder) / "history.jsonl")
        write(path, options.operations, options.partitions)
        size_mb = os.path.getsize(path) / 1e6
        done = subprocess.run(
            [sys.executable, "-m", "bench.checks", "--judge", path],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    seconds, resident_mb = (float(word) for word in done.stdout.split())
    row = (
        f"| {options.operations:,} | {options.partitions} | {size_mb:,.0f} | {seconds:.1f} | "
        f"{options.operations / seconds:,.0f} | {resident_mb:.0f} |"
    )
    print(_HEAD + row)


if __name__ == "__main__":
    main()
