"""The settings by which librdkafka finds a cluster and logs in there: of commands and lab."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kvorum.client.security import NONE, ClientSecurity
from kvorum.client.token_relay import TokenRelay
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import address_text

CLIENT_ID = "kvorum-cli"
TOKEN_LIFETIME_S = 3_600.0
QUICK: Mapping[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
"""For a client that soon finds a broker which is back, and a leader that has moved."""
SOCKET_TIMEOUT_S_MAX = 300.0
"""librdkafka's own limit."""


def connection_settings(
    addresses: Sequence[tuple[str, int]], security: ClientSecurity, timeout_s: float
) -> dict[str, Any]:
    """Those of a command, quick and quiet. timeout_s: for one answer."""
    timeout_ms = int(min(timeout_s, SOCKET_TIMEOUT_S_MAX) * 1000)
    client_id = CLIENT_ID
    if security.is_token:
        relay = TokenRelay(timeout_s)
        addresses = [relay.address_for(address) for address in addresses]
        client_id, security = relay.client_id, NONE
    return {
        "bootstrap.servers": ",".join(address_text(*address) for address in addresses),
        **login_settings(security),
        "client.id": client_id,
        "socket.timeout.ms": timeout_ms,
        "retry.backoff.max.ms": 500,
        **QUICK,
        # The commands say what went wrong in a sentence of their own.
        "log_level": 0,
    }


def login_settings(security: ClientSecurity) -> dict[str, Any]:
    """TLS and login; empty without both. Raises ConfigError for a delegation token, which
    librdkafka does not know."""
    if security.is_token:
        raise ConfigError(
            "librdkafka cannot log in with a delegation token; give a user with a password or a "
            "certificate"
        )
    found: dict[str, Any] = {}
    if security.mechanism == "OAUTHBEARER":

        def issued(_: str) -> tuple[str, float]:
            # The broker judges how long the token is good.
            return security.password, time.time() + TOKEN_LIFETIME_S

        found |= {"sasl.mechanism": security.mechanism, "oauth_cb": issued}
    elif security.mechanism:
        found |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    tls = security.tls
    if tls is not None:
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.checks_name else "none"
        files = {
            "ssl.ca.location": tls.truststore,
            "ssl.certificate.location": tls.keystore,
            "ssl.key.location": tls.keystore,
            "ssl.key.password": tls.key_password,
        }
        found |= {name: value for name, value in files.items() if value}
    return {"security.protocol": security.protocol, **found} if found else {}
