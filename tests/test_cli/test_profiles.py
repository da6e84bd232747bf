"""Profiles: which of command line, environment and profile gives an option."""

from __future__ import annotations

import json
import stat

import click
import pytest

from kvorum.cli import common
from kvorum.cli.common import bootstrap_of, cluster_options
from kvorum.cli.main import cli
from tests.command import kvorum

SERVER, CONTROLLER, OTHER = "one:9092", "one:9192", "two:9092"


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path):
    path = tmp_path / "kvorum" / "profiles.yaml"
    monkeypatch.setenv("KVORUM_PROFILES", str(path))
    monkeypatch.delenv("KVORUM_PROFILE", raising=False)
    monkeypatch.delenv("KVORUM_BOOTSTRAP_SERVER", raising=False)
    return path


@pytest.fixture
def given(capsys):
    """Runs a command that prints its options: (kind, addresses, timeout, output)."""

    @click.command()
    @cluster_options
    def ask(bootstrap_server, bootstrap_controller, timeout, output):
        kind, addresses = bootstrap_of(bootstrap_server, bootstrap_controller)
        click.echo(json.dumps([kind, addresses, timeout, output]))

    def run(*arguments):
        ask.main(list(arguments), standalone_mode=False)
        kind, addresses, timeout_s, output = json.loads(capsys.readouterr().out)
        return kind, [f"{host}:{port}" for host, port in addresses], timeout_s, output

    return run


def set_profile(*arguments):
    code, out, err = kvorum("profile", "set", *arguments)
    assert (code, err) == (0, ""), err
    return out


def test_the_first_profile_is_current_and_gives_a_commands_options(given):
    set_profile("one", f"bootstrap_server={SERVER}", "timeout=2.5", "output=json")
    set_profile("two", f"bootstrap_server={OTHER}")
    assert given() == ("broker", [SERVER], 2.5, "json")
    assert kvorum("profile", "use", "two")[0] == 0
    assert given() == ("broker", [OTHER], common.DEFAULT_TIMEOUT_S, "table")


def test_the_file_of_a_profile_is_found_from_every_folder(tmp_path, monkeypatch):
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    monkeypatch.chdir(tmp_path)
    set_profile("one", "command_config=client.properties", f"bootstrap_server={SERVER}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    shown = json.loads(kvorum("profile", "show", "one", "-o", "json")[1])
    assert shown["command_config"] == str(tmp_path / "client.properties")
    code, _, error = kvorum("topics", "list", "--timeout", "0.1", "-b", "127.0.0.1:1")
    assert code == 3 and "no broker reachable" in error, "the file was read"


def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_current_profile(
    given, monkeypatch
):
    set_profile("one", f"bootstrap_server={SERVER}")
    monkeypatch.setenv("KVORUM_BOOTSTRAP_SERVER", OTHER)
    assert given()[1] == [OTHER]
    assert given("-b", "three:1")[1] == ["three:1"]
    assert given("--profile", "one")[1] == [SERVER]


def test_a_controller_of_the_command_line_takes_the_place_of_the_profiles_broker(given):
    set_profile("one", f"bootstrap_server={SERVER}")
    assert given("--bootstrap-controller", CONTROLLER)[:2] == ("controller", [CONTROLLER])
    set_profile("one", "bootstrap_server=", f"bootstrap_controller={CONTROLLER}")
    assert given()[:2] == ("controller", [CONTROLLER])
    assert given("-b", SERVER)[:2] == ("broker", [SERVER])


def test_the_variable_names_a_profile_and_the_option_another(given, monkeypatch):
    set_profile("one", f"bootstrap_server={SERVER}")
    set_profile("two", f"bootstrap_server={OTHER}")
    monkeypatch.setenv("KVORUM_PROFILE", "two")
    assert given()[1] == [OTHER]
    assert given("--profile", "one")[1] == [SERVER]


def test_the_option_may_stand_before_the_noun(capsys):
    set_profile("one", "bootstrap_server=127.0.0.1:1")
    code, _, err = kvorum("--profile", "one", "topics", "list")
    assert code == 3 and "127.0.0.1:1" in err
    code, _, err = kvorum("--profile", "nobody", "topics", "list")
    assert code == 2 and "there is no profile 'nobody'" in err and "there are: one" in err


def test_only_the_owner_may_read_the_file(file):
    set_profile("one", f"bootstrap_server={SERVER}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_profiles_are_listed_shown_and_deleted():
    set_profile("one", f"bootstrap_server={SERVER}", "output=wide")
    rows = json.loads(kvorum("profile", "list", "-o", "json")[1])
    assert [(row["profile"], row["is_current"], row["output"]) for row in rows] == [
        ("one", True, "wide")
    ]
    assert json.loads(kvorum("profile", "show", "-o", "json")[1])["bootstrap_server"] == SERVER
    assert kvorum("profile", "delete", "one")[0] == 0
    assert kvorum("profile", "show")[0] == 1
    code, _, err = kvorum("profile", "use", "one")
    assert code == 2 and "no profile 'one'" in err


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("bootstrap_server=nowhere", "'nowhere' is not host:port"),
        ("output=xml", "'xml' is none of table, wide, name, json, yaml"),
        ("timeout=0", "'0' is no number of seconds of 0.1 or more"),
        ("timeout=nan", "'nan' is no number of seconds"),
        ("colour=red", "'colour' is no option of a profile"),
        ("output", "'output' is not KEY=VALUE"),
        ("bootstrap_server=::1", "an IPv6 address goes in brackets, as [::1]:9092"),
        ("command_config=/nofile", "command_config: /nofile: cannot be read: No such file"),
    ],
)
def test_a_bad_option_is_refused_and_nothing_is_written(file, assignment, said):
    code, _, err = kvorum("profile", "set", "one", assignment)
    assert code == 2 and said in err
    assert not file.exists()


def test_both_kinds_of_address_are_refused():
    code, _, err = kvorum(
        *("profile", "set", "one", f"bootstrap_server={SERVER}"),
        f"bootstrap_controller={CONTROLLER}",
    )
    assert code == 2 and "not both" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is no YAML"),
        ("[1]", "must have the keys current and profiles"),
        ("profiles: {a: 1}", "a mapping of options under each name"),
        ("profiles: {a: {output: xml}}", "profile a: output: 'xml'"),
        ("current: b\nprofiles: {a: {}}", "current is 'b', and there is no such profile"),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(file, text, said):
    file.parent.mkdir()
    file.write_text(text)
    code, out, err = kvorum("topics", "list")
    assert (code, out) == (2, "")
    assert str(file) in err and said in err


def test_completion_offers_nouns_without_importing_them():
    items = cli.shell_complete(click.Context(cli), "prof")
    assert [item.value for item in items] == ["profile"]


def test_the_first_profile_is_said_to_be_current_and_how_to_leave_it():
    said = set_profile("one", "timeout=3")
    assert "it is the current one now" in said
    assert "kvorum profile use" in said and "kvorum profile delete one" in said
    assert "current" not in set_profile("one", "timeout=4")
    assert "current" not in set_profile("two", "timeout=3")


def test_a_file_that_is_gone_is_named_once_with_its_profile(tmp_path):
    file = tmp_path / "admin.properties"
    file.write_text("security.protocol=PLAINTEXT\n")
    set_profile("lab", f"command_config={file}")
    file.unlink()
    code, _, err = kvorum("topics", "list")
    assert code == 2 and err.count(str(file)) == 1 and "Errno" not in err
    assert f"{file}: cannot be read: No such file or directory; profile lab names this file" in err
    assert "kvorum profile set lab command_config=FILE" in err
    code, _, err = kvorum("topics", "list", "--command-config", file)
    assert code == 2 and "profile" not in err.splitlines()[-1]


def test_profiles_are_mended_while_the_chosen_one_does_not_exist(monkeypatch):
    monkeypatch.setenv("KVORUM_PROFILE", "nosuch")
    set_profile("one", "timeout=3")
    assert "one" in kvorum("profile", "list")[1]
    assert kvorum("profile", "show", "one")[0] == 0
    assert kvorum("profile", "use", "one")[0] == 0
    assert kvorum("profile", "delete", "one")[0] == 0
    code, _, err = kvorum("topics", "list")
    assert code == 2 and "there is no profile 'nosuch'" in err


def test_an_ipv6_address_without_brackets_is_a_usage_error():
    for text in ("::1", "::1:9092"):
        code, _, err = kvorum("topics", "list", "-b", text)
        assert code == 2 and "an IPv6 address goes in brackets, as [::1]:9092" in err
