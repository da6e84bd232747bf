"""The load `share_group` on a cluster of one broker: real members, some killed as processes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.chaos.checks import run_checks_of
from kvorum.chaos.checks.results import CheckResult
from kvorum.chaos.experiment_file.experiment import WorkloadPlan
from kvorum.chaos.experiment_file.workloads import ShareGroupPlan
from kvorum.chaos.history import (
    ACCEPT,
    ACKNOWLEDGE,
    DELIVER,
    INFO,
    JOIN,
    LEAVE,
    OK,
    REJECT,
    RELEASE,
    Acknowledgement,
    Delivery,
    Event,
    HistoryWriter,
    read_history,
)
from kvorum.chaos.live.observation.observer import Observer
from kvorum.chaos.live.observation.views import MetadataView
from kvorum.chaos.workloads.clients import open_admin
from kvorum.chaos.workloads.consume import final_read
from kvorum.chaos.workloads.produce import ProduceLoad
from kvorum.chaos.workloads.share_drain import ShareDrain
from kvorum.chaos.workloads.share_groups import Progress, ShareMember, configure_group
from kvorum.chaos.workloads.share_member import ShareSession, piped_event, start_line
from kvorum.chaos.workloads.worker import LoadThread
from tests.live.clients import Topics
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

PARTITIONS = 2
STOP_S = 60.0
ALL_TYPES = {ACCEPT, RELEASE, REJECT}
OF_SHARE_GROUPS = {
    "accepted-again", "rejected-delivered", "never-delivered", "too-many-deliveries", "held-by-two",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A partition of a killed member waits until its session ends.
    settings = (
        "group.share.session.timeout.ms=3000",
        "group.share.min.session.timeout.ms=3000",
        "group.share.heartbeat.interval.ms=500",
        "group.share.min.heartbeat.interval.ms=500",
    )
    folder = tmp_path_factory.mktemp("share-load")
    with Cluster(folder, controllers=1, brokers=1, settings=settings) as cluster:
        yield cluster


def group_of(
    cluster: Cluster, plan: ShareGroupPlan, topic: str, history: HistoryWriter
) -> list[LoadThread]:
    """The members of a configured group, and the one that drains it; not yet started."""
    configure_group(open_admin(cluster.bootstrap), plan)
    progress = Progress()
    common = {"bootstrap": cluster.bootstrap, "plan": plan, "topic": topic, "history": history}
    members = [
        ShareMember(**common, number=number, progress=progress, rng=random.Random(number))
        for number in range(1, plan.members + 1)
    ]
    return [*members, ShareDrain(**common, partitions=PARTITIONS, progress=progress)]


def produce_load(cluster: Cluster, topic: str, history: HistoryWriter) -> ProduceLoad:
    plan = WorkloadPlan(
        records_per_second=200, record_bytes=50, delivery_timeout_ms=30_000, linger_ms=1,
        topic_creations_per_second=0,
    )  # fmt: skip
    return ProduceLoad(
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        plan=plan,
        history=history,
    )


def stop(workers: list[LoadThread]) -> None:
    for worker in workers:
        worker.ask_to_stop()
    for worker in workers:
        worker.stop(timeout_s=STOP_S)
    assert [worker.failure for worker in workers if worker.failure is not None] == []


def killed_with_records_in_hand(events: list[Event]) -> list[tuple[str, Delivery]]:
    """The members that were killed, each with a delivery that it did not acknowledge."""
    killed = {event.process for event in events if event.f == LEAVE and event.type == INFO}
    found: dict[str, Event] = {}
    for event in events:
        if event.process in killed and event.f in (DELIVER, ACKNOWLEDGE):
            found[event.process] = event
    return [
        (member, op)
        for member, event in found.items()
        for op in event.ops
        if event.f == DELIVER and isinstance(op, Delivery)
    ]


def confirmed(events: list[Event]) -> set[str]:
    """The types of the acknowledgements that a leader confirmed."""
    return {
        kind
        for event in events
        for op in event.ops
        if isinstance(op, Acknowledgement) and event.type == OK
        for kind in op.types
    }


def judged(path: str) -> dict[str, CheckResult]:
    return {result.check: result for result in run_checks_of(read_history(path))}


def test_a_group_whose_members_are_killed_gets_every_record_and_settles_it_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    path, topic = str(tmp_path / "history.jsonl"), "orders"
    Topics(cluster.bootstrap).create(topic, partitions=PARTITIONS, replicas=1)
    plan = ShareGroupPlan(
        members=2, rejoin_ms=300, killed_percent=60, released_percent=20, rejected_percent=10
    )
    view = MetadataView(
        node="broker-101", address=cluster.bootstrap, topics=[topic], timeout_ms=5_000
    )
    with HistoryWriter(path) as history:
        observer = Observer(views=[view], history=history)
        load = produce_load(cluster, topic, history)
        workers = group_of(cluster, plan, topic, history)
        for thread in (observer, load, *workers):
            thread.start()

        def has_seen_enough() -> bool:
            assert [worker.failure for worker in workers if worker.failure is not None] == []
            history.flush()
            events = list(read_history(path))
            left = [event for event in events if event.f == LEAVE and event.type == OK]
            is_killed_twice = len(killed_with_records_in_hand(events)) >= 2
            return bool(left) and is_killed_twice and confirmed(events) == ALL_TYPES

        eventually(has_seen_enough, "members left, and two were killed with records in hand")
        load.stop()
        stop(workers)
        observer.stop(timeout_ms=10_000)
        assert final_read(
            bootstrap=cluster.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            history=history,
            timeout_ms=60_000,
        )
    results = judged(path)
    assert [result for result in results.values() if result.count] == []
    assert {check for check in OF_SHARE_GROUPS if not results[check].examined} == set()
    assert results["never-delivered"].examined == load.acknowledged
    events = list(read_history(path))
    for member, held in killed_with_records_in_hand(events):
        others = {
            offset
            for event in events
            if event.process != member
            for op in event.ops
            if isinstance(op, Delivery) and op.partition == held.partition
            for offset in op.offsets
        }
        assert set(held.offsets) <= others


def test_records_that_come_again_after_their_accept_break_the_promise(
    cluster: Cluster, tmp_path: Path
) -> None:
    path, topic = str(tmp_path / "history.jsonl"), "again"
    Topics(cluster.bootstrap).create(topic, partitions=PARTITIONS, replicas=1)
    plan = ShareGroupPlan(
        group="again-workers", members=1, rejoin_ms=0, released_percent=0, rejected_percent=0
    )
    with HistoryWriter(path) as history:
        load = produce_load(cluster, topic, history)
        workers = group_of(cluster, plan, topic, history)
        for thread in (load, *workers):
            thread.start()
        eventually(lambda: load.acknowledged >= 100, "a hundred records are written")
        load.stop()
        stop(workers)
        # The administrator does what no fault may do: the group begins anew.
        reset = ("--topic", topic, "--to-earliest", "--execute")
        done = cluster.cli("groups", "reset-offsets", plan.group, *reset)
        assert done.returncode == 0, done.stderr
        late = ShareSession(
            process="late",
            settings={"bootstrap.servers": cluster.bootstrap},
            plan=plan,
            topic=topic,
            history=history,
            rng=random.Random(0),
        )
        late.join()
        eventually(late.turn, "records come again")
        late.leave()
    results = judged(path)
    assert results["accepted-again"].count > 0
    assert "late got offset" in results["accepted-again"].findings[0].message
    assert {check for check in OF_SHARE_GROUPS if results[check].count} == {"accepted-again"}


def test_a_members_process_ends_when_nobody_reads_its_events(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("alone", partitions=PARTITIONS, replicas=1)
    line = start_line(
        process="alone-1.1",
        settings={"bootstrap.servers": cluster.bootstrap},
        plan=ShareGroupPlan(group="alone"),
        topic="alone",
        seed=0,
    )
    command = [sys.executable, "-m", "kvorum.chaos.workloads.share_member"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as member:
        assert member.stdin is not None and member.stdout is not None
        try:
            member.stdin.write(line)
            member.stdin.flush()
            event = piped_event(member.stdout.readline())
            assert (event["process"], event["f"], event["group"]) == ("alone-1.1", JOIN, "alone")
            member.stdin.write(b"1.0\n")
            member.stdin.flush()
            eventually(
                lambda: "alone" in cluster.cli("groups", "describe", "alone").stdout,
                "the group has its first member",
            )
            member.stdin.close()
            assert member.wait(DEADLINE_S) == 0
        finally:
            member.kill()
