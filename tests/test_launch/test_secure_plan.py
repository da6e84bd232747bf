"""`--secure` of `kvorum dev` and `kvorum init`: what nodes get, and what is refused."""

from __future__ import annotations

import datetime
import json
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.sasl.core.scram import HASHES, derived_keys
from kvorum.launch.cluster.cluster_file import ClusterFile, write_cluster_file
from kvorum.launch.cluster.dev_certificates import (
    Wanted,
    described,
    issue,
    load_authority,
    new_authority,
)
from kvorum.launch.cluster.first_voters import format_planned, has_run
from kvorum.launch.cluster.secure_plan import (
    ADMIN,
    ADMIN_FILE,
    admin_file,
    first_credential,
    prepare_secrets,
)
from kvorum.launch.cluster.this_machine import check_nodes, plan_cluster, reserve_ports
from kvorum.launch.config.node_file import load_node_file
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.dev import supervisor
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum
from tests.test_launch.node_folders import known_cluster

NOW = datetime.datetime.now(datetime.UTC)


def plan(tmp_path: Path, **more: Any) -> Any:
    return plan_cluster(
        controllers=1, brokers=2, data_dir=str(tmp_path), port=9092, is_secure=True, **more
    )


def test_brokers_have_a_listener_for_clients_and_one_for_each_other(tmp_path):
    made = plan(tmp_path)
    prepare_secrets(made.data_dir, {node.name: () for node in made.nodes})
    check_nodes(made)
    controller, broker, _ = made.nodes
    config, _ = broker_config(broker.properties)
    assert [(each.name, each.listen[1]) for each in config.listeners] == [
        ("NODES", 9292), ("CLIENTS", 9092),
    ]  # fmt: skip
    assert config.peer_security.tls is not None and not config.peer_security.mechanism
    assert config.access is not None
    for each in (config, controller_config(controller.properties)[0]):
        assert each.controller_listener.protocol == "SSL"
    assert made.voters == 1, "the first metadata has the first user"


def test_nodes_and_the_first_user_are_super_users_by_the_names_of_their_certificates(tmp_path):
    made = plan(tmp_path)
    prepare_secrets(made.data_dir, {node.name: ("h.example",) for node in made.nodes})
    assert made.nodes[0].properties["super.users"] == (
        "User:controller-1;User:broker-101;User:broker-102;User:admin"
    )
    config, _ = broker_config(made.nodes[1].properties)
    context = ssl.create_default_context(cafile=str(tmp_path / "secrets" / "ca.pem"))
    context.load_cert_chain(str(tmp_path / "secrets" / "broker-101.pem"))
    rules = config.listeners[0].principals
    assert rules.user_of_name("CN=broker-101") == "broker-101"


def test_the_first_user_keeps_its_password_and_the_metadata_has_its_keys(tmp_path):
    prepare_secrets(str(tmp_path), {"broker-101": ()})
    before = Path(admin_file(str(tmp_path))).read_text()
    prepare_secrets(str(tmp_path), {"broker-101": (), "broker-102": ()})
    assert Path(admin_file(str(tmp_path))).read_text() == before
    password = before.partition('password="')[2].partition('"')[0]
    credential = first_credential(str(tmp_path), random.Random(1))
    assert credential.user == ADMIN and len(password) >= 32
    import hashlib

    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), credential.salt, 4_096)
    keys = derived_keys(HASHES["SCRAM-SHA-512"], salted)
    assert (credential.stored_key, credential.server_key) == keys


def test_an_expired_certificate_is_named_before_a_node_starts(tmp_path, monkeypatch):
    prepare_secrets(str(tmp_path), {"broker-101": ()})

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return super().now(tz) + datetime.timedelta(days=366)

    monkeypatch.setattr("kvorum.launch.cluster.secure_plan.datetime.datetime", Later)
    renew = r"broker-101.pem was valid until .*--force --days 365 --node broker-101 --user admin"
    with pytest.raises(ConfigError, match=renew):
        prepare_secrets(str(tmp_path), {"broker-101": ()})


def test_the_key_of_the_ca_is_needed_only_to_sign(tmp_path):
    prepare_secrets(str(tmp_path), {"broker-101": ()})
    key = tmp_path / "secrets" / "ca.key"
    for break_it in (lambda: key.write_text("no key"), key.unlink):
        break_it()
        prepare_secrets(str(tmp_path), {"broker-101": ()})
        with pytest.raises(ConfigError, match=r"ca\.key"):
            prepare_secrets(str(tmp_path), {"broker-101": (), "broker-102": ()})


def test_a_restart_without_the_ca_makes_no_other_beside_certificates(tmp_path, monkeypatch):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    for name in ("ca.pem", "ca.key"):
        (secrets / name).unlink()
    assert "ca.pem is missing: put it back" in refused_restart(tmp_path)
    assert not (secrets / "ca.pem").exists()


def spoil(secrets: Path, name: str, text: str | None) -> None:
    """Make a file unusable: with this text in it, or, for None, so that nobody can read it."""
    (secrets / name).unlink()
    if text is None:
        (secrets / name).mkdir()  # a superuser can read every file
    else:
        (secrets / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ca.pem", "x", "ca.pem holds no certificate of a CA in PEM form: put the file back"),
        ("broker-101.pem", "x", "broker-101.pem holds no certificate in PEM form: move it away"),
        ("broker-101.pem", None, "broker-101.pem cannot be read: Is a directory"),
        ("admin.properties", None, "admin.properties has no password of admin"),
    ],
)
def test_a_restart_with_a_spoilt_secret_is_refused_in_a_sentence(
    tmp_path, monkeypatch, name, text, words
):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    spoil(secrets, name, text)
    assert words in refused_restart(tmp_path)


def test_a_restart_with_an_expired_certificate_says_how_to_renew_it_and_then_goes_on(
    tmp_path, monkeypatch
):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    now = datetime.datetime.now(datetime.UTC)
    certificate, key = ((secrets / name).read_bytes() for name in ("ca.pem", "ca.key"))
    past = Wanted(name="broker-101", hosts=("localhost",), ends=now - datetime.timedelta(minutes=1))
    old = issue(load_authority(certificate, key, "the CA"), past, now)
    (secrets / "broker-101.pem").write_bytes(old)
    said = refused_restart(tmp_path)
    assert f"{secrets / 'broker-101.pem'} was valid until" in said
    renewal = said.partition("renew it with kvorum ")[2].split()
    assert kvorum(*renewal)[0] == 0
    prepare_secrets(str(tmp_path), {"controller-1": (), "broker-101": ()})


def test_a_restart_with_a_certificate_of_another_ca_says_so_and_how_to_renew_it(
    tmp_path, monkeypatch
):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    foreign = issue(new_authority(NOW), Wanted(name="broker-101", hosts=("localhost",)), NOW)
    (secrets / "broker-101.pem").write_bytes(foreign)
    said = refused_restart(tmp_path)
    assert (
        f"{secrets / 'broker-101.pem'} is of another CA than that in {secrets / 'ca.pem'}" in said
    )
    assert kvorum(*said.partition("renew it with kvorum ")[2].split())[0] == 0
    prepare_secrets(str(tmp_path), {"controller-1": (), "broker-101": ()})
    (secrets / "ca.pem").write_bytes(new_authority(NOW).certificate_pem)
    said = refused_restart(tmp_path)
    assert "controller-1.pem is of another CA" in said and "put back the file" in said


def test_a_cluster_with_users_gets_no_other_password_of_admin(tmp_path, monkeypatch):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    made = plan_cluster(controllers=1, brokers=1, data_dir=str(tmp_path), port=9092)
    format_planned(made, random.Random(1))
    assert not has_run(made)
    (secrets.parent / "controller-1" / "__cluster_metadata-0" / "quorum-state").touch()
    assert has_run(made)
    (secrets / ADMIN_FILE).unlink()
    said = refused_restart(tmp_path)
    assert f"{secrets / ADMIN_FILE} is missing" in said
    assert f"put it back, or remove {tmp_path} with all its data" in said
    assert not (secrets / ADMIN_FILE).exists()


def stopped_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of `kvorum dev --secure`, with no process; the folder of its secrets."""

    def spawn(*_: object, **__: object) -> None:
        raise AssertionError("a process would have been started")

    monkeypatch.setattr(supervisor, "spawn", spawn)
    known_cluster(tmp_path, controllers=1, brokers=1, voters=1)
    document = json.loads((tmp_path / "cluster.json").read_text())
    (tmp_path / "cluster.json").write_text(json.dumps({**document, "is_secure": True}))
    prepare_secrets(str(tmp_path), {"controller-1": (), "broker-101": ()})
    return tmp_path / "secrets"


def test_a_refused_start_with_more_brokers_leaves_the_cluster_as_it_was(tmp_path, monkeypatch):
    secrets = stopped_cluster(tmp_path, monkeypatch)
    before = (tmp_path / "cluster.json").read_bytes()
    (secrets / "ca.key").unlink()
    assert "broker-102.pem must be signed with it" in refused_restart(tmp_path, brokers=2)
    assert (tmp_path / "cluster.json").read_bytes() == before


def refused_restart(tmp_path: Path, *, brokers: int = 1) -> str:
    """The words of `kvorum dev --secure`, which must be one sentence."""
    shape = ("--controllers", 1, "--brokers", brokers, "--port", 0)
    code, out, err = kvorum("dev", "--secure", "--data-dir", tmp_path, *shape)
    assert (code, out) == (2, "") and err.startswith("kvorum: "), err
    assert len(err.splitlines()) == 1, err
    return err


def test_a_cluster_stays_as_it_was_made(tmp_path):
    nodes: tuple[Any, ...] = ()
    file = ClusterFile(cluster_id="x" * 22, bootstrap="", launcher_pid=None, nodes=nodes)
    write_cluster_file(str(tmp_path), file)
    with pytest.raises(ConfigError, match=r"has 0 controllers|was made without --secure"):
        plan(tmp_path)


def test_free_ports_are_reserved_for_both_listeners_of_a_broker():
    shape = {"controllers": 1, "brokers": 2, "port": 0, "controller_port": None}
    guards = reserve_ports(**shape, is_secure=True)
    for guard in guards:
        guard.close()
    assert len(guards) == 1 + 2 * 2


def test_init_puts_relative_paths_of_each_nodes_own_secrets_into_its_file(tmp_path):
    folder = tmp_path / "c"
    code, _, err = kvorum(
        "init", str(folder), "--secure", "--controller", "1@h1", "--broker", "101@h2",
        "--bind", "0.0.0.0",
    )  # fmt: skip
    assert code == 0, err
    loaded = load_node_file(str(folder / "broker-101.toml"))
    assert loaded["ssl.keystore.location"] == str(folder / "secrets" / "broker-101.pem")
    assert loaded["advertised.listeners"] == "CLIENTS://h2:9092,NODES://h2:9292"
    assert loaded["listeners"] == "CLIENTS://0.0.0.0:9092,NODES://0.0.0.0:9292"


def test_init_names_the_files_that_each_host_needs_and_no_key_of_the_ca(tmp_path):
    folder = tmp_path / "c"
    shape = ("--controllers", 1, "--brokers", 1)
    code, out, err = kvorum("init", folder, "--secure", *shape, "-o", "json")
    assert code == 0 and "the other secrets stay here, ca.key above all" in err
    controller, broker = (
        [str(Path(each).relative_to(folder)) for each in row["needs"]] for row in json.loads(out)
    )
    assert controller == [
        "controller-1.toml", "data/controller-1", "secrets/controller-1.pem", "secrets/ca.pem",
    ]  # fmt: skip
    assert broker == ["broker-101.toml", "secrets/broker-101.pem", "secrets/ca.pem"]
    code, out, err = kvorum("init", folder, "--add", "broker", "--host", "h2")
    needs = "broker-102 on h2 needs broker-102.toml secrets/broker-102.pem secrets/ca.pem"
    assert (
        code == 0
        and needs in out.splitlines()
        and f"Copy these files of {folder} to the host" in out
    )


def test_a_node_that_is_added_has_a_certificate_and_properties_like_the_others(tmp_path):
    folder = tmp_path / "c"
    more = ("--bind", "0.0.0.0", "--set", "super.users=User:operator")
    places = ("--controller", "1@h1", "--broker", "101@h2")
    assert kvorum("init", folder, "--secure", *places, *more)[0] == 0
    before = {path: path.read_bytes() for path in (folder / "secrets").iterdir()}
    code, _, err = kvorum("init", folder, "--add", "broker", "--host", "h3")
    assert code == 0 and "--allow-principal User:broker-102 --operation cluster-action" in err, err
    first, added = (
        load_node_file(str(folder / f"broker-{node_id}.toml")) for node_id in (101, 102)
    )
    assert broker_config(added)[0].listeners[0].advertised == ("h3", 9292)
    users = {*first["super.users"].split(";"), "User:broker-102"}
    assert set(added["super.users"].split(";")) == users and "User:operator" in users
    assert added["ssl.keystore.location"] == str(folder / "secrets" / "broker-102.pem")
    own = {"node.id", "listeners", "advertised.listeners", "log.dirs", "super.users"}
    same = set(first) - own - {"ssl.keystore.location"}
    assert {name: added[name] for name in same} == {name: first[name] for name in same}
    pem = (folder / "secrets" / "broker-102.pem").read_bytes()
    assert {"h3", "localhost"} <= described(pem)[1]
    after = {path: path.read_bytes() for path in (folder / "secrets").iterdir()}
    assert {path: after[path] for path in before} == before
    code, _, err = kvorum("init", folder, "--add", "controller")
    assert code == 0 and "put User:controller-2 into super.users of every other node's file" in err
    controller = load_node_file(str(folder / "controller-2.toml"))
    assert controller_config(controller)[0].controller_listener.protocol == "SSL"


def test_no_node_is_added_without_the_key_of_the_ca_or_beside_certificates_of_another(tmp_path):
    folder = tmp_path / "c"
    assert kvorum("init", folder, "--secure", "--controllers", 1, "--brokers", 1)[0] == 0
    (folder / "secrets" / "ca.key").rename(tmp_path / "ca.key")
    code, _, err = kvorum("init", folder, "--add", "broker")
    signed = "ca.key is missing, and broker-102.pem must be signed with it: put it back;"
    assert code == 2 and signed in err, err
    hidden = [each.rename(tmp_path / each.name) for each in (folder / "secrets").iterdir()]
    code, _, err = kvorum("init", folder, "--add", "broker")
    assert code == 2 and "must be signed with them: put them back; a new CA would make" in err, err
    assert not list((folder / "secrets").iterdir())
    (folder / "secrets").rmdir()
    code, _, err = kvorum("init", folder, "--add", "broker")
    assert code == 2 and "must be signed with them: put them back; a new CA would make" in err, err
    assert not (folder / "secrets").exists() and not (folder / "broker-102.toml").exists()
    (folder / "secrets").mkdir(mode=0o700)
    for each in hidden:
        each.rename(folder / "secrets" / each.name)
    (tmp_path / "ca.key").rename(folder / "secrets" / "ca.key")
    file = folder / "broker-101.toml"
    file.write_text(file.read_text().replace("secrets/broker-101.pem", "/etc/kvorum/broker.pem"))
    code, _, err = kvorum("init", folder, "--add", "broker")
    assert code == 2 and "/etc/kvorum/broker.pem, which is not in" in err
    assert not (folder / "broker-102.toml").exists()


def test_settings_beside_secure_are_merged_or_refused_by_name(tmp_path):
    shape = ("--secure", "--controllers", 1, "--brokers", 1)
    folder = tmp_path / "c"
    more = ("--set", "super.users=User:bob;User:admin")
    assert kvorum("init", folder, *shape, *more)[0] == 0
    for name in ("controller-1", "broker-101"):
        users = load_node_file(str(folder / f"{name}.toml"))["super.users"]
        assert users == "User:controller-1;User:broker-101;User:admin;User:bob"
    code, _, err = kvorum("init", tmp_path / "d", *shape, "--set", "ssl.truststore.type=JKS")
    assert code == 2 and not (tmp_path / "d").exists()
    assert "ssl.truststore.type=JKS does not go with --secure, which writes" in err
    assert "ssl.truststore.type=PEM" in err
    made = plan(tmp_path / "e", settings={"super.users": "User:bob"})
    assert all(node.properties["super.users"].endswith(";User:bob") for node in made.nodes)
    with pytest.raises(ConfigError, match=r"inter.broker.listener.name=X does not go with"):
        plan(tmp_path / "f", settings={"inter.broker.listener.name": "X"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--controllers", 1, "--brokers", 1, "--controller-port", 9292),
            "controller-1 (CONTROLLER) and broker-101 (NODES) would both listen on 127.0.0.1:9292",
        ),
        (
            ("--controller", "1@h1", "--broker", "101@h2:9092", "--broker", "102@h2:9292"),
            "broker-101 (NODES) and broker-102 (CLIENTS) would both listen on h2:9292",
        ),
        (
            ("--controller", "1@h1", "--broker", "101@h2:65500"),
            "NODES of broker-101 would get port 65700, above 65535: give the broker a port up to",
        ),
    ],
)
def test_listeners_of_a_secure_cluster_that_would_collide_are_refused(tmp_path, arguments, words):
    code, _, err = kvorum("init", tmp_path / "c", "--secure", *arguments)
    assert code == 2 and words in err, err
    assert not (tmp_path / "c").exists()


def test_plain_whose_users_no_command_line_may_have_is_refused_with_the_way_to_add_it(tmp_path):
    given = ("--set", "sasl.enabled.mechanisms=SCRAM-SHA-256,PLAIN")
    code, _, err = kvorum("init", tmp_path / "c", "--secure", *given)
    assert code == 2 and "must not be on a command line" in err, err
    assert "listener.name.clients.plain.sasl.jaas.config to each broker's file" in err
    assert not (tmp_path / "c").exists()


def test_plain_is_added_in_the_file_of_a_secure_broker(tmp_path):
    assert kvorum("init", tmp_path / "c", "--secure", "--controllers", 1, "--brokers", 1)[0] == 0
    loaded = load_node_file(str(tmp_path / "c" / "broker-101.toml"))
    added = {
        "sasl.enabled.mechanisms": f"{loaded['sasl.enabled.mechanisms']},PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b";'
        ),
    }
    config, _ = broker_config({**loaded, **added})
    clients = next(each for each in config.listeners if each.name == "CLIENTS")
    assert clients.sasl is not None
    assert set(clients.sasl.mechanisms) == {"SCRAM-SHA-512", "PLAIN"}


def test_a_static_quorum_cannot_have_a_first_user(tmp_path):
    code, _, err = kvorum("init", str(tmp_path / "c"), "--secure", "--static")
    assert (code, "--secure does not go with --static" in err) == (2, True)
