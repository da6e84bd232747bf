"""The command line without a cluster: help, addresses, exit codes, output formats."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib

import click
import pytest

from kvorum.cli import common
from kvorum.cli.main import cli
from tests.command import kvorum

HEAVY = ("grpc", "pyspark", "rich", "kio", "confluent_kafka", "asyncio")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["dev", "--help"],
                                       ["topics", "--help"], ["quorum", "status", "--help"],
                                       ["metadata", "--help"], ["chaos", "--help"]])  # fmt: skip
def test_help_imports_nothing_heavy(arguments):
    script = (
        "import sys\n"
        "from kvorum.cli.main import main\n"
        f"sys.argv = ['kvorum', *{arguments!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    code = end.code\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "kvorum" in done.stdout


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_records_without_librdkafka_are_refused_with_the_packages_name(command):
    script = (
        "import sys\n"
        "sys.modules['confluent_kafka'] = None\n"
        "from kvorum.cli.main import main\n"
        f"sys.argv = ['kvorum', {command!r}, 'orders', '-b', '127.0.0.1:1']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kvorum: this needs confluent-kafka, which is not installed")
    assert done.stderr.count("\n") == 1


def test_every_noun_loads_and_has_help():
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None and command.name == name and command.help, name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["topics", "list", "-b", "nowhere"], "'nowhere' is not host:port"),
        (["topics", "list", "-o", "xml"], "'xml' is not one of"),
        (["topics", "list", "--timeout", "0"], "0.0 is not in the range"),
        (["topics", "create"], "Missing argument 'NAMES...'"),
        (["topics", "create", "a", "--config", "x"], "'x' is not of the form key=value"),
        (["topics", "create", "a", "--partitions", "0"], "Invalid value for '--partitions'"),
        (["controller"], "a controller needs properties: give --config FILE"),
        (
            ["quorum", "status", "-b", "a:1", "--bootstrap-controller", "b:2"],
            "give --bootstrap-server or --bootstrap-controller, not both",
        ),
    ],
)
def test_wrong_use_exits_with_2_and_speaks_on_stderr(arguments, words):
    code, out, err = kvorum(*arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize("option", ["-b", "--bootstrap-controller"])
@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "delete", "t"],
        ["brokers", "list"],
        ["quorum", "status"],
        ["metadata", "ls"],
        ["metadata", "cat", "/"],
        ["metadata", "diff", "1", "live"],
        ["metadata", "dump"],
        ["metadata", "shell"],
    ],
)
def test_nobody_there_exits_with_3_and_one_line(option, command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    code, out, err = kvorum(*command, option, address, "--timeout", "1")
    assert (code, out) == (3, "")
    assert address in err and len(err.splitlines()) == 1
    assert err.startswith("kvorum: no ")


def test_silent_broker_exits_with_3(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("kvorum.client.connection.ANSWER_SLACK_S", 0.0)
        code, out, err = kvorum("topics", "list", "-b", address, "--timeout", "0.2")
    assert (code, out) == (3, "")
    assert "did not answer within 0.2 s" in err


def test_a_broker_that_hangs_is_passed_over_before_it_is_asked_for_anything(monkeypatch):
    monkeypatch.setattr("kvorum.client.connection.ANSWER_SLACK_S", 0.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        one, other = (f"127.0.0.1:{server.getsockname()[1]}" for server in (first, second))
        code, _, err = kvorum("topics", "create", "t", "-b", f"{one},{other}", "--timeout", "0.2")
        assert code == 3
        assert f"broker {other} did not answer" in err
        with first.accept()[0] as connection:
            asked = connection.recv(1_000)
    assert asked[4:6] == b"\x00\x12", "it was asked for its versions only"


def test_option_wins_over_environment_and_environment_over_default(monkeypatch):
    monkeypatch.setenv("KVORUM_BOOTSTRAP_SERVER", "env:1,other:2")
    assert common.bootstrap_of("given:3", None) == ("broker", [("given", 3)])
    assert common.bootstrap_of(None, "c:4") == ("controller", [("c", 4)])
    assert common.bootstrap_of(None, None) == ("broker", [("env", 1), ("other", 2)])
    monkeypatch.delenv("KVORUM_BOOTSTRAP_SERVER")
    assert common.bootstrap_of(None, None) == ("broker", [("localhost", 9092)])
    assert common.bootstrap_of("[::1]:9", None) == ("broker", [("::1", 9)])


def test_table_and_json_show_the_same_rows(capsys):
    rows = [
        {"a_key": 1, "list": [1, 2], "none": None, "flag": True},
        {"a_key": 222, "list": [], "none": "x", "flag": False},
    ]
    common.show("json", rows)
    assert json.loads(capsys.readouterr().out) == rows
    common.show("table", rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["A_KEY", "LIST", "NONE", "FLAG"]
    assert lines[1].split() == ["1", "1,2", "-", "yes"]
    assert lines[2].split() == ["222", "x", "no"]


def test_table_of_nothing_has_its_headings(capsys):
    common.show("table", [], ["topic", "partitions"])
    assert capsys.readouterr().out.split() == ["TOPIC", "PARTITIONS"]


def test_failed_verdict_exits_with_6(monkeypatch):
    from kvorum.runtime.errors import InvariantViolated

    def fails(seed, world):
        raise InvariantViolated(f"two leaders in seed {seed}")

    monkeypatch.setattr("kvorum.chaos.sim.worlds.run_seed", fails)
    code, out, err = kvorum("chaos", "sim", "--seed", 5)
    assert (code, out, err) == (6, "", "kvorum: two leaders in seed 5\n")


def test_a_command_leaves_nothing_where_it_was_called(tmp_path):
    # Where hypothesis is installed, kio registers itself with it, and hypothesis makes a folder.
    script = (
        "import contextlib, importlib, sys\n"
        "sys.argv[1:] = ['--version']\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    importlib.import_module({module_of_the_command()!r}).main()\n"
        "from kvorum.broker.api.registry import preload\n"
        "preload()\n"
        "sys.exit('kio.static.primitive' not in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def module_of_the_command() -> str:
    """The module whose `main` the console script calls; `python -m kvorum` is kvorum.__main__."""
    with open("pyproject.toml", "rb") as file:
        module, _, attribute = tomllib.load(file)["project"]["scripts"]["kvorum"].partition(":")
    assert (module, attribute) == ("kvorum.__main__", "main")
    return str(module)
