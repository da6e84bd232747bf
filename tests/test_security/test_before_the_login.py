"""The messages of a stranger to a broker before the login, and their cost."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.broker import server
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.network import login_limits
from kvorum.broker.network.frame_buffer import FrameBuffer
from kvorum.broker.network.login_limits import STRANGERS_BYTES, LoginMemory
from kvorum.broker.sasl.core.exchange import AuthenticationFailed
from kvorum.broker.sasl.core.plain import PlainExchange
from kvorum.broker.sasl.core.scram import MESSAGE_BYTES_MAX, ScramExchange
from kvorum.runtime.errors import ErrorCode, WireError
from tests.polling import DEADLINE_S, eventually
from tests.test_broker.credentials import credential_of
from tests.test_broker.raw_client import RawClient
from tests.test_security.attackers import TlsClient, connect_and_reset, ends_without_an_answer
from tests.test_security.logins import PASSWORDS, Door

LARGEST = 524_288
"""sasl.server.max.receive.size."""


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.close()


def serves(door: Door) -> bool:
    client = TlsClient(door.tls)
    try:
        return client.log_in("alice", PASSWORDS["alice"], "PLAIN") == 0
    finally:
        client.close()


@pytest.mark.parametrize("data", [b"x", b"\x16\x03\x01", b""])
def test_a_client_that_is_gone_before_it_is_accepted_ends_nothing(door: Door, data: bytes) -> None:
    """Bad sequence: 1. A client connects while the loop is busy, sends data and resets the
    connection. 2. The broker accepts it, and ssl fails to wrap the broken socket. 3. The exception
    ends the process."""
    go_on = threading.Event()
    door.harness.loop.call_soon_threadsafe(go_on.wait, DEADLINE_S)
    for _ in range(20):
        connect_and_reset(door.tls, data)
    go_on.set()
    assert serves(door)
    eventually(lambda: not door.connections(), "nothing is left of them")


def test_a_request_of_a_million_bytes_is_refused_by_its_size(door: Door) -> None:
    for client in (RawClient(door.plain), TlsClient(door.tls)):
        client.sock.sendall(struct.pack(">i", 1_000_000) + bytes(10_000))
        assert ends_without_an_answer(client)
        client.close()
    assert serves(door)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("token", [b"\0" * LARGEST, b"n,," + b"a" * (LARGEST - 3)])
def test_a_bare_token_of_512_kib_is_a_failed_login(
    door: Door, mechanism: str, token: bytes
) -> None:
    client = RawClient(door.plain)
    assert client.call("sasl_handshake", 0, {"mechanism": mechanism}).error_code == 0
    client.sock.sendall(struct.pack(">i", len(token)) + token)
    assert ends_without_an_answer(client)
    client.close()
    assert serves(door)
    assert door.server.login_memory.left == login_limits.SHARED_BYTES


def test_a_login_that_stops_half_way_has_access_to_nothing(door: Door) -> None:
    metadata = {
        "topics": [{"name": "t"}], "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }  # fmt: skip
    for name, version, values in (
        ("metadata", 9, metadata),
        ("metadata", 9, {**metadata, "topics": None}),
        ("find_coordinator", 2, {"key": "g", "key_type": 0}),
        ("find_coordinator", 4, {"coordinator_keys": ["g"], "key_type": 0}),
        ("list_groups", 4, {"states_filter": []}),
        ("api_versions", 3, {"client_software_name": "c", "client_software_version": "1"}),
    ):
        client = RawClient(door.plain)
        assert client.call("sasl_handshake", 1, {"mechanism": "SCRAM-SHA-512"}).error_code == 0
        answer = client.call(name, version, values)
        rows = getattr(answer, "topics", None) or getattr(answer, "coordinators", None) or ()
        codes = {row.error_code for row in rows or ([] if name == "metadata" else [answer])}
        assert codes <= {ErrorCode.ILLEGAL_SASL_STATE}
        assert ends_without_an_answer(client)
        client.close()
    client = RawClient(door.plain)
    assert client.call("sasl_handshake", 1, {"mechanism": "SCRAM-SHA-512"}).error_code == 0
    client.send("offset_for_leader_epoch", 4, {"replica_id": -1, "topics": []})
    assert ends_without_an_answer(client)
    client.close()
    again = RawClient(door.plain)
    assert again.call("sasl_handshake", 1, {"mechanism": "PLAIN"}).error_code == 0
    answer = again.call("sasl_handshake", 1, {"mechanism": "PLAIN"})
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert ends_without_an_answer(again)
    again.close()


def test_the_first_message_of_scram_that_is_kept_is_short() -> None:
    """512 KiB of extensions would be kept for each connection that names a known user."""
    credential = credential_of("pencil")
    long = b"n,,n=user,r=abc,x=" + b"y" * MESSAGE_BYTES_MAX
    with pytest.raises(AuthenticationFailed):
        ScramExchange("SCRAM-SHA-256", lambda _: credential, "nonce").step(long)
    with pytest.raises(AuthenticationFailed):
        PlainExchange(PASSWORDS).step(b"\0alice\0" + bytes(LARGEST))


def test_buffers_grow_by_what_is_shared_and_give_it_back() -> None:
    memory = LoginMemory(STRANGERS_BYTES)

    class Sender:
        """A socket that always has more bytes of a large request."""

        def recv_into(self, buffer: memoryview) -> int:
            buffer[:4] = struct.pack(">i", LARGEST - 4)
            return len(buffer)

    one = FrameBuffer(LARGEST, STRANGERS_BYTES, memory)
    one.receive(Sender())
    assert memory.left == STRANGERS_BYTES
    one.receive(Sender())
    assert memory.left == 0
    other = FrameBuffer(LARGEST, STRANGERS_BYTES, memory)
    other.receive(Sender())
    with pytest.raises(WireError, match="not logged in"):
        other.receive(Sender())
    other.release()
    one.release()
    one.release()
    assert memory.left == STRANGERS_BYTES
    one.receive(Sender())
    assert memory.left == STRANGERS_BYTES


def test_a_thousand_clients_without_a_login_share_a_bounded_memory(door: Door) -> None:
    """Each announces a request of 512 KiB and sends all of it but the last byte."""
    door.server.login_memory.left = shared = 1 << 20
    part = struct.pack(">i", LARGEST - 1) + bytes(8 * 1024)
    socks = []
    for number in range(1_000):
        sock = socket.create_connection(("127.0.0.1", door.plain), timeout=DEADLINE_S)
        socks.append(sock)
        sock.sendall(part)
        # Accepted one by one: the backlog of a listener is short.
        eventually(lambda n=number: len(door.server._connections) + closed(door) > n, "accepted")
    held = door.harness.call(
        lambda: sum(len(connection._buffer.view) for connection in door.connections())
    )
    assert held <= 1_000 * STRANGERS_BYTES + shared
    assert closed(door) > 0
    assert serves(door)
    for sock in socks:
        sock.close()
    eventually(lambda: not door.connections(), "they are gone")
    assert door.server.login_memory.left == shared


def closed(door: Door) -> int:
    return door.server.metrics.listener("").closed


def test_after_the_login_the_limits_are_those_of_users(door: Door) -> None:
    client = TlsClient(door.tls)
    assert client.log_in("bob", PASSWORDS["bob"], "PLAIN") == 0
    (connection,) = door.connections()
    config = door.server.config
    assert connection._buffer.frame_bytes_max == config.socket_request_max_bytes
    client.sock.sendall(struct.pack(">i", 1 << 20) + bytes(100_000))
    eventually(lambda: len(connection._buffer.view) > STRANGERS_BYTES, "the buffer has grown")
    assert door.server.login_memory.left == login_limits.SHARED_BYTES
    client.close()


def test_who_does_not_log_in_is_disconnected_and_who_did_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_CHECK_INTERVAL_MS", 20)
    monkeypatch.setattr(server, "LOGIN_TIMEOUT_MS", 200)
    door = Door(tmp_path)
    try:
        known = TlsClient(door.tls)
        assert known.log_in("alice", PASSWORDS["alice"], "PLAIN") == 0
        stranger = RawClient(door.plain)
        # The stranger keeps its connection busy, which does not help.
        stranger.call("api_versions", 0, {})
        assert ends_without_an_answer(stranger)
        assert known.call("api_versions", 0, {}).error_code == 0
        for client in (known, stranger):
            client.close()
    finally:
        door.close()


def test_clients_that_use_up_max_connections_keep_no_broker_out(tmp_path: Path) -> None:
    door = Door(tmp_path, config=BrokerConfig(max_connections=8))
    try:
        bind = door.server.bind
        port = door.harness.run(bind("127.0.0.1", 0, listener_name="NODES", is_for_brokers=True))
        door.harness.call(door.server.serve)
        strangers = [RawClient(door.plain) for _ in range(8)]
        eventually(lambda: len(door.server._connections) == 8, "all places are taken")
        beyond = RawClient(door.plain)
        assert ends_without_an_answer(beyond)
        brokers = [RawClient(port) for _ in range(8)]
        for broker in brokers:
            assert broker.call("api_versions", 0, {}).error_code == 0
        # Not at the cost of each other.
        last = RawClient(port)
        assert ends_without_an_answer(last)
        assert all(ends_without_an_answer(stranger) for stranger in strangers)
        for client in (*strangers, *brokers, beyond, last):
            client.close()
    finally:
        door.close()
