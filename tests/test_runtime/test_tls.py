"""The errors of certificates and keys that cannot be used name the property to set."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.tls import TlsSettings, server_context
from tests.certificates import Authority

PASSWORD = "of-the-key"


@pytest.fixture(params=["BestAvailable", "TraditionalOpenSSL"])
def encrypted(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An encrypted key and its certificate, as PEM texts, in both of the usual forms."""
    pem = Authority(tmp_path).server("a.pem").read_bytes()
    form = serialization.PrivateFormat.PKCS8
    if request.param == "TraditionalOpenSSL":
        form = serialization.PrivateFormat.TraditionalOpenSSL
    key = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        form,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    return key.decode(), pem[pem.index(b"-----BEGIN CERTIFICATE") :].decode()


def test_an_encrypted_key_asks_for_its_password_by_the_propertys_name(
    encrypted: tuple[str, str], tmp_path: Path
) -> None:
    key, chain = encrypted
    file = tmp_path / "node.pem"
    file.write_text(key + chain)

    def load(password: str) -> list[str]:
        said = []
        for given in ({"keystore": str(file)}, {"key": key, "certificate_chain": chain}):
            settings = TlsSettings(what="the listener A", key_password=password, **given)
            try:
                server_context(settings)
            except ConfigError as error:
                said.append(str(error))
        return said

    assert load(PASSWORD) == []
    missing = load("")
    assert len(missing) == 2 and all(
        text.startswith("the listener A: ")
        and text.endswith("the key is encrypted; set ssl.key.password to its password")
        for text in missing
    ), missing
    wrong = load("of-another-key")
    assert len(wrong) == 2
    assert all(text.endswith("ssl.key.password is not its password") for text in wrong), wrong
    assert not any("of-another-key" in text for text in wrong)


def test_an_unusable_file_is_told_in_words_and_not_by_a_line_of_openssl(tmp_path: Path) -> None:
    pem = Authority(tmp_path).server("a.pem").read_text()
    begin = pem.index("-----BEGIN CERTIFICATE")
    other = Authority(tmp_path / "b").server("b.pem").read_text()
    file = tmp_path / "file.pem"
    cut = "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"
    pair = "no certificate and key in {}: it must hold a private key and its certificate, both in"
    trusted = "no certificates in {}: it must hold certificates in PEM form"
    for text, property_name, said in (
        *((text, "keystore", pair) for text in ("", "x", pem[:begin], pem[begin:], cut)),
        (other[: other.index("-----BEGIN CERT")] + pem[begin:], "keystore", "key is not the cert"),
        *((text, "truststore", trusted) for text in ("", "x", pem[:begin], cut)),
    ):
        file.write_text(text)
        given = {"keystore": str(tmp_path / "a.pem"), property_name: str(file)}
        with pytest.raises(ConfigError) as refused:
            server_context(TlsSettings(what="the listener A", **given))
        assert said.format(file) in str(refused.value)
    with pytest.raises(ConfigError, match="certificates: it must hold certificates in PEM form"):
        given = {"keystore": str(tmp_path / "a.pem"), "trusted": "x"}
        server_context(TlsSettings(what="the listener A", **given))
