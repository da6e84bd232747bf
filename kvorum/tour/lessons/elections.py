"""Lesson 9."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import GAP, logs
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after

_STATUS = "kvorum quorum status"
_LEADER, _EPOCH = "LeaderId", "LeaderEpoch"


def show(stage: Stage) -> None:
    before = stage.run(_STATUS)
    leader, epoch = number_after(_LEADER, before), number_after(_EPOCH, before)
    stage.say(f"Controller {leader} leads in epoch {epoch}. It dies.")
    stage.run(f"kill -9 {stage.process_of(f'controller-{leader}')}")
    after = stage.wait_for(_STATUS, lambda out: number_after(_LEADER, out) not in (leader, -1))
    second, later = number_after(_LEADER, after), number_after(_EPOCH, after)
    stage.fact(f"Controller {second} leads, in a later epoch: {later}.", later > epoch)
    told = stage.run("kvorum quorum timeline | tail -12")
    stage.fact(
        "It had asked whether it would be elected (pre-vote), then for votes; two of three are a "
        "majority.",
        "pre-vote" in told and f"leader={second}" in told,
    )
    stage.run("kvorum topics create made-by-the-second --partitions 1")
    stage.say("Two controllers of three go on: a topic was made.")

    stage.say(f"A second controller dies, {second}. One is left.")
    stage.run(f"kill -9 {stage.process_of(f'controller-{second}')}")
    stage.run_in_vain("kvorum topics create never --partitions 1 --timeout 3")
    stage.say("One controller of three elects nobody: nothing can be changed.")
    stage.run("kvorum produce made-by-the-second --acks all --no-idempotence still-served")
    stage.fact(
        "Records are still written and read: brokers need no controller while leaders and ISRs "
        "stay as they are. (A new idempotent producer does: its id comes from one.)",
        "still-served" in stage.run("kvorum consume made-by-the-second"),
    )

    stage.run(f"kvorum dev restart controller-{leader} controller-{second} --data-dir lab")
    last = stage.wait_for(_STATUS, lambda out: number_after(_LEADER, out) != -1)
    stage.fact(
        "The dead ones are back, and there is a leader again, in epoch "
        f"{number_after(_EPOCH, last)}. An election that nobody wins uses up an epoch too.",
        number_after(_EPOCH, last) > later or number_after(_LEADER, last) == second,
    )
    topics = stage.run("kvorum topics list -o name")
    stage.fact("What was committed is there, what was refused is not.", "never" not in topics)
    phases = (
        (leader, (), epoch),
        (second, (leader,), later),
        (-1, (leader, second), -1),
        (number_after(_LEADER, last), (), number_after(_EPOCH, last)),
    )
    rows = {
        f"controller {each}": [
            "" if each in dead else f"leads {number}" if each == who else "alive"
            for who, dead, number in phases
        ]
        for each in (1, 2, 3)
    }
    key = ((0, "leads in that epoch"), (1, "alive"), (GAP, "dead"))
    title = "Two deaths, and the return of both"
    stage.draw(logs(title, rows, lambda text: text == "alive", key=key))


LESSON = Lesson(
    number=9,
    name="elections",
    title="A majority elects, a minority waits",
    claim=(
        "Of three controllers two elect a leader, in an epoch that no earlier leader had; one "
        "alone elects nobody, and what it cannot commit it refuses."
    ),
    show=show,
    seen="epochs that only rise, and a service that goes on while its controllers are away.",
    code="kvorum/raft/core/election.py",
    page="docs/protocol/election.md",
    try_next="kvorum quorum replication, while you kill the leader again",
    controllers=3,
)
