"""A broker in this process with a listener over TLS and SASL, for clients that do not log in."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvorum.broker.network.connection import Connection
from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.test_broker.harness import Harness

PASSWORDS = {"alice": "alice secret", "bob": "bob secret"}


class Door:
    """The broker and two more ports of it: `plain` asks for a login alone, `tls` for TLS first."""

    def __init__(
        self, folder: Path, *, image: Callable[[], ClusterImage] = lambda: EMPTY_IMAGE, **more: Any
    ) -> None:
        """image: the image with the SCRAM credentials. more: see Harness."""
        self.harness = Harness(folder / "broker", count=1, **more)
        self.authority = Authority(folder / "ca")
        settings = TlsSettings(what="the door", keystore=str(self.authority.server("door.pem")))
        sasl = SaslSettings(
            mechanisms=("PLAIN", "SCRAM-SHA-512"), plain_users=PASSWORDS, session_ms={}
        )
        authenticate = authenticator(sasl, image, random.Random(1))
        server = self.harness.cluster.brokers[1].server

        async def bind() -> tuple[int, int]:
            plain = await server.bind("127.0.0.1", 0, authenticate=authenticate)
            tls = TlsListener(settings, PrincipalRules())
            encrypted = await server.bind("127.0.0.1", 0, authenticate=authenticate, tls=tls)
            server.serve()
            return plain, encrypted

        self.server = server
        self.plain, self.tls = self.harness.run(bind())
        self.open = self.harness.cluster.brokers[1].port

    def connections(self) -> list[Connection]:
        return list(self.server._connections)

    def close(self) -> None:
        self.harness.close()
