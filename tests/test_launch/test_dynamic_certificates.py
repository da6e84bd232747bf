"""A running broker takes certificates from dynamic configs of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config
from kvorum.launch.nodes.dynamic_certificates import DynamicCertificates
from kvorum.metadata.configs.config_keys import (
    broker_config_problem,
    broker_key,
    ignored_config,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import Config
from kvorum.runtime.certificates import TlsListener
from tests.certificates import Authority

LOCATION = "listener.name.clients.ssl.keystore.location"


class Broker:
    """The TLS of a broker's listener CLIENTS, and the metadata that it follows."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        properties: dict[str, Any] = {
            "node.id": 101,
            "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
            "listeners": "CLIENTS://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092",
            "listener.security.protocol.map": "CLIENTS:SSL",
            "controller.quorum.voters": "1@h:1",
            "log.dirs": "/nowhere",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.server("first.pem")),
        }
        config, _ = broker_config(properties)
        (listener,) = [each for each in config.listeners if each.name == "CLIENTS"]
        assert listener.tls is not None
        self.tls = TlsListener(listener.tls, listener.principals)
        self.dynamic = DynamicCertificates(101, properties)
        self.dynamic.add("CLIENTS", self.tls)
        self.image: ClusterImage = EMPTY_IMAGE

    def set(self, name: str, value: str | None, *, of: str = "101") -> None:
        delta = Delta(self.image)
        delta.replay(Config(4, of, name, value))
        self.image = delta.apply(end_offset=self.image.end_offset + 1, epoch=1)
        self.dynamic.on_image(delta, self.image)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_new_file_is_used_by_new_connections_and_the_old_one_again_without_it(broker):
    first = broker.tls.context
    broker.set(LOCATION, str(broker.authority.server("second.pem")))
    second = broker.tls.context
    assert second is not first and broker.tls.settings.files[0].endswith("second.pem")
    broker.set(LOCATION, None)
    assert broker.tls.settings.files[0].endswith("first.pem")
    assert broker.tls.context is not second


def test_the_configs_of_another_broker_and_other_configs_change_nothing(broker):
    context = broker.tls.context
    broker.set(LOCATION, str(broker.authority.server("second.pem")), of="102")
    broker.set("log.retention.ms", "5")
    broker.set("listener.name.other.ssl.keystore.location", "/nowhere")
    assert broker.tls.context is context


def test_a_file_that_cannot_be_used_leaves_the_one_before_with_a_line_in_the_log(broker, caplog):
    context = broker.tls.context
    with caplog.at_level(logging.ERROR):
        broker.set(LOCATION, "/nowhere/at/all.pem")
    assert broker.tls.context is context
    assert broker.tls.settings.files[0].endswith("first.pem")
    assert "/nowhere/at/all.pem" in caplog.text and "stay in use" in caplog.text
    broker.set(LOCATION, str(broker.authority.server("second.pem")))
    assert broker.tls.settings.files[0].endswith("second.pem")


def test_only_a_single_broker_can_have_them_and_keys_are_hidden():
    assert broker_config_problem(LOCATION, "/x.pem", "101") is None
    refused = broker_config_problem(LOCATION, "/x.pem", "")
    assert refused is not None and "name a broker" in refused.message
    key = broker_key("listener.name.clients.ssl.keystore.key")
    assert key is not None and key.is_sensitive
    assert broker_key("listener.name.clients.ssl.keystore.strange") is None
    assert broker_key("listener.name.a.b.ssl.keystore.key") is None


def test_configs_that_the_broker_cannot_use_are_refused_with_file_and_reason(broker, tmp_path):
    good = str(broker.authority.server("second.pem"))
    assert broker.dynamic.problem({LOCATION: good}) is None
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    expired = str(broker.authority.server("expired.pem", is_expired=True))
    for configs, word in (
        ({LOCATION: "/nowhere/at/all.pem"}, "/nowhere/at/all.pem"),
        ({LOCATION: str(bad)}, str(bad)),
        ({LOCATION: expired}, f"{expired} is not used"),
        ({LOCATION: good, "listener.name.clients.ssl.keystore.type": "JKS"}, "JKS is not served"),
        ({"listener.name.strangers.ssl.keystore.location": good}, "listeners has no STRANGERS"),
    ):
        problem = broker.dynamic.problem(configs)
        assert problem is not None and word in problem, configs
    assert broker.tls.settings.files[0].endswith("first.pem")


@pytest.mark.parametrize(
    "name", ["ssl.client.auth", "plain.sasl.jaas.config", "connections.max.reauth.ms"]
)
def test_configs_of_a_listener_that_are_read_at_the_start_are_refused_later(name):
    full = f"listener.name.clients.{name}"
    assert ignored_config(full, "x") is None
    refused = broker_config_problem(full, "0", "101")
    assert refused is not None and f"{full} is read-only" in refused.message


def test_the_type_of_a_keystore_may_be_set_beside_its_file():
    name = "listener.name.clients.ssl.keystore.type"
    assert broker_config_problem(name, "PEM", "101") is None
    assert ignored_config(name, "PEM") is None
