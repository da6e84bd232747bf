"""How commands prove who they are: `--command-config`, a file with Kafka's client properties.

`security.protocol`, `sasl.mechanism`, `sasl.jaas.config` (username, password and, for a delegation
token, tokenauth="true"), and PEM files
under `ssl.truststore.location` and `ssl.keystore.location`. One command has one security; it is
kept here, since connections are opened in many places and threads.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.profiles import ProfileOption, profile_value
from kvorum.runtime.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from kvorum.runtime.rpc import Channels
    from kvorum.runtime.tls import TlsSettings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OF_SECURITY = ("ssl.", "sasl.", "security.", "kvorum.")
_OF_CONTROLLERS = "kvorum.controllers.security.protocol"
_KNOWN = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.type",
    "ssl.truststore.location", "ssl.keystore.type", "ssl.keystore.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", _OF_CONTROLLERS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """context: None without TLS; tls: what it was made of. controllers: their protocol, if there
    is TLS. mechanism: "" without SASL. is_token: user and password are those of a delegation
    token."""

    context: ssl.SSLContext | None = None
    tls: TlsSettings | None = None
    controllers: str = "SSL"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket with TLS on it, if there is TLS. Raises OSError."""
        return (
            sock if self.context is None else self.context.wrap_socket(sock, server_hostname=host)
        )

    def channels(self) -> Channels:
        """The channels to controllers. They know no login: a certificate says who calls."""
        from kvorum.runtime.rpc import Channels, rpc_caller

        if self.tls is None or self.controllers == "PLAINTEXT":
            return Channels()
        return Channels(tls=rpc_caller(self.tls))

    def nonce(self) -> str:
        """Of one login."""
        return secrets.token_hex(24)


NONE = ClientSecurity()
_GIVEN = "kvorum.command_config"
_current = NONE


def current_security() -> ClientSecurity:
    """The security of the command that runs."""
    return _current


def security_of(properties: Mapping[str, str], where: str) -> ClientSecurity:
    """The security of client properties. Raises ConfigError, which names the file and no secret."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"{where}: security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}"
        )
    controllers = properties.get(_OF_CONTROLLERS, "SSL").upper()
    if controllers not in ("PLAINTEXT", "SSL"):
        raise ConfigError(
            f"{where}: {_OF_CONTROLLERS}={controllers!r} is neither SSL nor PLAINTEXT"
        )
    tls = _tls(properties, where) if protocol.endswith("SSL") else None
    context = None
    if tls is not None:
        from kvorum.runtime.tls import client_context

        context = client_context(tls)
    if not protocol.startswith("SASL"):
        return ClientSecurity(context=context, tls=tls, controllers=controllers)
    from kvorum.broker.sasl.jaas import parse_jaas
    from kvorum.broker.sasl.mechanisms import MECHANISMS

    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{where}: sasl.mechanism={mechanism!r} is none of {', '.join(MECHANISMS)}"
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
        raise ConfigError(f"{path}: cannot be read: {error}") from error
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


def _use(context: click.Context, _: click.Parameter, path: Any) -> None:
    if not path:
        return
    if context.resilient_parsing:
        # A completion connects only if it needs names.
        context.meta[_GIVEN] = path
    else:
        _use_file(context, path)


def use_for_completion(context: click.Context) -> None:
    """Use the security of a command line that is being completed, until the context is closed.
    Raises click.UsageError."""
    path = context.meta.get(_GIVEN) or profile_value(context, "command_config")
    if path:
        _use_file(context, path)


def _use_file(context: click.Context, path: str) -> None:
    global _current
    try:
        _current = security_of(read_properties(path), path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    context.call_on_close(_forget)


def _forget() -> None:
    global _current
    _current = NONE


#: --command-config of a command that talks to brokers.
command_config_option = click.option(
    "--command-config",
    metavar="FILE",
    cls=ProfileOption,
    expose_value=False,
    callback=_use,
    help="File with Kafka's client properties: security.protocol, sasl.*, ssl.* (PEM).",
)
