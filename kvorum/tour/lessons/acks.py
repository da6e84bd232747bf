"""Lesson 6."""

from __future__ import annotations

from kvorum.tour.lesson import PATIENT, Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage
from kvorum.tour.telling import leader_of, rows_of

_ANSWERS = {"-": "nothing", None: "time-out"}
_DESCRIBE = "kvorum topics describe orders"


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1")
    (partition,) = stage.rows(_DESCRIBE)
    leader, *followers = partition["REPLICAS"].split(",")
    told = [stage.run("kvorum produce orders --acks all before")]
    stage.say("The followers are paused. The leader takes three records, then it dies.")
    paused = stage.pause_brokers(followers)
    told.append(stage.run("kvorum produce orders --acks 0 asked-0"))
    told.append(stage.run("kvorum produce orders --acks 1 asked-1"))
    stage.run_in_vain("kvorum produce orders --acks all --delivery-timeout 2 asked-all")
    dumped = stage.run(
        f"kvorum log dump --print-data-log lab/broker-{leader}/orders-0/00000000000000000000.log "
        "| grep -o 'payload: .*'"
    )
    stage.fact(
        "The leader's log has all of them.",
        all(f"asked-{acks}" in dumped for acks in ("0", "1", "all")),
    )
    stage.run(f"kill -9 {stage.process_of(f'broker-{leader}')} && kill -CONT {paused}")
    out = stage.wait_for(_DESCRIBE, lambda out: leader_of(out) in followers)
    stage.fact(f"Broker {leader_of(out)} leads; it was in the ISR.", leader_of(out) in followers)
    read = stage.wait_for("kvorum consume orders", lambda out: "before" in out)
    stage.fact("before: there. It was acknowledged by all.", "before" in read)
    stage.fact("asked-0: gone. Its producer wanted no answer, and got none.", "asked-0" not in read)
    stage.fact("asked-1: gone, though its producer was told that it is written.",
               "asked-1" not in read)  # fmt: skip
    stage.fact(
        "asked-all: gone too. It was never acknowledged: its producer was told of a time-out, and "
        "must reckon with either.",
        "asked-all" not in read,
    )
    offsets = [rows_of(answer)[0]["LAST_OFFSET"] for answer in told]
    values = [line.split()[1] for line in dumped.splitlines()]
    rows = {
        f"{leader}, dead": values,
        "told": [_ANSWERS.get(offset, f"offset {offset}") for offset in (*offsets, None)],
        f"{leader_of(out)} leads": [value if value in read.split() else "" for value in values],
    }
    title = "Four records: where they were, what producers were told, and where they are"
    stage.draw(logs(title, rows, lambda text: 3 * (text not in values)))


LESSON = Lesson(
    number=6,
    name="acks",
    title="acks=0, 1, all: what an answer means",
    claim=(
        "acks says who has the record when the producer is told: nobody knows (0), the leader (1), "
        "every replica in sync (all). Only the last is sure to survive the leader."
    ),
    show=show,
    seen="an acknowledged record that is gone, and one that nobody was told is safe.",
    code="kvorum/broker/partition/core/partition.py",
    page="docs/walks/produce.md",
    try_next="kvorum chaos run leader-kill, which counts them under load (needs toxiproxy)",
    properties=("replica.lag.time.max.ms=30000", *PATIENT),
)
