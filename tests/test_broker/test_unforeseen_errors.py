"""Errors that no check has foreseen, while a broker handles one client: that client's connection
ends, the error is reported with its address, and the others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.runtime.peer_failures import PEER
from tests.polling import eventually, until
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


@pytest.fixture
def harness(tmp_path: Path) -> Any:
    made = Harness(tmp_path, count=1)
    yield made
    made.failures.clear()
    made.close()


def boom(*_: object, **__: object) -> Any:
    raise KeyError("nobody foresaw this")


async def boom_later(*_: object) -> Any:
    raise KeyError("nobody foresaw this")


@pytest.mark.parametrize("handler", [boom, boom_later])
def test_a_request_that_fails_ends_its_connection_alone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, handler: Any
) -> None:
    port = harness.cluster.brokers[1].port
    other = RawClient(port)
    client = RawClient(port)
    monkeypatch.setattr("kvorum.broker.api.list_groups.handle", handler)
    with pytest.raises((OSError, EOFError)):
        client.call("list_groups", 0, {})
    # The broker closes the connection first.
    (reported,) = eventually(lambda: harness.failures, "the broker reports the error")
    assert isinstance(reported["exception"], KeyError)
    assert reported[PEER] == str(client.sock.getsockname())
    assert other.call("api_versions", 0, {}).error_code == 0
    client.close()
    other.close()


class Item:
    """A parked request, or a connection, that may raise."""

    def __init__(self, name: str, seen: list[str], *, raises: bool = False) -> None:
        self.name, self.seen, self.raises = name, seen, raises
        self.is_awake = self.is_flush_due = False
        self.deadline_bucket = -1

    def wake(self) -> None:
        self.seen.append(self.name)
        if self.raises:
            raise KeyError(self.name)

    flush = expire = wake


@pytest.mark.parametrize("way", ["wake", "flush", "expire"])
def test_an_item_that_fails_takes_no_others_turn(way: str) -> None:
    seen: list[str] = []
    items = [Item("a", seen), Item("b", seen, raises=True), Item("c", seen)]
    failed: list[tuple[object, Exception]] = []

    async def run() -> None:
        turn, deadlines = LoopTurn(), Deadlines(lambda: 0)
        turn.on_failed = deadlines.on_failed = lambda item, error: failed.append((item, error))
        for item in items:
            if way == "expire":
                deadlines.add(item, -100)
            else:
                getattr(turn, way)(item)
        await until(lambda: len(seen) == len(items), "each item has its turn")

    asyncio.run(run())
    assert seen == ["a", "b", "c"]
    assert [item for item, _ in failed] == [items[1]]
