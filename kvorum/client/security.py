"""How a client proves who it is: a file with Kafka's client properties.

`security.protocol`, `sasl.mechanism`, `sasl.jaas.config` (username, password and, for a delegation
token, tokenauth="true"), or a file with an issuer's token for OAUTHBEARER, and PEM files under
`ssl.truststore.location` and `ssl.keystore.location`. Such clients are the command line, the
console and the chaos lab.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import reading_problem

if TYPE_CHECKING:
    import ssl

    from kvorum.runtime.http2.rpc import Channels
    from kvorum.runtime.tls import TlsSettings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OF_CONTROLLERS = "kvorum.controllers.security.protocol"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_KNOWN = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class",
    _TOKEN_URL, "ssl.truststore.type",
    "ssl.truststore.location", "ssl.keystore.type", "ssl.keystore.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", OF_CONTROLLERS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How one client connects and logs in.

    context: of TLS, made from `tls`; both are None without TLS.
    controllers: the protocol of connections to controllers, SSL or PLAINTEXT; without TLS it is not
        used.
    mechanism: "" without SASL.
    is_token: user and password are those of a delegation token.
    """

    context: ssl.SSLContext | None = None
    tls: TlsSettings | None = None
    controllers: str = "SSL"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False

    @property
    def protocol(self) -> str:
        """The protocol of the listener that such a client connects to, by Kafka's name."""
        transport = "PLAINTEXT" if self.context is None else "SSL"
        return f"SASL_{transport}" if self.mechanism else transport

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket with TLS on it, if there is TLS. Raises OSError."""
        return (
            sock if self.context is None else self.context.wrap_socket(sock, server_hostname=host)
        )

    def channels(self) -> Channels:
        """The channels to controllers. Controllers serve no SASL; a certificate names the user."""
        from kvorum.runtime.http2.rpc import Channels, rpc_caller

        if self.tls is None or self.controllers == "PLAINTEXT":
            return Channels()
        return Channels(tls=rpc_caller(self.tls))

    def nonce(self) -> str:
        """A nonce for one login."""
        return secrets.token_hex(24)


NONE = ClientSecurity()


def security_of(properties: Mapping[str, str], where: str) -> ClientSecurity:
    """The security of client properties. Raises ConfigError, which names the file and no secret."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"{where}: security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}"
        )
    controllers = properties.get(OF_CONTROLLERS, "SSL").upper()
    if controllers not in ("PLAINTEXT", "SSL"):
        raise ConfigError(f"{where}: {OF_CONTROLLERS}={controllers!r} is neither SSL nor PLAINTEXT")
    tls = _tls(properties, where) if protocol.endswith("SSL") else None
    context = None
    if tls is not None:
        from kvorum.runtime.tls import client_context

        context = client_context(tls)
    if not protocol.startswith("SASL"):
        return ClientSecurity(context=context, tls=tls, controllers=controllers)
    from kvorum.broker.sasl.core import oauthbearer
    from kvorum.broker.sasl.core.jaas import parse_jaas
    from kvorum.broker.sasl.core.mechanisms import MECHANISMS

    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{where}: sasl.mechanism={mechanism!r} is none of {', '.join(MECHANISMS)}"
        )
    if mechanism == oauthbearer.NAME:
        place, token = _issued_token(properties, where)
        return ClientSecurity(
            context=context,
            tls=tls,
            controllers=controllers,
            mechanism=mechanism,
            user=f"of the token in {place}",
            password=token,
        )
    options = parse_jaas(
        f"{where}: sasl.jaas.config", properties.get("sasl.jaas.config", "")
    ).options
    if not options.get("username") or not options.get("password"):
        raise ConfigError(f"{where}: sasl.jaas.config needs username and password")
    return ClientSecurity(
        context=context,
        tls=tls,
        controllers=controllers,
        mechanism=mechanism,
        user=options["username"],
        password=options["password"],
        is_token=options.get("tokenauth", "").lower() == "true",
    )


def _issued_token(properties: Mapping[str, str], where: str) -> tuple[str, str]:
    """The file with the token for OAUTHBEARER, and the token."""
    url = properties.get(_TOKEN_URL, "")
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path:
        raise ConfigError(
            f"{where}: OAUTHBEARER needs {_TOKEN_URL}=file:///PATH, a file with the issuer's "
            f"token; {url!r} is none. Fetching a token from an issuer is not served"
        )
    path = unquote(parts.path)
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{where}: {_TOKEN_URL}: {path} cannot be read: {reading_problem(error)}"
        ) from error
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise ConfigError(f"{where}: {_TOKEN_URL}: {path} holds no token: it must be one word")
    return path, token


def _tls(properties: Mapping[str, str], where: str) -> TlsSettings:
    for kind in ("truststore", "keystore"):
        is_pem = properties.get(f"ssl.{kind}.type", "JKS") == "PEM"
        if properties.get(f"ssl.{kind}.location") and not is_pem:
            raise ConfigError(f"{where}: ssl.{kind}.type must be PEM; no other is read")
    from kvorum.runtime.tls import TlsSettings

    return TlsSettings(
        what=where,
        keystore=properties.get("ssl.keystore.location", ""),
        key_password=properties.get("ssl.key.password", ""),
        truststore=properties.get("ssl.truststore.location", ""),
        # Empty is Kafka's way to switch the check of the name off.
        checks_name=properties.get("ssl.endpoint.identification.algorithm") != "",
    )


def read_properties(path: str) -> dict[str, str]:
    """A file in Java's properties format: `key=value`, comments, lines that go on behind a
    backslash. Raises ConfigError for a file that cannot be read, and for unknown keys."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reading_problem(error)}") from error
    found = {}
    for line in text.replace("\\\n", "").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise ConfigError(f"{path}: a line without `=`; it must be key=value")
        found[key.strip()] = value.strip()
    # A client's file may have settings of its own; those of security must be known.
    unknown = sorted(
        key
        for key in found
        if key.startswith(("ssl.", "sasl.", "security.", "kvorum.")) and key not in _KNOWN
    )
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]} is not served; there are {', '.join(_KNOWN)}")
    return found
