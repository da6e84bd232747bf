"""A broker's listeners: names, addresses, protocols, SASL; each bad one refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.runtime.errors import ConfigError

BROKER: dict[str, Any] = {
    "node.id": 101,
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "listeners": "PLAINTEXT://h:9092",
    "controller.quorum.voters": "1@h:1,2@h:2,3@h:3",
    "log.dirs": "/nowhere",
}
CONTROLLER = {**BROKER, "node.id": 1, "listeners": "CONTROLLER://127.0.0.1:9093"}
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
    'user_alice="a \\"quoted\\" secret"\n user_bob=simple ;'
)
SASL: dict[str, Any] = {
    "listeners": "CLIENTS://h:9093,PLAINTEXT://h:9092",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
}


TLS: dict[str, Any] = {
    "listeners": "SSL://h:9093,PLAINTEXT://h:9092",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/broker.pem",
}


def listeners(**changes: Any) -> Any:
    return broker_config({**BROKER, **changes})[0].listeners


def refusal(changes: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        listeners(**changes)
    return str(refused.value)


def test_one_listener_is_for_clients_and_brokers():
    (only,) = listeners()
    assert (only.name, only.protocol, only.listen, only.sasl) == (
        "PLAINTEXT", "PLAINTEXT", ("h", 9092), None,
    )  # fmt: skip
    (named,) = listeners(
        **{"listeners": "LAN://h:1", "listener.security.protocol.map": "LAN:PLAINTEXT"}
    )
    assert (named.name, named.protocol) == ("LAN", "PLAINTEXT")


def test_the_listener_of_the_brokers_comes_first():
    assert [one.name for one in listeners(**SASL)] == ["PLAINTEXT", "CLIENTS"]
    changes = {
        "listeners": "EXTERNAL://h:1,INTERNAL://h:2",
        "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    assert [one.name for one in listeners(**changes)] == ["INTERNAL", "EXTERNAL"]
    assert broker_config({**BROKER, **changes})[0].advertised == ("h", 2)


def test_each_listener_has_its_own_advertised_address():
    found = listeners(**SASL | {"advertised.listeners": "CLIENTS://outside:19093"})
    assert {one.name: one.advertised for one in found} == {
        "PLAINTEXT": ("h", 9092), "CLIENTS": ("outside", 19093),
    }  # fmt: skip


def test_users_mechanisms_and_sessions_are_a_listeners_own():
    changes = {
        **SASL,
        "connections.max.reauth.ms": 1_000,
        "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "2000",
    }
    sasl = listeners(**changes)[1].sasl
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert sasl.plain_users == {"alice": 'a "quoted" secret', "bob": "simple"}
    assert sasl.session_ms == {"PLAIN": 1_000, "SCRAM-SHA-512": 2_000}
    scram_alone = {
        **SASL,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    del scram_alone["listener.name.clients.plain.sasl.jaas.config"]
    assert listeners(**scram_alone)[1].sasl.mechanisms == ("SCRAM-SHA-256",)


def test_a_secret_is_in_no_note_and_no_text_of_the_settings():
    config, _ = broker_config({**BROKER, **SASL})
    assert config.notes == ()
    assert "quoted" not in repr(config.listeners) and "simple" not in repr(config.listeners)


def test_a_listeners_own_certificate_counts_more_than_the_brokers():
    own = {
        "listener.name.ssl.ssl.keystore.location": "/own.pem",
        "listener.name.ssl.ssl.enabled.protocols": "TLSv1.3",
        "ssl.key.password": "hidden",
    }
    found = listeners(**TLS, **own)[1]
    assert (found.protocol, found.sasl) == ("SSL", None)
    assert (found.tls.keystore, found.tls.versions) == ("/own.pem", ("TLSv1.3",))
    assert found.tls.key_password == "hidden" and "hidden" not in repr(found)
    pem = {
        "ssl.keystore.location": "",
        "ssl.keystore.key": "K",
        "ssl.keystore.certificate.chain": "C",
    }
    assert listeners(**{**TLS, **pem})[1].tls.key == "K"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_every_address_may_be_bound_but_not_advertised(host):
    bound = {"listeners": f"PLAINTEXT://{host}:9092"}
    assert "advertised.listeners, such as PLAINTEXT://" in refusal(bound)
    (one,) = listeners(**bound, **{"advertised.listeners": "PLAINTEXT://h:9092"})
    assert one.advertised == ("h", 9092)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "names PLAINTEXT twice"),
        ({"listeners": "h:1"}, "'h:1' has not the form NAME://host:port"),
        ({"listeners": "plaintext://h:1"}, "a name in capital letters"),
        ({"listeners": "PLAINTEXT://h"}, "'h' is not host:port"),
        ({"listeners": ""}, "listeners has none"),
        ({"advertised.listeners": "OTHER://h:1"}, "names OTHER, which listeners="),
        ({"listeners": "LAN://h:1"}, "has no protocol for the listener LAN: add LAN:PLAINTEXT"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "has not the form NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "one of PLAINTEXT, SASL_PLAINTEXT"),
        ({"listeners": "SSL://h:1"}, "the listener SSL needs a certificate"),
        ({**TLS, "ssl.keystore.location": ""}, "the listener SSL needs a certificate"),
        ({**TLS, "ssl.keystore.key": "k"}, "the listener SSL needs a certificate"),
        ({**TLS, "ssl.keystore.type": "JKS"}, "ssl.keystore.type=JKS is not served; make a PEM"),
        ({**TLS, "ssl.client.auth": "perhaps"}, "'perhaps' is none of none, requested, required"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "must have some of TLSv1.2, TLSv1.3"),
        ({**TLS, "ssl.enabled.protocols": ""}, "must have some of TLSv1.2, TLSv1.3"),
        ({**TLS, "ssl.principal.mapping.rules": "CN"}, "neither DEFAULT nor RULE"),
        ({**TLS, "listener.name.ssl.ssl.truststore.location": "/x"}, "ssl.truststore.type=JKS"),
        ({"inter.broker.listener.name": "LAN"}, "name the one that the brokers use"),
        (
            {**SASL, "inter.broker.listener.name": "CLIENTS"},
            "sasl.mechanism.inter.broker.protocol=(none): brokers log in at the listener CLIENTS",
        ),
        ({**SASL, "sasl.enabled.mechanisms": ""}, "CLIENTS: no mechanism is enabled"),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not served"),
        (
            {**SASL, "listener.name.clients.plain.sasl.jaas.config": ""},
            "listener.name.clients.plain.sasl.jaas.config is missing",
        ),
        (
            {**SASL, "listener.name.other.sasl.enabled.mechanisms": "PLAIN"},
            "listeners has no OTHER",
        ),
        (
            {**SASL, "listener.name.clients.sasl.mechanism": "PLAIN"},
            "sasl.mechanism is no property of a listener",
        ),
        (
            {**SASL, "listener.name.clients.connections.max.reauth.ms": "soon"},
            "'soon' is no number of milliseconds",
        ),
    ],
)
def test_bad_listeners_are_refused(changes, said):
    assert said in refusal(changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "must have the form: CLASS required"),
        ('Other required user_a="b";', "names Other; PLAIN needs"),
        (JAAS.replace("required", "needed"), "must have the form"),
        (JAAS.rstrip(" ;"), "must have the form"),
        (JAAS.replace("user_bob=simple", "user_bob"), 'the form key="value"'),
        (JAAS.replace("user_bob", "user_alice"), "has the option user_alice twice"),
        (JAAS.replace("=simple", '=""'), "a user without a name or a password"),
        (JAAS.replace("=simple", '="simple'), "a quotation mark"),
    ],
)
def test_bad_jaas_is_refused_without_its_secrets(text, said):
    told = refusal({**SASL, "listener.name.clients.plain.sasl.jaas.config": text})
    assert said in told
    assert "simple" not in told and "quoted" not in told


def test_a_controller_has_one_listener_without_sasl():
    taken = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,EXTERNAL:SASL_SSL"}
    assert controller_config({**CONTROLLER, **taken})[0].listeners == ()
    with pytest.raises(ConfigError, match="controllers know each other by certificates"):
        controller_config({**CONTROLLER, "listener.security.protocol.map": "CONTROLLER:SASL_SSL"})
