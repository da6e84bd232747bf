"""Metadata answers about partitions whose leader has just closed its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.broker.metadata_answers import suspects
from kvorum.broker.metadata_answers.suspects import SUSPICION_MS, WAITING_MAX, Suspects
from kvorum.metadata.image.image import EMPTY_IMAGE
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3)
    yield harness
    harness.close()


def test_who_asks_when_a_leader_died_is_told_who_leads_then(harness: Harness) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)], {}))
    suspects = harness.cluster.brokers[2].manager.fetchers.suspects
    client = RawClient(harness.cluster.brokers[2].port)
    asked = {"topics": [{"name": "t"}]}
    (before,) = client.call("metadata", 9, asked).topics
    assert before.partitions[0].leader_id == 1
    harness.run(harness.cluster.crash_broker(1))
    eventually(lambda: suspects.present() == {1}, "its end is noticed")
    client.send("metadata", 9, asked)
    eventually(lambda: suspects._waiting, "the request waits")
    harness.call(lambda: harness.cluster.fence(1))
    (after,) = client.answer("metadata", 9).topics
    assert after.partitions[0].leader_id == 2
    assert client.call("metadata", 9, {"topics": None}).topics, "who asks for all waits for nobody"
    client.close()


class Story:
    """Broker 1 is suspected dead, and a request waits until that is decided."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.suspects = Suspects(lambda: self.now_ms)
        self.suspects.suspect(1)

    async def waiting(self) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self.suspects.wait(lambda present: 1 in present))
        await asyncio.sleep(0)
        assert not task.done()
        return task


def test_nobody_waits_for_a_leader_that_is_reached_again() -> None:
    async def case() -> None:
        story = Story()
        waiting = await story.waiting()
        story.suspects.on_image(None, EMPTY_IMAGE)
        await asyncio.sleep(0)
        assert not waiting.done(), "the metadata has changed, and not in this"
        story.suspects.clear(1)
        await waiting
        assert story.suspects.present() == frozenset()

    asyncio.run(case())


def test_suspicion_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "SUSPICION_MS", 1)

    async def case() -> None:
        story = Story()
        await asyncio.wait_for(story.suspects.wait(lambda _: True), 10)
        story.suspects.suspect(2)
        story.now_ms += SUSPICION_MS
        assert story.suspects.present() == frozenset()

    asyncio.run(case())


def test_no_more_than_so_many_wait() -> None:
    async def case() -> None:
        story = Story()
        waiting = [await story.waiting() for _ in range(WAITING_MAX)]
        await story.suspects.wait(lambda _: True)
        story.suspects.clear(1)
        await asyncio.gather(*waiting)
        assert not story.suspects._waiting

    asyncio.run(case())
