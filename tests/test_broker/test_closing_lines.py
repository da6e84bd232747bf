"""A connection closed for a protocol error leaves a line in the log, a flood of them a few
lines."""

from __future__ import annotations

import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.protocol_error_log import (
    LINES_PER_SECOND_MAX,
    REASON_CHARACTERS_MAX,
    REPEAT_MS,
    REPEATS_KEPT_MAX,
    ProtocolErrorLog,
)
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

TLS_HELLO = bytes.fromhex("16030100c8010000c40303")
PEER = "('127.0.0.1', 5)"


def test_a_line_names_peer_and_reason() -> None:
    assert ProtocolErrorLog().closed(PEER, "a frame of -5 bytes", 7) == [
        f"connection closed: peer={PEER} reason=a frame of -5 bytes"
    ]


def test_a_long_reason_is_cut() -> None:
    (line,) = ProtocolErrorLog().closed(PEER, "x" * 100_000, 7)
    assert len(line) < REASON_CHARACTERS_MAX + 100


def test_what_is_above_the_limit_is_told_as_a_number_when_the_second_is_over() -> None:
    lines = ProtocolErrorLog()
    said = [lines.closed(PEER, "garbage", 100) for _ in range(LINES_PER_SECOND_MAX + 7)]
    assert [len(s) for s in said] == [1] * LINES_PER_SECOND_MAX + [0] * 7
    assert lines.has_more
    assert lines.more_due_ms == 1100
    assert lines.more(1099) == []
    assert lines.more(1100) == ["connections closed for protocol errors: 7 more within a second"]
    assert not lines.has_more
    assert lines.more(9000) == []


def test_the_next_second_begins_with_what_was_held_back_in_the_last() -> None:
    lines = ProtocolErrorLog()
    for _ in range(LINES_PER_SECOND_MAX + 1):
        lines.closed(PEER, "garbage", 0)
    number, line = lines.closed(PEER, "garbage", 1000)
    assert "1 more" in number
    assert line.startswith("connection closed")


@given(st.lists(st.integers(0, 400), max_size=120))
def test_every_connection_is_told_of_once_and_never_more_than_ten_lines_begin_in_a_second(
    steps_ms: list[int],
) -> None:
    lines, now_ms, told, written = ProtocolErrorLog(), 0, 0, []

    def read(said: list[str]) -> None:
        nonlocal told
        for line in said:
            if line.startswith("connection closed"):
                told += 1
                written.append(now_ms)
            else:
                told += int(line.split(": ")[1].split()[0])

    for step_ms in steps_ms:
        now_ms += step_ms
        read(lines.closed(PEER, "garbage", now_ms))
    now_ms += 1000
    read(lines.more(now_ms))
    assert told == len(steps_ms)
    # A window begins with a line, so parts of two windows may fall into one second.
    for at in written:
        assert sum(at <= other < at + 1000 for other in written) <= 2 * LINES_PER_SECOND_MAX


def test_a_failure_that_an_address_repeats_is_a_line_a_minute_with_its_count() -> None:
    lines = ProtocolErrorLog()
    for port in range(5):
        said = lines.closed(f"10.0.0.7:{port}", "garbage", port * 1_000, address="10.0.0.7")
        assert len(said) == (port == 0)
    assert len(lines.closed("10.0.0.7:9", "another reason", 5_000, address="10.0.0.7")) == 1
    assert len(lines.closed("10.0.0.8:9", "garbage", 5_000, address="10.0.0.8")) == 1
    (line,) = lines.closed("10.0.0.7:9", "garbage", REPEAT_MS, address="10.0.0.7")
    assert line.endswith("reason=garbage (and 4 times since the last line)")


def test_no_more_pairs_of_address_and_reason_are_remembered_than_the_limit() -> None:
    lines = ProtocolErrorLog()
    for number in range(3 * REPEATS_KEPT_MAX):
        address = f"address-{number}"
        assert len(lines.closed(PEER, "garbage", number * 1_000, address=address)) == 1
    assert len(lines._repeats) == REPEATS_KEPT_MAX


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_client_that_speaks_tls_is_named_in_the_log(
    harness: Harness, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    local = client.sock.getsockname()
    client.sock.sendall(TLS_HELLO)
    assert client.is_closed_by_peer()
    eventually(lambda: warnings(caplog), "the broker says so")
    (line,) = warnings(caplog)
    assert f"peer={local}" in line
    assert "a frame of 369295616 bytes" in line
    assert line.endswith("; the peer speaks TLS, and this listener is in clear text")


def send(harness: Harness, frame_size: int) -> None:
    """Send the head of a frame of that size, over a connection of its own, and leave once the
    broker closes it."""
    address = ("127.0.0.1", harness.cluster.brokers[1].port)
    with socket.create_connection(address, timeout=10) as sock:
        sock.sendall(frame_size.to_bytes(4, "big", signed=True))
        assert sock.recv(1) == b""


def test_a_peer_that_repeats_its_garbage_leaves_one_line(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        send(harness, -1)
    (line,) = warnings(caplog)
    assert "a frame of -1 bytes" in line


def test_a_flood_of_garbage_leaves_a_few_lines_and_a_number(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    count = 5 * LINES_PER_SECOND_MAX
    for number in range(count):
        send(harness, -2 - number)

    def told() -> int:
        numbers = [line for line in warnings(caplog) if " more within" in line]
        rest = sum(int(line.split(": ")[1].split()[0]) for line in numbers)
        return len(warnings(caplog)) - len(numbers) + rest

    eventually(lambda: told() == count, "every connection is in a line or in a number")
    assert any(" more within" in line for line in warnings(caplog))


def test_a_client_that_just_leaves_is_no_line(
    harness: Harness, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.cluster.brokers[1].server
    eventually(lambda: len(server._connections) == 1, "the client is in, and nobody else")
    client.close()
    eventually(lambda: len(server._connections) == 0, "the client is out")
    assert warnings(caplog) == []
