"""A connection over TLS: the same requests and answers through an `ssl.SSLSocket`.

Four things differ from a plain socket. The handshake comes first. Received bytes may be decrypted
and wait where `select` does not see them. A send that would have blocked must be repeated with the
same bytes. A file's bytes pass through this process, because sendfile would send them unencrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import cast

from kvorum.broker.network.connection import Connection, ConnectionHost
from kvorum.broker.network.output_parts import FileSend
from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.runtime.errors import WireError
from kvorum.runtime.handshake_turn import HandshakeTurn
from kvorum.runtime.principals import PrincipalRules
from kvorum.wire.fetch_codec import FileSlice

RECORD_BYTES = 16 * 1024
"""Largest TLS record, and so the most bytes of one send."""
FILE_CHUNK_BYTES = 128 * 1024
"""Bytes of a file that are read at a time."""
READS_PER_TURN_MAX = 64
"""Records that one connection may read in a turn of the event loop, a megabyte."""


class TlsConnection(Connection):
    """See `Connection`. With SASL the user is the one that logged in; without, the one of the
    client's certificate, or ANONYMOUS."""

    _NOTHING_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

    __slots__ = ("_handshakes", "_is_resumed", "_rules", "_tls_user", "is_established")

    def __init__(
        self,
        host: ConnectionHost,
        sock: ssl.SSLSocket,
        peer: str,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        address: str = "",
        authentication: Authentication | None = None,
        *,
        rules: PrincipalRules,
        handshakes: HandshakeTurn,
    ) -> None:
        """sock: from `wrapped`; its handshake has not begun.
        rules: map a certificate's subject to a user (ssl.principal.mapping.rules).
        """
        self._rules = rules
        self._handshakes = handshakes
        self._tls_user: str | None = None
        self._is_resumed = False
        self.is_established = False
        super().__init__(host, sock, peer, listener, loop, address, authentication)

    @property
    def user(self) -> str:
        """The client's user, as quotas name it."""
        if self.authentication is None and self._tls_user is not None:
            return self._tls_user
        return super().user

    @property
    def _tls(self) -> ssl.SSLSocket:
        return cast("ssl.SSLSocket", self._sock)

    def close(self, reason: str) -> None:
        if not self.is_closed and self.is_established:
            # Send close_notify: the peer then knows that nothing was cut off. A failure does not
            # matter, as the peer may be gone or may have stopped reading.
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        super().close(reason)

    # --- in ----------------------------------------------------------------------------------

    def _take_input(self) -> None:
        if not self.is_established and not self._shake_hands():
            return
        for _ in range(READS_PER_TURN_MAX):
            super()._take_input()
            if self.is_closed or not self._is_reading or not self._tls.pending():
                return
        self._read_pending_soon()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        if not self.is_closed and self._is_reading and self._tls.pending():
            self._read_pending_soon()

    def _read_pending_soon(self) -> None:
        """Read the decrypted bytes in a later turn: no event of the socket announces them."""
        if not self._is_resumed:
            self._is_resumed = True
            self._loop.call_later(0, self._read_pending)

    def _read_pending(self) -> None:
        self._is_resumed = False
        if self.is_closed or not self._is_reading:
            return
        if self.host.loop_turn.is_spent:
            self._read_pending_soon()
            return
        self._on_readable()

    def _shake_hands(self) -> bool:
        """Make one step of the handshake. True once it is complete."""
        if self._handshakes.is_spent:
            return False  # the event loop will report again that there is something to read
        began_s = self._loop.time()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            # The server's handshake messages are a few kilobytes and find an empty send buffer. So
            # only a client that does not read can make the socket block.
            self.close("TLS: the client does not read the handshake")
            return False
        except OSError as failure:
            self.host.on_handshake_failed(self, failure)
            self.close(f"TLS: {failure}")
            return False
        finally:
            self._handshakes.spend(self._loop.time() - began_s, self._loop)
        self.is_established = True
        return self.authentication is not None or self._take_user()

    def _take_user(self) -> bool:
        """Map the client's certificate to its user. False if the connection was closed because it
        has no user."""
        certificate = self._tls.getpeercert(binary_form=True)
        try:
            if certificate is not None:
                self._tls_user = self._rules.user_of(certificate)
        except WireError as failure:
            self.host.on_handshake_failed(self, failure)
            self.close(f"TLS: {failure}")
            return False
        self.note_login(is_again=False, is_allowed=True)
        return True

    # --- out ---------------------------------------------------------------------------------

    def _send_once(self) -> bool:
        output = self._output
        part = output[0]
        if not isinstance(part, bytes | bytearray | memoryview):
            part = self._chunk(part)
        elif len(output) > 1:
            part = self._joined()
        # After a send that would have blocked, these are the same bytes again: the head of the
        # output only grows at its end.
        try:
            sent = self._tls.send(memoryview(part)[:RECORD_BYTES])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as full:
            raise BlockingIOError from full
        self._output_bytes -= sent
        if sent == len(part):
            output.popleft()
        else:
            output[0] = memoryview(part)[sent:]
        return True

    def _chunk(self, part: FileSlice) -> bytes:
        """The next bytes of a file slice, put at the head of the output."""
        send = part if isinstance(part, FileSend) else FileSend(part)
        want = min(send.left, FILE_CHUNK_BYTES)
        file = send.source.file
        try:
            data: bytes = file.pread(want, send.position)
        except OSError as failure:
            self.host.on_file_failed(file.path, failure)
            raise
        if not data:
            raise ConnectionAbortedError("the log segment was truncated while it was sent")
        send.position += len(data)
        send.left -= len(data)
        self._output[0] = data
        if send.left:
            self._output.insert(1, send)
        return data


def wrapped(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """An accepted socket with TLS on it, whose handshake has not begun.

    Raises OSError for a socket whose client has reset the connection already: SSLSocket would
    raise too, and leave the socket open.
    """
    sock.getpeername()
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
