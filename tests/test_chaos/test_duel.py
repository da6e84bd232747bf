"""`kvorum chaos diff`, `duel` and `export`. The runs of a duel are written by hand here, since each
back end has a live test of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvorum.chaos.experiment_file.experiment import load_experiment
from kvorum.chaos.live import duel as duels
from kvorum.chaos.report.report import write_report
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum

from .histories import good_history
from .runs import write_run

EXPERIMENT = """
title: duel
configuration: {brokers: 3}
method:
  - kill: {target: "leader:orders/0", duration_ms: 1000}
"""


@pytest.fixture
def runs(monkeypatch):
    """Replaces real runs by written ones; collects their (system, seed, folder)."""
    calls = []

    def run(path, *, output_dir, seed, system, progress, kafka_libs, is_owned):
        calls.append((system, seed, output_dir))
        Path(output_dir).mkdir(parents=True)
        is_worse = system == "kafka"
        died = ["broker-101"] if is_worse else []
        versions = {"name": system, "version": "1"}
        write_run(Path(output_dir), good_history(), system=versions, died_unasked=died)
        return write_report(output_dir)

    monkeypatch.setattr(duels, "run", run)
    monkeypatch.setattr(duels, "choose_system", lambda text, **_: text)
    monkeypatch.setattr(
        duels, "load_for", lambda choice, path, *, seed: load_experiment(path, seed=seed)
    )
    return calls


@pytest.fixture
def experiment(tmp_path) -> str:
    path = tmp_path / "duel.yaml"
    path.write_text(EXPERIMENT)
    return str(path)


def test_a_duel_runs_one_seed_against_both_and_writes_one_page(runs, experiment, tmp_path):
    out = tmp_path / "out"
    code, text, err = kvorum("chaos", "duel", experiment, "--out", out, "--seed", 7)
    assert [(system, seed) for system, seed, _ in runs] == [("kvorum", 7), ("kafka", 7)]
    assert code == 6 and "kvorum: passed - " in text and "kafka: failed - " in text
    assert "not every verdict is passed: kafka is failed: broker-101 died though no fault" in err
    page = (out / "duel.html").read_text()
    assert "kvorum 1" in page and "kafka 1" in page
    document = json.loads((out / "duel.json").read_text())
    assert [run["verdict"] for run in document["runs"]] == ["passed", "failed"]
    assert [run["run_dir"] for run in document["runs"]] == ["1-kvorum", "2-kafka"]


def test_a_duel_of_two_that_pass_succeeds(runs, experiment, tmp_path):
    code, _, err = kvorum(
        "chaos", "duel", experiment, "--out", tmp_path / "o", "--systems", "kvorum,kvorum"
    )
    assert code == 0, err
    assert [Path(folder).name for _, _, folder in runs] == ["1-kvorum", "2-kvorum"]


@pytest.mark.parametrize("systems", ["kvorum", "kvorum,kafka,kvorum", "kvorum,raft"])
def test_what_is_no_pair_of_systems_is_refused_before_any_run(experiment, tmp_path, systems):
    out = tmp_path / "o"
    code, _, err = kvorum("chaos", "duel", experiment, "--out", out, "--systems", systems)
    assert code == 2 and len(err.splitlines()) == 1
    assert "a duel has two systems" in err or "unknown system 'raft'; known: kvorum, kafka" in err
    assert not out.exists()


def test_a_duel_does_not_write_into_the_folder_of_a_run(runs, experiment, tmp_path):
    write_run(tmp_path, good_history())
    code, out, err = kvorum("chaos", "duel", experiment, "--out", tmp_path)
    assert (code, out, runs) == (2, "", [])
    assert f"{tmp_path} already holds a run; name another folder" in err


def test_a_duel_that_one_system_cannot_carry_out_begins_with_neither(
    runs, experiment, tmp_path, monkeypatch
):
    def refuse(choice, path, *, seed):
        if choice == "kafka":
            raise ConfigError("'x' needs y, which the system kafka does not have; use kvorum")
        return load_experiment(path, seed=seed)

    monkeypatch.setattr(duels, "load_for", refuse)
    code, _, err = kvorum("chaos", "duel", experiment, "--out", tmp_path / "o")
    assert (code, runs) == (2, []) and "which the system kafka does not have" in err


def test_diff_prints_the_figures_and_names_the_page(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, good_history())
        write_report(str(tmp_path / name))
    page = tmp_path / "diff.html"
    code, out, err = kvorum("chaos", "diff", tmp_path / "a", tmp_path / "b", "--out", page)
    assert (code, err) == (0, "") and page.exists()
    assert "records acknowledged" in out and f"page: {page}" in out
    code, _, err = kvorum("chaos", "diff", tmp_path, tmp_path / "b")
    assert code != 0 and len(err.splitlines()) == 1


def test_export_writes_jepsens_form(tmp_path):
    write_run(tmp_path, good_history())
    code, out, _ = kvorum("chaos", "export", tmp_path)
    assert code == 0 and out.startswith(f"{tmp_path / 'history.edn'}: ")
    assert "[:send 0 [0 0]]" in (tmp_path / "history.edn").read_text().replace('"orders/0"', "0")
    code, _, err = kvorum("chaos", "export", tmp_path.parent / tmp_path.name / "..")
    assert code != 0 and "holds no run" in err
