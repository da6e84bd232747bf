"""Lesson 2."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage

_FIELDS = (
    r"sed -n 's/.* \(count: [0-9]*\) .* \(size: [0-9]*\) .* \(compress[^ ]* [a-z]*\) .*/\1 \2 \3/p'"
)
_HEADER_BYTES, _RECORD_BYTES = 61, 17


def show(stage: Stage) -> None:
    log = "lab/broker-101/orders-0/00000000000000000000.log"
    stage.run("kvorum topics create orders --partitions 1")
    stage.run("kvorum produce orders abcdefghij")
    stage.run("kvorum produce orders abcdefghij klmnopqrst")
    dumped = stage.run(f"kvorum log dump {log} | {_FIELDS}")
    sizes = _sizes(dumped)
    stage.fact(
        f"One record of ten bytes makes a batch of {sizes[0][1]} bytes: a header of "
        f"{_HEADER_BYTES}, and {_RECORD_BYTES} for the record.",
        sizes[0] == (1, _HEADER_BYTES + _RECORD_BYTES),
    )
    stage.fact(
        f"A second one in the same batch adds {sizes[1][1] - sizes[0][1]} bytes, not "
        f"{sizes[0][1]}.",
        sizes[1] == (2, _HEADER_BYTES + 2 * _RECORD_BYTES),
    )
    stage.say("The header of the first batch, and its record from byte 61 on:")
    stage.run(f"head -c {_HEADER_BYTES} {log} | od -A d -t x1")
    stage.run(f"head -c {sizes[0][1]} {log} | od -A d -t x1z -j {_HEADER_BYTES}")
    stage.run("yes abcdefghij | head -1000 > same")
    stage.run("kvorum produce orders -z zstd abcdefghij")
    stage.run("kvorum produce orders -i same && kvorum produce orders -z zstd -i same")
    dumped = stage.run(f"kvorum log dump {log} | {_FIELDS}")
    (_, one), (_, plain), (count, packed) = _sizes(dumped)[-3:]
    stage.fact(
        f"{count} such records make a batch of {plain} bytes, and of {packed} with zstd.",
        packed * 4 < plain,
    )
    stage.fact(
        f"One record alone is not worth it: {one} bytes, the producer sent it as it is. "
        "Compression is of batches.",
        one == _HEADER_BYTES + _RECORD_BYTES,
    )
    labels = ("1 record", "2 records", f"{count} records", "with zstd")
    batches = zip(labels, (*sizes, (count, plain), (count, packed)), strict=True)
    shares = {
        label: (_HEADER_BYTES / records, (size - _HEADER_BYTES) / records)
        for label, (records, size) in batches
    }
    title = "Bytes of a record, by the size of its batch"
    stage.draw(bars(title, shares, "bytes", ((0, "its share of the header"), (1, "itself"))))


def _sizes(dumped: str) -> list[tuple[int, int]]:
    counts = [int(number) for number in re.findall(r"count: (\d+)", dumped)]
    return list(zip(counts, map(int, re.findall(r"size: (\d+)", dumped)), strict=True))


LESSON = Lesson(
    number=2,
    name="batch-bytes",
    title="A batch is 61 bytes and its records",
    claim=(
        "A producer sends batches, a broker stores them, and a consumer gets them: a header of 61 "
        "bytes, and records of a few bytes more than their keys and values."
    ),
    show=show,
    seen="why a batch of one record wastes most of its bytes, and where compression works.",
    code="kvorum/storage/format/batch.py",
    page="docs/log.md",
    try_next="the same with keys and headers: kvorum produce orders -k key -H name=value abc",
)
