"""Two of three controllers are gone: every command says so, whomever it asks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kvorum.rpc.admin_pb2 import DescribeQuorumRequest
from kvorum.rpc.admin_pb2_grpc import AdminStub
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, controller_name, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WRITES = [
    ["topics", "create", "refused"],
    ["topics", "delete", "kept"],
    ["configs", "alter", "--entity", "topic", "--name", "kept", "--set", "retention.ms=5"],
    ["configs", "alter", "--entity", "user", "--default", "--set", "request_percentage=5"],
    ["partitions", "elect", "--all"],
]
NEED_A_LEADER = [["quorum", "status"], ["quorum", "replication"]]
READS = [
    ["topics", "list"],
    ["topics", "describe", "kept"],
    ["brokers", "list"],
    ["brokers", "describe", "101"],
    ["configs", "describe", "--entity", "topic", "--name", "kept"],
    ["configs", "describe", "--entity", "user"],
    ["metadata", "ls", "/topics"],
    ["metadata", "cat", "/topics/kept"],
]


class Outage:
    """The cluster, the surviving controller, and the sentence that commands must print."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        leader: int = cluster.cli_json("quorum", "status")["leader_id"]
        self.epoch: int = cluster.cli_json("quorum", "status")["leader_epoch"]
        self.dead = sorted([leader, leader % 3 + 1])
        (self.survivor,) = {1, 2, 3} - set(self.dead)
        missing = ", ".join(f"{i} at 127.0.0.1:{self.port(i)}" for i in self.dead)
        self.sentence = re.compile(
            re.escape(
                f"kvorum: no quorum: 1 of 3 voters reachable ({self.survivor}), missing {missing}; "
            )
            + r"epoch (\d+); need 2"
        )

    def port(self, controller_id: int) -> int:
        return self.cluster.ports.controller + controller_id - 1


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    folder = tmp_path_factory.mktemp("no-quorum")
    with Cluster(folder, controllers=3, brokers=1) as cluster:
        Topics(cluster.bootstrap).create("kept", replicas=1)
        outage = Outage(cluster)
        # Two controllers hold the topic, the survivor perhaps not yet; and a follower learns the
        # high watermark only with its next fetch. So wait for the survivor itself. (A command would
        # ask the leader.)
        committed = cluster.cli_json("quorum", "status")["high_watermark"]
        address = f"127.0.0.1:{outage.port(outage.survivor)}"
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            ask = AdminStub(channel).DescribeQuorum
            eventually(
                lambda: ask(DescribeQuorumRequest()).high_watermark >= committed,
                "the controller that is left knows of the topic",
            )
        cluster.kill(*map(controller_name, outage.dead))
        yield outage


@pytest.fixture(params=["broker", "controller", "survivor"])
def run(request: pytest.FixtureRequest, outage: Outage) -> Run:
    """Run a command through a broker, through all controllers, or through the surviving one."""
    options = {
        "broker": ["-b", outage.cluster.bootstrap],
        "controller": ["--bootstrap-controller", outage.cluster.bootstrap_controller],
        "survivor": ["--bootstrap-controller", f"127.0.0.1:{outage.port(outage.survivor)}"],
    }[request.param]
    return lambda *arguments: run_kvorum(*arguments, *options)


@pytest.mark.parametrize("command", WRITES + NEED_A_LEADER, ids=" ".join)
def test_what_needs_a_leader_is_refused_with_the_sentence(
    outage: Outage, run: Run, command: list[str]
) -> None:
    done = run(*command)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    (line,) = done.stderr.splitlines()
    found = outage.sentence.fullmatch(line)
    assert found, line
    assert int(found[1]) >= outage.epoch


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_reads_are_answered_and_stderr_says_how_old_the_view_may_be(
    outage: Outage, run: Run, command: list[str]
) -> None:
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    (line,) = done.stderr.splitlines()
    found = outage.sentence.match(line)
    assert found, line
    assert re.fullmatch(
        r"\. (Broker 101|Controller \d) last heard from a leader \d+\.\d s ago: this is its view",
        line[found.end() :],
    )


def test_health_names_the_lost_quorum_and_what_it_leaves_unknown(outage: Outage, run: Run) -> None:
    done = run("health", "-o", "json")
    assert done.returncode == 4, done.stderr
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert outage.sentence.match(f"kvorum: {checks['leader']['detail']}")
    assert not checks["voters"]["is_healthy"]
    assert "not healthy: leader, voters" in done.stderr


def test_the_export_is_of_the_controller_that_is_left(
    outage: Outage, run: Run, tmp_path: Path
) -> None:
    done = run("metadata", "export", "--out", str(tmp_path / "out"), "-o", "json")
    assert done.returncode == 0, done.stderr
    assert all(row["rows"] for row in json.loads(done.stdout) if "records" in row["file"])
    assert outage.sentence.match(done.stderr)


def test_the_timeline_names_those_that_could_not_be_asked(outage: Outage, run: Run) -> None:
    done = run("quorum", "timeline", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"kvorum: controller {i} at 127.0.0.1:{outage.port(i)} is not reachable: "
        "its lines are missing"
        for i in outage.dead
    ]
    rows = json.loads(done.stdout)
    assert {row["node"] for row in rows} == {outage.survivor}
    assert any("lost leader=" in row["text"] for row in rows)
    unknown = run("quorum", "timeline", "--node", "99", "-o", "json")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "no controller has the id 99" in unknown.stderr


def test_a_kafka_client_gets_the_sentence_as_its_error(outage: Outage) -> None:
    admin = AdminClient(settings(outage.cluster.bootstrap))
    made = admin.create_topics([NewTopic("refused", 1, 1)], operation_timeout=30)
    with pytest.raises(KafkaException) as refused:
        made["refused"].result(60)
    error = refused.value.args[0]
    assert error.code() == KafkaError.REQUEST_TIMED_OUT
    assert outage.sentence.fullmatch(f"kvorum: {error.str()}")


def test_the_flight_record_of_the_one_that_is_left_replays(outage: Outage, tmp_path: Path) -> None:
    file = str(tmp_path / "flight.jsonl")
    done = run_kvorum(
        "raft", "record", "--node", str(outage.survivor), "--out", file,
        "--bootstrap-controller", outage.cluster.bootstrap_controller,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    again = run_kvorum("raft", "replay", file)
    assert (again.returncode, again.stderr) == (0, "")
    assert re.fullmatch(r"\d+ events, same effects\n", again.stdout)


def test_nobody_is_left_and_the_broker_still_says_so(outage: Outage) -> None:
    # This test must be the last: it kills the survivor too, and restarts all controllers.
    cluster = outage.cluster
    cluster.kill(controller_name(outage.survivor))
    missing = ", ".join(f"{i} at 127.0.0.1:{outage.port(i)}" for i in (1, 2, 3))
    wanted = f"kvorum: no quorum: 0 of 3 voters reachable, missing {missing}; epoch "
    for command in (["topics", "create", "refused"], ["quorum", "status"], ["metadata", "ls"]):
        done = run_kvorum(*command, "-b", cluster.bootstrap)
        assert (done.returncode, done.stdout) == (4, ""), done.stderr
        assert done.stderr.startswith(wanted) and done.stderr.endswith("; need 2\n"), done.stderr
    listed = run_kvorum("topics", "list", "-b", cluster.bootstrap)
    assert listed.returncode == 0 and "kept" in listed.stdout
    assert listed.stderr.startswith(wanted)

    cluster.restart(*map(controller_name, (1, 2, 3)))
    eventually(
        lambda: cluster.cli("topics", "create", "back").returncode == 0, "topics are made again"
    )
    whole = cluster.cli("topics", "list")
    assert (whole.returncode, whole.stderr) == (0, "")
