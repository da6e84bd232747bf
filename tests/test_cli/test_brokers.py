"""Requests of the CLI's own client while brokers and coordinators are away."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.client.cluster.brokers import Brokers, Unavailable
from kvorum.client.connection import BrokerGone
from kvorum.client.groups.coordinator import GROUP, Coordinator
from kvorum.runtime.errors import ErrorCode


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only pauses move the time."""
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now_s.append(now_s.pop() + seconds))


@contextlib.contextmanager
def hanging_up() -> Iterator[tuple[str, int]]:
    """The address of a broker that accepts every connection, and closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[:2]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def test_a_broker_that_hangs_up_without_an_answer_is_asked_on_a_new_connection():
    # As one that is being killed: the kernel may accept connections until the process is gone.
    with hanging_up() as address:
        brokers = Brokers([address], 1.0)
        for _ in range(2):
            with pytest.raises(BrokerGone):
                brokers.topics(["orders"])
        brokers.close()


class Answers:
    """Brokers that answer find_coordinator with these results, the last one again and again, and
    any request to the coordinator with `error`."""

    timeout_s = 1.0

    def __init__(self, *found: ErrorCode | BrokerGone, error: int = 0) -> None:
        self._found = list(found)
        self._error = error

    def call(self, name: str, key: int, version: int, values: Any, **_: Any) -> Any:
        if name != "find_coordinator":
            return SimpleNamespace(error_code=self._error)
        result = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(result, BrokerGone):
            raise result
        row = SimpleNamespace(error_code=result, error_message="no leader now", node_id=101)
        return SimpleNamespace(coordinators=[row])

    def to(self, broker_id: int) -> Answers:
        return self

    def address(self, broker_id: int) -> tuple[str, int]:
        return ("localhost", 9092)

    def forget(self, broker_id: int) -> None:
        pass


def asked(brokers: Answers) -> Any:
    coordinator = Coordinator(brokers, GROUP, "billing")  # type: ignore[arg-type]
    return coordinator.call("heartbeat", 12, 4, {}, error_of=lambda reply: reply.error_code)


@pytest.mark.parametrize(
    "away",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        BrokerGone("no broker reachable"),
    ],
)
def test_a_coordinator_that_cannot_be_found_is_looked_up_again(clock, away):
    assert asked(Answers(away, away, ErrorCode.NONE)).error_code == ErrorCode.NONE
    with pytest.raises((Unavailable, BrokerGone)):
        asked(Answers(away))


def test_a_coordinator_that_has_moved_away_for_too_long_is_unavailable(clock):
    with pytest.raises(Unavailable, match="NOT_COORDINATOR"):
        asked(Answers(ErrorCode.NONE, error=ErrorCode.NOT_COORDINATOR))


def test_another_error_of_the_lookup_is_final(clock):
    with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED") as failed:
        asked(Answers(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE))
    assert not isinstance(failed.value, Unavailable)
