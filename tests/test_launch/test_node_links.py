"""The controllers' listener and the brokers' logins at each other, by their properties."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config, controller_config
from tests.test_launch.node_properties import BROKER, COMMON, CONTROLLER, PLAIN, SCRAM, refusal

AMONG: dict[str, Any] = {
    "listeners": "INSIDE://h:9092,PLAINTEXT://h:9093",
    "listener.security.protocol.map": "CONTROLLER:SSL,INSIDE:SASL_SSL",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} required user_a="b";',
    "listener.name.inside.scram-sha-512.sasl.jaas.config": (
        f'{SCRAM} required username="broker" password="hidden";'
    ),
}


def test_a_controller_serves_and_calls_over_tls() -> None:
    config, _ = controller_config(CONTROLLER)
    listener = config.controller_listener
    assert listener.server is not None and listener.client is not None
    assert (listener.name, listener.protocol) == ("CONTROLLER", "SSL")
    assert listener.server.client_auth == "required"
    assert listener.server.keystore == listener.client.keystore == "/node.pem"
    assert listener.client.truststore == "/ca.pem" and listener.client.checks_name
    assert config.notes == ()


def test_a_broker_calls_controllers_over_tls() -> None:
    listener = broker_config(BROKER)[0].controller_listener
    assert listener.server is None and listener.client is not None
    assert listener.client.truststore == "/ca.pem"
    # One-way TLS needs no certificate of the broker.
    bare = {k: v for k, v in BROKER.items() if not k.startswith("ssl.keystore")}
    client = broker_config(bare)[0].controller_listener.client
    assert client is not None and not client.has_certificate


def test_without_a_protocol_the_controllers_speak_clear_text() -> None:
    plain = {k: v for k, v in BROKER.items() if k != "listener.security.protocol.map"}
    listener = broker_config(plain)[0].controller_listener
    assert (listener.protocol, listener.client) == ("PLAINTEXT", None)


def test_the_listener_of_the_controllers_may_have_another_name() -> None:
    changed = {
        "controller.listener.names": "QUORUM",
        "listeners": "QUORUM://h:1",
        "listener.security.protocol.map": "QUORUM:SSL",
        "ssl.endpoint.identification.algorithm": "",
    }
    own = {k: v for k, v in CONTROLLER.items() if not k.startswith("listener.name")}
    listener = controller_config({**own, **changed})[0].controller_listener
    assert listener.name == "QUORUM"
    assert listener.client is not None and not listener.client.checks_name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}, "and serve no SASL"),
        ({"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"}, "and serve no SASL"),
        ({"controller.listener.names": "A,A"}, "must be the name of the listener"),
        ({"controller.listener.names": "A"}, "has no protocol for the listener A"),
        ({"ssl.keystore.location": ""}, "the listener CONTROLLER needs a certificate"),
        ({"ssl.endpoint.identification.algorithm": "http"}, "must be https, or empty"),
        (
            {"listener.name.controller.sasl.enabled.mechanisms": "PLAIN"},
            "the controllers' listener has TLS and no other properties",
        ),
        ({"listeners": "PLAINTEXT://h:1"}, "this is a broker's file"),
    ],
)
def test_bad_properties_of_a_controller_are_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(controller_config, {**CONTROLLER, **changes})


def test_brokers_log_in_at_each_other_over_tls() -> None:
    config, _ = broker_config({**BROKER, **AMONG})
    security = config.peer_security
    assert (security.mechanism, security.user, security.password) == (
        "SCRAM-SHA-512", "broker", "hidden",
    )  # fmt: skip
    assert security.tls is not None and security.tls.keystore == "/node.pem"
    assert "hidden" not in repr(security)
    assert [one.name for one in config.listeners] == ["INSIDE", "PLAINTEXT"]


def test_tls_alone_needs_no_login() -> None:
    alone = {"listeners": "SSL://h:1", "security.inter.broker.protocol": "SSL"}
    security = broker_config({**BROKER, **alone})[0].peer_security
    assert security.tls is not None and security.mechanism == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "SCRAM-SHA-512"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "needs username and password"),
        ({"listener.name.inside.scram-sha-512.sasl.jaas.config": ""}, "needs username and"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "name one thing"),
    ],
)
def test_a_login_that_cannot_work_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(broker_config, {**BROKER, **AMONG, **changes})


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
IN_CLEAR: dict[str, Any] = {
    "cluster.id": COMMON["cluster.id"],
    "controller.quorum.voters": "1@h:1",
    "log.dirs": "/nowhere",
}


@pytest.mark.parametrize(
    ("check", "own"),
    [
        (controller_config, {"node.id": 1, "listeners": "CONTROLLER://h:1"}),
        (broker_config, {"node.id": 101, "listeners": "PLAINTEXT://h:9092"}),
    ],
)
def test_an_authorizer_that_the_controllers_in_clear_text_go_around_is_warned_of(
    check: Any, own: dict[str, Any]
) -> None:
    assert check({**IN_CLEAR, **own})[0].notes == ()
    (note,) = check({**IN_CLEAR, **own, **AUTHORIZER})[0].notes
    assert note.startswith("authorizer.class.name is set, and the listener CONTROLLER")
    assert "listener.security.protocol.map=CONTROLLER:SSL" in note


def test_controllers_with_certificates_are_not_warned_of() -> None:
    assert controller_config({**CONTROLLER, **AUTHORIZER})[0].notes == ()
    assert broker_config({**BROKER, **AUTHORIZER})[0].notes == ()
    (note,) = controller_config(
        {**CONTROLLER, **AUTHORIZER, "listener.name.controller.ssl.client.auth": "none"}
    )[0].notes
    assert "takes callers without a client's certificate" in note
