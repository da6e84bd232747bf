"""Lesson 5."""

from __future__ import annotations

from kvorum.tour.lesson import PATIENT, Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage
from kvorum.tour.telling import isr_of

_DESCRIBE = "kvorum topics describe orders"


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1")
    (partition,) = stage.rows(_DESCRIBE)
    leader, slow = partition["LEADER"], partition["REPLICAS"].split(",")[-1]
    stage.run("kvorum produce orders --acks all one")
    stage.say(f"Follower {slow} stops fetching: its process is paused.")
    paused = stage.process_of(f"broker-{slow}")
    stage.run(f"kill -STOP {paused}")
    stage.run("kvorum produce orders --acks 1 two")
    path = "lab/broker-$b/orders-0/00000000000000000000.log"
    shown = f"$(kvorum log dump --print-data-log {path} | grep -o 'payload: .*' | cut -d' ' -f2)"
    brokers = " ".join(reversed(partition["REPLICAS"].split(",")))
    dumped = stage.run(f"for b in {brokers}; do echo $b {shown}; done")
    logs_of = {line.split()[0]: line.split()[1:] for line in dumped.splitlines()}
    stage.fact("The leader's log ends at offset 2: it has both.", logs_of[leader] == ["one", "two"])
    stage.say("`kvorum consume` ends at the high watermark, and waits for nothing.")
    read = stage.run("kvorum consume orders")
    stage.fact(
        "A consumer gets the first alone: the high watermark is 1, since a replica of the ISR has "
        "not fetched the second.",
        "one" in read and "two" not in read,
    )
    stage.say("After replica.lag.time.max.ms, 8 seconds here, the leader goes on without it.")
    first, isr = read, stage.wait_for(_DESCRIBE, lambda out: slow not in isr_of(out))
    read = stage.wait_for("kvorum consume orders", lambda out: "two" in out)
    stage.fact("The high watermark is 2: both replicas that are in sync have it.", "two" in read)
    stage.run(f"kill -CONT {paused}")
    out = stage.wait_for(_DESCRIBE, lambda out: slow in isr_of(out))
    stage.fact(f"Once {slow} has caught up, it is in the ISR again.", slow in isr_of(out))
    marks = [
        (end := sum(value in out.split() for value in logs_of[leader]), f"HW {end}, ISR {members}")
        for out, members in ((first, partition["ISR"]), (read, ",".join(isr_of(isr))))
    ]
    rows = {f"{b} {'leads' if b == leader else 'follows'}": log for b, log in logs_of.items()}
    title = f"The logs while {slow} is paused; HW before and after it left the ISR"
    key = ((0, "committed at first"), (1, "when the ISR had shrunk"))
    stage.draw(logs(title, rows, lambda value: value not in first.split(), marks, key))


LESSON = Lesson(
    number=5,
    name="high-watermark",
    title="Log end, high watermark and ISR",
    claim=(
        "A record is committed when every replica of the ISR has it: consumers read up to that "
        "offset, the high watermark. A slow follower holds it up until it is out of the ISR."
    ),
    show=show,
    seen="one log with two ends, and a set of replicas that shrinks so that the service goes on.",
    code="kvorum/broker/partition/core/partition.py",
    page="docs/walks/produce.md",
    try_next="pause the follower again, and produce with --acks all: it waits for the ISR",
    properties=("replica.lag.time.max.ms=8000", *PATIENT),
)
