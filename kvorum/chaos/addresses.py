"""Addresses of nodes, with the security of the lab's connections to them.

An address is a text, `host:port`, or several with commas between them, as clients take it. That of
a secure cluster carries its security with it, as a subclass of str. So each client, reader and
request of the lab can log in, and the code that only passes addresses on needs no change.
"""

from __future__ import annotations

from typing import Any

from kvorum.client.librdkafka import login_settings
from kvorum.client.security import NONE, ClientSecurity


class SecuredAddress(str):
    """An address to which the lab connects with TLS and a login."""

    security: ClientSecurity

    def __new__(cls, address: str, security: ClientSecurity) -> SecuredAddress:
        found = super().__new__(cls, address)
        found.security = security
        return found


def secured(address: str, security: ClientSecurity) -> str:
    """The address with that security, in place of its own."""
    return str(address) if security == NONE else SecuredAddress(address, security)


def security_at(address: str) -> ClientSecurity:
    """The security of connections to an address."""
    return address.security if isinstance(address, SecuredAddress) else NONE


def joined(addresses: list[str]) -> str:
    """Several addresses as one, with the security of the first."""
    return secured(",".join(addresses), security_at(addresses[0]) if addresses else NONE)


def client_of(bootstrap: str) -> dict[str, Any]:
    """The settings by which a client of librdkafka finds a cluster and logs in there."""
    return {"bootstrap.servers": str(bootstrap), **login_settings(security_at(bootstrap))}
