"""TLS for a whole run (`--tls`): one CA and one certificate, the same for both sides.

Brokers are then reached over TLS alone, by clients and by each other; the controllers' own links
stay in clear text on both sides, for no figure of such a run depends on them.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

_NAME = "bench"
_authority = ""


def begin(folder: Path) -> None:
    """Make the certificates in the folder, and have every client of this process use them."""
    import datetime

    from kvorum.launch.cluster.dev_certificate_files import CertificateRequest, make_certificates

    global _authority
    made = CertificateRequest(nodes=(_NAME,))
    make_certificates(str(folder), made, datetime.datetime.now(datetime.UTC))
    _authority = str(folder / "ca.pem")


def client_settings() -> dict[str, Any]:
    """librdkafka's settings, none for a run in clear text."""
    if not _authority:
        return {}
    return {"security.protocol": "ssl", "ssl.ca.location": _authority}


def broker_properties() -> dict[str, str]:
    """Properties of a broker whose listener is PLAINTEXT by name; none for a run in clear text."""
    if not _authority:
        return {}
    folder = Path(_authority).parent
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / f"{_NAME}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": _authority,
    }


def wrapped(sock: socket.socket, host: str) -> socket.socket:
    """A connected socket of a client, over TLS if the run is."""
    if not _authority:
        return sock
    return ssl.create_default_context(cafile=_authority).wrap_socket(sock, server_hostname=host)
