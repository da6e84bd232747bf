"""Experiments on a cluster that runs already: a `kvorum dev` that the run did not start."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from kvorum.chaos.experiment_file.steps import Action
from kvorum.chaos.faults import Reassign
from kvorum.chaos.history import FAULT_END, details_of, read_history
from kvorum.chaos.live import nemesis
from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.processes import free_ports, start_process, stop_process
from kvorum.chaos.live.host.toxiproxy import Toxic
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.attached import AttachedSystem, SharedToxiproxy, attached_plan
from kvorum.chaos.live.systems.attached_file import parse_attached_file
from kvorum.chaos.live.systems.dead_man import HEARTBEAT, LOG, NodeCommandFailed
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
BREAK = Path(__file__).with_name("break_dev.py")
EXPERIMENT = """\
title: one kill
configuration:
  topic: {name: orders, partitions: 2, replication_factor: 2, min_insync_replicas: 1}
  workload: {records_per_second: 200, topic_creations_per_second: 2}
  warm_up_ms: 500
  cool_down_ms: 0
steady-state-hypothesis:
  title: whole
  probes:
    - {type: probe, name: one-active-controller, tolerance: 1,
       provider: {type: kvorum, func: active_controllers}}
method:
  - {type: action, name: kill-leader, provider: {type: kvorum, func: kill, arguments: {
       target: "leader:orders/0", duration_ms: 500}}}
  - {type: action, name: kill-both, provider: {type: kvorum, func: kill, arguments: {
       target: brokers, duration_ms: 500}}}
"""


@dataclass(frozen=True)
class Dev:
    """A running `kvorum dev` with one controller and two brokers."""

    data_dir: str
    bootstrap: str
    text: str

    def topics(self) -> list[str]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return sorted(admin.list_topics(timeout=10).topics)

    def throttles(self) -> list[str]:
        """The rates of replication that are set on brokers."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        brokers = [ConfigResource(ResourceType.BROKER, name) for name in ("101", "102")]
        configs = [admin.describe_configs([one])[one].result(10) for one in brokers]
        rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        entries = [config[rate] for config in configs for rate in rates if rate in config]
        return [entry.value for entry in entries if not entry.is_default]

    def system(self, folder: Path, text: str = "") -> AttachedSystem:
        file = parse_attached_file("c.toml", text or self.text)
        return AttachedSystem(
            file=file, plan=attached_plan(file, {}), toxiproxy=None, folder=folder
        )

    def is_serving(self, name: str) -> bool:
        document = json.loads((Path(self.data_dir) / "cluster.json").read_text())
        (node,) = [node for node in document["nodes"] if node["name"] == name]
        return node["state"] == "running" and node["is_ready"]


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("dev")
    port = free_ports(3, random.Random())
    data_dir = str(folder / "data")
    command = [sys.executable, "-m", "kvorum", "dev", "--data-dir", data_dir]
    command += ["--controllers", "1", "--brokers", "2"]
    command += ["--port", str(port), "--controller-port", str(port + 2)]
    process = start_process(command, log_file=str(folder / "log"))
    try:
        eventually(lambda: "bootstrap:" in (folder / "log").read_text(), "the cluster is ready")
        yield Dev(
            data_dir=data_dir,
            bootstrap=f"127.0.0.1:{port},127.0.0.1:{port + 1}",
            text=description(data_dir, port),
        )
    finally:
        stop_process(process, timeout_ms=10_000)


def description(data_dir: str, port: int) -> str:
    lines = [f'bootstrap = "127.0.0.1:{port},127.0.0.1:{port + 1}"', 'topic_prefix = "chaos-"']
    lines += ["max_nodes_down = 1", "heal_after_ms = 2000", "[commands]"]
    for word in ("kill", "start", "pause", "resume"):
        command = f"env PYTHONPATH={ROOT} {sys.executable} {BREAK} {data_dir} {word} {{name}}"
        lines.append(f'{word} = "{command}"')
    nodes = [("controller-1", 1, port + 2)]
    nodes += [("broker-101", 101, port), ("broker-102", 102, port + 1)]
    for name, node_id, at in nodes:
        lines += ["[[node]]", f'name = "{name}"', f"id = {node_id}"]
        lines += [f'role = "{name.split("-")[0]}"', f'address = "127.0.0.1:{at}"']
    return "\n".join(lines)


def test_a_run_breaks_within_its_limit_and_deletes_its_topics(dev, tmp_path, monkeypatch):
    monkeypatch.setattr(nemesis, "_TARGET_TIMEOUT_MS", 200)
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT)
    path = tmp_path / "c.toml"
    path.write_text(dev.text)
    lines: list[str] = []
    run_dir = tmp_path / "run"
    result = run(
        str(experiment),
        output_dir=str(run_dir),
        system=str(path),
        is_owned=True,
        progress=lines.append,
    )
    assert any("fault: kill leader:orders/0" in line for line in lines), lines
    # The step would take both brokers down at once. It is skipped, and so the verdict cannot be
    # "passed".
    assert any("max_nodes_down is 1" in line for line in lines), lines
    assert result.verdict == "inconclusive", result
    record = json.loads((run_dir / "run.json").read_text())
    assert record["system"] == {"name": "attached", "version": "unknown"}
    assert record["is_converged"]
    assert record["is_final_read_complete"]
    history = (run_dir / "history.jsonl").read_text()
    assert "chaos-orders-side-0" in history
    # The consumers made the cluster create one more topic, which is internal.
    assert set(dev.topics()) <= {"__consumer_offsets"}
    assert not (run_dir / "attached" / HEARTBEAT).exists()


def test_a_run_that_breaks_off_leaves_no_reassignment_and_no_throttle(dev, tmp_path):
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT.replace("replication_factor: 2", "replication_factor: 1"))
    (tmp_path / "c.toml").write_text(dev.text)

    def break_off(nemesis, _):
        fault = Reassign(duration_ms=60_000, topic="orders", replicas=("broker-102",), throttle=1)
        _, injected = nemesis.begin(Action(name="move", fault=fault))
        assert injected is not None and set(dev.throttles()) == {"1"}
        raise KvorumError("broken off by the test")

    run_dir = tmp_path / "run"
    result = run(
        str(experiment),
        output_dir=str(run_dir),
        system=str(tmp_path / "c.toml"),
        is_owned=True,
        carry_out=break_off,
    )
    assert result.verdict == "inconclusive"
    assert "the run ended early: KvorumError: broken off by the test" in result.reasons
    assert dev.throttles() == []
    ends = [e for e in read_history(str(run_dir / "history.jsonl")) if e.f == FAULT_END]
    assert [details_of(event)["fault"] for event in ends] == ["reassign"]


def test_the_dead_man_timer_heals_when_the_runner_is_killed_outright(dev, tmp_path):
    (tmp_path / "c.toml").write_text(dev.text)
    code = (
        "import sys; from pathlib import Path; "
        "from kvorum.chaos.live.systems.attached import AttachedSystem, attached_plan; "
        "from kvorum.chaos.live.systems.attached_file import parse_attached_file; "
        "folder = Path(sys.argv[1]); "
        "file = parse_attached_file('c.toml', (folder / 'c.toml').read_text()); "
        "plan = attached_plan(file, {}); "
        "system = AttachedSystem(file=file, plan=plan, toxiproxy=None, folder=folder / 'a'); "
        "system.start(); system.kill('broker-102'); "
        "(folder / 'killed').touch(); sys.stdin.read()"
    )
    # The runner waits at its standard input, so it ends with this process at the latest.
    command = [sys.executable, "-c", code, str(tmp_path)]
    runner = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    try:
        eventually((tmp_path / "killed").exists, "the runner has killed a broker")
        eventually(lambda: not dev.is_serving("broker-102"), "the broker is dead")
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.communicate()
    log = tmp_path / "a" / LOG
    eventually(lambda: log.read_text().endswith("done\n"), "the timer is done")
    assert "no heartbeat for 2000 ms: healing; down were broker-102" in log.read_text()
    eventually(lambda: dev.is_serving("broker-102"), "the broker serves again")


def test_a_run_whose_timer_has_ended_says_that_it_is_over(dev, tmp_path):
    system = dev.system(tmp_path / "a")
    system.start()
    try:
        assert system.is_running()
        assert system._dead_man is not None
        system._dead_man.kill()
        eventually(lambda: not system.is_running(), "the system is over")
    finally:
        system.stop()


def test_a_node_that_cannot_be_brought_back_is_told_and_left_to_the_timer(dev, tmp_path):
    text = dev.text.replace('start = "', 'start = "false ')
    system = dev.system(tmp_path / "a", text)
    system.start()
    timer = system._dead_man
    assert timer is not None
    admin = AdminClient({"bootstrap.servers": dev.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("chaos-orders", 1, 1)])["chaos-orders"].result(10)
    system.kill("broker-102")
    with pytest.raises(NodeCommandFailed, match="ended with 1"):
        system.restart("broker-102")
    with pytest.raises(KvorumError, match=r"broker-102 is down, and max_nodes_down is 1"):
        system.kill("broker-101")
    with pytest.raises(KvorumError, match=r"broker-102 is still down: .* timer tries once more"):
        system.stop()
    assert timer.wait(30) == 3
    eventually(
        lambda: "chaos-orders" not in admin.list_topics(timeout=10).topics, "no topic is left"
    )
    assert "broker-102 is still down" in (tmp_path / "a" / LOG).read_text()
    command = [sys.executable, str(BREAK), dev.data_dir, "start", "broker-102"]
    subprocess.run(command, cwd=ROOT, check=True, env={"PYTHONPATH": str(ROOT)})


def test_a_prefix_that_has_topics_or_a_broker_without_a_node_is_refused(dev, tmp_path):
    eventually(lambda: dev.is_serving("broker-102"), "both brokers serve")
    admin = AdminClient({"bootstrap.servers": dev.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("chaos-of-others", 1, 1)])["chaos-of-others"].result(10)
    try:
        with pytest.raises(ConfigError, match=r"begin with 'chaos-' \(chaos-of-others\)"):
            dev.system(tmp_path / "a").start()
    finally:
        admin.delete_topics(["chaos-of-others"])["chaos-of-others"].result(10)
    text = dev.text.replace("id = 102", "id = 103")
    with pytest.raises(
        ConfigError, match=r"has the brokers \[101, 102\] now, the file names \[101"
    ):
        dev.system(tmp_path / "b", text).start()
    assert not (tmp_path / "a").exists()


def test_a_shared_toxiproxy_is_reset_for_the_proxies_of_the_run_alone(tmp_path):
    port = free_ports(5, random.Random())
    with ToxiproxyServer(port=port, log_file=str(tmp_path / "log")) as server:
        own, other = (
            Link(
                source="clients",
                destination=name,
                listen=f"127.0.0.1:{port + at}",
                upstream=f"127.0.0.1:{port + 4}",
                proxy=name,
            )
            for at, name in ((1, "own"), (2, "other"))
        )
        server.api.populate([own, other])
        shared = SharedToxiproxy("127.0.0.1", port)
        shared.claim(("own",))
        for link in (own, other):
            toxic = Toxic(
                name="t", kind="timeout", stream=ProxyStream.UPSTREAM, attributes={"timeout": 0}
            )
            shared.add_toxic(link, toxic)
        shared.set_enabled(own, enabled=False)
        shared.reset()
        assert shared.toxics(own) == {}
        assert shared.toxics(other) == {"t": "timeout"}
        shared.set_enabled(own, enabled=True)
        with pytest.raises(KvorumError, match="has no proxy nobody"):
            shared.clear("nobody")
