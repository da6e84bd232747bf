"""The output of commands for a result, a wrong name, or a missing package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from kvorum.chaos.live.host.toxiproxy_server import find_server
from kvorum.cli.acl_broker import outcome
from kvorum.cli.common import show_outcomes
from kvorum.client.config_hints import with_hint
from kvorum.client.failures import (
    CommandFailed,
    check,
    check_topic,
    exit_code_of,
    fail_on_errors,
    refusal,
)
from kvorum.client.rights import Right, on_cluster, on_topic, way_out
from kvorum.metadata.image.acl import OPERATIONS_OF, ResourceType
from kvorum.runtime.errors import ConfigError, ErrorCode
from tests.command import kvorum

ROWS = [
    {"group": "g1", "error": "NONE"},
    {"group": "g2", "error": "NON_EMPTY_GROUP"},
]


def test_a_table_says_what_was_done_where_json_has_an_error_of_none(capsys):
    show_outcomes("table", ROWS, ["group", "result"], done="deleted")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["GROUP", "RESULT"], ["g1", "deleted"], ["g2", "NON_EMPTY_GROUP"]]
    show_outcomes("json", ROWS, ["group", "result"], done="deleted")
    said = capsys.readouterr().out
    assert '"error": "NONE"' in said and "result" not in said


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("topic 'a.b' already exists", "TOPIC_ALREADY_EXISTS: topic 'a.b' already exists"),
        ("topic 'a.bc' already exists", "topic a.b: TOPIC_ALREADY_EXISTS: topic 'a.bc' already"),
        (None, "topic a.b: TOPIC_ALREADY_EXISTS"),
    ],
)
def test_an_error_names_its_topic_once(message, said):
    with pytest.raises(CommandFailed) as failed:
        check(ErrorCode.TOPIC_ALREADY_EXISTS, message, "topic a.b")
    assert str(failed.value).startswith(said)


@pytest.mark.parametrize(("wrong", "right"), [("topic", "topics"), ("group", "groups")])
def test_a_noun_that_is_nearly_right_is_suggested(wrong, right):
    code, out, err = kvorum(wrong, "list")
    assert (code, out) == (2, "")
    assert f"No such command '{wrong}'. Did you mean '{right}'?" in err
    _, _, err = kvorum("zebra")
    assert "No such command 'zebra'." in err and "mean" not in err


def test_a_package_that_a_command_lacks_is_named_with_the_way_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "lake").mkdir()
    code, out, err = kvorum("lake", "list", "--lake", tmp_path / "lake")
    assert (code, out) == (1, "")
    assert err == "kvorum: this needs pyarrow: pip install 'kvorum[export]'\n"


@pytest.mark.parametrize(
    "words",
    [
        "chaos run first-light --seed 1",
        "chaos duel leader-kill",
        "chaos replay {folder}",
        "chaos diff {folder} {folder}",
        "chaos export {folder} --format edn",
        "chaos sim --seed 0 --count 1",
        "chaos sim --world controller --seed 0 --count 1",
        "chaos sim --world partitions --seed 0 --count 1",
        "report {folder}",
        "lake add {folder} --lake {folder}/lake",
        "demo",
        "console",
    ],
)
def test_without_any_extra_a_command_that_needs_one_names_it(words: str, tmp_path):
    with open("pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    packages = {
        re.split(r"[><=~]", text)[0].removesuffix("-python").replace("-", "_")
        for extra in ("chaos", "export", "web", "spark")
        for text in extras[extra]
    }
    argv = ["kvorum", *words.format(folder=tmp_path).split()]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(packages)})); sys.argv = {argv}; "
        "from kvorum.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"kvorum: .* pip install 'kvorum\[[a-z,]+\]'\n", done.stderr), done.stderr


def test_the_spark_job_without_pyspark_says_what_it_needs():
    script = (
        "import runpy, sys; sys.modules['pyspark'] = None; "
        "runpy.run_module('kvorum.analytics.job', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the Spark job needs pyspark: pip install 'kvorum[spark]'\n"


@pytest.mark.parametrize(
    ("is_checkout", "words"), [(True, "run make setup"), (False, "has releases")]
)
def test_the_way_to_a_toxiproxy_server_is_one_that_is_there(
    monkeypatch, tmp_path, is_checkout, words
):
    root = tmp_path / "root"
    host = root / "kvorum" / "chaos" / "live" / "host"
    host.mkdir(parents=True)
    if is_checkout:
        (root / "deploy").mkdir()
        (root / "deploy" / "setup.sh").touch()
    monkeypatch.delenv("KVORUM_TOXIPROXY_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    module = str(host / "toxiproxy_server.py")
    monkeypatch.setattr("kvorum.chaos.live.host.toxiproxy_server.__file__", module)
    with pytest.raises(ConfigError) as refused:
        find_server()
    assert words in str(refused.value)
    assert ("setup" in str(refused.value)) == is_checkout


@pytest.mark.parametrize("scope", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"])
def test_a_user_without_rights_ends_with_5(scope):
    code = ErrorCode[f"{scope}_AUTHORIZATION_FAILED"]
    with pytest.raises(CommandFailed) as failed:
        check(code, None, "orders")
    assert failed.value.exit_code == 5
    rows = [
        {"topic": "a", "error": "NONE"},
        {"topic": "b", "error": code.name},
        {"topic": "c", "error": code.name},
    ]
    with pytest.raises(
        CommandFailed, match=r"^not deleted: b, c; the user lacks a right"
    ) as failed:
        fail_on_errors(rows, "not deleted", lambda row: row["topic"])
    assert failed.value.exit_code == 5


def test_other_errors_beside_a_missing_right_end_with_1():
    rows = [{"error": "TOPIC_AUTHORIZATION_FAILED"}, {"error": "UNKNOWN_TOPIC_OR_PARTITION"}]
    with pytest.raises(CommandFailed) as failed:
        fail_on_errors(rows, "not deleted", lambda row: row["error"])
    assert failed.value.exit_code == 1
    fail_on_errors([{"error": "NONE"}], "not deleted", lambda row: row["error"])


def test_a_missing_right_is_named_with_the_command_that_gives_it():
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(CommandFailed) as failed:
        check_topic(code, None, "orders", "DESCRIBE")
    assert str(failed.value) == (
        "topic orders: TOPIC_AUTHORIZATION_FAILED: the user needs DESCRIBE on topic orders; an "
        "administrator runs kvorum acls create --allow-principal User:NAME --operation describe "
        "--topic orders"
    )
    said = str(refusal(code, None, "topic orders"))
    assert "lacks a right to the topic" in said and "docs/access.md" in said


def test_kafkas_words_for_a_missing_right_are_not_repeated_and_a_controllers_own_are_kept():
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    said = str(refusal(code, "Cluster authorization failed.", "users", on_cluster("DESCRIBE")))
    assert said == (
        "users: CLUSTER_AUTHORIZATION_FAILED: the user needs DESCRIBE on the cluster; an "
        "administrator runs kvorum acls create --allow-principal User:NAME --operation describe "
        "--cluster"
    )
    own = "User:bob may not ALTER the cluster; give it by an ACL (kvorum acls create ... --cluster)"
    assert str(refusal(code, own, "users", on_cluster("ALTER"))).endswith(own)


def test_rows_without_a_right_are_told_the_way_out_once():
    rows = [{"topic": name, "error": "TOPIC_AUTHORIZATION_FAILED"} for name in ("a", "b")]
    with pytest.raises(CommandFailed) as failed:
        fail_on_errors(
            rows,
            "not deleted",
            lambda row: row["topic"],
            lambda row: on_topic("DELETE", row["topic"]),
        )
    assert str(failed.value) == (
        "not deleted: a, b; the user needs DELETE on topic a, DELETE on topic b; an administrator "
        "runs kvorum acls create --allow-principal User:NAME"
    )
    assert failed.value.exit_code == exit_code_of("TOPIC_AUTHORIZATION_FAILED")


def test_the_command_for_a_right_is_one_that_acls_create_takes():
    right = Right("ALTER_CONFIGS", "cluster")
    assert right.command.endswith("--operation alter-configs --cluster")
    assert {operation.name for operation in OPERATIONS_OF[ResourceType.CLUSTER]} >= {
        "ALTER_CONFIGS"
    }
    quoted = on_topic("READ", "a b")
    assert quoted.command.endswith("--operation read --topic 'a b'")
    token = Right("CREATE_TOKENS", "user", "User:bob")
    assert "kafka-acls --add --user-principal User:bob" in way_out("X_AUTHORIZATION_FAILED", token)


def test_a_topic_that_is_not_there_has_one_sentence():
    with pytest.raises(CommandFailed) as failed:
        check_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "nosuch", "DESCRIBE")
    assert str(failed.value) == (
        "topic nosuch: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic; make it with kvorum "
        "topics create nosuch"
    )


def test_an_unknown_config_is_followed_by_the_one_that_is_most_like_it():
    said = "Unknown topic config name: retention.m"
    assert with_hint(said) == f"{said}; did you mean 'retention.ms'?"
    assert with_hint("Unknown topic config name: retnetion.ms").endswith("'retention.ms'?")
    for other in (None, "", "Unknown topic config name: zebra", "retention.ms=x is no number"):
        assert with_hint(other) == other


def test_acls_without_an_authorizer_are_told_the_property_to_set():
    with pytest.raises(CommandFailed, match=r"^acls: SECURITY_DISABLED: .*authorizer\.class\.name"):
        outcome(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


@pytest.mark.parametrize("option", ["--renewer", "--owner"])
def test_a_token_of_another_kind_than_a_user_is_refused(option):
    code, _, err = kvorum("tokens", "create", option, "Group:x", "-b", "127.0.0.1:1")
    assert code == 2 and "'Group:x' is no user" in err and "write User:NAME" in err
