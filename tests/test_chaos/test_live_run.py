"""Whole experiments on a real cluster behind a real toxiproxy."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.history import FAULT_BEGIN, details_of, read_history
from kvorum.chaos.live.endings import UNENDED
from kvorum.chaos.live.host import processes
from kvorum.chaos.live.host.links import link_count, plan_links
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.kvorum import KvorumSystem
from kvorum.chaos.outages.observations import (
    PartitionSeen,
    QuorumSeen,
    Unanswered,
    read_observation,
)
from kvorum.chaos.report.replay import read_earlier_run
from kvorum.chaos.report.report import write_report
from kvorum.cli.common import EXIT_VERDICT_FAILED
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]

EXPERIMENT = """\
title: one of each
configuration:
  workload: {records_per_second: 300, topic_creations_per_second: 2}
  warm_up_ms: 1000
  cool_down_ms: 300
steady-state-hypothesis:
  title: whole
  probes:
    - {type: probe, name: one-active-controller, tolerance: 1,
       provider: {type: kvorum, func: active_controllers}}
    - {type: probe, name: full-isr, tolerance: 0,
       provider: {type: kvorum, func: under_replicated_partitions}}
method:
  - {type: action, name: cut, provider: {type: kvorum, func: cut, arguments: {
       source: active-controller, destination: standby-controller, duration_ms: 1000}}}
  - {type: action, name: kill-leader, provider: {type: kvorum, func: kill, arguments: {
       target: "leader:orders/0", duration_ms: 1000}}, pauses: {after: 0.5}}
  - {type: action, name: kill-controller, provider: {type: kvorum, func: kill, arguments: {
       target: active-controller, duration_ms: 1000}}, pauses: {after: 0.5}}
"""


def pids_of(run_dir: Path) -> list[int]:
    document = json.loads((run_dir / "cluster" / "cluster.json").read_text())
    pids = [node["pid"] for node in document["nodes"]] + [document["launcher_pid"]]
    return [pid for pid in pids if pid is not None]


def is_anything_left(run_dir: Path) -> bool:
    """True if a process of this run exists: its folder is on the command line, or it listens."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(run_dir).encode() in (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return any(processes.is_alive(pid) for pid in pids_of(run_dir))


def clients_of_this_process() -> int:
    """The clients of librdkafka that live: each has one thread of this name."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("rdk:main\n")


def test_run_passes_and_leaves_nothing_running(tmp_path):
    clients = clients_of_this_process()
    experiment = tmp_path / "one-of-each.yaml"
    experiment.write_text(EXPERIMENT)
    said: list[str] = []
    result = run(str(experiment), output_dir=str(tmp_path / "run"), progress=said.append, seed=5)
    report = json.loads(Path(result.report_json).read_text())
    assert result.verdict == "passed", (report["reasons"], said)
    # No client of the run may be left: its next metadata request could create a deleted topic
    # again.
    assert clients_of_this_process() <= clients
    assert report["lost"] == report["duplicated"] == report["reordered"] == 0
    assert report["load"]["acknowledged"] > 500
    events = list(read_history(result.history_file))
    kinds = [details_of(event)["fault"] for event in events if event.f == FAULT_BEGIN]
    assert kinds == ["cut", "kill", "kill"]
    assert all(fault["end_ms"] is not None for fault in report["faults"])
    seen = [item for item in map(read_observation, events) if item is not None]
    assert {item.observer for item in seen if isinstance(item, PartitionSeen)} == {
        "broker-101", "broker-102", "broker-103",
    }  # fmt: skip
    assert {item.observer for item in seen if isinstance(item, QuorumSeen)} == {
        "controller-1", "controller-2", "controller-3",
    }  # fmt: skip
    assert any(item.leader_epoch > 0 for item in seen if isinstance(item, PartitionSeen))
    assert {item.observer for item in seen if isinstance(item, Unanswered)} >= {
        node for event in events if event.f == FAULT_BEGIN and details_of(event)["fault"] == "kill"
        for node in details_of(event)["nodes"]
    }  # fmt: skip
    assert (tmp_path / "run" / "metadata" / "metadata_records.parquet").exists()
    assert result.rerun.endswith("--seed 5")
    assert not is_anything_left(tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run"):
        run(str(experiment), output_dir=str(tmp_path / "run"))


def test_clients_never_leave_the_proxies_after_bootstrap(tmp_path):
    from confluent_kafka.admin import AdminClient

    configuration = parse_experiment("x.yaml", EXPERIMENT).configuration
    first = processes.free_ports(6 + link_count(3, 3) + 1, random.Random())
    plan = plan_links(3, 3, client_port=first, controller_port=first + 3, proxy_port=first + 6)
    cluster = KvorumSystem(
        shape=configuration,
        plan=plan,
        data_dir=str(tmp_path / "cluster"),
        log_file=str(tmp_path / "cluster.log"),
        client_port=first,
        controller_port=first + 3,
    )
    api_port = first + 6 + link_count(3, 3)
    with ToxiproxyServer(port=api_port, log_file=str(tmp_path / "toxiproxy.log")) as server:
        server.api.populate(plan.links)
        try:
            cluster.start()
            # A client that bootstraps without a proxy is still sent to the proxies by the broker.
            for listener in (f"127.0.0.1:{first}", plan.bootstrap()):
                admin = AdminClient({"bootstrap.servers": listener, "log_level": 0})
                brokers = admin.list_topics(timeout=10).brokers.values()
                addresses = {f"{broker.host}:{broker.port}" for broker in brokers}
                assert addresses == set(plan.bootstrap().split(","))
        finally:
            cluster.stop()
    assert not is_anything_left(tmp_path)


IN_FORCE = (
    EXPERIMENT.partition("method:")[0].replace("warm_up_ms: 1000", "warm_up_ms: 0")
    + """\
method:
  - cut: {source: standby-controller, destination: active-controller, duration_ms: CUT_MS}
    background: true
  - kill: {target: "leader:orders/0", duration_ms: 60000}
"""
)


@contextlib.contextmanager
def run_under_faults(
    folder: Path, code: str, *, cut_ms: int = 60_000
) -> Iterator[subprocess.Popen[str]]:
    """Start a runner as a process, and yield it once a cut and a kill are in force. Its folder is
    `run`."""
    experiment = folder / "long.yaml"
    experiment.write_text(IN_FORCE.replace("CUT_MS", str(cut_ms)))
    # The data folder's path must be the run's own, see is_anything_left.
    run_dir = folder / "run"
    runner = subprocess.Popen(
        [sys.executable, "-c", code, str(experiment), str(run_dir)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    history = run_dir / "history.jsonl"

    def is_struck() -> bool:
        assert runner.poll() is None, runner.communicate()
        return history.exists() and history.read_text().count(f'"{FAULT_BEGIN}"') == 2

    try:
        eventually(is_struck, "both faults are in force")
        yield runner
    finally:
        runner.kill()
        runner.communicate()


# A shell without job control starts what is in its background with SIGINT ignored.
RUN = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
RUN_COMMAND = RUN + (
    "from kvorum.__main__ import main; "
    "sys.argv = ['kvorum', 'chaos', 'run', sys.argv[1], '--out', sys.argv[2]]; main()"
)


@pytest.mark.parametrize(
    ("number", "how", "code"),
    [(signal.SIGTERM, "ended by SIGTERM", 143), (signal.SIGINT, "interrupted", 130)],
)
def test_a_run_ended_by_a_signal_says_so_and_leaves_nothing_running(tmp_path, number, how, code):
    run_dir = tmp_path / "run"
    lake = tmp_path / "lake"
    command = RUN_COMMAND.replace("main()", f"sys.argv += ['--lake', {str(lake)!r}]; main()")
    with run_under_faults(tmp_path, command) as runner:
        runner.send_signal(number)
        _, complaint = runner.communicate(timeout=60)
        assert runner.returncode == code
    said = f"{how}; the cluster is stopped; kvorum report {run_dir} judges the run"
    assert said in complaint.splitlines()
    assert f"kvorum lake add {run_dir} --lake {lake} adds it" in complaint
    assert not is_anything_left(run_dir)
    assert json.loads((run_dir / "run.json").read_text())["error"] == how


def test_a_run_whose_output_is_closed_is_judged_and_the_reason_says_so(tmp_path):
    run_dir = tmp_path / "run"
    with run_under_faults(tmp_path, RUN_COMMAND, cut_ms=3_000) as runner:
        assert runner.stderr is not None
        # The first line of progress that it cannot write is the one about the end of the cut.
        runner.stderr.close()
        assert runner.wait(120) == EXIT_VERDICT_FAILED
    assert not is_anything_left(run_dir)
    report = json.loads((run_dir / "report.json").read_text())
    assert report["verdict"] == "inconclusive"
    assert (
        "the run ended early: the output of the run was closed by its reader" in report["reasons"]
    )


def test_a_run_whose_runner_was_killed_is_judged_inconclusive(tmp_path):
    run_dir = tmp_path / "run"
    with run_under_faults(tmp_path, RUN_COMMAND) as runner:
        runner.kill()
        runner.wait()
    eventually(lambda: not is_anything_left(run_dir), "every process is gone")
    result = write_report(str(run_dir))
    assert result.verdict == "inconclusive"
    assert f"the run ended early: {UNENDED}" in result.reasons
    assert read_earlier_run(str(run_dir)).system == "kvorum"


def test_a_toxiproxy_that_dies_breaks_the_run_off_and_is_not_held_against_the_cluster(tmp_path):
    run_dir = tmp_path / "run"
    with run_under_faults(tmp_path, RUN_COMMAND) as runner:
        os.kill(toxiproxy_of(run_dir), signal.SIGKILL)
        said, complaint = runner.communicate(timeout=60)
        assert runner.returncode == EXIT_VERDICT_FAILED
    assert "verdict: inconclusive" in said
    last = complaint.strip().splitlines()[-1]
    assert "the run ended early: ToxiproxyEnded: toxiproxy ended with -9 in the middle" in last
    assert not is_anything_left(run_dir)
    report = json.loads((run_dir / "report.json").read_text())
    assert report["verdict"] == "inconclusive" and len(report["reasons"]) == 1


def toxiproxy_of(run_dir: Path) -> int:
    """The process id of the run's toxiproxy: the listener of its nodes' own proxies."""
    log_file = run_dir / "logs" / "toxiproxy.log"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_server = b"toxiproxy-server" in (folder / "cmdline").read_bytes()
            if is_server and (folder / "fd" / "1").resolve() == log_file:
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no toxiproxy writes to {log_file}")


def test_runner_killed_outright_takes_its_processes_along(tmp_path):
    experiment = tmp_path / "long.yaml"
    experiment.write_text(EXPERIMENT.replace("warm_up_ms: 1000", "warm_up_ms: 60000"))
    code = (
        "import sys; from kvorum.chaos.live.runner import run; "
        "run(sys.argv[1], output_dir=sys.argv[2])"
    )
    run_dir = tmp_path / "run"
    runner = subprocess.Popen(
        [sys.executable, "-c", code, str(experiment), str(run_dir)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    history = run_dir / "history.jsonl"
    eventually(lambda: history.exists() and history.stat().st_size > 0, "the load runs")
    runner.kill()
    runner.wait()
    eventually(lambda: not is_anything_left(run_dir), "every process is gone")
