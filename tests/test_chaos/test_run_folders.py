"""The folder of a run: a refused run leaves none, and a run that never began does not block
another."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvorum.chaos.live import runner
from kvorum.chaos.live.endings import UNENDED
from kvorum.chaos.live.host.toxiproxy import ToxiproxyError
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyEnded
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.command import kvorum

from .histories import good_history
from .runs import write_run

BROKERS = ("broker-101", "broker-102", "broker-103")


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    path = tmp_path / "x.yaml"
    path.write_text(
        "title: x\nmethod:\n  - {type: action, name: k, provider: {type: kvorum, func: kill, "
        'arguments: {target: "one:brokers"}}}\n'
    )
    return str(path)


def test_a_run_without_a_toxiproxy_server_leaves_no_folder(tmp_path, experiment, monkeypatch):
    monkeypatch.setenv("KVORUM_TOXIPROXY_SERVER", "/nowhere/toxiproxy-server")
    for _ in range(2):
        with pytest.raises(ConfigError, match="is no executable file"):
            run(experiment, output_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_run_that_ended_before_its_first_event_does_not_refuse_the_next(
    tmp_path, experiment, monkeypatch
):
    found: list[list[str]] = []

    def no_cluster(session: object, stack: object) -> None:
        folder = tmp_path / "run"
        (folder / "metadata").touch()
        modes = {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}
        assert modes == {0}, "a run holds ACLs and the metadata's records"
        (folder / "metadata").unlink()
        found.append(sorted(path.name for path in folder.iterdir()))
        (folder / "cluster").mkdir()
        raise KvorumError("the cluster does not start")

    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_start_system", no_cluster)
    for _ in range(2):
        with pytest.raises(KvorumError, match="the cluster does not start"):
            run(experiment, output_dir=str(tmp_path / "run"))
    # The folder of the cluster that did not start stays for inspection until the next attempt.
    assert (tmp_path / "run" / "cluster").is_dir()
    assert "cluster" not in found[1]


def test_a_run_of_which_something_is_known_is_kept(tmp_path, experiment, monkeypatch):
    monkeypatch.setattr(runner, "find_server", lambda: "")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").write_text("{}\n{}\n")
    with pytest.raises(ConfigError, match="already holds a run"):
        run(experiment, output_dir=str(tmp_path / "run"))
    assert (tmp_path / "run" / "history.jsonl").read_text() == "{}\n{}\n"


@pytest.mark.parametrize(
    ("is_attached", "left"),
    [(False, "the cluster is stopped"), (True, "the cluster is healed and runs on")],
)
def test_an_interrupted_run_says_what_became_of_its_cluster(
    tmp_path, experiment, monkeypatch, is_attached, left
):
    def interrupt(session: object, stack: object) -> None:
        raise KeyboardInterrupt

    choice = choose_system("kvorum")
    if is_attached:
        file = SimpleNamespace(controllers=("controller-1",), brokers=BROKERS, path="c.toml")
        choice = dataclasses.replace(choice, attached=file)
    monkeypatch.setattr(runner, "choose_system", lambda *_, **__: choice)
    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_start_system", interrupt)
    said: list[str] = []
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(experiment, output_dir=str(folder), progress=said.append)
    assert said == [f"interrupted; {left}; kvorum report {folder} judges the run"]


def test_a_closed_output_does_not_take_the_place_of_an_interrupt(tmp_path, experiment, monkeypatch):
    def interrupt(session: object, stack: object) -> None:
        raise KeyboardInterrupt

    def closed(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_start_system", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, output_dir=str(tmp_path / "run"), progress=closed)


@pytest.mark.parametrize(
    ("error", "is_of_lab"),
    [
        (KvorumError("no room in /srv/toxiproxy"), False),
        (ToxiproxyError("toxiproxy at 127.0.0.1:1 gave no answer within 5 s"), True),
        (ToxiproxyEnded("toxiproxy ended with -9"), True),
    ],
)
def test_a_run_that_breaks_off_is_judged_by_the_runner(
    tmp_path, experiment, monkeypatch, error, is_of_lab
):
    folder = tmp_path / "run"

    def break_off(session: object, stack: object) -> None:
        good_history().write(str(folder / "history.jsonl"))
        raise error

    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_run", break_off)
    result = run(experiment, output_dir=str(folder))
    assert result.verdict == "inconclusive"
    assert f"the run ended early: {type(error).__name__}: {error}" in result.reasons
    assert json.loads((folder / "run.json").read_text())["is_lab_failure"] is is_of_lab


def test_an_error_after_which_nothing_can_be_judged_is_raised(tmp_path, experiment, monkeypatch):
    def break_off(session: object, stack: object) -> None:
        (tmp_path / "run" / "history.jsonl").write_text("{}\n{}\n")
        raise KvorumError("the disk is full")

    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_run", break_off)
    with pytest.raises(KvorumError, match="the disk is full"):
        run(experiment, output_dir=str(tmp_path / "run"))


def test_a_run_that_never_began_is_not_judged_by_what_the_folder_has_of_another(
    tmp_path, experiment, monkeypatch
):
    def refuse(*_: object, **__: object) -> None:
        raise KvorumError("the library cannot be read")

    write_run(tmp_path, good_history())
    monkeypatch.setattr(runner, "choose_system", refuse)
    code, out, err = kvorum("chaos", "run", experiment, "--out", tmp_path)
    assert (code, out) == (1, "") and "the library cannot be read" in err
    assert not (tmp_path / "report.json").exists()


def test_a_run_in_progress_has_a_record_that_says_that_it_has_no_end(
    tmp_path, experiment, monkeypatch
):
    found: list[str] = []

    def look(session: object, stack: object) -> None:
        found.append(json.loads((tmp_path / "run" / "run.json").read_text())["error"])
        raise KvorumError("enough")

    monkeypatch.setattr(runner, "find_server", lambda: "")
    monkeypatch.setattr(runner._Session, "_start_system", look)
    with pytest.raises(KvorumError, match="enough"):
        run(experiment, output_dir=str(tmp_path / "run"))
    assert found == [UNENDED]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["error"] == "KvorumError: enough"
    assert record["history_bytes"] == (tmp_path / "run" / "history.jsonl").stat().st_size
