"""Chaos Toolkit itself validates and runs our experiments."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from chaoslib.exceptions import InterruptExecution, InvalidActivity
from chaoslib.experiment import ensure_experiment_is_valid
from chaoslib.loader import load_experiment as load_as_toolkit

from kvorum import chaos
from kvorum.chaos import toolkit
from kvorum.chaos.experiment_file.canonical import to_toolkit
from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.experiment_file.possible_targets import PossibleTargets, node_names
from kvorum.chaos.experiment_file.steps import PROBES, Action, method_rng, read_storm
from kvorum.chaos.faults import LIVE_FAULTS, Reassign
from kvorum.chaos.history import FAULT_BEGIN, details_of, read_history
from kvorum.chaos.run_record import StepOutcome
from kvorum.chaos.toolkit import control, functions
from kvorum.chaos.toolkit.session import ToolkitRun
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.polling import eventually

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted((Path(chaos.__file__).parent / "experiments").glob("*.yaml"))

SHORT = """\
title: two at once
configuration:
  workload: {records_per_second: 300}
  warm_up_ms: 500
  cool_down_ms: 500
steady-state-hypothesis:
  probes:
    - active_controllers: 1
    - under_replicated_partitions: 0
method:
  - pause: {target: "one:brokers", duration_ms: 2000}
    background: true
    name: a broker hangs
  - kill: {target: active-controller, duration_ms: 1000}
  - live_brokers:
  - storm:
      count: 2
      pause_ms_min: 1
      pause_ms_max: 9
      faults:
        - latency: {source: clients, destination: brokers, latency_ms: 5, duration_ms: 100}
        - pause: {target: one, duration_ms: 100}
"""


def test_there_is_a_function_for_each_fault_and_each_probe():
    functions = dict(inspect.getmembers(toolkit, inspect.isfunction))
    assert {*LIVE_FAULTS, *PROBES, "storm"} <= set(functions)
    kill = inspect.signature(functions["kill"])
    assert [*kill.parameters] == ["target", "duration_ms"]
    assert kill.parameters["target"].default is inspect.Parameter.empty
    assert kill.parameters["duration_ms"].default is None
    assert functions["kill"].__doc__ == LIVE_FAULTS["kill"].__doc__


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_chaos_toolkit_accepts_every_shipped_experiment(path):
    ensure_experiment_is_valid(load_as_toolkit(str(path)))


def test_chaos_toolkit_accepts_the_canonical_form_and_refuses_a_misspelt_argument(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(to_toolkit("x.yaml", SHORT, PROBES))
    ensure_experiment_is_valid(load_as_toolkit(str(path)))
    path.write_text(path.read_text().replace("target:", "tagret:"))
    with pytest.raises(InvalidActivity, match="is missing from activity"):
        ensure_experiment_is_valid(load_as_toolkit(str(path)))


def test_an_action_without_the_control_says_what_is_missing():
    with pytest.raises(KvorumError, match=r"controls: module kvorum\.chaos\.toolkit\.control"):
        toolkit.kill(target="one")
    with pytest.raises(ConfigError, match="did you mean one"):
        toolkit.kill(target="onee")


def test_a_control_that_cannot_start_a_cluster_interrupts_the_experiment(tmp_path, monkeypatch):
    monkeypatch.setenv("KVORUM_CHAOS_OUT", str(tmp_path / "run"))
    monkeypatch.setenv("KVORUM_TOXIPROXY_SERVER", "/nowhere/toxiproxy-server")
    method = [{"kill": {"target": "one"}}]
    try:
        with pytest.raises(InterruptExecution, match="is no executable file"):
            control.before_experiment_control({"title": "t", "method": method})
        journal: dict[str, object] = {"status": "completed"}
        control.after_experiment_control({}, journal)
    finally:
        control.close_run()
    assert journal["status"] == "failed"
    assert journal["kvorum"]["verdict"] == "undecided"


def test_a_storm_of_chaos_toolkit_draws_what_our_runner_draws():
    read = parse_experiment("x.yaml", SHORT)
    drawn = read.method[3:]
    arguments = {
        "count": 2,
        "pause_ms_min": 1,
        "pause_ms_max": 9,
        "faults": [
            {
                "func": "latency",
                "arguments": {
                    "source": "clients",
                    "destination": "brokers",
                    "latency_ms": 5,
                    "duration_ms": 100,
                },
            },
            {"func": "pause", "arguments": {"target": "one", "duration_ms": 100}},
        ],
    }
    possible = PossibleTargets(
        nodes=node_names(3, 3), topic="orders", partitions=6, replication_factor=3
    )
    assert tuple(read_storm("storm", arguments, possible, method_rng(1))) == drawn


class EndedRun:
    """A run that only notes how it was ended."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict
        self.broken_off: list[str] = []

    def finish(self) -> SimpleNamespace:
        reasons = () if self.verdict == "passed" else ("lost: 1 times",)
        return SimpleNamespace(
            verdict=self.verdict, reasons=reasons, summary="", report_html="r.html"
        )

    def break_off(self, reason: str) -> SimpleNamespace:
        self.broken_off.append(reason)
        self.verdict = "inconclusive"
        return self.finish()


@pytest.mark.parametrize(
    ("status", "played", "verdict", "ends_as", "reason"),
    [
        ("completed", True, "passed", "completed", None),
        ("completed", True, "failed", "failed", None),
        ("interrupted", True, "passed", "failed", "Chaos Toolkit's run was interrupted"),
        ("aborted", True, "passed", "failed", "Chaos Toolkit's run was aborted"),
        ("failed", False, "passed", "failed", "Chaos Toolkit did not play the method"),
    ],
)
def test_the_journal_fails_unless_the_method_was_played_and_the_verdict_is_passed(
    monkeypatch, status, played, verdict, ends_as, reason
):
    run = EndedRun(verdict)
    monkeypatch.setattr(control, "current_run", lambda: run)
    journal = {"status": status, "run": [{"status": "succeeded"}] if played else []}
    control.after_experiment_control({}, journal)
    assert journal["status"] == ends_as
    assert journal["kvorum"]["verdict"] == run.verdict
    assert run.broken_off == ([reason] if reason else [])


def test_an_error_in_the_control_which_chaos_toolkit_swallows_fails_the_experiment(monkeypatch):
    run = EndedRun("passed")
    monkeypatch.setattr(run, "finish", lambda: 1 / 0)
    monkeypatch.setattr(control, "current_run", lambda: run)
    journal = {"status": "completed", "run": [{}]}
    with pytest.raises(ZeroDivisionError):
        control.after_experiment_control({}, journal)
    assert journal["status"] == "failed"
    assert journal["kvorum"]["verdict"] == "undecided"


@pytest.mark.live
@pytest.mark.timeout(240)
def test_chaos_toolkit_runs_an_experiment_and_our_report_is_written(tmp_path):
    path, run_dir = tmp_path / "two.yaml", tmp_path / "run"
    path.write_text(to_toolkit("two.yaml", SHORT, PROBES))
    done = subprocess.run(
        [sys.executable, "-m", "chaostoolkit", "run", str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KVORUM_CHAOS_OUT": str(run_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    journal = json.loads((tmp_path / "journal.json").read_text())
    assert done.returncode == 0, done.stderr[-4_000:]
    assert journal["status"] == "completed"
    assert journal["steady_states"]["after"]["steady_state_met"]
    assert journal["kvorum"]["verdict"] == "passed"
    assert json.loads((run_dir / "report.json").read_text())["verdict"] == "passed"
    begun = [
        details_of(event)["name"]
        for event in read_history(str(run_dir / "history.jsonl"))
        if event.f == FAULT_BEGIN
    ]
    assert sorted(begun[:2]) == ["a broker hangs", "kill active-controller"]
    assert begun[2:] == ["storm-1", "storm-2"]


class InterruptedRun:
    """A run in which every wait is interrupted by Chaos Toolkit's handler of SIGTERM."""

    def __init__(self) -> None:
        self.interrupted: list[str] = []

    def carry_out(self, action: object) -> None:
        raise InterruptExecution("SIGTERM signal received")

    def measure(self, probe: object) -> None:
        raise InterruptExecution("SIGTERM signal received")

    def interrupt(self, reason: str) -> None:
        self.interrupted.append(reason)


@pytest.mark.parametrize(
    "activity", [lambda: toolkit.kill(target="one"), lambda: toolkit.live_brokers()]
)
def test_an_activity_that_is_interrupted_ends_the_run_and_the_method(monkeypatch, activity):
    run = InterruptedRun()
    monkeypatch.setattr(functions, "current_run", lambda: run)
    # Chaos Toolkit makes a failed activity of any Exception, and goes on.
    with pytest.raises(SystemExit):
        activity()
    assert run.interrupted == ["Chaos Toolkit was interrupted: SIGTERM signal received"]


class CompletingNemesis:
    """A nemesis whose fault is over by itself at the third look, long before its time."""

    def __init__(self) -> None:
        self.looks = 0

    def begin(self, action: Action) -> tuple[StepOutcome, object]:
        return StepOutcome(name=action.name, description="d", is_done=True), object()

    def is_in_force(self, injected: object) -> bool:
        self.looks += 1
        return self.looks < 3

    def wait(self, duration_ms: int) -> None:
        pass


@pytest.mark.timeout(30)
def test_an_action_returns_when_its_fault_is_over_by_itself(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(SHORT)
    run = ToolkitRun(str(path), output_dir=str(tmp_path / "run"), progress=print)
    nemesis = CompletingNemesis()
    with ThreadPoolExecutor(max_workers=1) as thread:
        run._outcome = thread.submit(run._serve, nemesis, None)
        try:
            action = Action(name="move", fault=Reassign(duration_ms=3_600_000))
            assert run.carry_out(action).is_done
        finally:
            run._is_ended.set()
    assert nemesis.looks == 3


LONG = (
    SHORT.partition("method:")[0]
    + """\
method:
  - kill: {target: "one:brokers", duration_ms: 60000}
  - live_brokers:
"""
)


@pytest.mark.live
@pytest.mark.timeout(240)
def test_a_sigterm_inside_an_action_ends_the_run_without_a_pass(tmp_path):
    path, run_dir = tmp_path / "long.yaml", tmp_path / "run"
    path.write_text(to_toolkit("long.yaml", LONG, PROBES))
    with (tmp_path / "said").open("w") as said:
        toolkit_run = subprocess.Popen(
            [sys.executable, "-m", "chaostoolkit", "run", str(path)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KVORUM_CHAOS_OUT": str(run_dir)},
            stdout=said,
            stderr=said,
        )
    history = run_dir / "history.jsonl"

    def is_struck() -> bool:
        assert toolkit_run.poll() is None, (tmp_path / "said").read_text()
        return history.exists() and f'"{FAULT_BEGIN}"' in history.read_text()

    try:
        eventually(is_struck, "the kill is in force")
        toolkit_run.send_signal(signal.SIGTERM)
        assert toolkit_run.wait(120) != 0
    finally:
        toolkit_run.kill()
        toolkit_run.wait()
    journal = json.loads((tmp_path / "journal.json").read_text())
    assert journal["kvorum"]["verdict"] == "inconclusive", journal["kvorum"]
    assert "Chaos Toolkit was interrupted: SIGTERM" in " ".join(journal["kvorum"]["reasons"])
    # The probe after the kill was not played.
    assert len(journal["run"]) <= 1
