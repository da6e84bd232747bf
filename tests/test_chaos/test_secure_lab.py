"""The lab on secure clusters: `Cluster(secure=True)`, runs of its own, and attached ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from kvorum import Cluster
from kvorum.chaos.addresses import client_of, joined, secured, security_at
from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.opening import Access, choose_system
from kvorum.chaos.report.replay import read_earlier_run
from kvorum.client.security import NONE, ClientSecurity
from kvorum.launch.cluster.secure_plan import admin_file
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.command import kvorum
from tests.polling import DEADLINE_S
from tests.test_chaos.attached_cluster import chaos_run, topics
from tests.test_chaos.pytest_runs import run_pytest

EXPERIMENT = """\
title: a secure cluster loses its leaders
configuration:
  secure: true
  topic: {partitions: 3}
  workload: {records_per_second: 300, topic_creations_per_second: 2}
  workloads:
    - transactional_copy: {}
    - group: {members: 2}
    - share_group: {}
    - topics: {}
  settings:
    group.share.session.timeout.ms: 4000
    group.share.min.session.timeout.ms: 4000
    group.share.heartbeat.interval.ms: 1000
    group.share.min.heartbeat.interval.ms: 1000
  warm_up_ms: 500
  cool_down_ms: 300
steady-state-hypothesis:
  title: whole
  probes:
    - active_controllers: 1
    - under_replicated_partitions: 0
method:
  - kill: {target: "leader:orders/0", duration_ms: 1000}
  - cut: {source: active-controller, destination: standby-controller, duration_ms: 1000}
  - cut: {source: "follower:orders/1", destination: "leader:orders/1", duration_ms: 1000}
"""
ALICE = ClientSecurity(mechanism="PLAIN", user="alice", password="secret")


def test_an_address_has_the_security_of_its_cluster():
    plain, mine = "a:1", secured("a:1", ALICE)
    assert security_at(plain) is NONE and security_at(mine) is ALICE
    assert client_of(plain) == {"bootstrap.servers": "a:1"}
    assert client_of(joined([mine, secured("b:2", ALICE)])) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    assert "secret" not in f"{mine!r} {mine}"
    assert type(secured(mine, NONE)) is str


@pytest.mark.parametrize(
    ("system", "access", "said"),
    [
        ("kafka", Access(is_secure=True), "--secure goes with --system kvorum, not with 'kafka'"),
        ("x.toml", Access(is_secure=True), "give --command-config FILE"),
        ("kvorum", Access(command_config="x"), "--command-config goes with --system FILE.toml"),
    ],
)
def test_options_that_do_not_fit_the_system_are_refused(system, access, said):
    with pytest.raises(ConfigError, match=said):
        choose_system(system, access=access)


def test_a_secure_cluster_has_voters_that_can_change():
    configuration = parse_experiment("x.yaml", EXPERIMENT).configuration
    assert configuration.is_secure and configuration.voters == 3
    with pytest.raises(ConfigError, match=r"secure.*must be true or false, got 'yes please'"):
        parse_experiment("x.yaml", EXPERIMENT.replace("secure: true", "secure: yes please"))


def produced(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """The error of one record; None if it was acknowledged."""
    found: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000, "log_level": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: found.append(error))
    producer.flush(DEADLINE_S)
    return found[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(
        controllers=1, directory=tmp_path_factory.mktemp("theirs"), proxies=True, secure=True
    ) as cluster:
        yield cluster


@pytest.mark.live
def test_a_user_may_do_what_was_granted(cluster):
    orders = cluster.create_topic("orders", partitions=3)
    cluster.users.create("alice")
    alice = cluster.client_config("alice")
    assert alice["sasl.username"] == "alice" and "ssl.certificate.location" not in alice
    refused = produced(alice, orders)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.grant("alice", "WRITE", "DESCRIBE", topic="ord", prefixed=True)
    assert produced(alice, orders) is None
    assert produced(cluster.client_config(), orders) is None
    with cluster.fault("kill", target="leader:orders/0"):
        cluster.wait_until("all-led")
        assert produced(alice, orders) is None
    cluster.wait_until("isr-full")
    cluster.users.clear()
    assert cluster.users.names() == []
    with pytest.raises(KvorumError, match="no user is named 'alice'; there are admin"):
        cluster.client_config("alice")


@pytest.mark.live
def test_a_grant_that_says_too_little_is_refused(cluster):
    with pytest.raises(KvorumError, match="grant needs operations and one of topic"):
        cluster.grant("alice", "READ")
    with pytest.raises(KvorumError, match="'REED' is no operation of an ACL"):
        cluster.grant("alice", "reed", topic="orders")


@pytest.mark.live
def test_a_cluster_without_security_has_no_users(tmp_path):
    with Cluster(controllers=1, brokers=1, directory=tmp_path / "open", proxies=False) as open_one:
        assert open_one.client_config() == {"bootstrap.servers": open_one.bootstrap_servers}
        with pytest.raises(KvorumError, match="start it with secure=True"):
            open_one.users.create("alice")


@pytest.mark.live
def test_the_fixture_gives_each_test_its_own_users(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkvorum_controllers = 1\nkvorum_brokers = 1\nkvorum_secure = true\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_first(kvorum):\n"
        "    kvorum.users.create('alice')\n"
        "    kvorum.grant('alice', 'READ', topic='orders')\n"
        "def test_second(kvorum):\n"
        "    assert kvorum.users.names() == []\n"
    )
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.live
@pytest.mark.timeout(240)
def test_a_run_attaches_to_a_secure_cluster_with_a_users_properties(cluster, tmp_path):
    properties = admin_file(cluster._running().data_dir)
    refused = chaos_run(tmp_path, cluster)
    assert refused.returncode != 0 and "gave its metadata" in refused.stderr, refused.stderr
    done = chaos_run(tmp_path, cluster, "--command-config", properties)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "verdict: passed" in done.stdout
    assert topics(cluster) == set()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["is_secure"] is True and report["rerun"].endswith(
        f"--command-config {properties}"
    )


@pytest.mark.live
@pytest.mark.timeout(240)
def test_a_secure_run_loses_nothing_and_says_that_it_was_secure(tmp_path):
    experiment = tmp_path / "secure.yaml"
    experiment.write_text(EXPERIMENT)
    said: list[str] = []
    folder = tmp_path / "run"
    result = run(str(experiment), output_dir=str(folder), progress=said.append)
    report = json.loads(Path(result.report_json).read_text())
    assert result.verdict == "passed", (report["reasons"], said)
    assert report["lost"] == 0 and report["load"]["acknowledged"] > 300
    assert report["is_secure"] is True and read_earlier_run(str(folder)).is_secure
    assert "secure (TLS, users, ACLs)" in Path(result.report_html).read_text()
    log = str(folder / "cluster" / "controller-1")
    code, out, error = kvorum("metadata", "cat", "/acls", "--directory", log)
    # The load is a user of its own, with rights of its own.
    assert code == 0 and "User:chaos-load" in out, error
    password = [
        line
        for line in Path(admin_file(str(folder / "cluster"))).read_text().splitlines()
        if line.startswith("sasl.jaas.config")
    ]
    secret = password[0].split('password="')[1].partition('"')[0]
    for path in (folder / "run.json", folder / "history.jsonl", folder / "report.json"):
        assert secret not in path.read_text(), path


@pytest.mark.live
@pytest.mark.timeout(240)
def test_a_command_makes_a_secure_run(tmp_path):
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT.replace("  secure: true\n", ""))
    command = [sys.executable, "-m", "kvorum", "chaos", "run", str(experiment), "--secure"]
    command += ["--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["is_secure"] is True and record["configuration"]["is_secure"] is True
    assert record["rerun"].endswith("--secure")
