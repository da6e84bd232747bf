"""A broker's listener with TLS on the running loop, and a client of it."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kvorum.broker.metrics.counters import ConnectionMetrics
from kvorum.broker.network.peer_connection import PeerConnector
from kvorum.broker.network.peer_security import PeerSecurity
from kvorum.broker.server import KafkaServer
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.test_broker.harness import Cluster, SecureLinks

_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def _connector(broker_id: int) -> PeerConnector:
    return PeerConnector(PeerSecurity(), None, broker_id=broker_id, rng=random.Random(broker_id))


@dataclass
class SecureListener:
    """address: of the listener, which requires a client's certificate."""

    address: tuple[str, int]
    server: KafkaServer

    def users(self) -> list[str]:
        """The users of the open connections."""
        return [connection.user for connection in self.server._connections]

    def counts(self) -> ConnectionMetrics:
        """The listener's counters."""
        return next(iter(self.server.metrics.connections.values()))


@asynccontextmanager
async def secure_listener(
    authority: Authority, folder: Path, rules: PrincipalRules | None = None
) -> AsyncIterator[SecureListener]:
    settings = TlsSettings(
        what="the broker", keystore=str(authority.server("broker.pem")),
        truststore=str(authority.file), client_auth="required",
    )  # fmt: skip
    tls = TlsListener(settings, rules or PrincipalRules())
    cluster = Cluster(folder, count=1, links=SecureLinks(connect=_connector, tls=tls))
    await cluster.start()
    try:
        yield SecureListener(("127.0.0.1", cluster.peer_ports[1]), cluster.brokers[1].server)
    finally:
        await cluster.stop()


_open: list[asyncio.StreamWriter] = []


async def asked_versions(address: tuple[str, int], authority: Authority, file: Path) -> bool:
    """Connect with the certificate in `file` and ask for the served versions, on a connection that
    stays open. False if the broker closes it without an answer. Raises OSError."""
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(str(file))
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    _open.append(writer)  # a writer that nobody has closes its connection
    try:
        writer.write(_VERSIONS_REQUEST)
        size = await asyncio.wait_for(reader.readexactly(4), timeout=30)
        await reader.readexactly(struct.unpack(">i", size)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    return True
