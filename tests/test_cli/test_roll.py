"""What `kvorum cluster roll` refuses before it asks the cluster, and how it makes its commands."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import click
import pytest

from kvorum.cli import restarting
from kvorum.cli.restarting import command_for, restarter
from kvorum.cli.roll import until
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import CommandFailed
from kvorum.metadata.inspect.roll import RollNode
from tests.command import kvorum
from tests.live.cluster import is_alive
from tests.polling import eventually

NODE = RollNode(
    node_id=101, role="broker", host="kvorum-broker-1.kvorum.svc", incarnation_id=b"a" * 16
)


def refusal(*arguments):
    code, out, error = kvorum("cluster", "roll", *arguments, "-b", "127.0.0.1:1")
    assert (code, out) == (2, "")
    (line,) = error.splitlines()
    return line


def test_a_roll_needs_one_way_to_restart_nodes():
    assert "how is a node restarted?" in refusal()
    both = ("--restart-command", "true {node}", "--data-dir", "/nowhere")
    assert "not both" in refusal(*both)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("ssh {hots} restart", "has {hots}; there are {node}, {id}, {role}, {host}, {short_host}"),
        ("systemctl restart kvorum", "names no node"),
        ("systemctl restart kvorum-{role}", "names no node"),
        ("", "names no node"),
        ("ssh {host", "expected '}'"),
        ("ssh 'h", "No closing quotation"),
        ("ssh {}", "has {}"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template, reason):
    assert reason in refusal("--restart-command", template)


def test_a_node_is_an_id_or_a_name():
    code, _, error = kvorum("cluster", "check", "--restart-safe", "first", "-b", "127.0.0.1:1")
    assert (code, "'first' is no node: give an id, or a name like broker-101" in error) == (2, True)


def test_words_of_a_command_are_filled_in_without_a_shell():
    template = ["ssh", "{host}", "systemctl restart kvorum-{role}@{id}", "{node}", "{short_host}"]
    assert command_for(template, NODE) == [
        "ssh", "kvorum-broker-1.kvorum.svc", "systemctl restart kvorum-broker@101", "broker-101",
        "kvorum-broker-1",
    ]  # fmt: skip


def test_a_dry_run_needs_no_command():
    assert restarter(None, None, is_needed=False) is None


def by_command(template):
    restart = restarter(template, None, is_needed=True)
    assert restart is not None
    return restart.run


def test_a_command_that_the_system_cannot_start_stops_the_roll_with_a_sentence(tmp_path):
    file = tmp_path / "restart"
    file.write_bytes(b"\0no program")
    restart = by_command(f"{file} {{node}}")
    with pytest.raises(CommandFailed, match="Permission denied"):
        restart(NODE, 1.0)
    file.chmod(0o700)
    with pytest.raises(CommandFailed, match="Exec format error"):
        restart(NODE, 1.0)


@pytest.fixture
def hangs(tmp_path):
    """A command that waits for its child, as a shell waits for ssh, and the child's pid."""
    file = tmp_path / "pid"

    def pid():
        eventually(lambda: file.exists() and file.read_text().endswith("\n"), "the child runs")
        return int(file.read_text())

    return f"sh -c '{{}} sleep 77 & echo $! > {file}; wait' {{{{node}}}}", pid


@pytest.mark.parametrize("first", ["", "trap : TERM;", 'trap "" TERM;'])
def test_a_command_that_takes_too_long_is_killed_with_its_children(hangs, first, monkeypatch):
    monkeypatch.setattr("kvorum.cli.restarting.GRACE_S", 0.2)
    template, child = hangs
    with pytest.raises(CommandFailed, match="still running after 1 s and was killed") as failed:
        by_command(template.format(first))(NODE, 0.99)
    assert failed.value.exit_code == 4
    # A killed process ends a moment after the signal was sent.
    eventually(lambda: not is_alive(child()), "the child has ended")


@pytest.fixture
def handled():
    """Sets a signal's handler for the test. A run of the tests that nohup or a script's background
    has started inherits SIGHUP and SIGINT as ignored."""
    with contextlib.ExitStack() as before:

        def handle(number, handler):
            before.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(number, handler)

        yield handle


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_roll_that_is_ended_leaves_no_command_behind(hangs, capsys, number, handled):
    template, child = hangs
    handled(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    def send():
        child()
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        by_command(template.format(""))(NODE, 60.0)
    sender.join()
    # A killed process ends a moment after the signal was sent.
    eventually(lambda: not is_alive(child()), "the child has ended")
    assert "killed before its end; see whether broker-101 runs" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_roll_that_is_ended_while_a_command_starts_leaves_none_behind(
    hangs, monkeypatch, handled, number
):
    template, child = hangs
    handled(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    start = restarting._started

    def started(*arguments):
        process = start(*arguments)
        child()
        os.kill(os.getpid(), number)
        return process

    monkeypatch.setattr(restarting, "_started", started)
    with pytest.raises(KeyboardInterrupt):
        by_command(template.format(""))(NODE, 60.0)
    eventually(lambda: not is_alive(child()), "the child has ended")


def test_a_roll_under_nohup_outlives_its_terminal(tmp_path, handled):
    handled(signal.SIGHUP, signal.SIG_IGN)
    file = tmp_path / "done"
    by_command(f"sh -c 'kill -HUP {os.getpid()}; echo {{node}} > {file}'")(NODE, 60.0)
    assert file.read_text() == "broker-101\n"


def test_a_command_may_leave_the_node_running(tmp_path):
    file = tmp_path / "pid"
    by_command(f"sh -c 'sleep 77 & echo $! > {file}' {{node}}")(NODE, 60.0)
    pid = int(file.read_text())
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_node_that_restarts_brings_no_hint_at_security(capsys, monkeypatch):
    monkeypatch.setattr("kvorum.cli.roll.PAUSE_S", 0.0)
    gone = BrokerGone("broker h1:9092 went away", hint="; if it asks for TLS, give a file")
    assert str(gone) == "broker h1:9092 went away; if it asks for TLS, give a file"

    def look(failures):
        if failures:
            raise failures.pop()

    with click.Context(click.Command("roll")):
        assert until(lambda: look([gone]), time.monotonic()) == "broker h1:9092 went away"
        failures = [gone]
        assert until(lambda: look(failures), time.monotonic() + 60) is None
    assert capsys.readouterr().err == "kvorum: waiting: broker h1:9092 went away\n"
