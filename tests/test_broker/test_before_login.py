"""The cost of a client without a login: buffers, time, requests, guesses."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from functools import partial

import pytest

import kvorum.broker.server as server_module
from kvorum.broker.network.frame_buffer import FIRST_BYTES, FrameBuffer
from kvorum.broker.network.login_limits import STRANGERS_BYTES
from kvorum.broker.sasl.core.authentication import VERSIONS_ASKED_MAX, Authentication
from kvorum.broker.sasl.core.plain import PlainExchange
from kvorum.metadata.access.audit import CLIENTS_CHARACTERS_MAX
from tests.polling import DEADLINE_S, eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


@pytest.fixture
def login(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Harness, int]]:
    """A broker, and the port of its listener with PLAIN: user alice, password secret."""
    monkeypatch.setattr(server_module, "IDLE_CHECK_INTERVAL_MS", 10)
    monkeypatch.setattr(server_module, "LOGIN_TIMEOUT_MS", 300)
    harness = Harness(tmp_path_factory.mktemp("login"), count=1)
    server = harness.cluster.brokers[1].server
    exchanges = {"PLAIN": partial(PlainExchange, {"alice": "secret"})}

    async def bind() -> int:
        port = await server.bind(
            "127.0.0.1", 0, listener_name="LOGIN",
            authenticate=lambda: Authentication(exchanges, session_ms={}),
        )  # fmt: skip
        server.serve()
        return port

    yield harness, harness.run(bind())
    harness.close()


def test_a_buffer_is_small_before_the_login_and_grows_with_what_comes() -> None:
    buffer = FrameBuffer(1 << 20, STRANGERS_BYTES)
    assert len(buffer.view) == STRANGERS_BYTES < FIRST_BYTES
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        for size in (10, 60_000):
            theirs.sendall(struct.pack(">i", size) + b"x" * size)
            found = None
            while found is None:
                buffer.receive(ours)
                found = buffer.next_frame()
            assert bytes(buffer.view[found[0] : found[1]]) == b"x" * size


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_byte_now_and_then_keeps_no_connection_that_does_not_log_in(
    login: tuple[Harness, int],
) -> None:
    _, port = login
    user = RawClient(port)
    user.call("sasl_handshake", 1, {"mechanism": "PLAIN"})
    user.call("sasl_authenticate", 1, {"auth_bytes": b"\0alice\0secret"})
    slow = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    data = iter(struct.pack(">i", 1_000) + bytes(1_000))

    def trickled() -> bool:
        try:
            slow.setblocking(True)
            slow.sendall(bytes([next(data)]))
        except ConnectionError:
            return True
        return is_closed(slow)

    eventually(trickled, "the slow client is closed")
    slow.close()
    # The user, who connected before, has logged in and stays.
    user.call("metadata", 4, {"topics": None, "allow_auto_topic_creation": False})
    user.close()


def test_asking_for_versions_is_no_login(login: tuple[Harness, int]) -> None:
    _, port = login
    client = RawClient(port)
    for _ in range(VERSIONS_ASKED_MAX):
        client.call("api_versions", 0, {})
    client.send("api_versions", 0, {})
    eventually(lambda: is_closed(client.sock), "the connection is closed")
    client.close()


def test_guesses_that_are_sent_together_are_one_guess(login: tuple[Harness, int]) -> None:
    _, port = login
    client = RawClient(port)
    client.call("sasl_handshake", 1, {"mechanism": "PLAIN"})
    guesses = [b"\0alice\0%d" % number for number in range(5)] + [b"\0alice\0secret"]
    frames = [
        client.frame("sasl_authenticate", 1, struct.pack(">i", len(guess)) + guess)
        for guess in guesses
    ]
    client.sock.sendall(b"".join(frames))
    answers = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            answers.append(struct.unpack_from(">h", client.receive()[1])[0])
    client.close()
    # The first guess may get its answer, SASL_AUTHENTICATION_FAILED; the broker reads no other.
    assert answers in ([], [58])


def test_a_large_request_is_refused_before_the_login(login: tuple[Harness, int]) -> None:
    _, port = login
    client = RawClient(port)
    client.sock.sendall(struct.pack(">i", 524_289))
    eventually(lambda: is_closed(client.sock), "the connection is closed")
    client.close()


def audited(caplog: pytest.LogCaptureFixture) -> list[dict]:
    lines = [r.getMessage() for r in caplog.records if r.name == "kvorum.audit"]
    return [json.loads(line) for line in lines]


def test_the_audit_log_names_the_user_that_a_refused_login_claimed(
    login: tuple[Harness, int], caplog: pytest.LogCaptureFixture
) -> None:
    _, port = login
    for name in ("mallory", "a\nb", "x" * 5_000):
        client = RawClient(port)
        client.call("sasl_handshake", 1, {"mechanism": "PLAIN"})
        with caplog.at_level("INFO", logger="kvorum.audit"):
            token = f"\0{name}\0wrong".encode()
            client.call("sasl_authenticate", 1, {"auth_bytes": token})
        client.close()
    found = audited(caplog)
    assert [line["principal"] for line in found] == [None] * 3
    assert [line["claimed_principal"] for line in found] == [
        "User:mallory",
        "User:a\nb",
        "User:" + "x" * CLIENTS_CHARACTERS_MAX,
    ]
    assert all("\n" not in r.getMessage() for r in caplog.records if r.name == "kvorum.audit")
    assert "wrong" not in json.dumps(found)


def test_the_audit_log_has_a_refused_mechanism(
    login: tuple[Harness, int], caplog: pytest.LogCaptureFixture
) -> None:
    client = RawClient(login[1])
    with caplog.at_level("INFO", logger="kvorum.audit"):
        client.call("sasl_handshake", 1, {"mechanism": "GSSAPI"})
    client.close()
    (line,) = audited(caplog)
    assert (line["event"], line["mechanism"], line["allowed"]) == ("login", "GSSAPI", False)
    assert line["reason"] == "the mechanism is not one of this login: PLAIN"
    assert line["principal"] is None
