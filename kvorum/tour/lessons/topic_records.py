"""Lesson 10."""

from __future__ import annotations

import json
import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import Part, Picture, Row
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after


def show(stage: Stage) -> None:
    before = number_after("HighWatermark", stage.run("kvorum quorum status"))
    stage.run("kvorum topics create orders --partitions 2 --config retention.ms=60000")
    records = [
        json.loads(line)
        for line in stage.run(f"kvorum metadata dump --from {before}").splitlines()
        if line.startswith("{")
    ]
    kinds = [record["type"] for record in records]
    stage.fact(
        f"The command became {len(kinds)} records: {', '.join(kinds)}.",
        {"Topic", "Partition", "Config"} <= set(kinds) and kinds.count("Partition") == 2,
    )
    after = records[-1]["offset"] + 1
    changes = stage.run(f"kvorum metadata diff {before} {after}")
    stage.fact("The difference of the two states is these records.", "+ /topics/orders" in changes)
    stage.run("kvorum topics delete orders")
    gone = stage.run("kvorum metadata ls /topics")
    stage.fact("The topic is gone now.", "orders" not in gone)
    past = stage.run(f"kvorum metadata tree /topics --at-offset {after} --depth 2")
    stage.fact(f"It was there at offset {after}: the log is the history.", "orders" in past)
    written = stage.run("kvorum metadata snapshot --out .")
    name = re.search(r"\d{20}-\d{10}\.checkpoint", written)
    stage.fact(
        "A snapshot is the state at an offset; its name has the offset and the epoch.",
        name is not None,
    )
    if name is not None:
        stage.run(f"kvorum snapshot inspect {name.group()}")
        end = int(name.group()[:20])
        marks = ((before, f"{before}: none"), (after, f"{after}: orders"), (end, f"{end}: none"))
        parts = [Part(length=1, text=kind) for kind in kinds]
        deleted = Part(length=end - after, text="delete", tone=1)
        row = Row(label="log", start=before, parts=(*parts, deleted), marks=marks)
        stage.draw(Picture(title="The metadata log, and the topics at three offsets", rows=(row,)))


LESSON = Lesson(
    number=10,
    name="topic-records",
    title="Creating a topic is records in a log",
    claim=(
        "The cluster's metadata is a log: every change is some records, each state is what the "
        "records up to an offset make, and a snapshot is one of these states."
    ),
    show=show,
    seen="a change, the states before and after it, and a look back.",
    code="kvorum/metadata/controller/decide/topics.py",
    page="docs/inspection.md",
    try_next="kvorum metadata shell, and its `help`",
)
