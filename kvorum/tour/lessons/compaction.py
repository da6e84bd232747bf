"""Lesson 15."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import GAP, logs
from kvorum.tour.stage import Stage

_CONSUME = "kvorum consume prices --format '%o %k=%v\\n'"

_RECORD = re.compile(r"(\d+) (\w+=\w+)")


def show(stage: Stage) -> None:
    stage.run(
        "kvorum topics create prices --partitions 1 --config cleanup.policy=compact "
        "--config segment.ms=1000 --config min.cleanable.dirty.ratio=0.01 "
        "--config delete.retention.ms=0"
    )
    stage.write("first", "apple:1\npear:5\napple:2\nplum:7\napple:3\n")
    stage.run("kvorum produce prices --key-separator : --file first")
    stage.run("kvorum produce prices --key plum --tombstone ''")
    before = stage.run(_CONSUME)
    stage.fact("Six records: three values of apple, and a tombstone for plum.",
               before.count("apple=") == 3 and "plum=" in before)  # fmt: skip
    stage.say(
        "The cleaner leaves the active segment alone. A later record begins a new one, since "
        "segment.ms has passed."
    )
    stage.run("sleep 1.5; kvorum produce prices --key-separator : kiwi:4")
    after = stage.wait_for(_CONSUME, lambda out: out.count("apple=") == 1)
    stage.fact("One value of apple is left, the last.", "apple=3" in after)
    stage.fact("Offsets stay as they were: there are gaps.", "1 pear=5" in after)
    stage.run("sleep 1.5; kvorum produce prices --key-separator : fig:9")
    last = stage.wait_for(_CONSUME, lambda out: "plum" not in out)
    stage.fact("After delete.retention.ms the tombstone goes too.", "plum" not in last)
    stage.run("ls -l lab/broker-101/prices-0")
    read = {"first": before, "then": after, "last": last}
    found = {name: dict(_RECORD.findall(out)) for name, out in read.items()}
    offsets = range(1 + max(int(offset) for offset in found["last"]))
    rows = {
        name: [log.get(str(offset), "").removesuffix("=null") for offset in offsets]
        for name, log in found.items()
    }
    title = "Records at their offsets, before and after compaction"
    marks = [(offset, str(offset)) for offset in offsets]
    key = ((1, "a tombstone"), (GAP, "nothing"))
    stage.draw(logs(title, rows, lambda pair: "=" not in pair, marks, key))


LESSON = Lesson(
    number=15,
    name="compaction",
    title="Compaction keeps the last value of each key",
    claim=(
        "A compacted topic keeps the last record of each key, at its old offset; once its segments "
        "are cleaned, nothing else is left. A record without a value, a tombstone, takes its key "
        "away."
    ),
    show=show,
    seen="a log that became a table, with the offsets of the log.",
    code="kvorum/storage/cleaning",
    page="docs/log.md",
    try_next="kvorum topics describe __consumer_offsets: groups keep their offsets in such a topic",
    properties=("log.cleaner.backoff.ms=300",),
)
