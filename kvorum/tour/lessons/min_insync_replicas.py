"""Lesson 7."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.stage import Stage
from kvorum.tour.telling import isr_of, leader_of

_DESCRIBE = "kvorum topics describe orders"


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1 --config min.insync.replicas=2")
    (partition,) = stage.rows(_DESCRIBE)
    first, second, third = partition["REPLICAS"].split(",")
    stage.run("kvorum produce orders --acks all paid-1")

    stage.say(f"Of three replicas, broker {third} dies.")
    _kill(stage, third)
    stage.wait_for(_DESCRIBE, lambda out: len(isr_of(out)) == 2)
    stage.run("kvorum produce orders --acks all paid-2")
    stage.fact("Two replicas in sync are enough: acks=all goes on.", True)

    stage.say(f"Broker {second} dies too. The leader is alone.")
    _kill(stage, second)
    stage.wait_for(_DESCRIBE, lambda out: isr_of(out) == [first])
    stage.run_in_vain("kvorum produce orders --acks all --delivery-timeout 3 paid-3")
    stage.fact("acks=all is refused: one replica in sync is below min.insync.replicas.", True)
    stage.run("kvorum produce orders --acks 1 lost-4")
    stage.fact("acks=1 is taken: the producer did not ask for more.", True)

    stage.say(f"Now the leader dies, and the two others come back, without {first}'s last record.")
    _kill(stage, first)
    stage.run(f"kvorum dev restart broker-{second} broker-{third} --data-dir lab")
    stage.wait_for("kvorum brokers list", lambda out: second in out and third in out)
    out = stage.wait_for(_DESCRIBE, lambda out: leader_of(out) != first)
    if leader_of(out) in ("-1", "none", "-", ""):
        stage.fact(
            "No leader: those that are back died with a kill, and may lack what was committed.",
            True,
        )
        stage.say("An unclean election takes one all the same.")
        stage.run("kvorum partitions elect orders:0 --unclean")
    else:
        stage.fact(
            f"Broker {leader_of(out)} leads: it has all that was committed with two replicas "
            "(an eligible leader replica, KIP-966).",
            True,
        )
    stage.wait_for(_DESCRIBE, lambda out: leader_of(out) in (second, third))
    read = stage.run("kvorum consume orders")
    stage.fact("paid-1 and paid-2 are there: they were committed.", "paid-2" in read)
    stage.fact("lost-4 is gone: it was on one disk only.", "lost-4" not in read)


def _kill(stage: Stage, broker: str) -> None:
    stage.run(f"kill -9 {stage.process_of(f'broker-{broker}')}")


LESSON = Lesson(
    number=7,
    name="min-insync-replicas",
    title="min.insync.replicas, and what acks=1 risks",
    claim=(
        "min.insync.replicas=2 refuses a write that only one disk would have; who asks for less "
        "(acks=1) gets an answer, and may lose the record with that disk."
    ),
    show=show,
    seen="a promise that holds as long as it was asked for.",
    code="kvorum/broker/partition/core/partition.py",
    page="docs/partitions.md",
    try_next="kvorum chaos run leader-kill.yaml",
)
