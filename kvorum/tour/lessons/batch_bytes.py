"""Lesson 2."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.stage import Stage

_SIZE = re.compile(r"count: (\d+) .* size: (\d+) ")
_HEADER_BYTES, _RECORD_BYTES = 61, 17


def show(stage: Stage) -> None:
    log = "lab/broker-101/orders-0/00000000000000000000.log"
    stage.run("kvorum topics create orders --partitions 1")
    stage.run("kvorum produce orders abcdefghij")
    stage.run("kvorum produce orders abcdefghij klmnopqrst")
    dumped = stage.run(f"kvorum log dump {log} --print-data-log")
    sizes = [(int(count), int(size)) for count, size in _SIZE.findall(dumped)]
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
    stage.say("These are the bytes: the last two lines are the records, the rest is the header.")
    stage.run(f"head -c {sizes[0][1]} {log} | od -A d -t x1z")
    stage.run("yes abcdefghij | head -1000 > same && kvorum produce orders -z zstd -i same")
    dumped = stage.run(f"kvorum log dump {log}")
    count, size = (int(number) for number in _SIZE.findall(dumped)[-1])
    stage.fact(
        f"{count} such records, compressed as one batch, take {size} bytes and not "
        f"{_HEADER_BYTES + count * _RECORD_BYTES}: compression is of batches, not of records.",
        count > 100 and size * 4 < _HEADER_BYTES + count * _RECORD_BYTES,
    )


LESSON = Lesson(
    number=2,
    name="batch-bytes",
    title="A batch is 61 bytes and its records",
    claim=(
        "What a producer sends, a broker stores and a consumer gets is a batch: a header of 61 "
        "bytes, and records of a few bytes more than their keys and values."
    ),
    show=show,
    seen="why a batch of one record wastes most of its bytes, and where compression works.",
    code="kvorum/storage/format/batch.py",
    page="docs/log.md",
    try_next="the same with keys and headers: kvorum produce orders -k key -H name=value abc",
)
