"""`__kvorum_events`: each metadata offset once, in order, over fail-over at any record."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.broker.coordinator.model import (
    Append,
    Ask,
    Barrier,
    Durable,
    FactLearned,
    Instant,
    ReplayedRecord,
)
from kvorum.broker.events import reader, shard
from kvorum.broker.events.reader import EventReader
from kvorum.broker.events.shard import EventsShard, FindEvents, FoundEvent, FoundEvents
from kvorum.metadata.configs.config_keys import CONFIGS_OF
from kvorum.metadata.events.feed import record_feed
from kvorum.metadata.events.model import Event, Position
from kvorum.metadata.events.things import things
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.image.records import (
    NoOp,
    Record,
)
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import build_batch
from tests.test_metadata.event_source import (
    KRAFT_VERSION_1,
    Control,
    MemorySource,
    entries_of,
    image_of,
    leader_change,
    quorum_of,
    told_by,
    voters_change,
)
from tests.test_metadata.worlds import World

NOW = Instant(0, 0)
Row = tuple[str, bytes | None]


def history(seed: int) -> list[Record | Control]:
    """The metadata records and control records of a cluster with random changes."""
    rng = random.Random(seed)
    world = World(seed=seed)
    names = ("a", "b", "c")
    for _ in range(12):
        name = rng.choice(names)
        match rng.randrange(6):
            case 0 | 1:
                world.create(name, partitions=rng.randrange(1, 4))
            case 2:
                world.delete(name)
            case 3:
                world.fence(rng.choice((101, 102, 103)))
            case 4:
                world.heartbeat(rng.choice((101, 102, 103)))
            case _:
                world.commit(NoOp())
    records: list[Record | Control] = list(world.records)
    for _ in range(4):
        changes = (leader_change(rng.randrange(1, 4)), voters_change(*range(rng.randrange(2, 5))))
        records.insert(rng.randrange(len(records) + 1), rng.choice((KRAFT_VERSION_1, *changes)))
    return records


class Topic:
    """The log of the topic's partition, and the terms of its leaders."""

    def __init__(self, source: MemorySource) -> None:
        self.source = source
        self.rows: list[Row] = []

    async def term(self, rng: random.Random, batches: int | None) -> None:
        """Run a leader that writes this many batches and dies; None: until it has written all
        events."""
        shard = EventsShard("events-0")
        for offset, (key, value) in enumerate(self.rows):
            shard.replay(ReplayedRecord(offset, 0, key.encode(), value, -1, -1, False))
        (ask,) = shard.on_loaded(NOW)
        assert isinstance(ask, Ask)
        found = EventReader(self.source, ask.question.position, ask.question.known)
        while batches is None or batches > 0:
            events = await found.read()
            if events is None:
                return
            *appends, barrier = shard.step(FactLearned(fact=events), NOW)
            assert isinstance(barrier, Barrier)
            if batches is not None:
                batches -= 1
            for append in appends:
                assert isinstance(append, Append)
                if batches is not None and rng.randrange(4) == 0:
                    return  # it died before the batch was in the log
                self.rows += [(record.key.decode(), record.value) for record in append.records]
            (ask,) = shard.step(Durable(tag=barrier.tag), NOW)
            assert ask == Ask(question=FindEvents(position=barrier.tag))
            self._change(rng)

    def _change(self, rng: random.Random) -> None:
        """Let the metadata log grow, and perhaps trim it."""
        self.source.publish(self.source.published + rng.randrange(6))
        if rng.randrange(8) == 0:
            self.source.trim(rng.randrange(self.source.published + 1))


def check_order(rows: list[Row], told: dict[int, tuple[str, bytes]], end_offset: int) -> None:
    """Assert that the rows have every event of `told` once and in order, except those that a gap
    replaces."""
    reached, index, count = 0, 0, 1
    for key, value in rows:
        if value is None:
            continue
        event = json.loads(value)
        offset = event["offset"]
        if event["kind"] == "gap":
            first = event["first_offset"]
            assert [known for known in told if reached <= known < first] == []
            index, count = 0, event["count"]
        elif event["kind"] == "snapshot":
            index += 1
            assert (offset, event["index"], event["count"]) == (reached - 1, index, count)
        else:
            assert index == count - 1 or count == 1, "a snapshot was not finished"
            assert offset >= reached
            assert told[offset] == (key, value)
        missed = [known for known in told if reached <= known < offset]
        assert missed == [] or event["kind"] == "gap", f"{missed} before {offset}"
        reached = offset + 1
    assert [known for known in told if reached <= known < end_offset] == []


def check_state(rows: list[Row], records: Sequence[Record | Control]) -> None:
    """Assert that compaction of the rows leaves the state that `records` make."""
    kept: dict[str, dict[str, Any]] = {}
    for key, value in rows:
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = json.loads(value)
    state = dict(things(image_of(records), quorum_of(records)))
    # Every snapshot leaves the leader as it is.
    assert kept.keys() - {"removed", "gap", "quorum/leader"} == state.keys()
    kept_for_ever = ("removed", "quorum/leader", "quorum/voters", "feature/kraft.version")
    assert [key for key, value in rows if value is None and key in kept_for_ever] == []
    for key, fields in state.items():
        assert fields().items() <= kept[key].items()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    batch_bytes=st.sampled_from((1, 700, 5_000)),
    tombstones_bytes=st.sampled_from((1, 40, 5_000)),
)
def test_leaders_that_die_at_any_record_tell_each_offset_once(
    seed: int, batch_bytes: int, tombstones_bytes: int
) -> None:
    rng = random.Random(seed)
    records = history(seed)
    source = MemorySource(records)
    topic = Topic(source)

    async def run() -> None:
        source.publish(rng.randrange(1, len(records)))
        for _ in range(8):
            await topic.term(rng, rng.randrange(6))
        source.publish(len(records))
        await topic.term(rng, None)

    with (
        mock.patch.object(reader, "BATCH_BYTES", batch_bytes),
        mock.patch.object(shard, "TOMBSTONES_BYTES", tombstones_bytes),
    ):
        asyncio.run(run())
    check_order(topic.rows, told_by(records), len(records))
    check_state(topic.rows, records)


def test_an_offset_that_is_told_twice_or_left_out_is_found() -> None:
    records = history(1)
    told = told_by(records)
    rows: list[Row] = [told[offset] for offset in sorted(told)]
    check_order(rows, told, len(records))
    for wrong in (rows[:3] + rows[2:], rows[:3] + rows[4:], rows[:-1], [*rows[1:], rows[0]]):
        with pytest.raises((AssertionError, KeyError)):
            check_order(wrong, told, len(records))


def test_a_value_is_encoded_once() -> None:
    records = history(3)
    topic = Topic(MemorySource(records))
    topic.source.publish(len(records))
    encode = Event.value
    with mock.patch.object(Event, "value", autospec=True, side_effect=encode) as counted:
        asyncio.run(topic.term(random.Random(0), None))
    assert counted.call_count == sum(value is not None for _, value in topic.rows) > 0


def test_a_leader_whose_metadata_lags_waits() -> None:
    records = history(2)
    source = MemorySource(records)
    source.publish(len(records))
    topic = Topic(source)
    asyncio.run(topic.term(random.Random(0), None))
    written = list(topic.rows)
    behind = Topic(MemorySource(records))
    behind.rows = list(written)
    behind.source.publish(5)
    asyncio.run(behind.term(random.Random(0), None))
    assert behind.rows == written


def test_what_was_deleted_within_a_gap_ends_with_it() -> None:
    world = World()
    world.create("gone")
    source = MemorySource(world.records)
    source.publish(len(world.records))
    topic = Topic(source)
    asyncio.run(topic.term(random.Random(0), None))
    count = len(topic.rows)
    world.delete("gone")
    world.create("there")
    source.append(*world.records[len(source.records) :])
    source.trim(len(source.records))
    asyncio.run(topic.term(random.Random(0), None))
    keys = [(key, value is None) for key, value in topic.rows[count:]]
    assert keys[:3] == [("gap", False), ("partition/gone/0", True), ("topic/gone", True)]
    check_order(topic.rows, told_by(source.records), len(source.records))
    check_state(topic.rows, source.records)


def test_a_gap_is_the_same_for_a_leader_that_waited_and_for_a_new_one() -> None:
    world = World()
    world.create("gone")
    world.create("other")
    world.delete("other")
    quorum = [KRAFT_VERSION_1, voters_change(1, 2), leader_change(1)]
    source = MemorySource([*quorum, *world.records])
    source.publish(len(source.records))
    before = len(world.records)
    topic = Topic(source)
    asyncio.run(topic.term(random.Random(0), None))
    waiting = EventReader(source, None, ())

    async def read_all() -> list[tuple[str, bytes, tuple[str, ...]]]:
        found = []
        while read := await waiting.read():
            found += [(one.event.key, one.value, one.event.removed) for one in read.events]
        return found

    asyncio.run(read_all())
    count = len(topic.rows)
    assert {"removed", "quorum/leader", "quorum/voters"} <= {key for key, _ in topic.rows}
    world.delete("gone")
    source.append(*world.records[before:], voters_change(1, 2, 3), leader_change(2))
    source.trim(len(source.records))
    asyncio.run(topic.term(random.Random(0), None))
    rows: list[Row] = []
    for key, value, removed in asyncio.run(read_all()):
        rows += [(key, value), *((gone, None) for gone in removed)]
    assert rows == topic.rows[count:]
    assert [key for key, value in rows if value is None] == ["partition/gone/0", "topic/gone"]
    assert json.loads(dict(rows)["quorum/voters"] or b"")["voters"] == [1, 2, 3]
    check_state(topic.rows, source.records)


def test_a_broker_with_the_whole_log_finishes_the_snapshot_of_another() -> None:
    world = World()
    world.create("a")
    records = [KRAFT_VERSION_1, voters_change(1, 2), *world.records]
    trimmed, whole = MemorySource(records), MemorySource(records)
    for source in (trimmed, whole):
        source.publish(len(records))
    trimmed.trim(len(records))

    async def behind(source: MemorySource, position: Position | None) -> list[Event]:
        found = await EventReader(source, position, ()).read()
        return [] if found is None else [one.event for one in found.events]

    told = asyncio.run(behind(trimmed, None))
    assert {"quorum/voters", "feature/kraft.version"} <= {event.key for event in told}
    for index, event in enumerate(told):
        assert asyncio.run(behind(whole, event.position)) == told[index + 1 :]


def test_a_deletion_with_many_tombstones_fits_the_smallest_segment() -> None:
    world = World()
    world.create("t" * 200, partitions=9_000)
    world.delete("t" * 200)
    before = image_of(world.records[:-1])
    ((_, event),) = record_feed(before, entries_of(world.records[-1:], before.end_offset))
    shard = EventsShard("events-0")
    assert event is not None
    *appends, _ = shard.step(FactLearned(fact=FoundEvents(events=(FoundEvent.of(event),))), NOW)
    sizes = []
    for append in appends:
        assert isinstance(append, Append)
        sizes.append(len(build_batch(append.records, timestamp_ms=append.timestamps_ms or 0)))
    assert len(sizes) > 1
    assert max(sizes) < (CONFIGS_OF[RESOURCE_TOPIC]["segment.bytes"].low or 0)


def test_a_key_that_is_no_text_is_damage() -> None:
    shard = EventsShard("events-0")
    with pytest.raises(CorruptData, match=r"the key b'\\xff' is not UTF-8; delete the topic"):
        shard.replay(ReplayedRecord(3, 0, b"\xff", b"{}", -1, -1, False))


def test_a_log_whose_last_value_is_no_event_is_damage() -> None:
    shard = EventsShard("events-0")
    shard.replay(ReplayedRecord(3, 0, b"topic/a", b"{}", -1, -1, False))
    with pytest.raises(CorruptData, match="not an event of the metadata"):
        shard.on_loaded(NOW)
