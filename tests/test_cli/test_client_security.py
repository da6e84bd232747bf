"""--command-config: Kafka's client properties, and the errors of bad files."""

from __future__ import annotations

import pytest

from kvorum.cli.tokens import client_jaas
from kvorum.client.librdkafka import login_settings
from kvorum.client.security import read_properties, security_of
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum

JAAS = 'x.PlainLoginModule required username="alice" password="secret";'


def test_a_files_lines_may_go_on_and_other_keys_are_the_clients(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(f"# a comment\nacks = all\nsasl.jaas.config={JAAS[:20]}\\\n{JAAS[20:]}\n")
    assert read_properties(str(file)) == {"acks": "all", "sasl.jaas.config": JAAS}


def test_user_and_password_are_read_and_not_shown():
    found = security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": JAAS,
        },
        "file",
    )
    assert (found.mechanism, found.user, found.password) == ("PLAIN", "alice", "secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("security.protocol=TLS", "'TLS' is none of PLAINTEXT"),
        ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism='' is none of PLAIN"),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x required;",
            "needs username and password",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=/x.jks",
            "ssl.truststore.type must be PEM",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere",
            "no certificates in /nowhere: No such file",
        ),
        ("ssl.cipher.suites=x", "ssl.cipher.suites is not served"),
        ("security.protocol", "must be key=value"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_asked(tmp_path, lines, said):
    file = tmp_path / "client.properties"
    file.write_text(lines)
    code, out, err = kvorum("topics", "list", "--command-config", file)
    assert (code, out) == (2, "") and said in err and str(file) in err


def oauth(url: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
    }  # fmt: skip


def test_an_issuers_token_is_read_from_a_file_and_not_shown(tmp_path):
    file = tmp_path / "a token"
    file.write_text("header.claims.signature\n")
    found = security_of(oauth(file.as_uri()), "f")
    assert (found.mechanism, found.password) == ("OAUTHBEARER", "header.claims.signature")
    assert "header" not in repr(found)
    settings = login_settings(found)
    assert (settings["security.protocol"], settings["sasl.mechanism"]) == (
        "SASL_PLAINTEXT", "OAUTHBEARER",
    )  # fmt: skip
    assert settings["oauth_cb"]("")[0] == "header.claims.signature"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "needs sasl.oauthbearer.token.endpoint.url=file:///PATH"),
        ("https://issuer/token", "Fetching a token from an issuer is not served"),
        ("file:///nowhere/token", "/nowhere/token cannot be read"),
        ("file:///dev/null", "/dev/null holds no token"),
    ],
)
def test_a_bad_place_of_a_token_is_named(url, said):
    with pytest.raises(ConfigError, match=said):
        security_of(oauth(url), "f")


def test_a_delegation_token_is_said_to_be_one():
    jaas = client_jaas("id", "hmac")
    properties = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas,
    }  # fmt: skip
    found = security_of(properties, "f")
    assert (found.user, found.password, found.is_token) == ("id", "hmac", True)
    properties["sasl.jaas.config"] = jaas.replace("true", "false")
    assert not security_of(properties, "f").is_token
    with pytest.raises(ConfigError, match="librdkafka cannot log in with a delegation token"):
        login_settings(found)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(str(tmp_path / "none"))
