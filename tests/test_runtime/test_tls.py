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
