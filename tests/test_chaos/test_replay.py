"""A run's folder says how to run it again, and which nodes its faults hit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvorum.chaos.history import (
    FAULT_BEGIN,
    INFO,
    NEMESIS,
    HistoryWriter,
)
from kvorum.chaos.report.replay import Pick, compare_targets, read_earlier_run
from kvorum.runtime.errors import ConfigError

from .runs import record


def write_run(folder: Path, hits: list[tuple[str, list[str]]]) -> None:
    folder.mkdir()
    with HistoryWriter(str(folder / "history.jsonl"), run_id="1", system="kvorum") as history:
        for description, nodes in hits:
            history.append(
                process=NEMESIS,
                type=INFO,
                f=FAULT_BEGIN,
                details={"description": description, "nodes": nodes},
            )


def test_the_nodes_of_two_runs_are_compared_fault_by_fault(tmp_path):
    write_run(tmp_path / "a", [("kill one", ["broker-101"]), ("kill x", ["broker-102"])])
    write_run(tmp_path / "b", [("kill one", ["broker-101"]), ("kill x", ["broker-103"])])
    same, other = compare_targets(str(tmp_path / "a"), str(tmp_path / "b"))
    assert same.is_same
    assert not other.is_same
    assert other.row() == {"fault": "kill x", "last_time": ("broker-102",), "now": ("broker-103",)}


def test_a_fault_that_only_one_run_has_is_not_the_same(tmp_path):
    write_run(tmp_path / "a", [])
    write_run(tmp_path / "b", [("kill one", ["broker-101"])])
    assert compare_targets(str(tmp_path / "a"), str(tmp_path / "b")) == [
        Pick(fault="kill one", then=(), now=("broker-101",))
    ]
    (earlier,) = compare_targets(str(tmp_path / "b"), str(tmp_path / "a"))
    assert (earlier.fault, earlier.is_same) == ("kill one", False)


def test_the_experiment_the_seed_and_the_system_come_from_the_folder(tmp_path):
    (tmp_path / "experiment.json").write_text("{}")
    (tmp_path / "run.json").write_text(json.dumps(record(seed=7, system={"name": "kafka"})))
    earlier = read_earlier_run(str(tmp_path))
    assert earlier.experiment_file == str(tmp_path / "experiment.json")
    assert (earlier.seed, earlier.system_to_replay()) == (7, "kafka")


def test_a_run_on_an_attached_cluster_needs_its_file(tmp_path):
    (tmp_path / "experiment.yaml").write_text("")
    (tmp_path / "run.json").write_text(json.dumps(record(seed=7, system={"name": "attached"})))
    with pytest.raises(ConfigError, match=r"add --system FILE\.toml"):
        read_earlier_run(str(tmp_path)).system_to_replay()


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_folder_that_is_no_run_is_refused(tmp_path, content):
    with pytest.raises(ConfigError, match="holds no experiment file"):
        read_earlier_run(str(tmp_path))
    (tmp_path / "experiment.yaml").write_text("")
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(ConfigError, match="with kvorum chaos run"):
        read_earlier_run(str(tmp_path))
