"""Lesson 21."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage

_MEMBER = "kvorum consume jobs --share-group workers"


def show(stage: Stage) -> None:
    stage.run("kvorum topics create jobs --partitions 1")
    stage.run(
        "kvorum configs alter --entity group --name workers --set share.auto.offset.reset=earliest"
    )
    stage.run("seq -f 'job-%02.0f' 40 | kvorum produce jobs")
    stage.say(
        "Two members read one partition, each until it has 20 jobs. In a consumer group one of "
        "them would have nothing."
    )
    stage.run(f"{_MEMBER} -n 20 > a & {_MEMBER} -n 20 > b; wait; wc -l a b")
    both = stage.run("sort a b | uniq -c | sort -rn | head -3; sort -u a b | wc -l")
    stage.fact(
        "Together they have every job, once. (A member that dies with a record in hand has not "
        "accepted it: it goes to another.)",
        both.split()[-1] == "40",
    )
    taken = stage.run("for m in a b; do echo $m $(sort $m); done").splitlines()
    (partition,) = stage.rows("kvorum groups describe workers")
    stage.fact("The group is at the end: nothing is left.", partition["LAG"] == "0")
    stage.run("kvorum produce jobs late-1 late-2")
    stage.run(f"{_MEMBER} -n 2 --format '%o %v\\n'")
    read = stage.run("kvorum consume jobs | wc -l")
    stage.fact("The topic is as it was: others may read it as a log.", read.split()[-1] == "42")
    rows = {
        f"member {line[0]}": [" " * (f"job-{job:02}" in line) for job in range(1, 41)]
        for line in taken
    }
    stage.draw(logs("Records of one partition, by the member that took them", rows))


LESSON = Lesson(
    number=21,
    name="share-group",
    title="A share group reads a topic as a queue",
    claim=(
        "Members of a share group (Kafka 4.2) take records, not partitions: several read one "
        "partition at once, and a record that one of them has accepted goes to no other."
    ),
    show=show,
    seen="a queue and a log in one topic.",
    code="kvorum/broker/share",
    page="docs/queues.md",
    try_next="kvorum groups describe workers --members, while a member follows (--follow)",
)
