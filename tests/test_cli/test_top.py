"""`kvorum top`: rates out of two samples, and the view of a cluster under load."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvorum.cli.top_view import Sample, short, view_of
from tests.clients.groups import consumer
from tests.command import kvorum
from tests.live.clients import Load, Topics
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually
from tests.test_cli.pipes import piped, sent


def partition(number: int, leader: int, *, isr: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    return {"partition": number, "leader": leader, "replicas": [1, 2], "isr": list(isr)}


def sample(at_s: float, ends: dict[int, int], **more: Any) -> Sample:
    """Topic `t` with two partitions on brokers 1 and 2."""
    values: dict[str, Any] = {
        "quorum": {
            "leader_id": 7,
            "leader_epoch": 3,
            "high_watermark": int(100 * at_s),
            "voters": [
                {"node_id": 7, "log_end_offset": 10_000},
                {"node_id": 8, "log_end_offset": 0},
            ],
        },
        "no_quorum": "",
        "brokers": [{"broker_id": 1, "is_fenced": False}, {"broker_id": 2, "is_fenced": True}],
        "topics": [{"topic": "t", "partitions": [partition(0, 1), partition(1, -1, isr=(1,))]}],
        "sizes": {1: int(1000 * at_s)},
        "ends": {("t", number): end for number, end in ends.items()},
        "groups": {},
        "committed": {},
    }
    return Sample(at_s=at_s, **(values | more))


def test_rates_are_those_between_two_samples():
    view = view_of(sample(10, {0: 100}), sample(12, {0: 150}))
    assert view.quorum == {
        "leader_id": 7, "leader_epoch": 3, "voters": 2, "lagging_voters": 1,
        "high_watermark": 1200, "records_per_s": 100.0, "problem": "",
    }  # fmt: skip
    first, second = view.brokers
    assert (first["state"], first["leaders"], first["replicas"], first["out_of_sync"]) == (
        "up", 1, 2, 0,
    )  # fmt: skip
    assert (first["size_bytes"], first["bytes_per_s"]) == (12_000, 1000.0)
    assert (second["state"], second["leaders"], second["out_of_sync"]) == ("fenced", 0, 1)
    assert (second["size_bytes"], second["bytes_per_s"]) == (None, None)
    (topic,) = view.topics
    assert topic == {
        "topic": "t", "partitions": 2, "offline": 1, "under_replicated": 1,
        "end_offsets": 150, "records_per_s": 25.0,
    }  # fmt: skip


def test_only_what_both_samples_have_has_a_rate():
    # Partition 1 has a leader only in the second sample: its records do not count as traffic.
    view = view_of(sample(0, {0: 100}), sample(2, {0: 110, 1: 5000}))
    assert (view.topics[0]["end_offsets"], view.topics[0]["records_per_s"]) == (5110, 5.0)
    assert view_of(sample(0, {}), sample(2, {0: 110})).topics[0]["records_per_s"] is None
    # A topic that was deleted and created again.
    assert view_of(sample(0, {0: 100}), sample(2, {0: 10})).topics[0]["records_per_s"] == 0
    shrunk = view_of(sample(0, {}, sizes={1: 900}), sample(3, {}, sizes={1: 600}))
    assert shrunk.brokers[0]["bytes_per_s"] == -100


def test_topics_are_by_rate_and_groups_by_lag():
    topics = [{"topic": name, "partitions": [partition(0, 1)]} for name in "abc"]

    def at(second: float, *ends: int, lag: int) -> Sample:
        return replace(
            sample(second, {}),
            topics=topics,
            ends={(name, 0): end for name, end in zip("abc", ends, strict=True)},
            groups={"late": "Stable", "level": "Empty", "new": "Stable"},
            committed={"late": {("a", 0): ends[0] - lag}, "level": {("a", 0): ends[0]}},
        )

    view = view_of(at(0, 10, 10, 10, lag=3), at(2, 12, 30, 12, lag=5))
    assert [row["topic"] for row in view.topics] == ["b", "a", "c"]
    assert [(row["group"], row["lag"], row["lag_change"], row["records_per_s"])
            for row in view.groups] == [
        ("late", 5, 2, 0.0), ("level", 0, 0, 1.0), ("new", 0, None, None),
    ]  # fmt: skip


def test_a_quorum_without_a_leader_says_why():
    lost = sample(1, {}, quorum=None, no_quorum="no leader since 3 s")
    view = view_of(sample(0, {}), lost)
    assert (view.quorum["leader_id"], view.quorum["problem"]) == (None, "no leader since 3 s")
    assert view_of(lost, sample(2, {})).quorum["records_per_s"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.4, "0.4"), (12.3, "12"), (999, "999"), (999.6, "1.0K"),
     (12_340, "12.3K"), (99_960, "100K"), (-4_000_000, "-4.0M"), (2**63, "9223P")],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_controllers_are_not_asked():
    code, _, err = kvorum("top", "--bootstrap-controller", "127.0.0.1:1")
    assert code == 2 and "give --bootstrap-server" in err
    code, _, err = kvorum("top", "-b", "127.0.0.1:1")
    assert code == 3 and err.startswith("kvorum: no broker reachable")


# --- a cluster -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("top")
    more = ["offsets.topic.num.partitions=5"]
    with Cluster(folder, controllers=1, brokers=2, settings=more) as cluster:
        Topics(cluster.bootstrap).create("busy", partitions=2, replicas=2)
        Topics(cluster.bootstrap).create("idle", partitions=1, replicas=2)
        sent(cluster, "idle", "a", "b", "c")
        yield cluster


@pytest.mark.live
def test_a_load_and_a_lag_are_seen(cluster):
    from confluent_kafka import TopicPartition

    client = consumer(cluster.bootstrap, "behind")
    client.commit(offsets=[TopicPartition("idle", 0, 1)], asynchronous=False)
    client.close()
    load = Load(cluster.bootstrap, "busy", partitions=2)
    try:
        load.wait_more(10)
        view = cluster.cli_json("top")
    finally:
        load.finish()
    assert view["quorum"]["leader_id"] > 0 and view["quorum"]["voters"] == 1
    assert [row["broker_id"] for row in view["brokers"]] == [101, 102]
    assert all(row["size_bytes"] > 0 and row["state"] == "up" for row in view["brokers"])
    busy = view["topics"][0]
    assert busy["topic"] == "busy" and busy["records_per_s"] > 0
    idle = next(row for row in view["topics"] if row["topic"] == "idle")
    assert (idle["records_per_s"], idle["end_offsets"]) == (0, 3)
    assert [(row["group"], row["lag"]) for row in view["groups"]] == [("behind", 2)]
    shown = piped(cluster, "top", "--rows", 1).stdout.decode()
    assert shown.startswith("quorum: leader ") and "TOPIC" in shown and "GROUP" in shown
    assert "more: --rows)" in shown


@pytest.mark.live
def test_answers_follow_one_another_as_json_lines(cluster, tmp_path):
    from tests.live.cluster import Command

    arguments = ("top", "-o", "json", "--watch", "--interval", "0.2", "-b", cluster.bootstrap)
    watcher = Command(*arguments, error_file=tmp_path / "errors")
    try:
        eventually(lambda: len(watcher.lines) >= 3, "three answers")
    finally:
        watcher.close()
    views = [json.loads(line) for line in watcher.lines[:3]]
    assert all(view["brokers"][0]["bytes_per_s"] is not None for view in views)


@pytest.mark.live
def test_a_terminal_is_renewed_until_ctrl_c(cluster):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kvorum", "top", "--interval", "0.2", "-b", cluster.bootstrap],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "KVORUM_PROFILES": os.devnull}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = bytearray()
    try:
        eventually(
            lambda: shown.extend(os.read(ours, 1 << 16)) or shown.count(b"\x1b[2J") >= 3,
            "the view is renewed",
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"quorum: leader" in shown


@pytest.mark.live
def test_a_broker_that_died_is_shown_and_does_not_stop_the_view(cluster):
    cluster.kill("broker-102")
    try:
        eventually(
            lambda: (
                [row["state"] for row in cluster.cli_json("top")["brokers"]] == ["up", "fenced"]
            ),
            "the broker is fenced",
        )
        dead = cluster.cli_json("top")["brokers"][1]
        assert (dead["size_bytes"], dead["leaders"]) == (None, 0)
        assert dead["out_of_sync"] > 0
    finally:
        cluster.restart("broker-102")


def test_a_replica_that_a_reassignment_adds_is_not_counted_as_under_replicated():
    topics = [{"topic": "t", "partitions": [partition(0, 1, isr=(1,))]}]
    now = sample(1, {}, topics=topics)
    moving = replace(now, reassigning={("t", 0): [2]})
    counts = [view_of(now, each).topics[0]["under_replicated"] for each in (now, moving)]
    assert counts == [1, 0]
