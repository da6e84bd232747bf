"""A connection that security ends: the command names the property to set, in one sentence."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.cli.token_backend import BrokerTokens
from kvorum.client.connection_hints import connection_hint
from kvorum.client.security import NONE, ClientSecurity, security_of
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.tls import TlsSettings, server_context
from tests.certificates import Authority
from tests.command import kvorum


class Listener:
    """Accepts connections, with or without TLS, and closes each after its first bytes."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return  # closed by the test
            # A refused handshake is what the tests are about; its words are the client's to find.
            with accepted, contextlib.suppress(OSError):
                if self._context is None:
                    accepted.recv(4)
                    continue
                with self._context.wrap_socket(accepted, server_side=True) as secured:
                    secured.recv(4)

    def close(self) -> None:
        # Only a shutdown wakes the thread that waits in accept.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=["plain", "tls", "certificates"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def listener(kind: str, authority: Authority) -> Iterator[Listener]:
    settings = TlsSettings(
        what="the listener",
        keystore=str(authority.server("server.pem")),
        truststore=str(authority.file),
        client_auth="required" if kind == "certificates" else "none",
    )
    made = Listener(None if kind == "plain" else server_context(settings))
    yield made
    made.close()


JAAS = 'sasl.jaas.config=x.ScramLoginModule required username="a" password="b";'
LOGIN = f"sasl.mechanism=SCRAM-SHA-512\n{JAAS}\n"
TRUST = "ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
WRONG = "ssl.truststore.type=PEM\nssl.truststore.location={other}\n"
OWN = "ssl.keystore.type=PEM\nssl.keystore.location={own}\n"
STRANGER = "ssl.keystore.type=PEM\nssl.keystore.location={stranger}\n"

SAID = [
    ("tls", "", "give --command-config FILE; if it is a controller, --bootstrap-controller"),
    ("tls", f"security.protocol=SASL_PLAINTEXT\n{LOGIN}", "set security.protocol=SASL_SSL"),
    ("tls", "security.protocol=SSL\n", "set ssl.truststore.type=PEM and ssl.truststore.location"),
    ("tls", f"security.protocol=SSL\n{WRONG}", "set ssl.truststore.location to the file of its CA"),
    ("tls", f"security.protocol=SSL\n{TRUST}", "security.protocol=SASL_SSL if it asks for a login"),
    ("certificates", f"security.protocol=SSL\n{TRUST}", "ssl.keystore.location"),
    ("certificates", f"security.protocol=SSL\n{TRUST}{STRANGER}", "ssl.keystore.location"),
    ("certificates", f"security.protocol=SSL\n{TRUST}{OWN}", "security.protocol=SASL_SSL if"),
    ("plain", f"security.protocol=SASL_SSL\n{TRUST}{LOGIN}", "security.protocol=SASL_PLAINTEXT if"),
    ("plain", f"security.protocol=SSL\n{TRUST}", "security.protocol=PLAINTEXT if it has no TLS"),
]


@pytest.mark.parametrize(("kind", "lines", "words"), SAID, indirect=["kind"])
def test_a_broker_that_ends_the_connection(
    listener: Listener, authority: Authority, tmp_path: Path, lines: str, words: str
) -> None:
    other = Authority(tmp_path / "other")
    file = tmp_path / "client.properties"
    names = {
        "{ca}": authority.file,
        "{other}": other.file,
        "{own}": authority.client("a"),
        "{stranger}": other.client("a"),
    }
    for name, path in names.items():
        lines = lines.replace(name, str(path))
    file.write_text(lines)
    options = ("--command-config", file) if lines else ()
    code, out, error = kvorum("topics", "list", "-b", listener.address, "--timeout", 5, *options)
    assert (code, out) == (3, ""), error
    assert words in error, error
    assert len(error.splitlines()) == 1 and "_ssl.c" not in error


def tls(**more: str) -> ClientSecurity:
    properties = {"security.protocol": "SSL"} | {k.replace("_", "."): v for k, v in more.items()}
    return security_of(properties, "a file")


def test_controllers_are_asked_with_certificates() -> None:
    def said(security: ClientSecurity, reason: str) -> str:
        return connection_hint(security, reason, is_controller=True)

    closed = "UNAVAILABLE: Socket closed"
    assert "if it asks for TLS, give --command-config FILE" in said(NONE, closed)
    in_clear = tls(kvorum_controllers_security_protocol="PLAINTEXT")
    assert said(in_clear, closed).endswith("set kvorum.controllers.security.protocol=SSL")
    assert "set ssl.keystore.type=PEM and ssl.keystore.location" in said(
        tls(), "the connection was lost: the other side asks for a certificate"
    )
    assert said(tls(), "the other side does not speak TLS") == (
        "; set kvorum.controllers.security.protocol=PLAINTEXT"
    )
    # A login says nothing to a controller, so that none is proposed.
    assert "SASL" not in said(tls(), "it closed the connection")


def test_what_has_nothing_to_do_with_security_has_no_hint() -> None:
    for reason in ("Connection refused", "timed out", "No route to host"):
        for security in (NONE, tls()):
            assert connection_hint(security, reason) == ""


def test_a_certificate_of_another_host_or_of_the_past_has_a_hint_of_its_own() -> None:
    begin = "the other side's certificate is not accepted: "
    mismatch = connection_hint(tls(), f"{begin}IP address mismatch, not valid for '10.0.0.1'")
    assert "ssl.endpoint.identification.algorithm" in mismatch
    assert "renew the certificate" in connection_hint(tls(), f"{begin}certificate has expired")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "set delegation.token.secret.key"),
        (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "without tokenauth in sasl.jaas.config"),
    ],
)
def test_a_refused_request_for_tokens_names_the_property(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, words: str
) -> None:
    class Connection:
        def ask(self, *_: object, **__: object) -> bytes:
            return b"\x00" + int(code).to_bytes(2, "big")

        def close(self) -> None:
            pass

    def connect(backend: BrokerTokens, *_: object) -> None:
        backend.connection = Connection()  # type: ignore[assignment]

    monkeypatch.setattr(BrokerTokens, "__init__", connect)
    status, _, error = kvorum("tokens", "create")
    assert status == 1 and code.name in error and words in error, error


def test_the_profile_that_gives_the_security_is_named_with_the_way_to_use_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVORUM_PROFILES", str(tmp_path / "profiles.yaml"))
    monkeypatch.delenv("KVORUM_PROFILE", raising=False)
    file = tmp_path / "prod.properties"
    file.write_text("security.protocol=SSL\n")
    assert kvorum("profile", "set", "prod", f"command_config={file}")[0] == 0
    plain = Listener(None)
    try:
        asked = ("topics", "list", "-b", plain.address, "--timeout", 5)
        code, _, said = kvorum(*asked)
        assert code == 3
        assert said.rstrip().endswith(
            f"; the security is that of profile prod (command_config={file}): "
            "--command-config '' uses none"
        )
        assert "profile" not in kvorum(*asked, "--command-config", "")[2]
        assert "profile" not in kvorum(*asked, "--command-config", file)[2]
    finally:
        plain.close()
