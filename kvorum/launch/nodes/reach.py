"""The connections from a node to others, and the watch over all of its certificates."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kvorum.broker.network.peer_security import NO_SECURITY
from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.nodes.own_principal import check_at_brokers, check_at_controllers
from kvorum.runtime.certificates import CertificateWatch, TlsCaller, TlsListener
from kvorum.runtime.http2.rpc import Channels, rpc_caller, rpc_listener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.sockets import connect_tcp
from kvorum.runtime.tasks import TaskGroup

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
