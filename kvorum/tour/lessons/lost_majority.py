"""Lesson 20."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after

_STATUS = "kvorum quorum status"
_UP_TO = re.compile(r"up to offset (\d+)")


def show(stage: Stage) -> None:
    port = stage.free_port()
    stage.run(f"kvorum init nodes --controllers 3 --brokers 1 --port {port}")
    stage.use_brokers(f"127.0.0.1:{port}")
    for node in ("controller-1", "controller-2", "controller-3", "broker-101"):
        _start(stage, node)
    stage.wait_for(_STATUS, lambda out: number_after("LeaderId", out) > 0)
    stage.wait_for("kvorum brokers list", lambda out: " no" in out)
    stage.run("kvorum topics create orders --partitions 1 --replication-factor 1")
    stage.say("Two of three controllers are lost for good, with their disks.")
    stage.run("kill -9 $(cat controller-2.pid controller-3.pid)")
    stage.run("rm -r nodes/data/controller-2 nodes/data/controller-3")
    refused = stage.run_in_vain("kvorum topics create never --partitions 1 --timeout 3")
    stage.fact("One of three cannot elect itself: nothing can be changed.", "quorum" in refused)
    stage.run("kill $(cat controller-1.pid); sleep 1")
    told = stage.run_in_vain("kvorum quorum recover --config nodes/controller-1.toml")
    stage.fact(
        "What the survivor has is known: up to where it is certainly committed, and from where "
        "records may be missing. Nothing was changed yet.",
        "surely committed" in told and "cannot be known" in told,
    )
    stage.run("kvorum quorum recover --config nodes/controller-1.toml --unsafe")
    _start(stage, "controller-1")
    stage.wait_for(_STATUS, lambda out: number_after("LeaderId", out) == 1)
    topics = stage.run("kvorum topics list -o name")
    stage.fact("The survivor leads alone, and the topic is there.", "orders" in topics)
    if "never" in topics:
        stage.say(
            "So is `never`, whose command failed: the survivor led when it came, and had written "
            "it. That is what `they come true now` means."
        )
    stage.run("kvorum topics create after --partitions 1 --replication-factor 1")
    stage.say("The cluster can be changed again. New controllers would be added to it one by one.")
    end = number_after("HighWatermark", stage.run(_STATUS))
    kept, sure = (int(number) for number in _UP_TO.findall(told)[:2])
    figures = {"controller-1": (sure, kept - sure, end - kept)}
    title = f"The metadata log; what the others had from offset {kept} on is lost"
    key = ((0, "surely committed"), (1, "kept, and true from now on"), (2, "since the recovery"))
    stage.draw(bars(title, figures, "offsets", key))


def _start(stage: Stage, node: str) -> None:
    role = node.partition("-")[0]
    stage.run(
        f"(kvorum {role} --config nodes/{node}.toml > {node}.log 2>&1 & echo $! > {node}.pid)"
    )


LESSON = Lesson(
    number=20,
    name="lost-majority",
    title="Losing the majority, and getting the quorum back",
    claim=(
        "Without a majority nothing can be committed, and no survivor may help itself: it cannot "
        "know what the others had. A person can decide, and is told what may be lost."
    ),
    show=show,
    seen="a decision that software must not take, with the bound of its cost.",
    code="kvorum/raft/core/voter_changes.py",
    page="docs/protocol/voters.md",
    try_next="kvorum init nodes --again 2, start it, and kvorum quorum add-voter --id 2",
    controllers=0,
)
