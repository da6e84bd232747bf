"""The check that a node would be let in under its own name, where nodes have principals of their
own: others would refuse it, and its own log would not say why. Pure.

A listener's properties are the same on all nodes, so the node's own file tells what others see.
"""

from __future__ import annotations

from kvorum.launch.config.properties import NodeConfig
from kvorum.runtime.certificate_checks import Certificate
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.http2.tls import ANONYMOUS


def check_at_controllers(config: NodeConfig, shown: Certificate | None) -> None:
    """Raise ConfigError if the controllers would take this node for somebody else. shown: its
    certificate there, None for none."""
    listener = config.controller_listener
    user = ANONYMOUS if shown is None else listener.principals.user_of_name(shown.subject)
    _compare(config, listener.name, user)


def check_at_brokers(config: NodeConfig, shown: Certificate | None) -> None:
    """The same for a broker at the others."""
    listener = config.listeners[0]
    if listener.sasl is not None:
        user = config.peer_security.user
    elif shown is None or listener.tls is None or listener.tls.client_auth == "none":
        user = ANONYMOUS
    else:
        user = listener.principals.user_of_name(shown.subject)
    _compare(config, listener.name, user)


def _compare(config: NodeConfig, listener: str, user: str) -> None:
    nodes = None if config.access is None else config.access.nodes
    if nodes is None:
        return
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
