"""Streams groups: an application of Kafka's own library, and a rebalance of many raw members."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.cluster import BenchFailed, wait_for
from bench.coordinators import coordinator_of
from bench.java_client import FLAGS
from kvorum.client.connection import KafkaConnection

SOURCE = Path(__file__).parent / "java" / "WordCount.java"
MEMBERS, TASKS = 50, 200
_TIMEOUT_S = 300.0
_CALM_S = 1.5
"""Longer than the least time between two targets."""


def count_seconds(library: Path, bootstrap: str, source: str, sink: str, records: int) -> float:
    """The seconds in which the application counts all records of the topic. Raises BenchFailed."""
    with tempfile.TemporaryDirectory(prefix="word-count-") as classes:
        jars = f"{library}/*"
        subprocess.run(["javac", "-d", classes, "-cp", jars, str(SOURCE)], check=True)
        command = ["java", *FLAGS, "-cp", f"{classes}:{jars}", "WordCount"]
        try:
            done = subprocess.run(
                [*command, bootstrap, source, sink, str(records)],
                capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise BenchFailed(f"the application did not end in {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise BenchFailed(f"the application ended with {done.returncode}: {done.stderr[-500:]}")
    return float(done.stdout.split()[-1])


class _Member:
    """A member that takes up what it is told at once."""

    def __init__(self, connection: KafkaConnection, group: str, name: str, topic: str) -> None:
        self._connection = connection
        self._group, self._name, self._topic = group, name, topic
        self.epoch = 0
        self.active: list[dict[str, Any]] = []

    @property
    def count(self) -> int:
        return sum(len(row["partitions"]) for row in self.active)

    def beat(self) -> None:
        is_joining = self.epoch == 0
        part = {
            "subtopology_id": "0", "source_topics": [self._topic], "source_topic_regex": [],
            "state_changelog_topics": [], "repartition_sink_topics": [],
            "repartition_source_topics": [], "copartition_groups": [],
        }  # fmt: skip
        answer = self._connection.call("streams_group_heartbeat", 88, 0, {
            "group_id": self._group, "member_id": self._name, "member_epoch": self.epoch,
            "endpoint_information_epoch": 0, "instance_id": None, "rack_id": None,
            "rebalance_timeout": 60_000 if is_joining else -1,
            "topology": {"epoch": 0, "subtopologies": [part]} if is_joining else None,
            "active_tasks": [] if is_joining else self.active, "standby_tasks": [],
            "warmup_tasks": [], "process_id": self._name, "user_endpoint": None,
            "client_tags": None, "task_offsets": None, "task_end_offsets": None,
            "shutdown_application": False,
        }, flexible=True)  # fmt: skip
        if int(answer.error_code) != 0:
            raise BenchFailed(f"a heartbeat: {answer.error_code} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active = [
                {"subtopology_id": row.subtopology_id, "partitions": list(row.partitions)}
                for row in answer.active_tasks
            ]


def rebalance_seconds(bootstrap: str, group: str, topic: str) -> float:
    """The seconds from the join of one more member of MEMBERS, until each has its share of TASKS.
    topic: has TASKS partitions. Raises BenchFailed."""
    host, _, port = asyncio.run(coordinator_of(bootstrap, group)).rpartition(":")
    connection = KafkaConnection([(host, int(port))], _TIMEOUT_S)
    try:
        members = [_Member(connection, group, f"member-{n}", topic) for n in range(MEMBERS)]
        _await_even(members)
        time.sleep(_CALM_S)
        members.append(_Member(connection, group, "one-more", topic))
        began = time.monotonic()
        _await_even(members)
        return time.monotonic() - began
    finally:
        connection.close()


def _await_even(members: list[_Member]) -> None:
    wait_for(
        lambda: _are_even(members) or None,
        timeout_s=_TIMEOUT_S,
        what="all members have their tasks",
        poll_s=0.0,
    )


def _are_even(members: list[_Member]) -> bool:
    """One heartbeat of each; True if all are in one epoch and have all tasks, evenly."""
    for member in members:
        member.beat()
    counts = [member.count for member in members]
    in_one_epoch = len({member.epoch for member in members}) == 1
    return in_one_epoch and sum(counts) == TASKS and max(counts) - min(counts) <= 1
