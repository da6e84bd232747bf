"""A TCP server that notes what reaches it and sends what a test tells it to."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class RecordingServer:
    """Accepts connections on a loopback port."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()
        self._peers: list[socket.socket] = []
        self._stopped = threading.Event()
        self.received = b""
        self.accepted = 0
        self.closed = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def send_to_all(self, data: bytes) -> None:
        with self._lock:
            for peer in self._peers:
                peer.sendall(data)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(5)
        for opened in [self._listener, *self._peers]:
            opened.close()

    def __enter__(self) -> RecordingServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._stopped.is_set():
                for key, _ in selector.select(0.05):
                    if key.fileobj is self._listener:
                        peer, _ = self._listener.accept()
                        with self._lock:
                            self._peers.append(peer)
                        self.accepted += 1
                        selector.register(peer, selectors.EVENT_READ)
                        continue
                    self._read(selector, key.fileobj)

    def _read(self, selector: selectors.BaseSelector, peer: socket.socket) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = peer.recv(65536)
        if data:
            self.received += data
            return
        selector.unregister(peer)
        with self._lock:
            self._peers.remove(peer)
        peer.close()
        self.closed += 1


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def is_open(peer: socket.socket) -> bool:
    """True if the other side has neither closed nor reset; bytes waiting are left alone."""
    peer.setblocking(False)
    try:
        return peer.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        peer.settimeout(5)


def rest_of(peer: socket.socket) -> bytes:
    """The bytes that arrive until the other side closes or resets."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := peer.recv(65536):
            received += data
    return received
