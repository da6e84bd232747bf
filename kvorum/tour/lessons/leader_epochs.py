"""Lesson 8."""

from __future__ import annotations

import re

from kvorum.tour.lesson import PATIENT, Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage
from kvorum.tour.telling import isr_of, leader_of

_DESCRIBE = "kvorum topics describe orders"
_LOG = "orders-0/00000000000000000000.log"
_RECORD = re.compile(r"Epoch: (\d+)\npayload: (\S+)")
_SHOWN = "grep -o 'partitionLeaderEpoch: [0-9]*\\|payload: .*'"


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1")
    (partition,) = stage.rows(_DESCRIBE)
    old, *followers = partition["REPLICAS"].split(",")
    stage.run("kvorum produce orders --acks all shared")
    stage.say(
        f"The followers are paused. Leader {old} takes a record that nobody fetches, and dies."
    )
    paused = stage.pause_brokers(followers)
    stage.run("kvorum produce orders --acks 1 lonely")
    stage.run(f"kill -9 {stage.process_of(f'broker-{old}')} && kill -CONT {paused}")
    new = leader_of(stage.wait_for(_DESCRIBE, lambda out: leader_of(out) in followers))
    stage.run("kvorum produce orders --acks all other")
    first, second = (_dumped(stage, broker) for broker in (old, new))
    stage.fact(
        "Offset 1 is two records: lonely on the dead leader, in epoch 0, other on the new one, in "
        "epoch 1.",
        first.split() == [*_epoch(0, "shared"), *_epoch(0, "lonely")]
        and second.split() == [*_epoch(0, "shared"), *_epoch(1, "other")],
    )
    stage.say(
        "The old leader comes back. Its high watermark is no help: it asks the new leader where "
        "its own last epoch ends, and cuts its log there (KIP-101)."
    )
    stage.run(f"kvorum dev restart broker-{old} --data-dir lab")
    stage.wait_for(_DESCRIBE, lambda out: old in isr_of(out))
    before, first = first, _dumped(stage, old)
    stage.fact(
        "lonely is gone there too, and other is in its place.",
        first.split() == [*_epoch(0, "shared"), *_epoch(1, "other")],
    )
    stage.run(f"cmp lab/broker-{old}/{_LOG} lab/broker-{new}/{_LOG}")
    stage.say("The two logs are equal, byte for byte.")
    dumps = {f"{old}, dead": before, f"{new} leads": second, f"{old}, back": first}
    epochs = {value: int(epoch) for out in dumps.values() for epoch, value in _RECORD.findall(out)}
    rows = {name: [value for _, value in _RECORD.findall(out)] for name, out in dumps.items()}
    title, key = "Two logs part, and agree again", ((0, "of epoch 0"), (1, "of epoch 1"))
    stage.draw(logs(title, rows, epochs.__getitem__, ((0, "0"), (1, "1")), key))


def _dumped(stage: Stage, broker: str) -> str:
    return stage.run(f"kvorum log dump --print-data-log lab/broker-{broker}/{_LOG} | {_SHOWN}")


def _epoch(epoch: int, value: str) -> list[str]:
    return ["partitionLeaderEpoch:", str(epoch), "payload:", value]


LESSON = Lesson(
    number=8,
    name="leader-epochs",
    title="Leader epochs: whose record is offset 1?",
    claim=(
        "A leader that died may have records that its successor never saw. When it comes back, "
        "leader epochs tell it where the two logs part, and it cuts off its own end."
    ),
    show=show,
    seen="one offset with two histories, and how the cluster agrees on one of them.",
    code="kvorum/broker/partition/core/partition.py",
    page="docs/protocol/replication.md",
    try_next="kvorum consume orders, and lesson 6 for what the producers were told",
    properties=("replica.lag.time.max.ms=30000", *PATIENT),
)
