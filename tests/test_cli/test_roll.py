"""What `kvorum cluster roll` refuses before it asks the cluster, and how it makes its commands."""

from __future__ import annotations

import pytest

from kvorum.cli.common import CommandFailed
from kvorum.cli.roll import command_for, restarter
from kvorum.metadata.inspect.roll import RollNode
from tests.command import kvorum

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


def test_a_command_that_the_system_cannot_start_stops_the_roll_with_a_sentence(tmp_path):
    file = tmp_path / "restart"
    file.write_bytes(b"\0no program")
    restart = restarter(f"{file} {{node}}", None, is_needed=True)
    assert restart is not None
    with pytest.raises(CommandFailed, match="Permission denied"):
        restart(NODE, 1.0)
    file.chmod(0o700)
    with pytest.raises(CommandFailed, match="Exec format error"):
        restart(NODE, 1.0)
