"""The TLS settings and the login that a broker uses towards other brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.runtime.tls import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSecurity:
    """TLS and the login of connections to other brokers.

    tls: None without TLS.
    mechanism: "" without a login.
    """

    tls: TlsSettings | None = None
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


NO_SECURITY = PeerSecurity()
