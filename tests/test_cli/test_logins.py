"""A connection of a command logs in again before the broker would end it (KIP-368)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.client import connection as kafka_client
from kvorum.client.connection import KafkaConnection, UserRefused
from kvorum.client.current import acting_as
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed
from kvorum.client.security import ClientSecurity
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import encode_response

METADATA, HANDSHAKE, AUTHENTICATE = 3, 17, 36
ALICE = ClientSecurity(mechanism="PLAIN", user="alice", password="p")
TOPICS: dict[str, Any] = {
    "topics": [], "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
ANSWERS: dict[int, tuple[str, int, dict[str, Any]]] = {
    METADATA: ("metadata", 12, {"throttle_time": 0, "brokers": [], "cluster_id": "c",
                                "controller_id": 1, "topics": []}),
    HANDSHAKE: ("sasl_handshake", 1, {"error_code": 0, "mechanisms": ["PLAIN"]}),
    AUTHENTICATE: ("sasl_authenticate", 2, {"error_code": 0, "error_message": None,
                                            "auth_bytes": b"", "session_lifetime": 0}),
}  # fmt: skip


class Broker:
    """Answers one connection. asked: the keys of its requests, in order. said: fields that differ
    in the answers to the logins."""

    def __init__(self, lifetime_ms: int) -> None:
        self.asked: list[int] = []
        self.said: dict[str, Any] = {"session_lifetime": lifetime_ms}
        self.server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.server.getsockname()
        return host, port

    def close(self) -> None:
        self.server.close()
        self._thread.join()

    def _run(self) -> None:
        peer, _ = self.server.accept()
        with peer, peer.makefile("rb") as requests:
            while size := requests.read(4):
                request = requests.read(struct.unpack(">i", size)[0])
                key, _, correlation_id = struct.unpack_from(">hhi", request)
                self.asked.append(key)
                name, version, values = ANSWERS[key]
                more = self.said if key == AUTHENTICATE else {}
                body = encode_response(name, version, {**values, **more})
                tags = b"" if key == HANDSHAKE else b"\0"
                answer = struct.pack(">i", correlation_id) + tags + body
                peer.sendall(struct.pack(">i", len(answer)) + answer)


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of connections; a test moves it."""
    clock = [100.0]
    monkeypatch.setattr(kafka_client, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker(lifetime_ms=10_000)
    yield made
    made.close()


@pytest.fixture
def connection(now_s: list[float], broker: Broker) -> Iterator[KafkaConnection]:
    with acting_as(ALICE):
        made = KafkaConnection([broker.address], 5.0)
    yield made
    made.close()


def ask(connection: KafkaConnection) -> str:
    answer = connection.call("metadata", METADATA, 12, TOPICS, flexible=True)
    return str(answer.cluster_id)


def test_a_connection_logs_in_again_when_most_of_its_session_is_over(
    connection: KafkaConnection, broker: Broker, now_s: list[float]
) -> None:
    login = [HANDSHAKE, AUTHENTICATE]
    now_s[0] += 8.4
    assert ask(connection) == "c"
    assert broker.asked == [*login, METADATA]
    now_s[0] += 0.1
    assert ask(connection) == "c"
    assert broker.asked == [*login, METADATA, *login, METADATA]
    now_s[0] += 8.4  # the new session begins with the second login
    ask(connection)
    assert broker.asked[-2:] == [METADATA, METADATA]


def test_a_session_without_an_end_needs_no_second_login(broker: Broker, now_s: list[float]) -> None:
    broker.said["session_lifetime"] = 0
    with acting_as(ALICE):
        connection = KafkaConnection([broker.address], 5.0)
    now_s[0] += 1e9
    ask(connection)
    connection.close()
    assert broker.asked == [HANDSHAKE, AUTHENTICATE, METADATA]


@pytest.mark.parametrize(
    ("code", "is_user"),
    [(ErrorCode.SASL_AUTHENTICATION_FAILED, True), (ErrorCode.ILLEGAL_SASL_STATE, False)],
)
def test_a_second_login_that_fails_names_the_user(
    connection: KafkaConnection,
    broker: Broker,
    now_s: list[float],
    code: ErrorCode,
    is_user: bool,
) -> None:
    broker.said |= {"error_code": code, "error_message": "gone"}
    now_s[0] += 9.0
    with pytest.raises(CommandFailed, match=f"refused user alice: {code.name}: gone") as failure:
        ask(connection)
    assert failure.value.exit_code == EXIT_NOT_AUTHORIZED
    assert isinstance(failure.value, UserRefused) == is_user
