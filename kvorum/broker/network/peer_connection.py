"""Connections to other brokers that need TLS or a login; those without are plain sockets.

The connector shakes hands and logs in without blocking the event loop, and hands out a
`PeerSocket`, which behaves as a non-blocking socket. The socket's user has three duties: read the
decrypted bytes that a read left behind, which `select` does not report (`pending`); repeat a send
that raised BlockingIOError with the same bytes first; and log in again when the session is about
to end (`login_due_s`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kvorum.broker.network.frame_buffer import FrameBuffer
from kvorum.broker.network.peer_security import PeerSecurity
from kvorum.broker.sasl.core.client import client_exchange
from kvorum.broker.sasl.core.exchange import AuthenticationFailed
from kvorum.runtime.certificates import TlsCaller
from kvorum.runtime.errors import ErrorCode, WireError, required
from kvorum.runtime.sockets import CONNECT_TIMEOUT_MS, connect_tcp
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import failure_text
from kvorum.wire.kio_codec import encode_request, read_response
from kvorum.wire.primitives import string_bytes

_log = logging.getLogger(__name__)

Address = tuple[str, int]

LOGIN_TIMEOUT_MS = 5_000
"""Limit of one login. A broker delays its answer to a failed login on purpose."""
LOGIN_BYTES_MAX = 64 * 1024
RECORD_BYTES = 16 * 1024
"""Largest TLS record, and so the most bytes of one send."""
READS_MAX = 64
"""TLS records that one `recv_into` reads at most: a megabyte."""
BACKOFF_FIRST_MS = 200
BACKOFF_MAX_MS = 10_000
"""First and longest pause after a refusal. A refusal lasts until the configuration or the
credentials change."""
SESSION_SHARE_MIN, SESSION_SHARE_MAX = 0.85, 0.95
"""Range of the share of a session's lifetime after which a broker logs in again, as in Kafka."""

_HANDSHAKE_KEY, _HANDSHAKE_VERSION = 17, 1
_TOKEN_KEY, _TOKEN_VERSION = 36, 2
_VERSIONS_KEY = 18
_REQUEST_HEAD = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_SIZE = struct.Struct(">i")


class LinkRefused(ConnectionError):
    """The other broker and this one do not accept each other: by certificate or by login."""


class PeerSocket:
    """A connected, non-blocking socket to another broker.

    login_due_s: when to call `login` again, by the event loop's clock; None: never.
    """

    __slots__ = ("_connector", "_correlation_id", "_sock", "_tls", "login_due_s")

    def __init__(self, sock: socket.socket, connector: PeerConnector) -> None:
        """sock: with TLS an SSLSocket whose handshake has not begun, else a plain socket."""
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._connector = connector
        self._correlation_id = 0
        self.login_due_s: float | None = None

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def pending(self) -> int:
        """Bytes that are decrypted and have not been read: nothing will announce them."""
        return 0 if self._tls is None else self._tls.pending()

    def recv_into(self, buffer: memoryview) -> int:
        """See `socket.recv_into`: BlockingIOError if there is nothing. Reads several records."""
        tls = self._tls
        if tls is None:
            return self._sock.recv_into(buffer)
        filled = 0
        try:
            for _ in range(READS_MAX):
                count = tls.recv_into(buffer[filled:])
                filled += count
                if not count or filled == len(buffer):
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not filled:
                raise BlockingIOError from None
        return filled

    def send(self, data: bytes | bytearray) -> int:
        """See `socket.send`: BlockingIOError if the socket is full."""
        if self._tls is None:
            return self._sock.send(data)
        with memoryview(data)[:RECORD_BYTES] as record:
            try:
                return self._tls.send(record)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None

    # --- waiting: before the socket has a user, or while the user waits for a login ----------

    async def shake_hands(self, loop: asyncio.AbstractEventLoop) -> None:
        """Complete the TLS handshake, if there is TLS. Raises OSError."""
        if self._tls is None:
            return
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await _until_ready(loop.add_reader, loop.remove_reader, self._sock)
            except ssl.SSLWantWriteError:
                await _until_ready(loop.add_writer, loop.remove_writer, self._sock)
            else:
                return

    async def login(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log in, or log in again (KIP-368). No request may be in flight, and no other task may
        wait on the socket meanwhile. Raises LinkRefused, OSError, TimeoutError."""
        security = self._connector.security
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_MS / 1000):
                if security.mechanism:
                    await self._log_in(loop, security)
                else:
                    # Without SASL, ask ApiVersions, which needs no permission: in TLS 1.3 the other
                    # broker may refuse this side's certificate after this side's handshake ended.
                    await self._ask(loop, ("api_versions", _VERSIONS_KEY, 0), {})
        except AuthenticationFailed as failure:
            raise LinkRefused(f"login as {security.user}: {failure}") from failure
        except (WireError, ValueError, struct.error) as failure:
            raise LinkRefused(f"login as {security.user}: a strange answer: {failure}") from failure

    async def _log_in(self, loop: asyncio.AbstractEventLoop, security: PeerSecurity) -> None:
        nonce = f"{self._connector.rng.getrandbits(192):x}"
        exchange = required(
            client_exchange(security.mechanism, security.user, security.password, nonce),
            "a known mechanism",
        )
        named = {"mechanism": security.mechanism}
        hello = await self._ask(loop, ("sasl_handshake", _HANDSHAKE_KEY, _HANDSHAKE_VERSION), named)
        if hello.error_code:
            raise LinkRefused(
                f"login by {security.mechanism}: {ErrorCode(int(hello.error_code)).name}; the "
                f"broker offers {', '.join(hello.mechanisms) or 'none'}"
            )
        lifetime_s = 0.0
        token = await asyncio.to_thread(exchange.step, b"")
        while token is not None:
            asked = {"auth_bytes": token}
            answer = await self._ask(loop, ("sasl_authenticate", _TOKEN_KEY, _TOKEN_VERSION), asked)
            if answer.error_code:
                raise LinkRefused(f"login as {security.user}: {answer.error_message}")
            lifetime_s = answer.session_lifetime.total_seconds()
            # In a thread: SCRAM's iterations take milliseconds.
            token = await asyncio.to_thread(exchange.step, bytes(answer.auth_bytes))
        share = self._connector.rng.uniform(SESSION_SHARE_MIN, SESSION_SHARE_MAX)
        self.login_due_s = loop.time() + lifetime_s * share if lifetime_s else None

    async def _ask(
        self, loop: asyncio.AbstractEventLoop, api: tuple[str, int, int], values: dict[str, Any]
    ) -> Any:
        name, key, version = api
        self._correlation_id += 1
        is_flexible = key == _TOKEN_KEY
        head = _REQUEST_HEAD.pack(key, version, self._correlation_id)
        head += string_bytes(self._connector.client_id, is_flexible=False)
        head += b"\x00" if is_flexible else b""
        frame = head + encode_request(name, version, values)
        await self._send_all(loop, _SIZE.pack(len(frame)) + frame)
        buffer = FrameBuffer(LOGIN_BYTES_MAX)
        while (found := buffer.next_frame()) is None:
            try:
                if buffer.receive(self) == 0:
                    raise ConnectionResetError("the other broker closed the connection in a login")
            except BlockingIOError:
                await _until_ready(loop.add_reader, loop.remove_reader, self._sock)
        position, end = found
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer.view, position)
        if correlation_id != self._correlation_id:
            raise WireError(f"answer {correlation_id} to nothing that was asked")
        body = position + _CORRELATION_ID.size + (1 if is_flexible else 0)
        return read_response(name, version, buffer.view[body:end])

    async def _send_all(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        while data:
            try:
                data = data[self.send(data) :]
            except BlockingIOError:
                await _until_ready(loop.add_writer, loop.remove_writer, self._sock)


async def _until_ready(
    watch: Callable[..., Any], unwatch: Callable[[int], Any], sock: socket.socket
) -> None:
    ready = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(sock.fileno(), on_ready)
    try:
        await ready
    finally:
        unwatch(sock.fileno())


PeerAddress = Callable[[int], tuple[str, int] | None]
PeerLink = socket.socket | PeerSocket
Connect = Callable[[asyncio.AbstractEventLoop, tuple[str, int]], Awaitable[PeerLink]]
"""Returns a non-blocking socket connected to an address. Raises OSError, TimeoutError."""


@dataclass(slots=True)
class _Refusal:
    """reason: as it was logged.
    backoff_ms: until retry_at_s.
    """

    reason: str
    backoff_ms: int
    retry_at_s: float


class PeerConnector:
    """Connects to other brokers; a `Connect`.

    A broker that refuses is reported once, and asked again after a growing pause.
    """

    def __init__(
        self,
        security: PeerSecurity,
        tls: TlsCaller | None,
        *,
        broker_id: int,
        rng: random.Random,
    ) -> None:
        """tls: made from `security.tls`.
        rng: source of SCRAM's nonces; it must be unpredictable.
        """
        self.security = security
        self.client_id = f"broker-{broker_id}"
        self.rng = rng
        self._tls = tls
        self._refusals: dict[Address, _Refusal] = {}

    async def __call__(self, loop: asyncio.AbstractEventLoop, address: Address) -> PeerSocket:
        """Connect to a broker and log in. Raises LinkRefused, OSError, TimeoutError."""
        refusal = self._refusals.get(address)
        if refusal is not None and loop.time() < refusal.retry_at_s:
            raise LinkRefused(refusal.reason)
        sock = await connect_tcp(loop, address)
        peer: PeerSocket | None = None
        try:
            if self._tls is not None:
                sock = self._tls.context.wrap_socket(
                    sock, server_hostname=address[0], do_handshake_on_connect=False
                )
            peer = PeerSocket(sock, self)
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await peer.shake_hands(loop)
            await peer.login(loop)
        except BaseException as failure:
            sock.close()
            # A ValueError: a host that TLS does not take as a name.
            if isinstance(failure, ssl.SSLError | LinkRefused | ValueError):
                self._refuse(loop, address, failure_text(failure))
                raise LinkRefused(failure_text(failure)) from failure
            raise
        if self._refusals.pop(address, None) is not None:
            _log.info("the broker at %s lets this one in now", address_text(*address))
        return peer

    def _refuse(self, loop: asyncio.AbstractEventLoop, address: Address, reason: str) -> None:
        before = self._refusals.get(address)
        if before is None or before.reason != reason:
            _log.error("no link to the broker at %s: %s", address_text(*address), reason)
        backoff_ms = (
            BACKOFF_FIRST_MS if before is None else min(before.backoff_ms * 2, BACKOFF_MAX_MS)
        )
        self._refusals[address] = _Refusal(reason, backoff_ms, loop.time() + backoff_ms / 1000)
