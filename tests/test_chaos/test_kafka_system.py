"""Apache Kafka's own jars under test: real JVMs behind a real toxiproxy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvorum.chaos.experiment.history import read_history
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.kafka_jars import broker_config_names
from kvorum.runtime.errors import ConfigError
from tests.clients.java_tools import LIBRARY, needs_java
from tests.polling import eventually

pytestmark = [needs_java, pytest.mark.java, pytest.mark.live, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
title: a kill and a cut
configuration:
  controllers: 3
  brokers: 1
  topic: {name: orders, partitions: 1}
  workload: {records_per_second: 200}
  settings: {num.network.threads: 2}
  warm_up_ms: 0
  cool_down_ms: 0
  start_timeout_ms: 120000
method:
  - {type: action, name: hide-the-leader, provider: {type: kvorum, func: down, arguments: {
       source: active-controller, destination: standby-controllers, both_ways: true,
       duration_ms: 3000}}}
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


def test_an_experiment_runs_against_kafka_with_links_between_controllers_cut(tmp_path):
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT)
    run_dir = tmp_path / "run"
    result = run(str(experiment), output_dir=str(run_dir), system="kafka")
    assert result.verdict == "passed", result
    record = json.loads((run_dir / "run.json").read_text())
    assert record["system"]["name"] == "kafka"
    assert record["system"]["version"].startswith("4.")
    assert result.rerun.endswith(" --system kafka")
    quorum = [
        event.details
        for event in read_history(str(run_dir / "history.jsonl"))
        if event.f == "observe" and event.details["what"] == "quorum" and event.error is None
    ]
    # The cut elected another controller: no connection between controllers passes the proxies by.
    assert {status["leader_epoch"] for status in quorum} >= {1, 2}, quorum
    assert max(status["high_watermark"] for status in quorum) > 0
    assert list((run_dir / "metadata" / "__cluster_metadata-0").glob("*.log"))
    assert jvms_of(run_dir) == []


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
    assert {"log.dirs", "replica.lag.time.max.ms"} <= broker_config_names(LIBRARY)
    experiment = tmp_path / "x.yaml"
    experiment.write_text(EXPERIMENT.replace("num.network.threads", "num.netwrk.threads"))
    with pytest.raises(ConfigError, match=r"did you mean 'num\.network\.threads'"):
        run(str(experiment), output_dir=str(tmp_path / "run"), system="kafka")
    assert not (tmp_path / "run").exists()
