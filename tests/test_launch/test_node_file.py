"""The properties of a node: from its file, the environment and the command line."""

from __future__ import annotations

import dataclasses
import os

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.node_file import load_node_file, node_properties, variable_of, with_source
from kvorum.launch.config.presets import PRESETS, with_preset
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.config.property_classes import BROKER_NAMES, CONTROLLER_NAMES
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum
from tests.tree import ROOT

BROKER = {
    "node.id": 101,
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "listeners": "PLAINTEXT://h4:9092",
    "controller.quorum.bootstrap.servers": "h1:9192,h2:9192,h3:9192",
    "log.dirs": "/data",
}
CONTROLLER = {**BROKER, "node.id": 1, "listeners": "CONTROLLER://h1:9192"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "conf" / "broker-101.toml"
    path.parent.mkdir()
    path.write_text('"node.id" = 101\n"log.dirs" = "data/a, /ssd/b"\n"log.segment.bytes" = 1000000')
    return path


def test_folders_of_a_file_are_below_the_file(file, tmp_path):
    assert load_node_file(str(file))["log.dirs"] == f"{tmp_path}/conf/data/a,/ssd/b"


def test_folders_of_the_command_line_are_left_to_the_working_directory(file):
    assert node_properties(str(file), ["log.dirs=d"], {})["log.dirs"] == "d"
    assert node_properties(str(file), [], {"KVORUM_LOG_DIRS": "d"})["log.dirs"] == "d"


def test_set_goes_before_the_environment_and_that_before_the_file(file):
    variables = {"KVORUM_LOG_SEGMENT_BYTES": "2000000", "KVORUM_NODE_ID": "102"}
    found = node_properties(str(file), ["node.id=103"], variables)
    assert (found["node.id"], found["log.segment.bytes"]) == ("103", "2000000")


def test_a_node_needs_no_file():
    variables = {variable_of(name): str(value) for name, value in BROKER.items()}
    config, _ = broker_config(node_properties(None, [], variables))
    assert (config.node_id, config.advertised) == (101, ("h4", 9092))


def test_every_property_has_a_variable_of_its_own():
    names = BROKER_NAMES | CONTROLLER_NAMES
    assert len({variable_of(name) for name in names}) == len(names)
    assert all("_" not in name for name in names)


TLS = {
    "listeners": "PLAINTEXT://h4:9092,CLIENTS_TLS://h4:9093",
    "listener.security.protocol.map": "CLIENTS_TLS:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.clients_tls.ssl.keystore.location": "/pem",
    "listener.name.clients_tls.ssl.keystore.type": "PEM",
    "listener.name.clients_tls.ssl.client.auth": "required",
    "listener.name.clients_tls.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.clients_tls.scram-sha-512.connections.max.reauth.ms": "7000",
}


@pytest.mark.parametrize("way", ["environment", "settings"])
def test_a_listeners_properties_come_from_the_environment_and_the_command_line(way):
    given = {name: str(value) for name, value in (BROKER | TLS).items()}
    if way == "environment":
        variables = {variable_of(name): value for name, value in given.items()}
        assert "KVORUM_LISTENER_NAME_CLIENTS_TLS_SSL_CLIENT_AUTH" in variables
        properties = node_properties(None, [], variables)
    else:
        properties = node_properties(None, [f"{name}={value}" for name, value in given.items()], {})
    assert properties == given
    config, _ = broker_config(properties)
    tls, sasl = config.listeners[1].tls, config.listeners[1].sasl
    assert tls is not None and tls.client_auth == "required"
    assert sasl is not None and sasl.session_ms == {"SCRAM-SHA-512": 7000}


def test_a_listeners_variable_that_nothing_reads_is_refused():
    """If a mistyped variable were ignored, the listener would be open."""
    with pytest.raises(ConfigError, match=r"LISTENER_NAME_CLIENTS_SSL_AUTH .*ssl\.client\.auth"):
        node_properties(None, [], {"KVORUM_LISTENER_NAME_CLIENTS_SSL_AUTH": "required"})
    with pytest.raises(ConfigError, match=r"ssl\.auth is no property of a listener"):
        broker_config(
            BROKER
            | {
                "listeners": "PLAINTEXT://h4:9092,SSL://h4:9093",
                **node_properties(None, ["listener.name.ssl.ssl.auth=required"], {}),
            }
        )


def test_other_variables_are_no_properties():
    """Kubernetes sets variables named after services, and the command line has variables of its
    own."""
    variables = {
        "KVORUM_BROKER_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KVORUM_CONTROLLER_SERVICE_HOST": "10.0.0.1",
        "KVORUM_PORT": "tcp://10.0.0.1:9092",
        "KVORUM_BOOTSTRAP_SERVER": "h:9092",
        "KVORUM_PROFILES": "/dev/null",
        "PATH": os.environ["PATH"],
    }
    assert node_properties(None, [], variables) == {}


def test_a_mistyped_variable_or_setting_is_refused_with_the_right_name(file):
    with pytest.raises(ConfigError, match=r"KVORUM_LOG_DIR_S .*did you mean KVORUM_LOG_DIRS\?"):
        node_properties(str(file), [], {"KVORUM_LOG_DIR_S": "d"})
    with pytest.raises(ConfigError, match=r"unknown property 'node.idd' \(did you mean 'node.id'"):
        node_properties(str(file), ["node.idd=1"], {})


@pytest.mark.parametrize(
    ("settings", "variables", "told"),
    [
        ([], {}, "{file}: log.segment.bytes='x' is no number"),
        ([], {"KVORUM_LOG_SEGMENT_BYTES": "x"}, " is given by KVORUM_LOG_SEGMENT_BYTES)"),
        (["log.segment.bytes=x"], {"KVORUM_LOG_SEGMENT_BYTES": "y"}, " is given by --set)"),
        # Neither names the property of the sentence.
        (["segment.bytes=1"], {"KVORUM_LOG_DIRS": "y"}, "{file}: "),
    ],
)
def test_a_refused_value_is_told_with_its_place(file, settings, variables, told):
    said = with_source("log.segment.bytes='x' is no number", str(file), settings, variables)
    assert told.format(file=file) in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["num.partitions=many"], "num.partitions"),
        (["socket.connection.setup.timeout.ms=0"], "socket.connection.setup.timeout.ms"),
        (["kvorum.preset=lazy"], "kvorum.preset='lazy' is unknown; there is relaxed"),
        (["listeners=PLAINTEXT://0.0.0.0:9092"], "clients and brokers cannot connect to 0.0.0.0"),
        (["listeners=PLAINTEXT://[::]:9092"], "clients and brokers cannot connect to ::"),
        (
            ["advertised.listeners=PLAINTEXT://0.0.0.0:9092"],
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092: clients and brokers cannot connect",
        ),
    ],
)
def test_a_bad_value_is_one_sentence_before_anything_starts(tmp_path, settings, words):
    path = tmp_path / "broker.toml"
    path.write_text("".join(f'"{k}" = "{v}"\n' for k, v in BROKER.items() if k != "log.dirs"))
    options = [part for text in [*settings, "log.dirs=" + str(tmp_path / "d")]
               for part in ("--set", text)]  # fmt: skip
    code, out, error = kvorum("broker", "--config", path, *options)
    assert (code, out) == (2, "")
    assert words in error and len(error.splitlines()) == 1
    assert not (tmp_path / "d").exists()


def test_a_node_binds_to_all_interfaces_and_advertises_its_host():
    config, _ = broker_config(
        BROKER
        | {
            "listeners": "PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners": "PLAINTEXT://h4:19092",
        }
    )
    assert (config.listen, config.advertised) == (("0.0.0.0", 9092), ("h4", 19092))


def test_the_relaxed_preset_fits_both_roles_and_what_is_given_wins():
    controller, policy = controller_config(CONTROLLER | {"kvorum.preset": "relaxed"})
    assert policy.broker_session_timeout_ms == 9_000
    assert controller.raft.fetch_timeout_ms == 6_000
    node, broker = broker_config(
        BROKER | {"kvorum.preset": "relaxed", "rpc.keepalive.time.ms": 2_500}
    )
    assert node.waits.of_connections().time_ms == 2_500
    assert node.waits.of_connections().connect_ms == 10_000
    assert broker.replica_socket_timeout_ms == 30_000
    assert node.given["broker.heartbeat.interval.ms"] == 2_000


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_only_properties_that_exist_and_makes_nodes_more_patient(preset):
    assert set(PRESETS[preset]) <= BROKER_NAMES | CONTROLLER_NAMES
    plain, _ = broker_config(BROKER)
    relaxed, _ = broker_config(BROKER | {"kvorum.preset": preset})
    for field in dataclasses.fields(plain.waits):
        assert getattr(relaxed.waits, field.name) > getattr(plain.waits, field.name), field.name
    names = {field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig)}
    assert (
        set(with_preset({"kvorum.preset": preset}, frozenset(names))) - {"kvorum.preset"} <= names
    )


def test_the_documents_table_of_the_preset_is_current():
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    for name, value in PRESETS["relaxed"].items():
        assert any(
            line.startswith(f"| `{name}` | ") and line.endswith(f" | {value:,} |")
            for line in text.splitlines()
        ), name
