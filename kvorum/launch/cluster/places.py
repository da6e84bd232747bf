"""Ids and addresses of a new cluster's nodes: `ID@host[:port]`, counts, port assignment.

Pure: no host is resolved and no port is tried, because the hosts may be other machines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvorum.launch.cluster.plan import BROKER_ID_BASE, NODES_MAX
from kvorum.launch.config.listeners import is_unspecified
from kvorum.raft.model.voters import HOST_BYTES_MAX
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import PORT_MAX, address_text, whole_number

NODE_ID_MAX = (1 << 31) - 1
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
"""Names of hosts. As in Kafka, `_` is allowed: Compose makes such names."""
SEVERAL_HOSTS = "for several hosts give each node with --controller ID@HOST and --broker ID@HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """One node.

    role: controller or broker.
    host: without brackets.
    port: 0 if not assigned yet.
    """

    role: str
    node_id: int
    host: str
    port: int = 0

    @property
    def name(self) -> str:
        return f"{self.role}-{self.node_id}"

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)


def counted(role: str, count: int, host: str, *, least: int) -> list[NodePlace]:
    """`count` nodes on one host, with the usual ids. Raises ConfigError."""
    if not least <= count <= NODES_MAX:
        raise ConfigError(f"--{role}s={count} must lie between {least} and {NODES_MAX}")
    first_id = 1 if role == "controller" else BROKER_ID_BASE + 1
    host = parse_host("--host", host)
    return [NodePlace(role=role, node_id=first_id + i, host=host) for i in range(count)]


def parse_place(role: str, text: str) -> NodePlace:
    """The node of `ID@host[:port]`; an IPv6 address has brackets. Raises ConfigError."""
    digits, _, rest = text.partition("@")
    node_id = whole_number(digits)
    option = f"--{role}"
    if not rest or node_id is None or node_id > NODE_ID_MAX:
        raise ConfigError(f"{option}={text!r} must be of the form ID@HOST or ID@HOST:PORT")
    host, port = rest, 0
    if rest.count(":") > 1 and not rest.startswith("["):
        raise ConfigError(f"{option}={text!r}: an IPv6 address goes in brackets, ID@[::1]:PORT")
    if not rest.endswith("]") and ":" in rest:
        host, _, port_text = rest.rpartition(":")
        port = whole_number(port_text) or 0
        if not 0 < port <= PORT_MAX:
            raise ConfigError(f"{option}={text!r}: port {port_text!r} is not in 1 to {PORT_MAX}")
    return NodePlace(role=role, node_id=node_id, host=parse_host(option, host), port=port)


def parse_host(option: str, text: str) -> str:
    """A host to which other nodes and clients can connect, without brackets.

    Raises ConfigError for text that is neither a name nor an address, and for the address of all
    interfaces.
    """
    if "," in text:
        raise ConfigError(f"{option}={text!r} must be one host; {SEVERAL_HOSTS}")
    host = parse_bind(option, text)
    if is_unspecified(host):
        raise ConfigError(f"{option}={text} says where nobody can connect; give a name or address")
    return host


def parse_bind(option: str, text: str) -> str:
    """A host on which a node can listen, without brackets; the address of all interfaces too.

    Raises ConfigError for text that is neither a name nor an address.
    """
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    is_host = False
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        is_host = True
    with contextlib.suppress(UnicodeError):
        is_host = is_host or _NAME.fullmatch(host.encode("idna").decode()) is not None
    if not is_host:
        raise ConfigError(f"{option}={text!r} must be a host name, an IPv4 or an IPv6 address")
    if len(host.encode()) > HOST_BYTES_MAX:
        raise ConfigError(f"{option}={text!r}: a host has at most {HOST_BYTES_MAX} bytes")
    return host


def with_ports(
    places: Sequence[NodePlace], first_port: int, taken: Collection[tuple[str, int]] = ()
) -> list[NodePlace]:
    """The nodes with their ports: their own, or the next free one on the host from `first_port` on.

    taken: addresses of other nodes. Raises ConfigError if no port is left.
    """
    used = {*taken, *((place.host, place.port) for place in places if place.port)}
    done = []
    for place in places:
        port = place.port
        if not port:
            port = first_port
            while (place.host, port) in used:
                port += 1
            used.add((place.host, port))
        if not 0 < port <= PORT_MAX:
            raise ConfigError(f"{place.name} would get port {port}, not in 1 to {PORT_MAX}")
        done.append(dataclasses.replace(place, port=port))
    return done


def check_places(places: Sequence[NodePlace]) -> None:
    """Raise ConfigError for two nodes with the same id or address."""
    ids: dict[int, str] = {}
    addresses: dict[str, str] = {}
    for place in places:
        if place.node_id in ids:
            raise ConfigError(
                f"two nodes have the id {place.node_id}; controllers and brokers share the ids"
            )
        ids[place.node_id] = place.name
        other = addresses.setdefault(place.address, place.name)
        if other != place.name:
            raise ConfigError(f"{other} and {place.name} would both listen on {place.address}")
