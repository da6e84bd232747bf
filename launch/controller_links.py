"""TLS of a node with the controllers, and the watch over all of its certificates."""

from __future__ import annotations

from kvorum.launch.properties import NodeConfig
from kvorum.runtime.certificates import CertificateWatch, TlsListener
from kvorum.runtime.rpc import Channels, rpc_caller, rpc_listener
from kvorum.runtime.tasks import TaskGroup


class ControllerLinks:
    """channels: how this node reaches controllers. server: TLS of a controller's own listener, None
    in clear text. Raises ConfigError for files that cannot be used."""

    def __init__(self, config: NodeConfig) -> None:
        listener = config.controller_listener
        self.certificates = CertificateWatch()
        caller = None if listener.client is None else rpc_caller(listener.client)
        self.channels = Channels(patience=config.waits.of_connections(), tls=caller)
        self.server: TlsListener | None = None
        if listener.server is not None:
            self.server = rpc_listener(listener.server, listener.principals)
        for made in (caller, self.server):
            if made is not None:
                self.certificates.add(made)

    def watch(self, tasks: TaskGroup) -> None:
        """Read certificates again when their files change."""
        tasks.spawn(self.certificates.run(), "certificates")
