"""Markers in the partition of another shard (a group's): applied in every state of its term."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.coordinator import shard_context as term
from kvorum.broker.coordinator.model import TransactionEnd
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.storage.format.markers import build_marker
from tests.polling import eventually
from tests.test_broker.map_shard import TOPIC, Get, Kept, Put

PRODUCER = (7, 0)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def mark(kept: Kept) -> None:
    """Commit the open transaction of PRODUCER, as its coordinator does. Call it on the cluster's
    loop."""
    batch = build_marker(
        is_commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    replica = kept.cluster.replica(1, TOPIC)
    replica.append_own(batch, ProduceTerms(-1, 0, 0, 0))
    kept.hosts[1].transaction_ended(0, TransactionEnd(*PRODUCER, is_commit=True))


def test_a_marker_is_heard_at_once(kept: Kept) -> None:
    kept.ask(1, Put("a", "1", PRODUCER))
    assert kept.ask(1, Get("a")) is None
    kept.harness.call(lambda: mark(kept))
    assert kept.ask(1, Get("a")) == "1"


def test_a_marker_that_comes_while_the_log_is_read_is_not_missed(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.ask(1, Put("a", "1", PRODUCER))
    read_back = term.read_back

    def read_and_mark(log: Any) -> Iterator[Any]:
        yield from read_back(log)
        # The whole log is read, but the term is not active yet.
        mark(kept)
        yield []

    monkeypatch.setattr(term, "read_back", read_and_mark)
    epoch = kept.lead(1, (1, 2, 3))
    kept.wait_for_term(1, leader_epoch=epoch)
    eventually(lambda: kept.ask(1, Get("a")) == "1", "the marker counts")


def test_what_is_answered_after_a_marker_waits_for_it_too(kept: Kept) -> None:
    kept.ask(1, Put("a", "1", PRODUCER))
    for follower in (2, 3):
        kept.harness.run(kept.cluster.brokers[follower].manager.fetchers.stop())
    kept.harness.call(lambda: mark(kept))
    held = kept.term(1)
    end_offset = kept.cluster.replica(1, TOPIC).log.end_offset
    assert kept.harness.call(lambda: held._end_offset) == end_offset
