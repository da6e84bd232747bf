"""Requests to the HTTP server of a node, as bytes."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.polling import DEADLINE_S


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while data := sock.recv(1 << 16):
            answer += data
        return answer


def get(port: int, path: str, accept: str = "*/*") -> tuple[int, str]:
    """Status and body."""
    request = f"GET {path} HTTP/1.0\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
    head, _, body = ask(port, request.encode()).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()


def get_json(port: int, path: str) -> tuple[int, Any]:
    status, body = get(port, path, "application/json")
    return status, json.loads(body)
