"""gRPC's connections over TLS: a layer between a transport and the protocol of a connection.

asyncio's own TLS drops the alert of a handshake that fails, so that the other side never hears why.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from kvorum.runtime.handshake_turn import HandshakeTurn
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import client_failure_text, failure_text

ALPN = "h2"
PEER_CERTIFICATE = "kvorum.peer_certificate"
ANONYMOUS = "ANONYMOUS"
"""The user without a certificate, as in Kafka."""
HANDSHAKES_MAX = 500
"""Handshakes under way on a server; at one more, the oldest is given up."""
READ_BYTES = 256 * 1024

_ALERT = bytes.fromhex("15030100020228")
"""A fatal alert: handshake_failure."""

OnFailed = Callable[[str, str], None]
"""Receives the peer and the reason when a handshake fails."""


class Caller(NamedTuple):
    """The sender of calls.

    user: ANONYMOUS without a certificate.
    host: the address.
    """

    user: str
    host: str


UNKNOWN = Caller(ANONYMOUS, "?")


def caller_of(transport: asyncio.BaseTransport, rules: PrincipalRules | None) -> Caller:
    """The caller behind a server's transport. rules: None without TLS. Raises WireError for a
    certificate that gives no user."""
    peer = transport.get_extra_info("peername")
    host = str(peer[0]) if peer else "?"
    certificate = transport.get_extra_info(PEER_CERTIFICATE) if rules is not None else None
    if not certificate or rules is None:
        return Caller(ANONYMOUS, host)
    return Caller(rules.user_of(certificate), host)


class Handshakes:
    """The handshakes under way on a server."""

    def __init__(self, limit_ms: int, on_failed: OnFailed) -> None:
        self.limit_ms = limit_ms
        self.turn = HandshakeTurn()
        self._on_failed = on_failed
        self._layers: dict[TlsLayer, None] = {}

    def begin(self, layer: TlsLayer) -> None:
        """Count one more, and give the oldest up if there are too many."""
        if len(self._layers) >= HANDSHAKES_MAX:
            next(iter(self._layers)).give_up("the oldest of too many handshakes")
        self._layers[layer] = None

    def end(self, layer: TlsLayer, reason: str) -> None:
        """A handshake is over. reason: why it failed, "" if it did not."""
        if layer in self._layers:
            del self._layers[layer]
            if reason:
                self._on_failed(layer.peer, reason)

    def close(self) -> None:
        """Give up every handshake under way."""
        for layer in list(self._layers):
            self._layers.pop(layer)
            layer.give_up("the server is stopping")


class TlsLayer(asyncio.Protocol):
    """The protocol of a transport, and a `TlsTransport` for the connection above it.

    The connection hears of nothing before the handshake is over; if that fails on a client, it is
    told that it was lost, with the error.
    """

    def __init__(
        self,
        above: asyncio.Protocol,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        """server_name: a client's, to compare with the certificate.
        handshakes: a server's.
        """
        self._above = above
        self._handshakes = handshakes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=handshakes is not None,
            server_hostname=server_name,
        )
        self.peer = "?"
        self.is_established = False
        self._failure: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_put_off = False

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        self.peer = address_text(*peername[:2]) if peername else "?"
        if self._handshakes is not None:
            self._handshakes.begin(self)
            limit_s = self._handshakes.limit_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(
                limit_s, self.give_up, f"no TLS handshake within {limit_s:g} s"
            )
        else:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._incoming.write(data)
        if not self.is_established:
            self._shake_hands()
        if self.is_established:
            self._read()

    def eof_received(self) -> bool:
        return False  # the transport closes

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_established and self._failure is None and exc is None:
            exc = ConnectionResetError("the other side closed the connection before it spoke TLS")
        error = self._failure or exc
        self._end_handshake("" if error is None else failure_text(error))
        if self.is_established or self._handshakes is None:
            self._above.connection_lost(self._failure or exc)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    # The handshake.

    def give_up(self, reason: str) -> None:
        """End a handshake that is under way."""
        if not self.is_established:
            self._end_handshake(reason)
            if self._transport is not None:
                self._transport.abort()

    def _shake_hands(self) -> None:
        transport, handshakes = self._transport, self._handshakes
        if transport is None or transport.is_closing():
            return
        loop = asyncio.get_running_loop()
        if handshakes is not None and handshakes.turn.is_spent:
            if not self._is_put_off:
                self._is_put_off = True
                loop.call_later(0, self._go_on)
            return
        began_s = loop.time()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        finally:
            if handshakes is not None:
                handshakes.turn.spend(loop.time() - began_s, loop)
        self._flush()
        if self.tls.selected_alpn_protocol() != ALPN:
            self._fail(ConnectionError("the other side speaks TLS, and no HTTP/2 in it (ALPN h2)"))
            return
        if self._timer is not None:
            self._timer.cancel()
        self.is_established = True
        self._end_handshake("")
        self._above.connection_made(TlsTransport(self, transport))

    def _go_on(self) -> None:
        self._is_put_off = False
        if not self.is_established and self._failure is None:
            self._shake_hands()
            if self.is_established:
                self._read()

    def _end_handshake(self, reason: str) -> None:
        if self._handshakes is not None:
            self._handshakes.end(self, reason)

    def _fail(self, error: Exception) -> None:
        """The other side gets the alert, and then the end. The rest of what it sends is read and
        dropped, for a reset could overtake the alert."""
        self._failure = error
        self._end_handshake(f"TLS handshake: {client_failure_text(error)}")
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if isinstance(error, ssl.SSLError) and self._handshakes and not self._outgoing.pending:
            transport.write(_ALERT)  # OpenSSL sends none to a caller that does not speak TLS
        self._flush()
        if self._handshakes is None:
            transport.close()
        else:
            transport.write_eof()  # its timer, or the other side, closes the connection

    # Data.

    def _read(self) -> None:
        above = self._above
        try:
            while self._failure is None and (data := self.tls.read(READ_BYTES)):
                above.data_received(data)
        except ssl.SSLWantReadError:
            self._flush()  # the answer to a change of keys, if there is one
            return
        except ssl.SSLError as error:
            self._failure = error
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Encrypt and send. Data of a connection that has ended is dropped."""
        if self._failure is not None:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self.tls.write(view) :]
        except ssl.SSLError as error:
            self._failure = error
            if self._transport is not None:
                self._transport.abort()
            return
        self._flush()

    def say_goodbye(self) -> None:
        """Send TLS's close_notify, which proves to the other side that nothing was cut off."""
        with contextlib.suppress(ssl.SSLError, ValueError):
            self.tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())


class TlsTransport(asyncio.Transport):
    """The parts of a transport that a `Connection` uses."""

    def __init__(self, layer: TlsLayer, below: asyncio.Transport) -> None:
        super().__init__()
        self._layer = layer
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The value of the transport below, or the other side's certificate in DER."""
        if name == PEER_CERTIFICATE:
            return self._layer.tls.getpeercert(binary_form=True)
        return self._below.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._layer.write(data)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        if not self._below.is_closing():
            self._layer.say_goodbye()
            self._below.close()

    def abort(self) -> None:
        self._below.abort()
