"""One client connection: reads request frames and sends the answers in the order of the requests.

Each request takes a slot. Slots may be filled in any order; they leave in the order in which they
were taken. Reading stops while the client has too many answers outstanding or leaves too many bytes
unread (limits in BrokerConfig). So a slow reader costs bounded memory and delays no other client.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import select
import socket
import sys
import termios
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.metrics.counters import BrokerMetrics, RequestTiming
from kvorum.broker.network.frame_buffer import FrameBuffer
from kvorum.broker.network.login_limits import STRANGERS_BYTES, LoginMemory
from kvorum.broker.network.output_parts import SOCKET_ERRNOS, FileSend, Part, part_size
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.runtime import peer_failures
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import WireError
from kvorum.wire.fetch_codec import FileSlice

_log = logging.getLogger(__name__)

SENDFILE_CHUNK_BYTES = 1 << 20
"""Bytes of one sendfile call; a longer call would keep the event loop from the other
connections."""
TURN_MAX_S = 0.005
"""Time that one client's pipelined requests may take in a turn of the event loop. The last request
may exceed it."""
LONG_TURN_S = 0.05
"""Time beyond TURN_MAX_S that a single request may take. After a longer one, no other connection
has a turn until the event loop has gone round once."""
MUTE_MAX_MS = (1 << 31) - 1
"""Longest pause in ms: throttle_time_ms is an int32."""
COLD_REQUESTS_MAX = 100
"""Cold requests of one connection that may run at a time; further ones stay unread, so that no
client takes all that the server allows."""
ANONYMOUS = "ANONYMOUS"
"""The user of a connection that is not authenticated."""
SEND_TURN_BYTES = 2 << 20
"""Bytes that a connection sends in a turn of the event loop. A client that reads as fast as this
broker sends would otherwise keep the others waiting until a large answer has left."""
JOIN_BYTES_MAX = 64 * 1024
"""Answers up to this size are joined into one send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHost:
    """The parts that all connections of a broker share.

    dispatch: handles the request in view[position:end], and fills the slot now or later.
    on_file_failed: a log's file could not be read while it was sent.
    on_handshake_failed: the client did not get through the TLS handshake, or has no user.
    """

    config: BrokerConfig
    loop_turn: LoopTurn
    metrics: BrokerMetrics
    login_memory: LoginMemory
    clock: Clock
    dispatch: Callable[[Slot, memoryview, int, int], None]
    on_closed: Callable[[Connection, str], None]
    on_protocol_error: Callable[[Connection, WireError], None]
    on_file_failed: Callable[[str, OSError], None]
    on_handshake_failed: Callable[[Connection, OSError | WireError], None]


class Slot:
    """The place of one answer in the order of answers. Fill it once, with the parts of its
    frame."""

    __slots__ = ("connection", "is_ready", "parked", "parts", "timing")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.timing: RequestTiming | None = None
        """Set if the request is timed; under load most requests are only counted."""
        self.parts: Sequence[Part] = ()
        self.is_ready = False
        self.parked: Any = None
        """The work to cancel when the connection closes: an object with cancel()."""

    def fill(self, parts: Sequence[Part]) -> None:
        """Set the answer; () sends nothing (acks=0)."""
        self.parts = parts
        self.is_ready = True
        self.parked = None
        connection = self.connection
        if self.timing is not None:
            self.timing.ready_s = connection.time_s()
        connection.count_output(parts)
        if not connection.is_closed and connection.slots[0] is self:
            connection.host.loop_turn.flush(connection)


class Connection:
    """One accepted connection of a listener.

    is_flush_due: belongs to `purgatory.LoopTurn`.
    cold_requests: number of requests that run as tasks.
    software: name and version that the client gave in ApiVersions (KIP-511).
    authentication: None on a listener without SASL.
    """

    #: An idle connection must cost little: some applications hold thousands.
    _FIRST_BYTES = STRANGERS_BYTES
    #: Exceptions of a read from a socket that has received nothing.
    _NOTHING_NOW: tuple[type[OSError], ...] = (BlockingIOError,)

    __slots__ = (
        "_buffer",
        "_end_reason",
        "_fd",
        "_has_writer",
        "_is_reading",
        "_is_yielding",
        "_loop",
        "_muted_until_ms",
        "_output",
        "_output_bytes",
        "_sock",
        "_unmute_timer",
        "_unsent",
        "address",
        "authentication",
        "cold_requests",
        "host",
        "is_closed",
        "is_flush_due",
        "last_active_ms",
        "listener",
        "opened_ms",
        "peer",
        "read_s",
        "slots",
        "software",
        "time_s",
    )

    def __init__(
        self,
        host: ConnectionHost,
        sock: socket.socket,
        peer: str,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        address: str = "",
        authentication: Authentication | None = None,
    ) -> None:
        """address: the peer's, if the connection counts against that address's limits, else ""."""
        self.host = host
        self.authentication = authentication
        self.address = address
        self.peer = peer
        self.listener = listener
        self.slots: deque[Slot] = deque()
        self.software = ("", "")
        self.is_closed = False
        self.is_flush_due = False
        self.opened_ms = self.last_active_ms = host.clock.monotonic_ms()
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self.time_s = loop.time
        self.read_s = 0.0
        """The event loop's time at which the request was read that is being dispatched."""
        self._unsent: list[RequestTiming] = []
        """Timings of answers in the output; they end once all of it is sent."""
        config = host.config
        if authentication is None:
            self._buffer = FrameBuffer(config.socket_request_max_bytes, self._FIRST_BYTES)
        else:
            size = config.sasl_server_max_receive_size
            self._buffer = FrameBuffer(size, STRANGERS_BYTES, host.login_memory)
        self._output: deque[Part] = deque()
        self._output_bytes = 0
        self._has_writer = False
        self._is_reading = True
        self._is_yielding = False
        self.cold_requests = 0
        self._muted_until_ms = 0
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._end_reason = ""
        loop.add_reader(self._fd, self._on_readable)

    @property
    def user(self) -> str:
        """The client's user, as quotas name it."""
        return ANONYMOUS if self.authentication is None else self.authentication.user or ANONYMOUS

    def allow_whole_requests(self) -> None:
        """Read requests of any size from now on: the client is authenticated."""
        self._buffer.frame_bytes_max = self.host.config.socket_request_max_bytes
        self._buffer.release()

    @property
    def must_log_in(self) -> bool:
        """True on a listener with SASL until the client has proved who it is."""
        return self.authentication is not None and not self.authentication.is_done

    def note_login(self, *, is_again: bool, is_allowed: bool) -> None:
        """Count the end of a login; see `ConnectionMetrics`."""
        metrics = self.host.metrics.listener(self.listener)
        metrics.note_login(is_again=is_again, is_allowed=is_allowed)

    @property
    def is_idle(self) -> bool:
        """True if no request is unanswered and no answer is unsent."""
        return not self.slots and not self._output

    def save_memory(self) -> None:
        """Give up a large receive buffer. Call it when the connection has been idle for a while."""
        if self.is_idle:
            self._buffer.shrink(self._FIRST_BYTES)

    def fail(self, failure: WireError) -> None:
        """Close the connection, and log that the peer broke the protocol."""
        if not self.is_closed:
            self.host.on_protocol_error(self, failure)
            # Answers that are ready still go out: an append, for example, has happened all the
            # same.
            self.flush()
            self.close(f"protocol error: {failure}")

    def fail_answer(self, name: str, error: Exception) -> None:
        """Close the connection: an answer cannot be encoded, by a bug of ours or because it exceeds
        a frame."""
        _log.error("the answer to %s of %s cannot be written", name, self.peer, exc_info=error)
        self.close(f"no answer to {name}")

    def break_off(self, error: Exception) -> None:
        """Close the connection after an error that no check has foreseen, and report the error. The
        client must not wait for an answer that will never come."""
        self.close("internal error")
        peer_failures.report(error, self.peer, "a connection")

    def close_when_idle(self, reason: str) -> None:
        """Close the connection once every request is answered and all answers are sent."""
        self._end_reason = reason

    def close(self, reason: str) -> None:
        """Close the connection now; requests under way lose their answers. May be called again."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._output.clear()
        self._buffer.release()
        self._unsent.clear()
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if slot.parked is not None:
                slot.parked.cancel()
        self.host.on_closed(self, reason)

    # --- quotas ------------------------------------------------------------------------------

    @property
    def muted_ms(self) -> int:
        """Remaining milliseconds of the pause in which requests are not read; 0 without one."""
        if self._unmute_timer is None:
            return 0
        return max(self._muted_until_ms - self.host.clock.monotonic_ms(), 0)

    def now_ms(self) -> int:
        """Monotonic, by the server's clock."""
        return self.host.clock.monotonic_ms()

    def mute(self, duration_ms: int) -> None:
        """Read no requests for `duration_ms` from now; answers still go out. A pause that would end
        before the present one changes nothing."""
        duration_ms = min(duration_ms, MUTE_MAX_MS)
        until_ms = self.now_ms() + duration_ms
        if duration_ms <= 0 or until_ms <= self._muted_until_ms or self.is_closed:
            return
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._muted_until_ms = until_ms
        self._unmute_timer = self._loop.call_later(duration_ms / 1000, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._unmute_timer = None
        if not self._is_yielding:
            self._continue_reading()

    # --- in ----------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        turn = self.host.loop_turn
        if turn.is_spent:
            return  # the event loop will report again that there is something to read
        turn.begin()
        try:
            self._take_input()
        except WireError as failure:
            self.fail(failure)
        except Exception as error:  # noqa: BLE001 - reported
            self.break_off(error)
        finally:
            turn.run()

    def _take_input(self) -> None:
        if self._receive():
            self.last_active_ms = self.now_ms()
            self._handle_frames()

    def _receive(self) -> bool:
        """Receive once. True if bytes came. Raises WireError."""
        try:
            count = self._buffer.receive(self._sock)
        except self._NOTHING_NOW:
            return False
        except OSError as failure:
            # Includes ETIMEDOUT and EHOSTUNREACH: when the peer's machine is gone, the kernel stops
            # resending and returns such an error to the next call on the socket.
            self.close(repr(failure))
            return False
        if count == 0:
            self.close("closed by the peer")
        return count > 0

    def _handle_frames(self) -> None:
        buffer, host = self._buffer, self.host
        self.read_s = self.time_s()
        until_s = self.read_s + TURN_MAX_S
        while not self.is_closed:
            if self._is_full():
                self._pause_reading()
                return
            frame = buffer.next_frame()
            if frame is None:
                return
            slot = Slot(self)
            self.slots.append(slot)
            host.dispatch(slot, buffer.view, *frame)
            self.read_s = now_s = self.time_s()
            if slot.timing is not None:
                slot.timing.handled_s = now_s
            if now_s > until_s:
                if now_s > until_s + LONG_TURN_S:
                    host.loop_turn.spend()
                if not self.is_closed:
                    self._is_yielding = True
                    self._pause_reading()
                    self._go_on_after_others()
                return

    def _go_on_after_others(self) -> None:
        if self.host.loop_turn.is_spent:
            # asyncio runs `call_soon` callbacks before the next turn's sockets, and due timers
            # after them. With `call_soon`, this connection would spend the next turn too, and no
            # other would be read.
            self._loop.call_later(0, self._continue_reading)
        else:
            self._loop.call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        """Continue after the other connections have had their turn."""
        turn = self.host.loop_turn
        if turn.is_spent:
            self._is_yielding = True  # a pause may have just ended: see `has_hung_up`
            self._go_on_after_others()
            return
        self._is_yielding = False
        turn.begin()
        try:
            if not self._is_reading and not self.is_closed and not self._is_full():
                self._resume_reading()
        except Exception as error:  # noqa: BLE001 - reported
            self.break_off(error)
        finally:
            turn.run()

    def _is_full(self) -> bool:
        config = self.host.config
        return (
            self._is_yielding
            or self._unmute_timer is not None
            or len(self.slots) >= config.connection_requests_in_flight_max
            or self.cold_requests >= COLD_REQUESTS_MAX
            or self._output_bytes > config.connection_output_bytes_max
        )

    @property
    def has_hung_up(self) -> bool:
        """True if the peer has closed the connection. While requests are not read, only this shows
        it."""
        # A simulated socket has no descriptor that the kernel knows.
        if self._is_reading or self.is_closed or not isinstance(self._sock, socket.socket):
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLRDHUP)
        if not poll.poll(0):
            return False
        # Requests with acks=0 that the peer sent before it closed are still to be read after a
        # pause.
        is_paused = self._is_yielding or self._unmute_timer is not None
        return not (is_paused and (self._buffer.has_more or _unread_bytes(self._fd)))

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading(self) -> None:
        self._is_reading = True
        self._loop.add_reader(self._fd, self._on_readable)
        # Frames that arrived before the pause are in the buffer; no socket event will announce
        # them.
        try:
            self._handle_frames()
        except WireError as failure:
            self.fail(failure)

    # --- out ---------------------------------------------------------------------------------

    def count_output(self, parts: Sequence[Part]) -> None:
        """Count the bytes of an answer, also of one that waits behind an earlier answer."""
        self._output_bytes += sum(map(part_size, parts))

    def count_held(self, size: int) -> None:
        """Count `size` more bytes of this connection's requests that are kept (fewer if negative).
        They count toward the limit on unsent output, so that reading stops for them too."""
        self._output_bytes += size
        if size < 0:
            self._go_on_soon()

    def flush(self) -> None:
        """Move the answers that are next in order into the output, and send what the socket
        takes."""
        slots, output = self.slots, self._output
        if self.is_closed:
            return
        while slots and slots[0].is_ready:
            slot = slots.popleft()
            output.extend(slot.parts)
            if slot.timing is not None:
                self._unsent.append(slot.timing)
        if not self._has_writer:
            self._send()
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Handle waiting frames in a turn of their own. In this turn, each answer that leaves would
        let in the next request."""
        if not self._is_reading and not self.is_closed and not self._is_full():
            self._is_yielding = True
            self._loop.call_soon(self._continue_reading)

    def _on_writable(self) -> None:
        turn = self.host.loop_turn
        turn.begin()
        try:
            self._send()
            self._go_on_soon()
        except Exception as error:  # noqa: BLE001 - reported
            self.break_off(error)
        finally:
            turn.run()

    def _send(self) -> None:
        # Bytes that are left for the next turn.
        left = self._output_bytes - SEND_TURN_BYTES
        try:
            while self._output and self._output_bytes > left:
                if not self._send_once():
                    break
        except BlockingIOError:
            pass
        except OSError as failure:
            self.close(repr(failure))
            return
        if self._unsent and not self._output:
            self._note_sent()
        if self._output and not self._has_writer:
            self._has_writer = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not self._output and self._has_writer:
            self._has_writer = False
            self._loop.remove_writer(self._fd)
        if self._end_reason and self.is_idle:
            self.close(self._end_reason)

    def _note_sent(self) -> None:
        sent_s = self.time_s()
        throttle_s = 0.0 if self._unmute_timer is None else self.muted_ms / 1000
        for timing in self._unsent:
            timing.end(sent_s, throttle_s)
        self._unsent.clear()

    def _send_once(self) -> bool:
        """Make one system call. False if the socket took less than it was offered."""
        output = self._output
        part = output[0]
        if not isinstance(part, bytes | bytearray | memoryview):
            return self._send_file(part)
        if len(output) > 1:
            part = self._joined()
        flags = socket.MSG_MORE if len(output) > 1 and _MORE else 0
        size = len(part)
        sent = self._sock.send(part, flags)
        self._output_bytes -= sent
        if sent == size:
            output.popleft()
            return True
        output[0] = memoryview(part)[sent:]
        return False

    def _joined(self) -> bytes | bytearray | memoryview:
        """Join the byte parts at the head of the output, up to JOIN_BYTES_MAX."""
        output = self._output
        parts: list[bytes | bytearray | memoryview] = []
        size = 0
        while output and size < JOIN_BYTES_MAX:
            head = output[0]
            if not isinstance(head, bytes | bytearray | memoryview):
                break
            parts.append(head)
            size += len(head)
            output.popleft()
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        output.appendleft(joined)
        return joined

    def _report_failed_file(self, send: FileSend, count: int, failure: OSError) -> None:
        """Report the file if it, and not the socket, made a sendfile fail. If the errno does not
        tell, reading the same bytes again does."""
        file = send.source.file
        if failure.errno != errno.EIO:  # EIO never comes from a socket
            try:
                file.pread(count, send.position)
                return
            except OSError as of_file:
                failure = of_file
        self.host.on_file_failed(file.path, failure)

    def _send_file(self, part: FileSlice) -> bool:
        send = part if isinstance(part, FileSend) else FileSend(part)
        self._output[0] = send
        # Read the descriptor at the moment of sending. A closed file has -1, while a descriptor
        # kept from before may by now belong to another file.
        fd = send.source.file.fileno()
        want = min(send.left, SENDFILE_CHUNK_BYTES)
        try:
            if fd < 0:
                # This disk has no descriptors (simulation). A closed file raises OSError here.
                self._output[0] = send.read()
                return True
            sent = os.sendfile(self._fd, fd, send.position, want)
        except OSError as failure:
            if failure.errno not in SOCKET_ERRNOS:
                self._report_failed_file(send, want, failure)
            raise
        if sent == 0:
            raise ConnectionAbortedError("the log segment was truncated while it was sent")
        send.position += sent
        send.left -= sent
        self._output_bytes -= sent
        if send.left == 0:
            self._output.popleft()
        return sent == want


def _unread_bytes(fd: int) -> int:
    """Bytes that the kernel has received on a socket and that are not read yet."""
    count = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


_MORE = hasattr(socket, "MSG_MORE")
