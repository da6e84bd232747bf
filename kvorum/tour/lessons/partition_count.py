"""Lesson 11."""

from __future__ import annotations

import re

from kvorum.tour.lesson import PATIENT, Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after

_RECORDS = 20_000
_ELECTION_MS, _LOAD_MS = 5, 2
"""Of a partition, in Jun Rao's "How to choose the number of topics/partitions", of 2015."""
_STATUS = "kvorum quorum status | grep -e LeaderId -e HighWatermark"
_AT = re.compile(r"(\d+) at (\d+)")
_TIMES = r"""sed -n '/"leader": [0-9]/s/.*"timestamp_ms": \([0-9]*\).*/at \1/p' | uniq -c"""
_SENT = re.compile(r"(\d+) ms\n(\d+)")
_PROGRAM = f"""\
import os, sys, time
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "linger.ms": 20}})
producer.list_topics(sys.argv[1])
began = time.monotonic()
for number in range({_RECORDS}):
    producer.produce(sys.argv[1], "x" * 100, key=f"customer {{number}}")
producer.flush()
print(round((time.monotonic() - began) * 1000), "ms")
"""


def show(stage: Stage) -> None:
    stage.say(
        "Brokers die, one after the other: their connections break, and the controller notices. (A "
        "machine that vanishes is noticed after broker.session.timeout.ms.)"
    )
    figures = {}
    for topics, broker, total in (
        ("few --partitions 10", 101, 10),
        ("many --partitions 990", 102, 1_000),
        ("more-{1..9} --partitions 1000", 103, 10_000),
    ):
        stage.run(f"kvorum topics create {topics}")
        led, took_ms = _kill_broker(stage, broker, total)
        figures[f"{led:,} of {total:,}"] = took_ms
        if broker < 103:
            back = f"kvorum dev restart broker-{broker} --data-dir lab"
            stage.run(f"{back} && kvorum health --wait 30")
    stage.fact(
        f"With ZooKeeper, an article of 2015 reckons {_ELECTION_MS} ms an election: "
        f"{_ELECTION_MS * led:,} ms for these {led:,}.",
        took_ms < _ELECTION_MS * led,
    )
    figures[f"{led:,}, {_ELECTION_MS} ms each"] = _ELECTION_MS * led
    _kill_controller(stage)
    stage.say(f"send.py sends {_RECORDS:,} records with keys, which spread them evenly.")
    stage.write("send.py", _PROGRAM)
    (few_ms, few), (many_ms, many) = _send(stage, "few"), _send(stage, "many")
    stage.fact(
        f"{few} batches in {few_ms} ms for 10 partitions, {many:,} in {many_ms:,} ms for 990: the "
        "records that come within linger.ms fall apart into more batches.",
        many > 10 * few and many_ms > few_ms,
    )
    stage.draw(bars("From a broker's death to the last election of its partitions", figures, "ms"))


def _kill_broker(stage: Stage, broker: int, total: int) -> tuple[int, int]:
    """Returns how many partitions it led, and the milliseconds until the last was led again."""
    without = f"kvorum topics describe | awk '$3 == {broker} || $3 == -1' | wc -l"
    led, end = int(stage.run(without)), number_after("HighWatermark", stage.run(_STATUS))
    killed_ms = int(stage.run(f"date +%s%3N; kill -9 {stage.process_of(f'broker-{broker}')}"))
    stage.wait_for(without, lambda out: out.strip() == "0")
    moved = _AT.findall(stage.run(f"kvorum metadata dump --from {end} | {_TIMES}"))
    took_ms = int(moved[-1][1]) - killed_ms
    stage.fact(
        f"Of {total:,} partitions broker {broker} led {led:,}. The metadata log has an election of "
        f"each, the last one {took_ms} ms after the broker's death.",
        sum(int(count) for count, _ in moved) == led,
    )
    return led, took_ms


def _kill_controller(stage: Stage) -> None:
    before = stage.run(_STATUS)
    leader, end = number_after("LeaderId", before), number_after("HighWatermark", before)
    killed_ms = int(stage.run(f"date +%s%3N; kill -9 {stage.process_of(f'controller-{leader}')}"))
    stage.wait_for(_STATUS, lambda out: number_after("LeaderId", out) not in (leader, -1))
    stage.run("kvorum topics create after --replication-factor 2")
    log = stage.run(f"kvorum metadata dump --from {end} | sed -n '/LeaderChange/s/, .type.*//p'")
    took_ms = int(log.split()[-1]) - killed_ms
    stage.fact(
        f"{took_ms} ms after the active controller's death another one was elected. It had applied "
        f"the log all the time. To load it all from ZooKeeper, the article reckons {_LOAD_MS} ms a "
        f"partition: {_LOAD_MS * 10_000:,} ms.",
        took_ms < _LOAD_MS * 10_000,
    )


def _send(stage: Stage, topic: str) -> tuple[int, int]:
    """Returns the milliseconds, and the batches."""
    count = f"kvorum log dump lab/broker-101/{topic}-*/*.log | grep -c baseOffset"
    ((took_ms, batches),) = _SENT.findall(stage.run(f"{stage.python} send.py {topic}; {count}"))
    return int(took_ms), int(batches)


LESSON = Lesson(
    number=11,
    name="partition-count",
    title="More partitions are not always better",
    claim=(
        "Each partition is one more election when its leader dies, and one more batch for its "
        "producers to fill. A log of metadata makes the elections cheap; the batches stay small."
    ),
    show=show,
    seen="what partitions cost when a broker dies, and what they cost a producer every day.",
    code="kvorum/metadata/controller/decide/partition_change.py",
    page="bench/quorum.md",
    try_next="kvorum topics create most-{1..20} --partitions 1000, and kill a broker again",
    controllers=3,
    properties=PATIENT,
)
