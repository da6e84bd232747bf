"""`kvorum configs` through a broker and through a controller."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kvorum.cli.configs import configs
from kvorum.cli.main import main
from kvorum.client.configs.broker_configs import BrokerConfigs
from kvorum.client.failures import CommandFailed
from tests.live.cluster import Cluster
from tests.polling import eventually

live = [pytest.mark.live, pytest.mark.timeout(120)]
CONFIG_KEYS = ["entity", "name", "value", "source", "type", "read_only", "is_sensitive", "synonyms"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cli-configs"), controllers=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture(params=[pytest.param(w, marks=live) for w in ("broker", "controller")])
def via(request, cluster, monkeypatch, capsys):
    """Runs `kvorum configs` through a broker or a controller: (exit code, stdout, stderr)."""
    options = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
    }[request.param]

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvorum", "configs", *arguments, *options])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    run.name = request.param
    return run


@pytest.fixture
def topic(via, cluster):
    name = f"configs-{via.name}"
    cluster.cli("topics", "create", name, "--partitions", "1")
    yield name
    cluster.cli("topics", "delete", name)


def json_of(via, *arguments):
    code, out, err = via(*arguments, "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def values(rows):
    return {(row["entity"], row["name"]): (row["value"], row["source"]) for row in rows}


def test_a_topics_configs_are_set_described_and_deleted(via, topic):
    one = ("--entity", "topic", "--name", topic)
    assert json_of(via, "describe", *one) == []
    done = json_of(via, "alter", *one, "--set", "retention.ms=5000", "--set", "segment.ms=6000")
    assert [(row["entity"], row["name"], row["dry_run"]) for row in done] == [
        (f"topic={topic}", "retention.ms", False),
        (f"topic={topic}", "segment.ms", False),
    ]
    rows = json_of(via, "describe", *one)
    assert [list(row) for row in rows] == [CONFIG_KEYS] * 2
    assert values(rows) == {
        (f"topic={topic}", "retention.ms"): ("5000", "DYNAMIC_TOPIC_CONFIG"),
        (f"topic={topic}", "segment.ms"): ("6000", "DYNAMIC_TOPIC_CONFIG"),
    }
    assert rows[0]["type"] == "LONG"
    json_of(via, "alter", *one, "--delete", "retention.ms", "--append", "cleanup.policy=delete")
    kept = values(json_of(via, "describe", "--entity", "topic"))
    assert {key[1]: value[0] for key, value in kept.items() if key[0] == f"topic={topic}"} == {
        "cleanup.policy": "delete",
        "segment.ms": "6000",
    }
    code, out, _ = via("describe", *one)
    assert code == 0
    assert out.splitlines()[0].split() == ["ENTITY", "NAME", "VALUE", "SOURCE"]


def test_groups_have_configs_before_they_have_members(via):
    one = ("--entity", "group", "--name", f"workers-{via.name}")
    key, name = f"group=workers-{via.name}", "share.auto.offset.reset"
    assert json_of(via, "describe", *one) == []
    json_of(via, "alter", *one, "--set", f"{name}=earliest")
    eventually(
        lambda: (
            values(json_of(via, "describe", *one)).get((key, name)) == ("earliest", "GROUP_CONFIG")
        ),
        "the config is there",
    )
    assert (key, name) in values(json_of(via, "describe", "--entity", "group"))
    code, _, err = via("alter", *one, "--set", f"{name}=never")
    assert code != 0 and "must be earliest, latest or by_duration" in err
    json_of(via, "alter", *one, "--delete", name)
    code, _, err = via("describe", "--entity", "group", "--default")
    assert code == 2 and "groups have no default entity" in err


def test_brokers_and_their_default(via):
    own, shared = ("--entity", "broker", "--name", "101"), ("--entity", "broker", "--default")
    json_of(via, "alter", *own, "--set", "max.connections=400")
    json_of(via, "alter", *shared, "--set", "max.connections=500")
    expected = {
        ("broker=<default>", "max.connections"): ("500", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("broker=101", "max.connections"): ("400", "DYNAMIC_BROKER_CONFIG"),
        ("broker=102", "max.connections"): ("500", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    }

    def found():
        return values(json_of(via, "describe", "--entity", "broker"))

    # The broker that was asked shows a change at once, the others a fetch later.
    eventually(lambda: found() == expected, "every broker shows what is set")
    for one in (own, shared):
        json_of(via, "alter", *one, "--delete", "max.connections")
    eventually(lambda: found() == {}, "every broker shows that nothing is set")


def test_a_brokers_directories_are_cordoned_through_any_other_broker(via, cluster):
    if via.name == "controller":
        pytest.skip("a controller knows no paths")
    path = str(cluster.data_dir / "broker-102")
    own = ("--entity", "broker", "--name", "102")
    json_of(via, "alter", *own, "--set", f"cordoned.log.dirs={path}")
    assert values(json_of(via, "describe", *own))["broker=102", "cordoned.log.dirs"][0] == "*"
    json_of(via, "alter", *own, "--delete", "cordoned.log.dirs")


def test_all_needs_a_broker_who_knows_its_file(via, topic):
    one = ("--entity", "topic", "--name", topic, "--all")
    if via.name == "controller":
        code, _, err = via("describe", *one)
        assert code == 1
        assert "ask a broker" in err
        return
    found = values(json_of(via, "describe", *one))
    assert found[f"topic={topic}", "segment.bytes"] == ("1073741824", "DEFAULT_CONFIG")
    found = values(json_of(via, "describe", "--entity", "broker", "--name", "102", "--all"))
    assert found["broker=102", "node.id"] == ("102", "STATIC_BROKER_CONFIG")


def test_quotas_are_set_described_and_deleted(via):
    both = ("--entity", "user", "--name", "alice", "--entity", "client", "--name", "<default>")
    done = json_of(via, "alter", *both, "--set", "producer_byte_rate=1024")
    assert done[0]["entity"] == "client-id=<default>,user=alice"
    expected = [
        {
            "entity": "client-id=<default>,user=alice",
            "name": "producer_byte_rate",
            "value": 1024.0,
        }
    ]
    assert json_of(via, "describe", *both) == expected
    assert json_of(via, "describe", "--entity", "user") == expected
    assert json_of(via, "describe", "--entity", "user", "--name", "alice") == []
    all_of_alice = ("--entity", "user", "--name", "alice", "--entity", "client")
    assert json_of(via, "describe", *all_of_alice) == expected
    all_of_alice = ("--entity", "client", "--entity", "user", "--name", "alice")
    assert json_of(via, "describe", *all_of_alice) == expected
    nobody = ("--entity", "client", "--name", "alice", "--entity", "user")
    assert json_of(via, "describe", *nobody) == []
    code, _, err = via("describe", "--name", "alice", "--entity", "user", "--entity", "client")
    assert code == 2
    assert "behind the --entity" in err
    all_of_bob = ("--entity", "user", "--name", "bob", "--entity", "client")
    assert json_of(via, "describe", *all_of_bob) == []
    assert json_of(via, "describe", "--entity", "ip") == []
    json_of(via, "alter", *both, "--delete", "producer_byte_rate")
    assert json_of(via, "describe", "--entity", "client") == []


def test_a_dry_run_checks_and_changes_nothing(via, topic):
    one = ("--entity", "topic", "--name", topic)
    (row,) = json_of(via, "alter", *one, "--set", "retention.ms=5", "--dry-run")
    assert row["dry_run"] is True
    assert json_of(via, "describe", *one) == []
    code, _, err = via("alter", *one, "--set", "retention.ms=x", "--dry-run")
    assert code == 1
    assert "INVALID_CONFIG" in err


def test_refusals_exit_with_1_and_name_the_reason(via, topic):
    for arguments, words in (
        (["--entity", "topic", "--name", "none", "--set", "a=1"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["--entity", "topic", "--name", topic, "--set", "no.such=1"], "INVALID_CONFIG"),
        (["--entity", "broker", "--name", "999", "--set", "a=1"], "BROKER_ID_NOT_REGISTERED"),
        (["--entity", "broker", "--name", "101", "--set", "node.id=1"], "INVALID_REQUEST"),
        (["--entity", "ip", "--name", "x", "--set", "a=1"], "INVALID_REQUEST"),
    ):
        code, out, err = via("alter", *arguments)
        assert (code, out) == (1, ""), arguments
        assert words in err and len(err.splitlines()) == 1, err
    for arguments, words in (
        (["--entity", "topic", "--name", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["--entity", "broker", "--name", "999"], "not registered"),
    ):
        code, out, err = via("describe", *arguments)
        assert (code, out) == (1, ""), arguments
        assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["alter", "--entity", "topic", "--name", "t"], "nothing to do"),
        (["alter", "--entity", "topic", "--set", "a=1"], "say which topic"),
        (["alter", "--entity", "topic", "--default", "--set", "a=1"], "no default entity"),
        (["alter", "--entity", "topic", "--name", "t", "--set", "a"], "key=value"),
        (["alter", "--entity", "user", "--name", "u", "--set", "a=b"], "a=b is not a number"),
        (["alter", "--entity", "user", "--name", "u", "--append", "a=b"], "are for lists"),
        (["alter", "--entity", "user", "--set", "a=1"], "as many --name"),
        (["describe", "--entity", "topic", "--entity", "user"], "one --entity topic"),
        (["describe", "--entity", "user", "--entity", "broker"], "cannot be combined"),
        (["describe", "--entity", "user", "--entity", "user"], "given once"),
        (["describe", "--entity", "user", "--all"], "quotas have no defaults"),
        (["describe", "--entity", "user", "--name", "u", "--default"], "--default is for one"),
        (["describe", "--entity", "broker", "--name", "1", "--default"], "not both"),
    ],
)
def test_commands_that_make_no_sense_are_usage_errors(arguments, words):
    done = CliRunner().invoke(configs, arguments)
    assert done.exit_code == 2
    assert words in done.output


def test_help_imports_neither_the_table_nor_grpc():
    script = (
        "import sys, kvorum.cli.configs as c;"
        "from click.testing import CliRunner;"
        "assert CliRunner().invoke(c.configs, ['alter', '--help']).exit_code == 0;"
        "heavy = ('kvorum.metadata.configs', 'grpc', 'kio');"
        "sys.exit(any(n.startswith(heavy) for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("kind", "name", "key", "asked"),
    [
        ("topic", "101", "segment.ms", "any"),
        ("broker", "", "max.connections", "any"),
        ("broker", "101", "max.connections", "101"),
        ("broker", "102", "max.connections", "any"),
        ("broker", "103", "max.connections", "any"),
        ("broker", "104", "max.connections", "any"),
        ("broker", "102", "cordoned.log.dirs", None),
        ("broker", "103", "ssl.keystore.location", None),
        ("broker-logger", "103", "root", None),
    ],
)
def test_a_broker_that_is_down_is_replaced_unless_it_alone_can_check(kind, name, key, asked):
    """101 serves, 102 is fenced, 103 has just died, 104 was never registered."""

    class Configs(BrokerConfigs):
        connection = "any"

        def __init__(self):
            pass

        def brokers(self):
            return [{"broker_id": i, "is_fenced": i == 102} for i in (101, 102, 103)]

        def _connection_to(self, broker_id):
            if broker_id != "101":
                raise CommandFailed("no broker reachable")
            return broker_id

    def found():
        return Configs()._connection_for(kind, name, [("set", key, "1")])

    if asked is None:
        with pytest.raises(CommandFailed):
            found()
    else:
        assert found() == asked


@pytest.mark.parametrize("name", ["my.plugin.password", "listener.name.c.ssl.keystore.key"])
def test_the_value_of_an_unknown_config_of_a_broker_is_not_printed(name, tmp_path, monkeypatch):
    """It may be a password of a plug-in, as Kafka holds it for one."""

    class Backend:
        def alter_configs(self, kind, name, changes, *, dry_run):
            assert changes[0][2] in ("hunter2", "5")
            return f"{kind}={name}"

    monkeypatch.setattr("kvorum.cli.configs._backend", lambda options: Backend())
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    of_broker = ["alter", "--entity", "broker", "--name", "101", "-b", "127.0.0.1:1", "-o", "json"]
    done = CliRunner().invoke(configs, [*of_broker, "--set-file", f"{name}={secret}"])
    assert done.exit_code == 0, done.output
    assert "hunter2" not in done.output and "[hidden]" in done.output
    done = CliRunner().invoke(configs, [*of_broker, "--set", "log.retention.ms=5"])
    assert json.loads(done.output)[0]["value"] == "5"
