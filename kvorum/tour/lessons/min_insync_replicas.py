"""Lesson 7."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage
from kvorum.tour.telling import isr_of, leader_of, rows_of

_DESCRIBE = "kvorum topics describe orders"
_PAID = ("paid-1", "paid-2", "paid-3")


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1 --config min.insync.replicas=2")
    (partition,) = stage.rows(_DESCRIBE)
    first, second, third = partition["REPLICAS"].split(",")
    stage.run("kvorum produce orders --acks all paid-1")

    stage.say(f"Of three replicas, broker {third} dies.")
    _kill(stage, third)
    isrs = [partition["ISR"].split(",")]
    isrs.append(isr_of(stage.wait_for(_DESCRIBE, lambda out: len(isr_of(out)) == 2)))
    stage.run("kvorum produce orders --acks all paid-2")
    stage.say("Two replicas in sync are enough: acks=all goes on.")

    stage.say(f"Broker {second} dies too. The leader is alone.")
    _kill(stage, second)
    isrs += [isr_of(stage.wait_for(_DESCRIBE, lambda out: isr_of(out) == [first]))] * 2
    stage.run_in_vain("kvorum produce orders --acks all --delivery-timeout 3 paid-3")
    log = f"lab/broker-{first}/orders-0/00000000000000000000.log"
    values = stage.run(f"kvorum log dump --print-data-log {log} | grep -o 'payload: .*'")
    stage.fact(
        "acks=all is refused now: one replica in sync is below min.insync.replicas. Nothing of "
        "paid-3 is in the leader's log.",
        "paid-2" in values and "paid-3" not in values,
    )
    stage.run("kvorum produce orders --acks 1 lost-4")
    stage.say("acks=1 is taken: its producer did not ask for more.")

    stage.say(f"Now the leader dies too. Only broker {third}, the first that died, comes back.")
    _kill(stage, first)
    stage.run(f"kvorum dev restart broker-{third} --data-dir lab")
    stage.wait_for(
        "kvorum brokers list",
        lambda out: any(r["BROKER_ID"] == third and r["IS_FENCED"] == "no" for r in rows_of(out)),
    )
    out = stage.wait_for(_DESCRIBE, lambda out: leader_of(out) == "-1")
    stage.fact("It does not lead: it was not in the ISR.", leader_of(out) == "-1")
    stage.say("An unclean election makes it the leader all the same: service instead of records.")
    stage.run("kvorum partitions elect orders:0 --unclean")
    stage.wait_for(_DESCRIBE, lambda out: leader_of(out) == third)
    stage.say("With one replica nothing is committed while min.insync.replicas is 2.")
    stage.run("kvorum configs alter --entity topic --name orders --set min.insync.replicas=1")
    read = stage.wait_for("kvorum consume orders", lambda out: "paid-1" in out)
    stage.fact("paid-1 is there.", "paid-1" in read)
    stage.fact("lost-4 is gone: one broker had it.", "lost-4" not in read)
    stage.fact(
        "paid-2 is gone too, though acks=all was acknowledged, by the two that were in sync: that "
        "is what an unclean election costs.",
        "paid-2" not in read,
    )
    rows = {
        "acks": ["all", "all", "all", "1"],
        "in sync": [str(len(isr)) for isr in isrs],
        "accepted": [each if each in values else "" for each in _PAID] + ["lost-4"],
        f"left on {third}": [each if each in read.split() else "" for each in (*_PAID, "lost-4")],
    }
    title = "Four records: what was accepted, and what an unclean election left"
    stage.draw(logs(title, rows, lambda text: 3 * (text not in (*_PAID, "lost-4"))))


def _kill(stage: Stage, broker: str) -> None:
    stage.run(f"kill -9 {stage.process_of(f'broker-{broker}')}")


LESSON = Lesson(
    number=7,
    name="min-insync-replicas",
    title="min.insync.replicas, and what acks=1 risks",
    claim=(
        "min.insync.replicas=2 refuses a write that only one broker would have; who asks for less "
        "(acks=1) gets an answer, and may lose the record with that broker."
    ),
    show=show,
    seen="two ways to lose a record: to ask for little, and to elect uncleanly.",
    code="kvorum/broker/partition/core/partition.py",
    page="docs/partitions.md",
    try_next="kvorum chaos run unclean-election (needs toxiproxy)",
)
