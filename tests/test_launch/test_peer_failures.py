"""An error that no check has foreseen, in a callback that handles a peer, ends that peer's
connection; an error of the node's own state ends the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kvorum.launch.daemon.process import exception_handler
from kvorum.runtime import peer_failures
from kvorum.runtime.errors import CorruptData, InvariantViolated

OF_THE_NODE = [
    InvariantViolated("two leaders"),
    CorruptData("/d/0.log", 7, "a bad checksum"),
    OSError(5, "Input/output error", "/d/0.log"),
]


def failures_of(work: Callable[[], None]) -> tuple[list[BaseException], int]:
    """(errors that would have ended the node, number of counted errors) after `work` ran as a
    callback of a node's event loop."""
    ended: list[BaseException] = []
    before = peer_failures.PEER_FAILURES.count

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(exception_handler(ended.append))
        loop.call_soon(work)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    return ended, peer_failures.PEER_FAILURES.count - before


def test_an_unexpected_error_of_a_peer_is_counted_and_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            peer_failures.report(error, "10.0.0.7:5000", "a connection")

    assert failures_of(work) == ([], 1)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "peer=10.0.0.7:5000 reason=a connection failed at " in line
    assert "test_peer_failures.py:" in line and "KeyError('missing')" in line


@pytest.mark.parametrize("error", OF_THE_NODE, ids=lambda error: type(error).__name__)
def test_an_error_of_the_nodes_own_state_ends_it_whoever_showed_it(error: Exception) -> None:
    ended, count = failures_of(lambda: peer_failures.report(error, "10.0.0.7:5000", "a connection"))
    assert (ended, count) == ([error], 0)


def test_a_lack_of_descriptors_is_no_failed_disk_and_no_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = OSError(24, "Too many open files", "/lib/module.py")
    ended, count = failures_of(lambda: peer_failures.report(error, "10.0.0.7:5000", "a connection"))
    assert (ended, count) == ([], 0)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "the limit of open files" in told[0]
    # Each connection shows it again; it is told every few seconds.
    failures_of(lambda: peer_failures.report(error, "10.0.0.8:5000", "a connection"))
    assert len(caplog.records) == 1


def test_an_error_without_a_peer_ends_the_node() -> None:
    def work() -> None:
        raise KeyError("missing")

    ended, count = failures_of(work)
    assert ([type(error) for error in ended], count) == ([KeyError], 0)


@pytest.mark.parametrize("key", ["transport", "socket"])
def test_an_error_of_a_connection_of_asyncio_is_a_peers(key: str) -> None:
    """As asyncio reports a handshake that raised, and an accept without descriptors."""

    class Transport:
        def get_extra_info(self, _: str) -> Any:
            return ("10.0.0.7", 5000)

    def work() -> None:
        context = {"message": "it failed", "exception": OSError("it broke")}
        asyncio.get_running_loop().call_exception_handler(context | {key: Transport()})

    assert failures_of(work) == ([], 1)
