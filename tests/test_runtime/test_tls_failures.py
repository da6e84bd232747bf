"""The log says in plain words what a client did that a TLS listener refused."""

from __future__ import annotations

import dataclasses
import ssl
from pathlib import Path

import pytest

from kvorum.runtime.tls import TlsSettings, client_context, client_failure_text, server_context
from tests.certificates import Authority

API_VERSIONS = bytes.fromhex("00000013001200000000000100096b636174")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "foreign")


@pytest.fixture
def server(authority: Authority) -> TlsSettings:
    return TlsSettings(
        what="the listener CLIENTS",
        keystore=str(authority.server("server.pem")),
        truststore=str(authority.file),
        client_auth="required",
    )


def a_client(authority: Authority, certificate: Path | None = None) -> TlsSettings:
    return TlsSettings(
        what="the client",
        keystore="" if certificate is None else str(certificate),
        truststore=str(authority.file),
        checks_name=False,
    )


def refused(server: TlsSettings, client: TlsSettings | bytes) -> str:
    """The words for the end of the handshake of a server with this client, or with these bytes."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server_context(server).wrap_bio(to_server, to_client, server_side=True)
    theirs = None
    if isinstance(client, bytes):
        to_server.write(client)
    else:
        theirs = client_context(client).wrap_bio(to_client, to_server)
    for _ in range(10):
        for side in filter(None, (theirs, ours)):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                if side is ours:
                    return client_failure_text(error)
    pytest.fail("the server took the client")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", API_VERSIONS, b"\x80" * 64])
def test_clear_text_to_a_listener_with_tls(server, data):
    text = refused(server, data)
    assert text.startswith("the client spoke clear text, or another protocol, to a listener with")
    assert "security.protocol=SSL or SASL_SSL" in text


def test_no_certificate(server, authority):
    assert "showed no certificate, and ssl.client.auth" in refused(server, a_client(authority))


def test_a_certificate_of_an_unknown_ca(server, authority, foreign):
    client = a_client(authority, foreign.client("Mallory"))
    assert "of a CA that the truststore of this listener lacks" in refused(server, client)


def test_an_expired_certificate(server, authority):
    client = a_client(authority, authority.server("expired.pem", is_expired=True))
    assert refused(server, client) == "the client's certificate has expired"


def test_no_version_in_common(server, authority):
    newest = dataclasses.replace(server, versions=("TLSv1.3",))
    client = dataclasses.replace(a_client(authority), versions=("TLSv1.2",))
    assert "offered no version of TLS that is served here" in refused(newest, client)


def test_a_client_that_does_not_know_this_nodes_ca(server, foreign):
    text = refused(server, a_client(foreign))
    assert text.startswith("the client does not accept this node's certificate")


def test_a_client_that_leaves():
    text = "the client closed the connection during the TLS handshake"
    assert client_failure_text(ssl.SSLEOFError(8, "EOF occurred")) == text
    assert client_failure_text(ConnectionResetError(104, "Connection reset by peer")) == text
