"""One HTTP/2 connection, client or server: frames, flow control, keep-alive."""

from __future__ import annotations

import asyncio
from typing import cast

import grpc

from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.floods import SETTINGS_PER_SECOND_MAX, Flood
from kvorum.runtime.http2.frames import ProtocolError
from kvorum.runtime.http2.headers import HEADER_BYTES_MAX, Decoder
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, KeepAlive, Patience
from kvorum.runtime.http2.status import status_of_reset
from kvorum.runtime.http2.stream import STREAM_WINDOW, Stream
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import failure_text

FRAME_BYTES_MAX = 1 << 20
"""The largest frame that is accepted."""

STREAMS_MAX = 1_000
"""Limit of concurrent calls on one connection."""

UNSENT_BYTES_MAX = 4 << 20
"""Messages wait while the socket is full, but answers to the peer's frames do not. A peer that
causes this many unsent bytes without reading is disconnected."""

SETTINGS = {
    frames.SETTINGS_ENABLE_PUSH: 0,
    frames.SETTINGS_MAX_CONCURRENT_STREAMS: STREAMS_MAX,
    frames.SETTINGS_INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    frames.SETTINGS_MAX_FRAME_SIZE: FRAME_BYTES_MAX,
    frames.SETTINGS_MAX_HEADER_LIST_SIZE: HEADER_BYTES_MAX,
}

_PING = b"kvorum!?"


class Http2Connection(asyncio.Protocol):
    """The common part of client and server.

    send_window, frame_bytes_max, streams_max: the peer's present limits.
    is_congested: the socket is full.
    is_closing: no new stream may be opened.
    reason: why the connection was closed.
    """

    def __init__(self, patience: Patience = USUAL_PATIENCE) -> None:
        self.streams: dict[int, Stream] = {}
        self.send_window = frames.WINDOW_DEFAULT
        self.frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        self.streams_max = frames.WINDOW_MAX
        self.is_congested = False
        self.is_closing = False
        self.peer = "?"
        self.reason = ""
        self._peer_stream_window = frames.WINDOW_DEFAULT
        self._used_window = 0
        self._buffer = bytearray()
        self._decoder = Decoder()
        self._block: tuple[int, int, bytearray] | None = None
        self._transport: asyncio.Transport | None = None
        self._needed = 0
        self._has_settings = False
        self._settings = Flood(SETTINGS_PER_SECOND_MAX, "SETTINGS")
        self._keepalive = KeepAlive(self._ping, self.abort, patience)

    # The differences between client and server.

    def on_ready(self) -> None:
        """The peer's settings have arrived, so it speaks HTTP/2."""

    def on_headers(self, stream_id: int, headers: dict[str, str], *, ends_stream: bool) -> None:
        """A complete header block of a stream has arrived."""
        raise NotImplementedError

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        """A stream has received bytes that are not an acceptable message."""
        raise NotImplementedError

    def on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        """The peer accepts no new streams, and none above last_stream_id."""
        self.is_closing = True

    def on_lost(self) -> None:
        """The connection has ended, and its streams have been told."""
        raise NotImplementedError

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        self.peer = address_text(*peername[:2]) if peername else "?"
        # The connection's window is as large as possible: the windows of the streams limit memory.
        growth = frames.WINDOW_MAX - frames.WINDOW_DEFAULT
        self.send(frames.settings(SETTINGS) + frames.window_update(0, growth))

    def connection_lost(self, exc: Exception | None) -> None:
        self._keepalive.stop()
        if not self.reason:
            self.reason = self._reason_of_end(exc)
        self.fail_streams()
        self.on_lost()

    def _reason_of_end(self, error: Exception | None) -> str:
        if not self._has_settings and frames.is_tls(self._buffer):
            return "the other side speaks TLS"
        if error is None:
            return "the peer closed the connection"
        # After the handshake of TLS 1.3 a server may still refuse the client's certificate.
        return f"the connection was lost: {failure_text(error)}"

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        for stream in list(self.streams.values()):
            stream.wake_writer()

    def data_received(self, data: bytes) -> None:
        self._keepalive.heard_ms = monotonic_ms()
        buffer = self._buffer
        try:
            if not buffer:
                used = self._handle_frames(data)
                if used < len(data):
                    buffer += data[used:]
            else:
                buffer += data
                if len(buffer) >= self._needed:
                    used = self._handle_frames(bytes(buffer))
                    del buffer[:used]
        except ProtocolError as error:
            buffer.clear()
            self.refuse(error)

    def send(self, data: bytes) -> None:
        """Pass bytes to the socket; do nothing if the connection has ended."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if self.is_congested and transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.abort(f"the peer reads nothing, over {UNSENT_BYTES_MAX} bytes wait for it")

    def refuse(self, error: ProtocolError) -> None:
        """Tell the peer which rule it broke, and close the connection."""
        self.send(frames.goaway(0, error.code, str(error)))
        self.close(f"the peer broke HTTP/2: {error}")

    def close(self, reason: str) -> None:
        """Close the connection after sending all pending bytes."""
        self.is_closing = True
        self.reason = self.reason or reason
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection and drop all pending bytes."""
        self.is_closing = True
        self.reason = self.reason or reason
        if self._transport is not None:
            self._transport.abort()

    def fail_streams(self) -> None:
        """End every stream with the connection's reason."""
        self.is_closing = True
        for stream in list(self.streams.values()):
            stream.fail(grpc.StatusCode.UNAVAILABLE, self.reason)

    def open_stream(self, stream_id: int) -> Stream:
        """Add a stream that begins here or has just begun at the peer."""
        stream = Stream(self, stream_id, send_window=self._peer_stream_window)
        self.streams[stream_id] = stream
        return stream

    def forget(self, stream: Stream) -> None:
        """Remove a stream that has ended on both sides."""
        self.streams.pop(stream.id, None)

    def put_last(self, stream: Stream) -> None:
        """Move a stream that has just written to the end: the others are woken before it."""
        if self.streams.pop(stream.id, None) is not None:
            self.streams[stream.id] = stream

    def _handle_frames(self, data: bytes) -> int:
        """Process all whole frames and return their size in bytes."""
        at, end = 0, len(data)
        if not self._has_settings and end >= frames.HEAD_BYTES:
            frames.require_settings(data)
        self._needed = frames.HEAD_BYTES
        while end - at >= frames.HEAD_BYTES:
            length, kind, flags, stream_id = frames.parse_head(data, at)
            if length > FRAME_BYTES_MAX:
                raise ProtocolError(
                    f"a frame of {length} bytes is over {FRAME_BYTES_MAX}", frames.FRAME_SIZE_ERROR
                )
            start = at + frames.HEAD_BYTES
            if end - start < length:
                self._needed = frames.HEAD_BYTES + length
                break
            at = start + length
            payload = data[start:at]
            if self._block is not None and kind != frames.CONTINUATION:
                raise ProtocolError("a header block is interrupted")
            if kind == frames.DATA:
                self._on_data(stream_id, flags, payload)
            else:
                self._on_other(kind, flags, stream_id, payload)
        return at

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ProtocolError("DATA on stream 0")
        length = len(payload)
        self._used_window += length
        if self._used_window > frames.WINDOW_MAX // 2:
            self.send(frames.window_update(0, self._used_window))
            self._used_window = 0
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_remote_done:
            return  # this side has given the stream up, and the peer does not know yet
        if not stream.headers:
            raise ProtocolError("DATA before HEADERS")
        if flags & frames.PADDED:
            payload = frames.without_padding(payload, frames.PADDED)
        if length:
            stream.on_data(payload, length)
        if flags & frames.END_STREAM:
            stream.on_remote_done()

    def _on_other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        match kind:
            case frames.HEADERS:
                block = bytearray(frames.without_padding(payload, flags))
                self._on_block(stream_id, flags & frames.END_STREAM, block, flags)
            case frames.CONTINUATION:
                if self._block is None or self._block[0] != stream_id:
                    raise ProtocolError("a CONTINUATION of nothing")
                _, ends, block = self._block
                if not payload and not flags & frames.END_HEADERS:
                    raise ProtocolError("a CONTINUATION of no bytes", frames.ENHANCE_YOUR_CALM)
                block += payload
                self._on_block(stream_id, ends, block, flags)
            case frames.WINDOW_UPDATE:
                self._on_window_update(stream_id, frames.parse_window_update(payload))
            case frames.PING:
                if len(payload) != 8:
                    raise ProtocolError("a PING of broken length", frames.FRAME_SIZE_ERROR)
                if not flags & frames.ACK:
                    self.send(frames.frame(frames.PING, frames.ACK, 0, payload))
            case frames.SETTINGS:
                if not flags & frames.ACK:
                    self._on_settings(frames.parse_settings(payload))
            case frames.RST_STREAM:
                code = frames.parse_rst_stream(payload)
                stream = self.streams.get(stream_id)
                if stream is not None:
                    stream.fail(*status_of_reset(code))
            case frames.GOAWAY:
                self.on_goaway(*frames.parse_goaway(payload))
            case frames.PUSH_PROMISE:
                raise ProtocolError("a PUSH_PROMISE, which was not allowed")
            case _:
                return  # PRIORITY, and frame types that RFC 9113 may add, must be ignored

    def _on_block(self, stream_id: int, ends: int, block: bytearray, flags: int) -> None:
        if len(block) > HEADER_BYTES_MAX:
            raise ProtocolError("a header block is too large", frames.ENHANCE_YOUR_CALM)
        if not flags & frames.END_HEADERS:
            self._block = (stream_id, ends, block)
            return
        self._block = None
        headers = self._decoder.decode(bytes(block))
        self.on_headers(stream_id, headers, ends_stream=bool(ends))

    def _on_settings(self, values: dict[int, int]) -> None:
        self._settings.count(monotonic_ms())
        window = values.get(frames.SETTINGS_INITIAL_WINDOW_SIZE, self._peer_stream_window)
        frame_bytes = values.get(frames.SETTINGS_MAX_FRAME_SIZE, self.frame_bytes_max)
        if window > frames.WINDOW_MAX:
            raise ProtocolError("an initial window too large", frames.FLOW_CONTROL_ERROR)
        if not frames.FRAME_BYTES_DEFAULT <= frame_bytes <= frames.FRAME_BYTES_LIMIT:
            raise ProtocolError(f"frames of {frame_bytes} bytes are not HTTP/2")
        growth = window - self._peer_stream_window
        self._peer_stream_window = window
        # Smaller frames than the peer accepts, so that other streams get turns in between.
        self.frame_bytes_max = min(frame_bytes, FRAME_BYTES_MAX)
        self.streams_max = values.get(frames.SETTINGS_MAX_CONCURRENT_STREAMS, self.streams_max)
        self.send(frames.frame(frames.SETTINGS, frames.ACK, 0))
        for stream in list(self.streams.values()):
            stream.add_window(growth)
        if not self._has_settings:
            self._has_settings = True
            self.on_ready()

    def _on_window_update(self, stream_id: int, increment: int) -> None:
        if stream_id == 0:
            is_open = self.send_window > 0
            self.send_window += increment
            if self.send_window > frames.WINDOW_MAX:
                raise ProtocolError("the window overflows", frames.FLOW_CONTROL_ERROR)
            if is_open:
                return  # nobody waits for it
            for stream in list(self.streams.values()):
                stream.wake_writer()
            return
        stream_there = self.streams.get(stream_id)
        if stream_there is not None:
            stream_there.add_window(increment)

    def _ping(self) -> None:
        self.send(frames.frame(frames.PING, 0, 0, _PING))
