"""The check that a node would be let in under its own name, where nodes have principals of their
own: others would refuse it, and its own log would not say why."""

from __future__ import annotations

from kvorum.launch.properties import NodeConfig
from kvorum.metadata.access.nodes import NodePrincipals
from kvorum.runtime.certificate_checks import read_certificate
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.http2.tls import ANONYMOUS
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings


def check_own_principal(config: NodeConfig) -> None:
    """Raise ConfigError if a listener of other nodes would take this node for somebody else: by
    this node's own file, since the listener's properties are the same on all nodes."""
    nodes = None if config.access is None else config.access.nodes
    if nodes is None:
        return
    controllers = config.controller_listener
    user = _user(controllers.client, controllers.principals)
    _compare(config, nodes, controllers.name, user)
    if not config.listeners:
        return
    inter_broker, peers = config.listeners[0], config.peer_security
    user = peers.user
    if inter_broker.sasl is None:
        user = ANONYMOUS
        if inter_broker.tls is not None and inter_broker.tls.client_auth != "none":
            user = _user(peers.tls, inter_broker.principals)
    _compare(config, nodes, inter_broker.name, user)


def _user(tls: TlsSettings | None, rules: PrincipalRules) -> str:
    shown = None if tls is None else read_certificate(tls, is_server=False)
    return ANONYMOUS if shown is None else rules.user_of_name(shown.subject)


def _compare(config: NodeConfig, nodes: NodePrincipals, listener: str, user: str) -> None:
    role, own = ("broker", nodes.broker) if config.listeners else ("controller", nodes.controller)
    expected = own(config.node_id)
    if user == expected:
        return
    prefix = f"listener.name.{listener.lower()}"
    way_out = (
        f"give it a login or a certificate of that name; see {prefix}.ssl.keystore.location and "
        f"{prefix}.ssl.principal.mapping.rules"
    )
    if user == ANONYMOUS:
        way_out = (
            f"let the listener know its callers, by listener.security.protocol.map={listener}:SSL "
            f"and {prefix}.ssl.client.auth=required, and give this node a certificate"
        )
    raise ConfigError(
        f"kvorum.{role}.principals: on the listener {listener} of the others this {role} would be "
        f"User:{user} and not User:{expected}, and be refused; {way_out}"
    )
