"""`kvorum raft replay`: exit codes and what a reader sees."""

from __future__ import annotations

import json
import sys

import pytest

from kvorum.cli.main import main
from kvorum.raft.core import leader
from kvorum.raft.model.effects import TimelineEntry
from kvorum.raft.node.flight_recorder import FlightRecorder
from tests.test_raft.driver import Driven


@pytest.fixture
def replay(monkeypatch, capsys):
    """(exit code, stdout, stderr) of `kvorum raft replay ARGUMENTS`."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvorum", "raft", "replay", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return run


@pytest.fixture
def lines():
    """The record of a node that was elected and took a proposal."""
    node = Driven()
    recorder = FlightRecorder(node.core)
    step = node.core.step

    def noted(event, now_ms):
        effects = step(event, now_ms)
        recorder.note(now_ms, event, effects)
        return effects

    node.core.step = noted
    node.become_leader().propose()
    del node.core.step
    return list(recorder.lines(reason="a test"))


@pytest.fixture
def file(tmp_path, lines):
    path = tmp_path / "flight.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def change_a_rule(monkeypatch):
    rule = leader.on_propose

    def on_propose(core, role, event):
        core.emit(TimelineEntry("takes a proposal"))
        rule(core, role, event)

    monkeypatch.setattr(leader, "on_propose", on_propose)


def test_same_effects_exit_with_0(replay, file):
    assert replay(file) == (0, "6 events, same effects\n", "")
    code, out, err = replay(file, "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "node_id": 1,
        "version": json.loads(file.read_text().splitlines()[0])["version"],
        "reason": "a test",
        "events": 6,
        "is_whole": True,
        "first_difference": None,
    }


def test_the_first_difference_is_shown_and_exits_with_1(replay, file, lines, monkeypatch):
    change_a_rule(monkeypatch)
    number = next(n for n, line in enumerate(lines, 1) if '"Propose"' in line)
    code, out, err = replay(file)
    assert code == 1
    head, *rest = out.splitlines()
    assert head.startswith(f"line {number}, at ") and '"$":"Propose"' in head
    assert [line[:2] for line in rest] == ["+ ", "  ", "  "]
    assert '"takes a proposal"' in rest[0] and "AppendProposed" in rest[1]
    assert err == f"kvorum: {file}: event 6, line {number}, differs\n"

    code, out, _ = replay(file, "-o", "json")
    difference = json.loads(out)["first_difference"]
    assert code == 1 and difference["line_number"] == number
    assert len(difference["now"]) == len(difference["recorded"]) + 1


def test_a_record_of_another_version_says_so_beside_the_difference(replay, file, monkeypatch):
    change_a_rule(monkeypatch)
    file.write_text(file.read_text().replace('"version":"', '"version":"9', 1))
    _, _, err = replay(file)
    assert "recorded by kvorum 9" in err.splitlines()[0]


def test_a_record_cut_short_is_replayed_with_a_warning(replay, file, lines):
    file.write_text("".join(f"{line}\n" for line in lines[:-1]))
    code, out, err = replay(file)
    assert (code, out) == (0, "6 events, same effects\n")
    assert err == f"kvorum: {file}: the record ends before its last line\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: the record is empty"),
        (b"\xff\xfe", "no flight record: byte 0 is not text"),
        (b"{}\n", "line 1: not the first line of a flight record"),
        (b'{"flight":9}\n', "line 1: format 9 is newer"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(replay, file, content, words):
    file.write_bytes(content)
    code, out, err = replay(file)
    assert (code, out) == (1, "")
    assert words in err and len(err.splitlines()) == 1
