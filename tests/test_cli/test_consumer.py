"""Outages that a consumer of `kvorum consume` counts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kvorum.cli.common import CommandFailed
from kvorum.cli.records.brokers import Topic
from kvorum.cli.records.consumer import OUTAGE_S, Consumer
from kvorum.cli.records.visible import Range

PARTITION = ("t", 0)


class NoLeader:
    """Brokers that know the topic but no leader of its partition."""

    timeout_s = 1.0

    def topics(self, names: list[str] | None) -> dict[str, Topic]:
        return {"t": Topic(name="t", topic_id=bytes(16), leaders={0: -1})}


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer, and a clock that only `later` moves."""
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def later(seconds: float) -> None:
        now_s[0] += seconds

    return Consumer(NoLeader(), isolation=0), later  # type: ignore[arg-type]


def test_a_partition_without_a_leader_for_too_long_ends_the_command(consumer):
    reader, later = consumer
    reader.assign({PARTITION: Range(first=0)})
    assert list(reader.poll(0)) == []
    later(OUTAGE_S + 1)
    with pytest.raises(CommandFailed, match="t-0: no answer for 60 s: the partition has no leader"):
        list(reader.poll(0))


def test_an_outage_ends_with_the_assignment(consumer):
    # Meanwhile another member owns the partition and reads it without errors.
    reader, later = consumer
    reader.assign({PARTITION: Range(first=0)})
    assert list(reader.poll(0)) == []
    reader.revoke({PARTITION})
    later(OUTAGE_S + 1)
    reader.assign({PARTITION: Range(first=0)})
    assert list(reader.poll(0)) == []
