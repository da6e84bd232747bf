"""Lesson 16."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import GAP, Picture, Row, spans
from kvorum.tour.stage import Stage

_MIB, _RECORDS = 1 << 20, 130_000


def show(stage: Stage) -> None:
    stage.run(
        f"kvorum topics create sized --partitions 1 --config segment.bytes={_MIB} "
        f"--config retention.bytes={2 * _MIB}"
    )
    stage.run(f"yes 'a line of some length, again and again' | head -{_RECORDS} > lines")
    stage.run("kvorum produce sized --acks all --file lines")
    folder = "lab/broker-101/sized-0"
    listed = stage.wait_for(
        f"ls -l {folder} | grep 'log$'",
        lambda out: f"{0:020}.log" not in out and sum(_sizes(out)) < 3 * _MIB,
    )
    stage.fact("Whole segments go, from the oldest on.", f"{0:020}.log" not in listed)
    total = sum(_sizes(listed))
    stage.fact(
        f"{total} bytes are left, retention.bytes and less than a segment more: the first segment "
        "whose loss would leave too little stays whole.",
        2 * _MIB <= total < 3 * _MIB,
    )
    first = stage.run("kvorum consume sized --offset start -n 1 --format '%o\\n'").split()[0]
    stage.fact(f"Consumers begin at the log start, offset {first}.", int(first) > 0)

    stage.say("By time: a segment goes when its newest record is too old.")
    stage.run("kvorum topics create timed --partitions 1 --config retention.ms=60000")
    stage.run("kvorum topics create mixed --partitions 1 --config retention.ms=60000")
    stage.run("kvorum produce timed --timestamp 2020-01-01T00:00:00Z old")
    stage.write("both", '{"value": "old", "timestamp": "2020-01-01T00:00:00Z"}\n{"value": "new"}\n')
    stage.run("kvorum produce mixed -f json --file both")
    read = stage.wait_for("kvorum consume timed", lambda out: "old" not in out)
    stage.fact("A segment of old records alone is gone.", "old" not in read)
    read = stage.run("kvorum consume mixed")
    stage.fact("An old record beside a new one, in one segment, stays.", "old" in read)
    edges = [0, *(int(name) for name in re.findall(r"(\d+)\.log", listed)), _RECORDS]
    parts = spans(edges, lambda begin: 0 if begin else GAP)
    marks = ((int(first), f"log start {first}"), (_RECORDS, f"log end {_RECORDS}"))
    row = Row(label="segments", parts=parts, marks=marks)
    title = f"{total:,} bytes of a log are left, with retention.bytes={2 * _MIB:,}"
    stage.draw(Picture(title=title, rows=(row,), key=((GAP, "deleted"),)))


def _sizes(listed: str) -> list[int]:
    return [int(line.split()[4]) for line in listed.splitlines() if line.endswith(".log")]


LESSON = Lesson(
    number=16,
    name="retention",
    title="Retention deletes whole segments",
    claim=(
        "Retention by size or by time never deletes a record, it deletes segments: so more stays "
        "than was asked for, and an old record lives as long as the newest one in its file."
    ),
    show=show,
    seen="why a topic is larger than its retention.bytes, and how a record outlives its time.",
    code="kvorum/storage/log/retention.py",
    page="docs/log.md",
    try_next="kvorum topics trim sized --offset 100000",
    properties=("log.retention.check.interval.ms=500",),
)
