"""The connections from a node to others, and the watch over all of its certificates."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kvorum.broker.network.peer_security import NO_SECURITY
from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.nodes.own_principal import check_at_brokers, check_at_controllers
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.raft.model.voters import VoterSet
from kvorum.runtime.certificates import CertificateWatch, TlsCaller, TlsListener
from kvorum.runtime.http2.rpc import Channels, rpc_caller, rpc_listener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.sockets import connect_tcp
from kvorum.runtime.tasks import TaskGroup
from kvorum.runtime.text import address_text

if TYPE_CHECKING:
    from kvorum.broker.network.peer_connection import Connect


class NodeLinks:
    """The TLS of a node's connections.

    channels: to controllers.
    server: TLS of a controller's own listener, None in clear text.
    metrics: TLS of the metrics page, None in clear text.
    Raises ConfigError for files that cannot be used, and for those of another node.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        listener = config.controller_listener
        self.certificates = CertificateWatch()
        caller = None if listener.client is None else rpc_caller(listener.client)
        check_at_controllers(config, None if caller is None else caller.shown)
        self.channels = Channels(patience=config.waits.of_connections(), tls=caller)
        self.server: TlsListener | None = None
        if listener.server is not None:
            self.server = rpc_listener(listener.server, listener.principals)
        self.metrics: TlsListener | None = None
        if config.metrics_tls is not None:
            self.metrics = TlsListener(config.metrics_tls, PrincipalRules())
        for made in (caller, self.server, self.metrics):
            if made is not None:
                self.certificates.add(made)

    def peer_connect(self) -> Connect:
        """The function by which a broker connects to other brokers. Raises ConfigError."""
        security = self._config.peer_security
        tls = None if security.tls is None else TlsCaller(security.tls)
        check_at_brokers(self._config, None if tls is None else tls.shown)
        if security == NO_SECURITY:
            return connect_tcp
        # Controllers use this module, too, and need nothing of what follows.
        from kvorum.broker.network.peer_connection import PeerConnector

        if tls is not None:
            self.certificates.add(tls)
        # The nonces of logins must be unpredictable.
        rng = random.SystemRandom()
        return PeerConnector(security, tls, broker_id=self._config.node_id, rng=rng)

    def watch(self, tasks: TaskGroup) -> None:
        """Read certificates again when their files change."""
        tasks.spawn(self.certificates.run(), "certificates")


def controller_client(config: NodeConfig, channels: Channels) -> ControllerClient:
    """A client of the active controller, with the addresses in the node's properties."""
    ids = config.raft.bootstrap_ids if config.raft.is_dynamic else tuple(config.controllers)
    found = {i: config.address_of(i) for i in ids}
    # With dynamic voters the controllers' own ids are not known yet: see `tell_voters`.
    return ControllerClient(
        {i: address_text(*a) for i, a in found.items() if a is not None},
        channels=channels,
        attempt_timeout_ms=config.waits.controller_socket_timeout_ms,
    )


def tell_voters(config: NodeConfig, client: ControllerClient, voters: VoterSet) -> None:
    """Tell the client the addresses of dynamic voters."""
    if not len(voters) or not config.raft.is_dynamic:
        return
    overrides = config.overrides
    addresses = {v.node_id: overrides.get(v.node_id, (v.host, v.port)) for v in voters.voters}
    client.update_addresses({i: address_text(*address) for i, address in addresses.items()})
