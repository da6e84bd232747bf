"""Cuts the links of a lab's nodes in a running toxiproxy server. Blocks."""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.toxiproxy import Toxic, Toxiproxy, ToxiproxyError

TOXIC = "kvorum-console-{}"
"""Name of our toxics, by stream; toxics of others are left alone."""


class ProxiedLinks:
    """host, port: of toxiproxy's API."""

    def __init__(self, host: str, port: int) -> None:
        self._toxiproxy = Toxiproxy(host, port)

    def check(self) -> None:
        """Raise ToxiproxyError unless the server answers and has proxies of nodes' links."""
        self._toxiproxy.version()
        if not list(self._links()):
            raise ToxiproxyError(
                "this toxiproxy server has no proxy named source.destination, as in "
                "controller-1.controller-2"
            )

    def cut_nodes(self) -> frozenset[str]:
        """Nodes all of whose links are cut, both ways."""
        by_node: dict[str, list[bool]] = {}
        for link in self._links():
            is_cut = all(_name(s) in self._toxiproxy.toxics(link) for s in ProxyStream)
            for node in (link.source, link.destination):
                by_node.setdefault(node, []).append(is_cut)
        return frozenset(node for node, cuts in by_node.items() if all(cuts))

    def cut(self, node: str) -> None:
        """Bytes from and to the node vanish; connections stay open."""
        for link in self._links_of(node):
            have = self._toxiproxy.toxics(link)
            for stream in ProxyStream:
                if _name(stream) not in have:
                    # A timeout of 0 swallows bytes and keeps the connection open.
                    toxic = Toxic(
                        name=_name(stream), kind="timeout", stream=stream, attributes={"timeout": 0}
                    )
                    self._toxiproxy.add_toxic(link, toxic)

    def heal(self, node: str) -> None:
        """Remove what `cut` set on the links of this node."""
        for link in self._links_of(node):
            for stream in ProxyStream:
                self._toxiproxy.remove_toxic(link, _name(stream))

    def _links_of(self, node: str) -> list[Link]:
        found = [link for link in self._links() if node in (link.source, link.destination)]
        if not found:
            raise ToxiproxyError(f"toxiproxy has no proxy of a link of {node}")
        return found

    def _links(self) -> Iterator[Link]:
        for name, (listen, upstream) in sorted(self._toxiproxy.proxies().items()):
            source, _, destination = name.partition(".")
            if source and destination:
                yield Link(source=source, destination=destination, listen=listen, upstream=upstream)


def _name(stream: ProxyStream) -> str:
    return TOXIC.format(stream.value)
