"""Stories of Streams groups in raw requests, and what Apache Kafka 4.4 answered.

Each story uses a group and topics of its own. Its lines say what was asked and answered: error code
and message, epoch, statuses, tasks. `python -m tests.clients.streams_stories` tells them on Apache
Kafka and writes streams.txt anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.kafka_cluster import fetch_jars
from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY
from kvorum.runtime.errors import ErrorCode
from tests.clients.applications import one_kafka
from tests.clients.streams_telling import Member, Teller
from tests.polling import DEADLINE_S, eventually
from tests.test_broker.raw_client import RawClient

OUTCOMES = Path(__file__).resolve().parent / "streams.txt"
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of both sides: every heartbeat shows its result at once."""
PORT = 28_920
KAFKAS_SETTLING_S = 0.5


# --- the stories ---------------------------------------------------------------------------------


def alone(story: Teller) -> None:
    story.topic("in", 3)
    member = Member(story, "a", story.part("0", "in"))
    member.join()
    member.beat()
    story.describe()
    member.leave()
    story.describe()
    member.join()


def taking_turns(story: Teller) -> None:
    story.topic("in", 2)
    first, second = (Member(story, name, story.part("0", "in")) for name in "ab")
    first.join()
    first.is_slow = True
    second.join()
    first.beat()
    second.beat()
    first.beat("still has all")
    second.beat()
    first.own()
    first.beat("has given one up")
    second.beat()
    first.beat()
    story.describe()
    first.leave()
    second.beat()


def lost_answer(story: Teller) -> None:
    story.topic("in", 2)
    first, second = (Member(story, name, story.part("0", "in")) for name in "ab")
    first.join()
    second.join()
    before, had = first.epoch, dict(first.owned)
    first.beat()
    first.beat()
    first.epoch = before
    first.beat("in the last epoch, with what it has")
    first.epoch = before
    first.beat("in the last epoch, with more", **had)
    first.epoch = before - 1
    first.beat("in an epoch before")
    first.epoch = 99
    first.beat("in a later epoch")


def strangers(story: Teller) -> None:
    story.topic("in", 1)
    member = Member(story, "a", story.part("0", "in"))
    member.epoch = 3
    member.beat("of no group")
    member.leave()
    member.join()
    other = Member(story, "b", story.part("0", "in"))
    other.epoch = 3
    other.beat("of no member")
    other.leave()


def bad_requests(story: Teller) -> None:
    story.topic("in", 1)
    member = Member(story, "a", story.part("0", "in"))
    member.join(topology=None)
    member.join(rebalance_timeout=-1)
    member.join(active_tasks=[{"subtopology_id": "0", "partitions": [0]}])
    member.join(active_tasks=None)
    member.join(instance_id="")
    member.join(rack_id="")
    member.leave(-2)
    member.leave(-3)
    Member(story, "", story.part("0", "in")).join()
    member.join()
    member.beat("with a topology", topology=member.topology)
    member.beat("with one role", standby_tasks=None)
    member.beat("of no such task", active_tasks=[{"subtopology_id": "0", "partitions": [1]}])
    member.beat("of no such part", active_tasks=[{"subtopology_id": "9", "partitions": [0]}])
    twice = [{"subtopology_id": "0", "partition": 0, "offset": 1}] * 2
    member.beat("with two offsets", task_offsets=twice)
    member.beat()


def bad_topologies(story: Teller) -> None:
    story.topic("in", 1)

    def tried(name: str, *parts: Any, **more: Any) -> None:
        Member(story, name, *parts, **more).join()

    tried("regex", story.part("0", "in", regex=["in.*"]))
    tried("fixed-changelog", story.part("0", "in", changelogs={"log": 3}))
    tried("loop", story.part("0", sinks=("r",), repartitions={"r": 0}))
    tried("no-sink", story.part("0", "in", repartitions={"r": 0}))
    internal = story.part("0", "in")
    internal["source_topics"] = ["__consumer_offsets"]
    tried("internal", internal)
    illegal = story.part("0", "in")
    illegal["source_topics"] = ["a b"]
    tried("illegal", illegal)


def missing_source(story: Teller) -> None:
    member = Member(story, "a", story.part("0", "in", "also"))
    member.join()
    story.describe()
    story.topic("in", 2)
    member.beat()
    story.topic("also", 3)
    member.beat()
    member.beat()
    story.describe()


def made_topics(story: Teller) -> None:
    story.topic("in", 3)
    parts = (
        story.part("0", "in", sinks=("r",)),
        story.part("1", repartitions={"r": 0}, changelogs={"log": 0}),
    )
    member = Member(story, "a", *parts)
    member.join()
    story.await_topic("r", 3)
    story.await_topic("log", 3)
    member.beat()
    story.describe()


def wrong_changelog(story: Teller) -> None:
    story.topic("in", 3)
    story.topic("log", 2)
    member = Member(story, "a", story.part("0", "in", changelogs={"log": 0}))
    member.join()
    story.describe()


def copartition(story: Teller) -> None:
    story.topic("one", 2)
    story.topic("two", 3)
    member = Member(story, "a", story.part("0", "one", "two", together=[([0, 1], [])]))
    member.join()


def copartition_repartition(story: Teller) -> None:
    story.topic("one", 2)
    story.topic("wide", 4)
    parts = (
        story.part("0", "wide", sinks=("r",)),
        story.part("1", "one", repartitions={"r": 0}, together=[([0], [0])]),
    )
    Member(story, "a", *parts).join()
    story.await_topic("r", 2)


def copartition_fixed(story: Teller) -> None:
    story.topic("one", 2)
    story.topic("wide", 4)
    parts = (
        story.part("0", "wide", sinks=("f",)),
        story.part("1", "one", repartitions={"f": 5}, together=[([0], [0])]),
    )
    Member(story, "a", *parts).join()


def other_topology(story: Teller) -> None:
    story.topic("in", 1)
    story.topic("also", 1)
    Member(story, "a", story.part("0", "in"), topology_epoch=2).join()
    Member(story, "same", story.part("0", "also"), topology_epoch=2).join()
    Member(story, "newer", story.part("0", "in"), topology_epoch=3).join()
    Member(story, "older", story.part("0", "also"), topology_epoch=1).join()


def static_member(story: Teller) -> None:
    story.topic("in", 2)
    first = Member(story, "a", story.part("0", "in"), instance_id="one")
    first.join()
    early = Member(story, "b", story.part("0", "in"), instance_id="one")
    early.join()
    early.epoch = 2
    early.beat()
    nobody = Member(story, "c", story.part("0", "in"), instance_id="two")
    nobody.epoch = 2
    nobody.beat()
    nobody.leave()
    first.leave(-2)
    story.describe()
    back = Member(story, "b", story.part("0", "in"), instance_id="one", process_id="process-a")
    back.join()
    back.beat()
    first.epoch = 2
    first.beat("after it was replaced")
    story.describe()
    back.leave()


def moved_static_member(story: Teller) -> None:
    story.topic("in", 2)
    first = Member(story, "a", story.part("0", "in"), instance_id="one")
    first.join()
    first.leave(-2)
    back = Member(story, "b", story.part("0", "in"), instance_id="one", process_id="elsewhere")
    back.join()
    back.beat()


def shutdown(story: Teller) -> None:
    story.topic("in", 2)
    first, second = (Member(story, name, story.part("0", "in")) for name in "ab")
    first.join()
    second.join()
    first.beat()
    first.beat("asks all to stop", shutdown_application=True)
    second.beat()
    first.leave()
    second.leave()
    second.join()


def shutdown_by_leaving(story: Teller) -> None:
    story.topic("in", 1)
    first, second = (Member(story, name, story.part("0", "in")) for name in "ab")
    first.join()
    second.join()
    first.leave(shutdown_application=True)
    second.beat()


def endpoints(story: Teller) -> None:
    story.topic("in", 2)
    first = Member(story, "a", story.part("0", "in"), user_endpoint={"host": "one", "port": 80})
    first.join()
    first.beat()
    second = Member(story, "b", story.part("0", "in"), user_endpoint={"host": "two", "port": 65535})
    second.join()
    first.beat()
    first.beat()
    second.beat()
    second.beat()
    first.beat()
    first.beat("at another address", user_endpoint={"host": "three", "port": 1})


def standbys(story: Teller) -> None:
    story.configure(streams_num_standby_replicas="1")
    story.topic("in", 2)
    story.topic("log", 2)
    part = story.part("0", "in", changelogs={"log": 0})
    first, second = (Member(story, name, part) for name in "ab")
    first.join()
    second.join()
    for _ in range(3):
        first.beat()
        second.beat()
    first.leave()
    second.beat()


def more_standbys_later(story: Teller) -> None:
    story.topic("in", 1)
    story.topic("log", 1)
    part = story.part("0", "in", changelogs={"log": 0})
    first, second = (Member(story, name, part) for name in "ab")
    first.join()
    second.join()
    first.beat()
    second.beat()
    story.configure(streams_num_standby_replicas="1")
    second.beat()
    first.beat()
    second.beat()


def tags(story: Teller) -> None:
    story.configure(streams_rack_aware_assignment_tags="zone,rack")
    story.topic("in", 1)
    member = Member(story, "a", story.part("0", "in"), client_tags=[{"key": "zone", "value": "1"}])
    member.join()
    member.join(version=0)
    member.beat(client_tags=[{"key": "zone", "value": "1"}, {"key": "rack", "value": "2"}])


def offsets(story: Teller) -> None:
    story.topic("in", 2)
    story.topic("not-read", 1)
    first, second = (Member(story, name, story.part("0", "in")) for name in "ab")
    first.join()
    before = first.epoch
    second.join()
    for _ in range(2):
        first.beat()
        second.beat()
    [kept] = tasks_of(first)
    [given] = tasks_of(second)
    story.commit("in the epoch", "a", first.epoch, "in", kept)
    story.commit("in an epoch before, of a kept task", "a", before, "in", kept)
    story.commit("in an epoch before, of a given task", "a", before, "in", given)
    story.commit("in an epoch before, by the new owner", "b", before, "in", given)
    story.commit("of a topic that it does not read", "a", before, "not-read", 0)
    story.commit("of a topic that it does not read, now", "a", first.epoch, "not-read", 0)
    story.commit("in a later epoch", "a", first.epoch + 1, "in", kept)
    story.commit("of nobody", "", -1, "in", kept)
    story.commit("of no member", "c", first.epoch, "in", kept)
    for topic in ("in", "not-read"):
        rows = [{"partition_index": 0}]
        asked = {
            "group_id": f"{story.name}-group",
            "topics": [{"name": f"{story.name}-{topic}", "partitions": rows}],
        }
        answer = story.client.call("offset_delete", 0, asked)
        story.say(f"delete of {topic}: {int(answer.topics[0].partitions[0].error_code)}")
    first.leave()
    second.leave()
    story.commit("of nobody, when empty", "", -1, "in", kept)


def tasks_of(member: Member) -> list[int]:
    return [number for row in member.owned["active_tasks"] for number in row["partitions"]]


def other_groups(story: Teller) -> None:
    story.topic("in", 1)
    group = f"{story.name}-group"
    member = Member(story, "a", story.part("0", "in"))
    member.join()
    joining = {
        "group_id": group, "session_timeout": 10_000, "rebalance_timeout": 10_000,
        "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}], "reason": None,
    }  # fmt: skip
    story.code_of("join of a classic member", story.client.call("join_group", 9, joining))
    consumer = {
        "group_id": group, "member_id": "c", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 1_000, "subscribed_topic_names": ["in"],
        "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    answer = story.client.call("consumer_group_heartbeat", 1, consumer)
    story.say(f"a consumer's heartbeat: {int(answer.error_code)} {answer.error_message}")
    listed = story.client.call("list_groups", 5, {"states_filter": [], "types_filter": ["streams"]})
    rows = [g for g in listed.groups if g.group_id == group]
    story.say(f"list: {[(r.group_type, r.protocol_type, r.group_state) for r in rows]}")
    deleting = {"groups_names": [group]}
    found = story.client.call("delete_groups", 2, deleting).results[0]
    story.code_of("delete with a member", found)
    member.leave()
    story.code_of("join of a classic member, empty", story.client.call("join_group", 9, joining))
    member.join()


def deleted(story: Teller) -> None:
    story.topic("in", 1)
    member = Member(story, "a", story.part("0", "in"))
    member.join()
    member.leave()
    deleting = {"groups_names": [f"{story.name}-group"]}
    story.code_of("delete", story.client.call("delete_groups", 2, deleting).results[0])
    story.describe()
    member.join()


def grown(story: Teller) -> None:
    story.topic("in", 1)
    member = Member(story, "a", story.part("0", "in"))
    member.join()
    row = {"name": f"{story.name}-in", "count": 2, "assignments": None}
    asked = {"topics": [row], "timeout": 10_000, "validate_only": False}
    story.client.call("create_partitions", 3, asked)
    story.await_topic("in", 2)
    member.beat()
    member.beat()


def task_offsets(story: Teller) -> None:
    story.topic("in", 1)
    story.topic("log", 1)
    member = Member(story, "a", story.part("0", "in", changelogs={"log": 0}))
    member.join()
    member.beat(task_offsets=[{"subtopology_id": "0", "partition": 0, "offset": 9}])
    story.describe(with_topics=False)
    member.beat(task_offsets=[])
    story.describe(with_topics=False)


STORIES: dict[str, Callable[[Teller], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        alone, taking_turns, lost_answer, strangers, bad_requests, bad_topologies, missing_source,
        made_topics, wrong_changelog, copartition, copartition_repartition,
        copartition_fixed, other_topology,
        static_member, moved_static_member, shutdown, shutdown_by_leaving, endpoints, standbys,
        more_standbys_later, tags, offsets, other_groups, deleted, grown, task_offsets,
    )
}  # fmt: skip


def told(port: int, *names: str, settling_s: float = 0.0) -> list[str]:
    """The lines of these stories, or of all, on the only broker of a cluster."""
    lines: list[str] = []
    for name in names or STORIES:
        client = RawClient(port)
        story = Teller(client, name, settling_s)
        await_coordinator(client, f"{name}-group")
        STORIES[name](story)
        client.close()
        lines += story.lines
    return lines


def await_coordinator(client: RawClient, group: str) -> None:
    def is_there() -> bool:
        asked = {"key_type": 0, "coordinator_keys": [group]}
        found = client.call("find_coordinator", 4, asked).coordinators[0]
        if int(found.error_code) != 0:
            return False
        listed = client.call("streams_group_describe", 1, {
            "group_ids": [group], "include_authorized_operations": False,
            "include_topology_description": False,
        })  # fmt: skip
        return int(listed.groups[0].error_code) == ErrorCode.GROUP_ID_NOT_FOUND

    eventually(is_there, f"a coordinator of {group}", deadline_s=2 * DEADLINE_S)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        fetch_jars(OWN_LIBRARY)
        with one_kafka(Path(folder) / "kafka", PORT, **SETTINGS):
            lines = told(PORT, *sys.argv[1:], settling_s=KAFKAS_SETTLING_S)
    if sys.argv[1:]:
        print("\n".join(lines))
    else:
        OUTCOMES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
