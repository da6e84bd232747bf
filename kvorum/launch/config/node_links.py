"""The links among nodes: the controllers' listener, and the brokers' logins at each other, by
Kafka's properties.

A broker does not have the controllers' listener. It reads that listener's properties in order to
connect to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.network.peer_security import NO_SECURITY, PeerSecurity
from kvorum.broker.sasl.core import plain, scram
from kvorum.broker.sasl.core.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from kvorum.launch.config.listeners import (
    CONTROLLER,
    PLAINTEXT,
    PREFIX,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    TLS_NAMES,
    Listener,
    OwnProperties,
    listener_protocols,
    of_listeners,
    tls_settings,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings

_NAMES = "controller.listener.names"
_MECHANISM = "sasl.mechanism.inter.broker.protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProperties:
    """TLS of a controller, for its listener if that has no properties of its own."""

    ssl_keystore_type: str = "JKS"
    ssl_keystore_location: str = ""
    ssl_keystore_certificate_chain: str = field(default="", repr=False)
    ssl_keystore_key: str = field(default="", repr=False)
    ssl_key_password: str = field(default="", repr=False)
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str = ""
    ssl_truststore_certificates: str = field(default="", repr=False)
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_allow_dn_changes: bool = False
    ssl_allow_san_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerListener:
    """The listener of the controllers.

    name, protocol: PLAINTEXT or SSL.
    server: TLS of a controller that listens.
    client: TLS of a node that connects to it. Both are None in clear text.
    """

    name: str = CONTROLLER
    protocol: str = PLAINTEXT
    server: TlsSettings | None = None
    client: TlsSettings | None = None
    principals: PrincipalRules = field(default_factory=PrincipalRules)


def controller_listener_names(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the controllers' listeners, that for nodes first; on the others they serve
    Kafka's tools. Raises ConfigError."""
    text = str(properties.get(_NAMES, CONTROLLER))
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or len(set(names)) != len(names):
        raise ConfigError(
            f"{_NAMES}={text!r} must be the name of the listener on which controllers serve nodes, "
            "and after it those of the listeners on which they serve Kafka's tools"
        )
    return names


def controller_listener_name(properties: Mapping[str, Any]) -> str:
    """The name of the listener on which controllers serve nodes. Raises ConfigError."""
    return controller_listener_names(properties)[0]


def of_controllers(given: Mapping[str, Any]) -> frozenset[str]:
    """The properties of the controllers' listeners alone."""
    prefixes = tuple(f"{PREFIX}{name.lower()}." for name in controller_listener_names(given))
    return frozenset(name for name in of_listeners(given) if name.startswith(prefixes))


def controller_listener(
    properties: Mapping[str, Any], protocol_map: str, defaults: object, *, listens: bool
) -> ControllerListener:
    """The controllers' listener.

    defaults: has the node's own `ssl_*`.
    listens: the node is a controller.
    Raises ConfigError.
    """
    name = controller_listener_name(properties)
    protocols = listener_protocols(protocol_map)
    protocol = protocols.get(name, PLAINTEXT if name == CONTROLLER else "")
    if not protocol:
        raise ConfigError(
            f"listener.security.protocol.map has no protocol for the listener {name} of the "
            f"controllers: add {name}:SSL or {name}:PLAINTEXT"
        )
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        raise ConfigError(
            f"listener.security.protocol.map gives the listener {name} of the controllers the "
            f"protocol {protocol}: controllers know each other by certificates and serve no SASL; "
            f"set {name}:SSL, with ssl.client.auth=required"
        )
    own = OwnProperties(name, defaults, properties)
    _check_names(own.prefix, properties)
    if protocol != SSL:
        return ControllerListener(name=name)
    return ControllerListener(
        name=name,
        protocol=protocol,
        server=tls_settings(own) if listens else None,
        client=tls_settings(own, is_client=True),
        principals=PrincipalRules(own.get("ssl.principal.mapping.rules")),
    )


def open_controllers(listener: ControllerListener) -> str:
    """A sentence for the log of a node with an authorizer whose controllers ask nobody for a
    certificate; "" if they do, as far as this node's file tells."""
    server = listener.server
    if listener.protocol == SSL and (server is None or server.client_auth != "none"):
        return ""
    name = listener.name
    what = "in clear text" if listener.protocol != SSL else "without a client's certificate"
    return (
        f"authorizer.class.name is set, and the listener {name} of the controllers takes callers "
        f"{what}: everybody who reaches it may change the metadata, ACLs too; set "
        f"listener.security.protocol.map={name}:SSL and "
        f"{PREFIX}{name.lower()}.ssl.client.auth=required"
    )


def _check_names(prefix: str, properties: Mapping[str, Any]) -> None:
    for name in sorted(properties):
        if name.startswith(prefix) and name.removeprefix(prefix) not in TLS_NAMES:
            raise ConfigError(
                f"{name}: the controllers' listener has TLS and no other properties; there are "
                f"{', '.join(sorted(TLS_NAMES))}"
            )


def inter_broker_name(listener_name: str, protocol: str) -> str:
    """The name of the brokers' own listener by Kafka's two properties for it; "" if neither is
    given. Raises ConfigError."""
    if listener_name and protocol:
        raise ConfigError(
            f"inter.broker.listener.name={listener_name} and security.inter.broker.protocol="
            f"{protocol} name one thing; give only one of them"
        )
    # As in Kafka, the protocol stands for the listener of that name.
    return listener_name or protocol


def peer_security(
    listener: Listener, mechanism: str, defaults: object, properties: Mapping[str, Any]
) -> PeerSecurity:
    """The security of this broker's connections to other brokers.

    listener: the inter-broker listener.
    mechanism: sasl.mechanism.inter.broker.protocol.
    Raises ConfigError.
    """
    own = OwnProperties(listener.name, defaults, properties)
    tls = tls_settings(own, is_client=True) if listener.tls is not None else None
    if listener.sasl is None:
        return NO_SECURITY if tls is None else PeerSecurity(tls=tls)
    said = f"{_MECHANISM}={mechanism or '(none)'}"
    served = [name for name in (plain.NAME, *scram.MECHANISMS) if name in listener.sasl.mechanisms]
    if mechanism not in served:
        raise ConfigError(
            f"{said}: brokers log in at the listener {listener.name} of the others with one of its "
            f"mechanisms, {', '.join(served) or 'of which brokers can use none'}"
        )
    name = f"{PREFIX}{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    value = own.of_mechanism(mechanism, "sasl.jaas.config")
    entry = parse_jaas(name, value) if value else None
    module = PLAIN_MODULE if mechanism == plain.NAME else SCRAM_MODULE
    options = {} if entry is None else entry.options
    if entry is None or entry.module != module or not all(map(options.get, _LOGIN)):
        raise ConfigError(
            f"{said}: {name} needs username and password of {module}, with which this broker logs "
            "in at the others"
        )
    user, password = (options[part] for part in _LOGIN)
    return PeerSecurity(tls=tls, mechanism=mechanism, user=user, password=password)


_LOGIN = ("username", "password")
