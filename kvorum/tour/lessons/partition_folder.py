"""Lesson 1."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import Picture, Row, spans
from kvorum.tour.stage import Stage

_LINES = 24_000
_WANTED = 15_000
_BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) position: (\d+)")
_FIELDS = r"sed -n 's/\(base.* lastOffset: [0-9]*\) .* \(position: [0-9]*\) .*/\1 \2/p'"
_ENTRY = re.compile(r"offset: (\d+) position: (\d+)")
_TIME = re.compile(r"timestamp: (\d+) offset: (\d+)")


def show(stage: Stage) -> None:
    folder = "lab/broker-101/lines-0"
    stage.run(
        "kvorum topics create lines --partitions 1 --config segment.bytes=1048576 "
        "--config index.interval.bytes=4096"
    )
    stage.run(
        f"seq -f 'line %06.0f: some hundred bytes of a record {'.' * 40}' 0 {_LINES - 1} > all"
    )
    stage.say("Twelve producers send a part each, so that there are batches of some size.")
    stage.run(
        "split -n l/12 all part- && for p in part-*; do kvorum produce lines -i $p -o name; done"
    )
    files = stage.run(f"ls {folder}").split()
    bases = sorted(int(name.removesuffix(".log")) for name in files if name.endswith(".log"))
    stage.fact(f"The partition is a folder with {len(bases)} segments.", len(bases) > 1)
    base = max(number for number in bases if number <= _WANTED)
    log = f"{folder}/{base:020}.log"
    batches = _BATCH.findall(stage.run(f"kvorum log dump {log} | {_FIELDS}"))
    stage.fact(
        f"A segment is named by its first offset: {log} begins at {base}.",
        int(batches[0][0]) == base,
    )
    stage.say(f"Where is the record at offset {_WANTED}? The index knows a place before it.")
    entries = _ENTRY.findall(stage.run(f"kvorum log dump {log[:-4]}.index"))
    below = [(int(offset), int(place)) for offset, place in entries if int(offset) <= _WANTED]
    offset, place = max(below, default=(base, 0))
    passed = [b for b in batches if place <= int(b[2]) and int(b[1]) < _WANTED]
    held = [b for b in batches if int(b[0]) <= _WANTED <= int(b[1])]
    stage.fact(
        f"The index knows that the batch which ends with offset {offset} begins at byte {place}. "
        f"From there the search passes {len(passed)} of {len(batches)} batches; the next one, at "
        f"byte {held[0][2]}, has the record.",
        len(held) == 1 and int(held[0][2]) >= place and len(passed) < len(batches) - 1,
    )
    times = _TIME.findall(stage.run(f"kvorum log dump {log[:-4]}.timeindex"))
    stage.fact(
        f"The time index leads from a time to an offset in the same way: {len(times)} entries, "
        "rising in both.",
        len(times) > 1 and times == sorted(times, key=lambda e: (int(e[0]), int(e[1]))),
    )
    found = stage.run(f"kvorum consume lines --offset {_WANTED} -n 1")
    stage.fact("The broker finds the same record.", f"line {_WANTED:06}:" in found)
    begins = [int(batch[0]) for batch in batches]
    read = [int(batch[0]) for batch in passed + held]
    parts = spans([*begins, int(batches[-1][1]) + 1], lambda begin: begin in read)
    marks = ((read[0], f"index: byte {place}"), (_WANTED, f"offset {_WANTED}"))
    rows = (
        Row(label="segments", parts=spans([*bases, _LINES])),
        Row(label="batches", parts=parts, start=base, marks=marks),
    )
    title = "From an offset to a segment, by its index to a batch, and on to the record"
    stage.draw(Picture(title=title, rows=rows, key=((0, "not read"), (1, "read"))))


LESSON = Lesson(
    number=1,
    name="partition-folder",
    title="A partition is a folder",
    claim=(
        "A partition is a folder of segments. A sparse index leads from an offset, or a time, to a "
        "place in a segment's file, from which a few batches are read."
    ),
    show=show,
    seen="files named by their first offset, and two indexes small enough to be searched at once.",
    code="kvorum/storage/files/index.py",
    page="docs/log.md",
    try_next="kvorum consume lines --offset @-5s -n 1, which goes through the time index",
)
