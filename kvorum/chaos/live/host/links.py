"""The proxies that a cluster needs, and the streams through them that carry bytes from A to B.
Pure.

One proxy is in front of each broker's listener. The broker advertises the proxy's address, so a
client that follows metadata also connects through a proxy. One more proxy is on each directed link
between nodes, used by the connections that the link's source opens. Bytes from A to B therefore
travel upstream on the links that A opens to B, and downstream on those that B opens to A.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.chaos.targets import CLIENTS, FIRST_BROKER_ID


class ProxyStream(enum.Enum):
    """A direction through a proxy, in toxiproxy's words."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Connections that `source` opens to `destination`; addresses are host:port. `proxy`: a name
    that someone else gave the proxy, empty for the run's own."""

    source: str
    destination: str
    listen: str
    upstream: str
    proxy: str = ""

    @property
    def name(self) -> str:
        """The proxy's name, safe within a URL path."""
        return self.proxy or f"{self.source}.{self.destination}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """Every link of a cluster. Nodes are named `controller-1`.. and `broker-101`.."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    links: tuple[Link, ...]

    def link(self, source: str, destination: str) -> Link | None:
        """The link that source opens to destination, None where there is none."""
        for link in self.links:
            if link.source == source and link.destination == destination:
                return link
        return None

    def bootstrap(self) -> str:
        """The advertised addresses, for clients."""
        return ",".join(link.listen for link in self.links if link.source == CLIENTS)

    def document(self) -> dict[str, dict[str, object]]:
        """The content of the file for `kvorum dev --links`."""
        nodes: dict[str, dict[str, object]] = {}
        for name in self.controllers + self.brokers:
            node: dict[str, object] = {}
            advertised = self.link(CLIENTS, name)
            if advertised is not None:
                node["advertised"] = advertised.listen
            node["peers"] = {
                link.destination: link.listen for link in self.links if link.source == name
            }
            nodes[name] = node
        return nodes

    def streams(
        self, source: str, destination: str, *, both_ways: bool = False
    ) -> list[tuple[Link, ProxyStream]]:
        """The streams on which bytes flow from source to destination; empty if the two never
        connect."""
        found: list[tuple[Link, ProxyStream]] = []
        for link in self.links:
            if (link.source, link.destination) == (source, destination):
                found.append((link, ProxyStream.UPSTREAM))
                if both_ways:
                    found.append((link, ProxyStream.DOWNSTREAM))
            elif (link.source, link.destination) == (destination, source):
                found.append((link, ProxyStream.DOWNSTREAM))
                if both_ways:
                    found.append((link, ProxyStream.UPSTREAM))
        return found


def plan_links(
    controllers: int,
    brokers: int,
    *,
    client_port: int,
    controller_port: int,
    proxy_port: int,
    nodes_port: int | None = None,
    host: str = "127.0.0.1",
) -> LinkPlan:
    """The proxies of a cluster whose nodes bind consecutive ports, on consecutive proxy ports.

    nodes_port: of the first broker's listener for brokers; None if it is the one for clients.
    """
    controller_names = [f"controller-{number}" for number in range(1, controllers + 1)]
    broker_names = [f"broker-{FIRST_BROKER_ID + number}" for number in range(brokers)]
    bound = {name: f"{host}:{controller_port + at}" for at, name in enumerate(controller_names)}
    bound |= {name: f"{host}:{client_port + at}" for at, name in enumerate(broker_names)}
    pairs = [(CLIENTS, broker) for broker in broker_names]
    pairs += _pairs(controller_names, controller_names)
    pairs += _pairs(broker_names, controller_names)
    pairs += _pairs(broker_names, broker_names)
    of_brokers = dict(bound)
    if nodes_port is not None:
        of_brokers |= {name: f"{host}:{nodes_port + at}" for at, name in enumerate(broker_names)}
    links = tuple(
        Link(
            source=source,
            destination=destination,
            listen=f"{host}:{proxy_port + at}",
            upstream=(bound if source == CLIENTS else of_brokers)[destination],
        )
        for at, (source, destination) in enumerate(pairs)
    )
    return LinkPlan(controllers=tuple(controller_names), brokers=tuple(broker_names), links=links)


def link_count(controllers: int, brokers: int) -> int:
    """The number of proxies that plan_links makes."""
    return (
        brokers + controllers * (controllers - 1) + brokers * controllers + brokers * (brokers - 1)
    )


def _pairs(sources: Sequence[str], destinations: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for a in sources for b in destinations if a != b]
