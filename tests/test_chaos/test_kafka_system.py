"""Apache Kafka's own jars under test: real JVMs behind a real toxiproxy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvorum.chaos.history import FAULT_BEGIN, Event, details_of, read_history
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.kafka import KafkaSystem
from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY, broker_config_names
from kvorum.chaos.outages.observations import PartitionSeen, read_observation
from kvorum.chaos.report.report import RunResult
from kvorum.runtime.errors import ConfigError
from tests.clients.java_tools import needs_java
from tests.polling import eventually

pytestmark = [needs_java, pytest.mark.java, pytest.mark.live, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
title: a cut, a kill, lost disks and preferred leaders
configuration:
  controllers: 3
  brokers: 2
  topic: {name: orders, partitions: 2, replication_factor: 2, min_insync_replicas: 1}
  workload: {records_per_second: 200}
  settings: {num.network.threads: 2}
  warm_up_ms: 0
  cool_down_ms: 0
  start_timeout_ms: 120000
method:
  - {type: action, name: hide-the-leader, provider: {type: kvorum, func: down, arguments: {
       source: active-controller, destination: standby-controllers, both_ways: true,
       duration_ms: 3000}}}
  - wipe: {target: "follower:orders/0", duration_ms: 200}
    background: true
  - wipe: {target: standby-controller, duration_ms: 200}
  # The wiped broker's JVM starts anew and fills its replica: 15 s on a machine that does more.
  - elect_leaders:
    pauses: {before: 25}
  - {type: action, name: kill, provider: {type: kvorum, func: kill, arguments: {
       target: one:brokers, duration_ms: 200}}}
"""


def jvms_of(folder: Path) -> list[int]:
    """Processes with a path of this folder on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder).encode() in command and b"kafka.Kafka" in command:
            found.append(int(process.name))
    return found


@dataclass(frozen=True)
class Done:
    """The run of EXPERIMENT. wiped: node -> the directory ids before the wipe and after it."""

    result: RunResult
    folder: Path
    events: list[Event]
    wiped: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    experiment = folder / "x.yaml"
    experiment.write_text(EXPERIMENT)
    wiped: dict[str, tuple[str, str]] = {}
    wipe = KafkaSystem.wipe

    def noted(system: KafkaSystem, name: str) -> None:
        before = directory_id(folder / "run", name)
        wipe(system, name)
        wiped[name] = (before, directory_id(folder / "run", name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaSystem, "wipe", noted)
        result = run(str(experiment), output_dir=str(folder / "run"), system="kafka")
    events = list(read_history(str(folder / "run" / "history.jsonl")))
    return Done(result=result, folder=folder / "run", events=events, wiped=wiped)


def directory_id(run_dir: Path, name: str) -> str:
    text = (run_dir / "cluster" / name / "data" / "meta.properties").read_text()
    return next(line for line in text.splitlines() if line.startswith("directory.id="))


def test_an_experiment_runs_against_kafka_with_links_between_controllers_cut(done):
    result, run_dir = done.result, done.folder
    assert result.verdict == "passed", result
    record = json.loads((run_dir / "run.json").read_text())
    assert record["system"]["name"] == "kafka"
    assert record["system"]["version"].startswith("4.")
    assert result.rerun.endswith(" --system kafka")
    quorum = [
        event.details
        for event in done.events
        if event.f == "observe" and event.details["what"] == "quorum" and event.error is None
    ]
    # The cut caused an election of another controller, so no connection between controllers
    # bypasses the proxies. The first election may need more than one epoch.
    assert len({status["leader_epoch"] for status in quorum} - {0}) >= 2, quorum
    assert max(status["high_watermark"] for status in quorum) > 0
    assert list((run_dir / "metadata" / "__cluster_metadata-0").glob("*.log"))
    assert jvms_of(run_dir) == []


def test_disks_are_wiped_and_preferred_leaders_elected(done):
    assert sorted(name.split("-")[0] for name in done.wiped) == ["broker", "controller"]
    assert all(before != after for before, after in done.wiped.values())
    kinds = [details_of(event)["fault"] for event in done.events if event.f == FAULT_BEGIN]
    assert kinds == ["down", "wipe", "wipe", "elect_leaders", "kill"]
    seen = [one for one in map(read_observation, done.events) if isinstance(one, PartitionSeen)]
    # The broker with an empty disk lost a lead, and got it back.
    (wiped,) = [int(name.split("-")[1]) for name in done.wiped if name.startswith("broker")]
    led = [one.leader for one in seen if one.replicas[0] == wiped]
    lost = next(place for place, leader in enumerate(led) if leader not in (wiped, -1))
    assert wiped in led[lost:]


def test_no_jvm_outlives_a_runner_that_is_killed_outright(tmp_path):
    experiment = tmp_path / "x.yaml"
    experiment.write_text(
        "title: two JVMs\nconfiguration: {controllers: 1, brokers: 1}\n"
        "method:\n- kill: {target: broker-101, duration_ms: 60000}\n"
    )
    code = (
        "import sys; from kvorum.chaos.live.runner import run; "
        "run(sys.argv[1], output_dir=sys.argv[2], system='kafka')"
    )
    run_dir = tmp_path / "run"
    command = [sys.executable, "-c", code, str(experiment), str(run_dir)]
    runner = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(jvms_of(run_dir)) == 2, "both JVMs run")
    finally:
        runner.kill()
        runner.wait()
    eventually(lambda: not jvms_of(run_dir), "no JVM is left")


def test_a_setting_that_kafka_does_not_have_is_refused_before_anything_starts(tmp_path):
    assert {"log.dirs", "replica.lag.time.max.ms"} <= broker_config_names(OWN_LIBRARY)
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT.replace("num.network.threads", "num.netwrk.threads"))
    with pytest.raises(ConfigError, match=r"did you mean 'num\.network\.threads'"):
        run(str(experiment), output_dir=str(tmp_path / "run"), system="kafka")
    assert not (tmp_path / "run").exists()
