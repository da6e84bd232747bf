"""The listeners of a broker, and those of a controller for Kafka's tools, by Kafka's properties:
names, addresses, security protocols and SASL.

A listener's protocol is the one that `listener.security.protocol.map` gives its name. Properties of
one listener begin with `listener.name.NAME.`, in lower case, and override the broker's own.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import text_of
from kvorum.broker.sasl.core import oauthbearer, plain
from kvorum.broker.sasl.core.jaas import SCRAM_MODULE, parse_jaas, plain_users
from kvorum.broker.sasl.core.mechanisms import MECHANISMS, SaslSettings
from kvorum.broker.sasl.core.oauthbearer import OAuthBearerSettings
from kvorum.launch.config.oauthbearer import HANDLER, OF_OAUTH, oauthbearer_settings
from kvorum.metadata.configs.config_keys import MAX_CONNECTIONS, broker_value_problem
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.text import address_text, split_address, whole_number
from kvorum.runtime.tls import CLIENT_AUTH, VERSIONS, TlsSettings

Address = tuple[str, int]

PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL = "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"
CONTROLLER = "CONTROLLER"
PROTOCOLS = (PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL)

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
PREFIX = "listener.name."
_MECHANISMS = "sasl.enabled.mechanisms"
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
TLS_NAMES = (
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_NAME_CHECK = "ssl.endpoint.identification.algorithm"
_OF_MECHANISM = (_JAAS, _REAUTH)
SUFFIXES = frozenset(
    {
        _MECHANISMS,
        _REAUTH,
        MAX_CONNECTIONS,
        *TLS_NAMES,
        *OF_OAUTH,
        f"{oauthbearer.NAME.lower()}.{HANDLER}",
    }
    | {f"{oauthbearer.NAME.lower()}.{name}" for name in OF_OAUTH}
    | {f"{mechanism.lower()}.{name}" for mechanism in MECHANISMS for name in _OF_MECHANISM}
)
"""The names of a listener's properties behind `listener.name.NAME.`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of a broker.

    sasl, tls: None for a protocol without it.
    connections_max: of this listener; None for no limit of its own.
    principals: the rules from a client's certificate to its user.
    """

    name: str
    protocol: str
    listen: Address
    advertised: Address
    sasl: SaslSettings | None = None
    tls: TlsSettings | None = None
    principals: PrincipalRules = field(default_factory=PrincipalRules)
    connections_max: int | None = None


def parse_address(what: str, text: str, *, may_be_any: bool = False) -> Address:
    """Host and port of `host:port`. may_be_any: the host may be left out. Raises ConfigError with
    `what` and the text."""
    address = split_address(text)
    if address is None and may_be_any and text.startswith(":"):
        port = whole_number(text[1:])
        address = None if port is None else ("0.0.0.0", port)
    if address is None:
        raise ConfigError(f"{what}: {text!r} is not host:port")
    host, port = address
    if any(c.isspace() for c in host):
        raise ConfigError(f"{what}: {text!r} has a host with blanks")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ConfigError(f"{what}: {text!r} has a host that is no name: {error}") from error
    return host, port


def broker_listeners(
    *,
    listeners: str,
    advertised_listeners: str,
    protocol_map: str,
    inter_broker: str,
    controllers: Collection[str],
    broker: BrokerConfig,
    properties: Mapping[str, Any],
) -> tuple[Listener, ...]:
    """The listeners, the inter-broker listener first. Raises ConfigError.

    inter_broker: the name of that listener; "" for the only listener, or PLAINTEXT.
    controllers: the names of the controllers' listeners.
    properties: all of the broker's, for those of single listeners.
    """
    bound = _addresses("listeners", listeners, may_be_any=True)
    advertised = _addresses("advertised.listeners", advertised_listeners)
    unknown = sorted(set(advertised) - set(bound))
    if unknown:
        raise ConfigError(
            f"advertised.listeners={advertised_listeners!r} names {', '.join(unknown)}, which "
            f"listeners={listeners!r} lacks"
        )
    protocols = listener_protocols(protocol_map)
    _check_served(bound, protocols, controllers)
    first = _inter_broker(inter_broker, {name: protocols[name] for name in bound})
    _check_names(properties, bound, controllers)
    found = [
        _listener(
            OwnProperties(name, broker, properties),
            protocols[name],
            address,
            _advertised(name, address, advertised.get(name)),
        )
        for name, address in bound.items()
    ]
    return tuple(sorted(found, key=lambda listener: listener.name != first))


def _listener(own: OwnProperties, protocol: str, address: Address, advertised: Address) -> Listener:
    return Listener(
        name=own.name,
        protocol=protocol,
        listen=address,
        advertised=advertised,
        sasl=_sasl(own) if protocol in (SASL_PLAINTEXT, SASL_SSL) else None,
        tls=tls_settings(own) if protocol in (SSL, SASL_SSL) else None,
        principals=PrincipalRules(own.get("ssl.principal.mapping.rules")),
        connections_max=own.connections_max(),
    )


def controller_addresses(what: str, text: str, names: Sequence[str]) -> dict[str, Address]:
    """The addresses of a controller's listeners in the property `what`. names: those that a
    controller may have; it must have the first. Raises ConfigError."""
    found = _addresses(what, text)
    if names[0] not in found or not set(found) <= set(names):
        raise ConfigError(
            f"{what}={text!r} must be one listener of the form {names[0]}://host:port, and further "
            "ones only of names in controller.listener.names"
        )
    return found


def tool_listeners(
    bound: Mapping[str, Address],
    advertised: Mapping[str, Address],
    protocol_map: str,
    defaults: BrokerConfig,
    properties: Mapping[str, Any],
) -> tuple[Listener, ...]:
    """A controller's listeners for Kafka's tools. defaults: has the node's own `ssl_*`. Raises
    ConfigError."""
    protocols = listener_protocols(protocol_map)
    _check_served(bound, protocols, ())
    for name in bound:
        prefix = f"{PREFIX}{name.lower()}."
        own = {key: value for key, value in properties.items() if key.startswith(prefix)}
        _check_names(own, bound, ())
    return tuple(
        _listener(
            OwnProperties(name, defaults, properties),
            protocols[name],
            address,
            _advertised(name, address, advertised.get(name)),
        )
        for name, address in bound.items()
    )


def of_listeners(properties: Mapping[str, Any]) -> frozenset[str]:
    """The properties of single listeners among all of a node's."""
    return frozenset(name for name in properties if name.startswith(PREFIX))


def _addresses(what: str, text: str, *, may_be_any: bool = False) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{what}={text!r}: {part!r} has not the form NAME://host:port, with a name in "
                "capital letters"
            )
        if name in found:
            raise ConfigError(f"{what}={text!r} names {name} twice")
        found[name] = parse_address(what, address, may_be_any=may_be_any)
    return found


def listener_protocols(text: str) -> dict[str, str]:
    """The protocols by listener name of `listener.security.protocol.map`. Raises ConfigError."""
    what = "listener.security.protocol.map"
    protocols = dict(zip(PROTOCOLS, PROTOCOLS, strict=True))
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = part.partition(":")
        if not separator or protocol not in PROTOCOLS:
            raise ConfigError(
                f"{what}={text!r}: {part!r} has not the form NAME:PROTOCOL, with one of "
                f"{', '.join(PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _check_served(
    bound: Mapping[str, Address], protocols: Mapping[str, str], controllers: Collection[str]
) -> None:
    if wrong := [name for name in bound if name in controllers]:
        raise ConfigError(
            f"listeners has {wrong[0]}, the listener of controllers; a node is a broker or a "
            "controller, each with a file of its own"
        )
    missing = [name for name in bound if name not in protocols]
    if missing:
        raise ConfigError(
            f"listener.security.protocol.map has no protocol for the listener {missing[0]}: add "
            f"{missing[0]}:PLAINTEXT or another of {', '.join(PROTOCOLS)}"
        )


def _inter_broker(asked: str, protocols: Mapping[str, str]) -> str:
    name = asked or (next(iter(protocols)) if len(protocols) == 1 else PLAINTEXT)
    if name not in protocols:
        raise ConfigError(
            f"inter.broker.listener.name={name}: listeners has {', '.join(protocols) or 'none'}; "
            "name the one that the brokers use among themselves"
        )
    return name


def _advertised(name: str, listen: Address, given: Address | None) -> Address:
    address = given or listen
    what = "listeners" if given is None else "advertised.listeners"
    said = f"{what}={name}://{address_text(*address)}"
    check_reachable(said, name, address, "clients and brokers")
    return address


def check_reachable(said: str, name: str, address: Address, others: str) -> None:
    """Raise ConfigError for the address of all interfaces, to which nobody can connect.

    said: the property and its value.
    others: those who would try, for the message.
    """
    host, port = address
    if is_unspecified(host):
        raise ConfigError(
            f"{said}: {others} cannot connect to {host}; give the node's own host in "
            f"advertised.listeners, such as {name}://{socket.gethostname() or 'HOST'}:{port}"
        )


def is_unspecified(host: str) -> bool:
    """True for the address of all interfaces, 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_names(
    properties: Mapping[str, Any], bound: Mapping[str, Address], controllers: Collection[str]
) -> None:
    """Raise ConfigError for a listener's property that has a name which nothing reads."""
    for name in sorted(of_listeners(properties)):
        listener, _, suffix = name.removeprefix(PREFIX).partition(".")
        if listener.upper() in controllers:
            continue  # see node_links
        if listener.upper() not in bound:
            raise ConfigError(f"{name}: listeners has no {listener.upper()}")
        if suffix not in SUFFIXES:
            raise ConfigError(
                f"{name}: {suffix} is no property of a listener; there are "
                f"{', '.join(sorted(SUFFIXES))}"
            )


class OwnProperties:
    """The properties of one listener: its own, else the node's. node: a dataclass of those."""

    def __init__(self, name: str, node: object, properties: Mapping[str, Any]) -> None:
        self.name = name
        self.prefix = f"{PREFIX}{name.lower()}."
        self._node = node
        self._properties = properties

    def get(self, name: str) -> str:
        """The value as text; of a name that only a listener has, "" by default."""
        default = getattr(self._node, name.replace(".", "_").replace("-", "_"), "")
        return text_of(self._properties.get(f"{self.prefix}{name}", default))

    def connections_max(self) -> int | None:
        """The listener's own `max.connections`; None without one. Raises ConfigError."""
        name = f"{self.prefix}{MAX_CONNECTIONS}"
        if name not in self._properties:
            return None
        problem = broker_value_problem(name, text_of(self._properties[name]))
        if problem is not None:
            raise ConfigError(problem)
        return int(text_of(self._properties[name]))

    def of_mechanism(self, mechanism: str, name: str) -> str:
        """A mechanism's own value, else the listener's."""
        own = self._properties.get(f"{self.prefix}{mechanism.lower()}.{name}")
        return self.get(name) if own is None else text_of(own)


def _sasl(own: OwnProperties) -> SaslSettings:
    mechanisms = _list(own.get(_MECHANISMS))
    unknown = [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]
    if unknown or not mechanisms:
        said = f"{unknown[0]} is not served" if unknown else "no mechanism is enabled"
        raise ConfigError(
            f"the listener {own.name}: {said}; set {_MECHANISMS} to some of {', '.join(MECHANISMS)}"
        )
    users: dict[str, str] = {}
    oauth: OAuthBearerSettings | None = None
    session_ms = {}
    for mechanism in mechanisms:
        name = f"{own.prefix}{mechanism.lower()}.{_JAAS}"
        value = own.of_mechanism(mechanism, _JAAS)
        if mechanism == plain.NAME:
            if not value:
                raise ConfigError(f"{name} is missing: it has the users of PLAIN")
            users = plain_users(name, value)
        elif mechanism == oauthbearer.NAME:
            oauth = oauthbearer_settings(own)
        elif value and parse_jaas(name, value).module != SCRAM_MODULE:
            raise ConfigError(f"{name} must name {SCRAM_MODULE}")
        session_ms[mechanism] = _session_ms(own.prefix, own.of_mechanism(mechanism, _REAUTH))
    return SaslSettings(
        mechanisms=mechanisms,
        plain_users=users,
        session_ms=session_ms,
        oauth=oauth,
    )


def tls_settings(own: OwnProperties, *, is_client: bool = False) -> TlsSettings:
    """TLS of a listener, or of a node that connects to it, which need not have a certificate.
    Raises ConfigError."""
    what = f"calls to the listener {own.name}" if is_client else f"the listener {own.name}"
    for kind in ("keystore", "truststore"):
        is_file = bool(own.get(f"ssl.{kind}.location"))
        if is_file and own.get(f"ssl.{kind}.type") != "PEM":
            raise ConfigError(
                f"{what}: ssl.{kind}.type={own.get(f'ssl.{kind}.type')} is not served; make a PEM "
                f"file (openssl pkcs12 -nodes -in FILE.p12) and set ssl.{kind}.type=PEM"
            )
    chain, key = own.get("ssl.keystore.certificate.chain"), own.get("ssl.keystore.key")
    has_file = bool(own.get("ssl.keystore.location"))
    is_lacking = not (key or has_file or is_client)
    if bool(chain) != bool(key) or (has_file and key) or is_lacking:
        raise ConfigError(
            f"{what} needs a certificate: either ssl.keystore.location, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    client_auth = own.get("ssl.client.auth")
    if client_auth not in CLIENT_AUTH:
        raise ConfigError(
            f"{what}: ssl.client.auth={client_auth!r} is none of {', '.join(CLIENT_AUTH)}"
        )
    algorithm = own.get(_NAME_CHECK).lower()
    if algorithm not in ("", "https"):
        raise ConfigError(
            f"{what}: {_NAME_CHECK}={algorithm!r} must be https, or empty for certificates of any "
            "name"
        )
    versions = _list(own.get("ssl.enabled.protocols"))
    if not versions or not set(versions) <= set(VERSIONS):
        raise ConfigError(
            f"{what}: ssl.enabled.protocols={','.join(versions)!r} must have some of "
            f"{', '.join(VERSIONS)}, and no other"
        )
    return TlsSettings(
        what=what,
        listener=own.name,
        keystore=own.get("ssl.keystore.location"),
        certificate_chain=chain,
        key=key,
        key_password=own.get("ssl.key.password"),
        truststore=own.get("ssl.truststore.location"),
        trusted=own.get("ssl.truststore.certificates"),
        client_auth=client_auth,
        versions=versions,
        checks_name=algorithm == "https",
        allows_other_name=_flag(own, "ssl.allow.dn.changes"),
        allows_fewer_hosts=_flag(own, "ssl.allow.san.changes"),
    )


def _flag(own: OwnProperties, name: str) -> bool:
    text = own.get(name).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"the listener {own.name}: {name}={text!r} must be true or false")
    return text == "true"


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _session_ms(prefix: str, text: str) -> int:
    value = whole_number(text)
    if value is None:
        raise ConfigError(f"{prefix}{_REAUTH}={text!r} is no number of milliseconds, 0 or more")
    return value
