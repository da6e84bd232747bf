"""Addresses of other nodes in a node's properties."""

from __future__ import annotations

from kvorum.launch.config.listeners import Address, parse_address
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import whole_number


def static_voters(text: str) -> dict[int, Address]:
    """Address by node id, from controller.quorum.voters. Raises ConfigError."""
    voters: dict[int, Address] = {}
    for part in text.split(",") if text else ():
        digits, separator, address = part.strip().partition("@")
        node_id = whole_number(digits)
        if not separator or node_id is None:
            raise ConfigError(
                f"controller.quorum.voters={text!r} must be of the form id@host:port,..."
            )
        if "@" in address:
            raise ConfigError(f"controller.quorum.voters={text!r}: {address!r} is not host:port")
        if node_id in voters:
            raise ConfigError(f"controller.quorum.voters={text!r} names node {node_id} twice")
        voters[node_id] = parse_address("controller.quorum.voters", address)
    return voters


def bootstrap_servers(text: str) -> tuple[Address, ...]:
    """The addresses in controller.quorum.bootstrap.servers. Raises ConfigError."""
    name = "controller.quorum.bootstrap.servers"
    return tuple(parse_address(name, part.strip()) for part in text.split(",") if part.strip())


def peer_overrides(text: str) -> dict[int, Address]:
    """Address by node id, from peer.address.overrides. Raises ConfigError."""
    overrides: dict[int, Address] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        digits, separator, address = part.partition("=")
        node_id = whole_number(digits)
        if not separator or node_id is None:
            raise ConfigError(
                f"peer.address.overrides={text!r} must be of the form id=host:port,..."
            )
        overrides[node_id] = parse_address("peer.address.overrides", address)
    return overrides
