"""The properties of OAUTHBEARER: what a broker takes, and what it refuses at its start."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.broker.sasl.core.oauthbearer import Expected, KeySetPlace, OAuthBearerSettings
from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.properties import broker_config
from kvorum.runtime.errors import ConfigError

URL = "sasl.oauthbearer.jwks.endpoint.url"
OWN = "listener.name.clients.oauthbearer."
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
BASE = {
    "node.id": 101,
    "cluster.id": "AAAAAAAAAAAAAAAAAAAAAA",
    "controller.quorum.voters": "1@127.0.0.1:9192",
    "log.dirs": "/tmp/none",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CLIENTS://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/none.pem",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}


def settings(**changes: Any) -> OAuthBearerSettings:
    """The settings of the listener CLIENTS. changes: names with `_` for dots; `own_` at the
    beginning stands for the prefix of this listener and mechanism."""
    given = {
        name.replace("own_", OWN, 1).replace("_", "."): value for name, value in changes.items()
    }
    config, _ = broker_config({**BASE, **given})
    sasl = next(each.sasl for each in config.listeners if each.name == "CLIENTS")
    assert sasl is not None
    assert sasl.mechanisms == ("OAUTHBEARER",)
    assert sasl.oauth is not None
    return sasl.oauth


def refusal(**changes: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        settings(**changes)
    return str(refused.value)


GOOD = {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer.example.org/keys"}


def test_defaults_are_kafkas() -> None:
    found = settings(**GOOD)
    assert found == OAuthBearerSettings(
        expected=Expected(),
        key_set=KeySetPlace(what="the listener CLIENTS", url="https://issuer.example.org/keys"),
    )


def test_every_property_has_its_place() -> None:
    found = settings(
        sasl_oauthbearer_jwks_endpoint_url="file:///etc/keys.json",
        sasl_oauthbearer_jwks_endpoint_refresh_ms=1,
        sasl_oauthbearer_jwks_endpoint_retry_backoff_ms=2,
        sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms=3,
        sasl_oauthbearer_expected_audience="a, b",
        sasl_oauthbearer_expected_issuer="i",
        sasl_oauthbearer_clock_skew_seconds=4,
        sasl_oauthbearer_scope_claim_name="scp",
        sasl_oauthbearer_sub_claim_name="email",
    )
    assert found.expected == Expected(
        audience=("a", "b"), issuer="i", clock_skew_ms=4_000, scope_claim="scp", sub_claim="email"
    )
    assert found.key_set == KeySetPlace(
        what="the listener CLIENTS", url="file:///etc/keys.json", refresh_ms=1, backoff_ms=2,
        backoff_max_ms=3,
    )  # fmt: skip


def test_a_listeners_own_properties_count_more() -> None:
    found = settings(**GOOD, own_sasl_oauthbearer_jwks_endpoint_url="http://own.example.org/k",
                     own_sasl_oauthbearer_expected_audience="own")  # fmt: skip
    assert found.key_set.url == "http://own.example.org/k"
    assert found.expected.audience == ("own",)


def test_a_file_of_kafka_with_its_classes_is_taken() -> None:
    for package in (PACKAGE, f"{PACKAGE}secured."):
        found = settings(
            **GOOD,
            own_sasl_server_callback_handler_class=f"{package}OAuthBearerValidatorCallbackHandler",
            own_sasl_jaas_config=f"{PACKAGE}OAuthBearerLoginModule required;",
        )
        assert found.key_set.url == GOOD["sasl_oauthbearer_jwks_endpoint_url"]


@pytest.mark.parametrize(
    "url",
    ["", "keys.json", "ftp://x/keys", "file:", "https://", "http://[::1", "data:,{}"],
)
def test_without_the_issuers_keys_there_is_no_start(url: str) -> None:
    said = refusal(sasl_oauthbearer_jwks_endpoint_url=url)
    assert f"the listener CLIENTS: {URL}={url!r}" in said


def test_unsigned_tokens_are_refused_in_every_form() -> None:
    handler = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    assert "is not served" in refusal(**GOOD, own_sasl_server_callback_handler_class=handler)
    module = f"{PACKAGE}OAuthBearerLoginModule required"
    option = 'unsecuredLoginStringClaim_sub="admin"'
    assert "unsigned tokens are not served" in refusal(
        **GOOD, own_sasl_jaas_config=f"{module} {option};"
    )
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required;"
    assert "must name" in refusal(**GOOD, own_sasl_jaas_config=plain)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clock_skew_seconds", "-1"),
        ("clock_skew_seconds", "x"),
        ("jwks_endpoint_refresh_ms", "0"),
        ("jwks_endpoint_retry_backoff_ms", "0"),
        ("jwks_endpoint_retry_backoff_max_ms", "-1"),
        ("sub_claim_name", " "),
        ("scope_claim_name", ""),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    said = refusal(**GOOD, **{f"own_sasl_oauthbearer_{name}": value})
    assert f"sasl.oauthbearer.{name.replace('_', '.')}" in said


@pytest.mark.parametrize("scheme", ["https", "ftp", "file"])
def test_an_address_has_no_password(scheme: str) -> None:
    said = refusal(sasl_oauthbearer_jwks_endpoint_url=f"{scheme}://me:secret@example.org/keys")
    assert "must not have a user or a password" in said
    assert "secret" not in said


def test_the_environment_sets_them_too() -> None:
    variable = "KVORUM_LISTENER_NAME_CLIENTS_OAUTHBEARER_SASL_OAUTHBEARER_EXPECTED_AUDIENCE"
    found = node_properties(None, [], {variable: "kafka"})
    assert found == {f"{OWN}sasl.oauthbearer.expected.audience": "kafka"}
