"""--watch: answer after answer, each in the form of the output."""

from __future__ import annotations

import json
import time

import click
import pytest
import yaml

from kvorum.cli.common import cluster_options, show
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed


def watched(monkeypatch, answers, *arguments):
    """Runs a command with --watch that gets these answers. An exception in place of an answer, or
    after its rows, is raised."""
    left = list(answers)
    closed = []

    @click.command()
    @watchable
    @cluster_options
    def ask(output, **_):
        click.get_current_context().call_on_close(lambda: closed.append(len(left)))
        answer = left.pop(0)
        rows, failure = answer if isinstance(answer, tuple) else (answer, None)
        if isinstance(rows, Exception):
            raise rows
        show(output, rows)
        if failure is not None:
            raise failure

    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises((KeyboardInterrupt, click.Abort)):
        ask.main(["--watch", *arguments], standalone_mode=False)
    assert closed == list(reversed(range(len(answers)))), "what an answer opened is closed with it"
    return pauses


def test_json_is_a_line_for_each_answer_and_yaml_a_document(monkeypatch, capsys):
    rows = [[{"topic": "a"}], [{"topic": "b"}]]
    assert watched(monkeypatch, rows, "-o", "json", "--interval", "0.5") == [0.5, 0.5]
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == rows
    watched(monkeypatch, rows, "-o", "yaml")
    assert capsys.readouterr().out == "---\n- topic: a\n---\n- topic: b\n"


def test_a_failed_answer_is_shown_and_the_next_one_is_asked_for(monkeypatch, capsys):
    answers = [[{"topic": "a"}], CommandFailed("no broker reachable"), [{"topic": "b"}]]
    watched(monkeypatch, answers)
    assert capsys.readouterr().out == "TOPIC\na\n\nkvorum: no broker reachable\n\nTOPIC\nb\n\n"
    watched(monkeypatch, answers, "-o", "json")
    second = capsys.readouterr().out.splitlines()[1]
    assert json.loads(second) == {"error": "kvorum: no broker reachable"}


def test_wide_has_every_key_and_table_the_chosen_ones(capsys):
    rows = [{"a": 1, "b": None, "c": [2, 3]}]
    show("table", rows, ["b", "a"])
    assert capsys.readouterr().out == "B  A\n-  1\n"
    show("wide", rows, ["b", "a"])
    assert capsys.readouterr().out == "B  A  C\n-  1  2,3\n"


def test_an_answer_that_fails_after_its_rows_keeps_its_form(monkeypatch, capsys):
    # As `kvorum health` does if a check fails.
    ill = ({"is_healthy": False}, CommandFailed("not healthy: brokers"))
    watched(monkeypatch, [ill], "-o", "json")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"is_healthy": False}
    assert printed.err.splitlines()[0] == "kvorum: not healthy: brokers"
    watched(monkeypatch, [ill], "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == {"is_healthy": False}
    watched(monkeypatch, [ill])
    assert capsys.readouterr().out.endswith("no\nkvorum: not healthy: brokers\n\n")


def test_a_failed_answer_is_a_yaml_document_too(monkeypatch, capsys):
    watched(monkeypatch, [CommandFailed("topic a: UNKNOWN: gone")], "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == {"error": "kvorum: topic a: UNKNOWN: gone"}
