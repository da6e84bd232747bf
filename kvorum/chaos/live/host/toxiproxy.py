"""The one adapter around the toxiproxy-python package.

The package blocks without a timeout, holds host and port as class globals, and ignores errors other
than 400, 404 and 409. So every call here sets the address under a lock, uses a session that adds a
timeout and refuses 5xx, and then checks the server's state. Calls block for up to CALL_TIMEOUT_S:
from an event loop run them in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kvorum.chaos.fault_words import EVERY_CONNECTION
from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.runtime.errors import KvorumError

#: A local toxiproxy answers within this time.
CALL_TIMEOUT_S = 5.0

#: The oldest supported server (with /populate's answers and reset_peer).
VERSION_MIN = (2, 6, 0)

_LOCK = threading.RLock()
_T = TypeVar("_T")


class ToxiproxyError(KvorumError):
    """The toxiproxy server did not carry out a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """A toxic as toxiproxy knows it; attributes are its own names, milliseconds and bytes.
    `toxicity` is the per cent of connections that it hits."""

    name: str
    kind: str
    stream: ProxyStream
    attributes: Mapping[str, int]
    toxicity: int = EVERY_CONNECTION


class Toxiproxy:
    """A running toxiproxy server. Usable from several threads, one call at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def version(self) -> str:
        """The server's version. Raises ToxiproxyError if it is too old.

        A server built directly from the Go module reports "git" and is accepted.
        """
        text = str(self._call(lambda api: api.get("/version").json()["version"]))
        if text == "git":
            return text
        numbers = tuple(int(part) for part in text.lstrip("v").split("-")[0].split("."))
        if numbers < VERSION_MIN:
            needed = ".".join(str(part) for part in VERSION_MIN)
            raise ToxiproxyError(f"toxiproxy {text} is too old: {needed} or later is needed")
        return text

    def populate(self, links: Sequence[Link]) -> None:
        """Create a proxy for every link, in one request, and check that all of them listen."""
        wanted = [
            {"name": link.name, "listen": link.listen, "upstream": link.upstream, "enabled": True}
            for link in links
        ]
        self._call(lambda api: api.post("/populate", json=wanted))
        have = self._call(lambda _: _server().proxies())
        for link in links:
            proxy = have.get(link.name)
            if proxy is None or not proxy.enabled or proxy.listen != link.listen:
                raise ToxiproxyError(f"proxy {link.name} does not listen on {link.listen}")

    def proxies(self) -> dict[str, tuple[str, str]]:
        """Name -> (listen, upstream) of every proxy."""
        have = self._call(lambda _: _server().proxies())
        return {name: (proxy.listen, proxy.upstream) for name, proxy in have.items()}

    def add_toxic(self, link: Link, toxic: Toxic) -> None:
        """Set a toxic on a proxy; it affects new and existing connections when this returns."""
        self._call(
            lambda _: self._proxy(link).add_toxic(
                name=toxic.name,
                type=toxic.kind,
                stream=toxic.stream.value,
                toxicity=toxic.toxicity / 100,
                attributes=dict(toxic.attributes),
            )
        )
        have = self.toxics(link)
        if toxic.name not in have:
            raise ToxiproxyError(f"toxic {toxic.name} is missing on {link.name}: {sorted(have)}")

    def remove_toxic(self, link: Link, name: str) -> None:
        """Remove a toxic; a missing one is not an error.

        Removing a black hole closes the connections whose bytes it swallowed, since bytes that are
        lost inside a TCP stream cannot be replaced.
        """
        if name not in self.toxics(link):
            return
        self._call(lambda _: self._proxy(link).destroy_toxic(name))
        if name in self.toxics(link):
            raise ToxiproxyError(f"toxic {name} is still on {link.name}")

    def toxics(self, link: Link) -> dict[str, str]:
        """Name -> kind of the toxics on a proxy."""
        have = self._call(lambda _: self._proxy(link).toxics())
        return {name: toxic.type for name, toxic in have.items()}

    def disabled(self) -> list[str]:
        """The names of the proxies that do not listen."""
        have = self._call(lambda _: _server().proxies())
        return sorted(name for name, proxy in have.items() if not proxy.enabled)

    def set_enabled(self, link: Link, *, enabled: bool) -> None:
        """A disabled proxy closes its connections and stops listening."""

        def act(_: Any) -> None:
            proxy = self._proxy(link)
            if enabled:
                proxy.enable()
            else:
                proxy.disable()

        self._call(act)
        have = self._call(lambda _: _server().proxies())
        if bool(have[link.name].enabled) is not enabled:
            raise ToxiproxyError(f"proxy {link.name} did not become enabled={enabled}")

    def clear(self, name: str) -> None:
        """Enable one proxy and remove every toxic from it; raises ToxiproxyError if it is gone."""

        def act(_: Any) -> None:
            proxy = _server().get_proxy(name)
            if proxy is None:
                raise ToxiproxyError(f"toxiproxy has no proxy {name}")
            for toxic in list(proxy.toxics()):
                proxy.destroy_toxic(toxic)
            proxy.enable()

        self._call(act)

    def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        self._call(lambda api: api.post("/reset"))
        for name in self.disabled():
            raise ToxiproxyError(f"proxy {name} is still disabled after a reset")

    def _proxy(self, link: Link) -> Any:
        from toxiproxy import Proxy

        return Proxy(name=link.name, upstream=link.upstream, enabled=True, listen=link.listen)

    def _call(self, act: Callable[[Any], _T]) -> _T:
        import requests
        import toxiproxy.api
        from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

        with _LOCK:
            if not isinstance(toxiproxy.api.requests, _BoundedRequests):
                toxiproxy.api.requests = _BoundedRequests(requests.Session())
            toxiproxy.api.APIConsumer.host = self._host
            toxiproxy.api.APIConsumer.port = self._port
            try:
                return act(toxiproxy.api.APIConsumer)
            except (InvalidToxic, NotFound, ProxyExists) as error:
                raise ToxiproxyError(f"toxiproxy refused: {error}") from error
            except (requests.RequestException, ValueError, KeyError) as error:
                where = f"{self._host}:{self._port}"
                raise ToxiproxyError(f"toxiproxy at {where} {_reason_of(error)}") from error


def _reason_of(error: Exception) -> str:
    """Why a call failed, in words: the texts of `requests` for connection errors name its Python
    objects."""
    import requests

    match error:
        case requests.Timeout():
            return f"gave no answer within {CALL_TIMEOUT_S:.0f} s: it hangs, or is stopped"
        case requests.ConnectionError():
            return "cannot be reached: it has ended, or does not listen there"
        case requests.HTTPError(response=requests.Response() as response):
            return f"could not carry out a request: HTTP status {response.status_code}"
        case _:
            return f"gave an answer that is none of toxiproxy's: {error}"


def _server() -> Any:
    from toxiproxy import Toxiproxy as Server

    return Server()


class _BoundedRequests:
    """Stands in for the `requests` module inside the package: time-outs, and 5xx is an error."""

    def __init__(self, session: Any) -> None:
        self._session = session
        # An HTTP proxy from the environment must not be used for loopback.
        self._session.trust_env = False

    def get(self, **arguments: Any) -> Any:
        return self._checked(self._session.get(timeout=CALL_TIMEOUT_S, **arguments))

    def post(self, **arguments: Any) -> Any:
        return self._checked(self._session.post(timeout=CALL_TIMEOUT_S, **arguments))

    def delete(self, **arguments: Any) -> Any:
        return self._checked(self._session.delete(timeout=CALL_TIMEOUT_S, **arguments))

    @staticmethod
    def _checked(response: Any) -> Any:
        # The package itself handles 400, 404 and 409.
        if response.status_code not in (400, 404, 409):
            response.raise_for_status()
        return response
