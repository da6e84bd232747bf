"""Lesson 12."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import rows_of

_PARTITIONS = 6
_PROGRAM = """\
import os, sys
from confluent_kafka import Consumer
how = {"eager": {"partition.assignment.strategy": "range"},
       "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
       "consumer": {"group.protocol": "consumer"}}[sys.argv[1]]
consumer = Consumer({"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "group.id": sys.argv[1], **how})
def revoked(consumer, partitions):
    for each in partitions:
        print("gave up", each.partition, flush=True)
consumer.subscribe(["orders"], on_revoke=revoked)
while True:
    consumer.poll(1)
"""


def show(stage: Stage) -> None:
    stage.run(f"kvorum topics create orders --partitions {_PARTITIONS}")
    stage.say("member.py joins a group, and prints the partitions that it has to give up:")
    stage.write("member.py", _PROGRAM)
    given_up = {how: _given_up(stage, how) for how in ("eager", "cooperative", "consumer")}
    stage.fact(
        f"Eager: {given_up['eager']} partitions stood still. Everybody gave up everything, and "
        "most of it came back.",
        given_up["eager"] == _PARTITIONS,
    )
    stage.fact(
        f"Cooperative: {given_up['cooperative']}, those that moved.",
        given_up["cooperative"] == _PARTITIONS // 3,
    )
    stage.fact(
        f"The consumer protocol (KIP-848): {given_up['consumer']}, and no member waits for "
        "another: the coordinator decides.",
        given_up["consumer"] == _PARTITIONS // 3,
    )
    shares = {f"{how}: {count}": (_PARTITIONS - count, count) for how, count in given_up.items()}
    title = "Partitions of a group, while a third member joins"
    stage.draw(bars(title, shares, "in all", ((0, "read on"), (1, "stood still"))))


def _given_up(stage: Stage, how: str) -> int:
    """The partitions that two members give up for a third one."""
    start = f"({stage.python} member.py {how} >> {how} 2>&1 & echo $! >> pids)"
    stage.run(f"{start}; {start}")
    stage.wait_for(f"kvorum groups describe {how} --members", lambda out: _members(out) == 2)
    stage.run(f": > {how}; {start}")
    stage.wait_for(f"kvorum groups describe {how} --members", lambda out: _members(out) == 3)
    found = stage.run(f"sleep 1; cat {how}; kill $(cat pids); rm pids")
    return found.count("gave up")


def _members(described: str) -> int:
    """The members, once each has as many partitions; else 0."""
    counts = [row["PARTITIONS"].count("orders-") for row in rows_of(described)]
    is_even = sum(counts) == _PARTITIONS and len(set(counts)) == 1
    return len(counts) if is_even else 0


LESSON = Lesson(
    number=12,
    name="rebalances",
    title="Rebalances: eager, cooperative, by the coordinator",
    claim=(
        "When a member joins, an eager group stops altogether; a cooperative one, and one of the "
        "consumer protocol, give up the partitions that move and read on with the others."
    ),
    show=show,
    seen="how much of a group stands still while it grows.",
    code="kvorum/broker/groups",
    page="docs/protocol/groups.md",
    try_next="the same with a member that is killed: it gives nothing up, its session must end",
    properties=("group.initial.rebalance.delay.ms=0",),
)
