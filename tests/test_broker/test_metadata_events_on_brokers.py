"""`__kvorum_events` on brokers: the topic is made, and its leaders write it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.coordinator.loading import read_back
from kvorum.broker.events import driver
from kvorum.broker.events.driver import EventsDriver
from kvorum.broker.metadata_answers.topic_names import EVENTS_TOPIC
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.metadata.events.source import Base
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import (
    BrokerRegistrationChange,
    NoOp,
    PartitionChange,
    Record,
    RemoveTopic,
)
from kvorum.metadata.inspect.history import LogEntry
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient
from tests.test_metadata.event_source import (
    entries_of,
)

Row = tuple[str, bytes | None]


class ControllersLog:
    """The metadata log of the harness's controller, whose records come from its deltas."""

    def __init__(self, harness: Harness) -> None:
        self.controller = harness.cluster.controller
        self.records: list[Record] = []
        self.first_offset = self.controller.image.end_offset
        self._base = self.controller.image
        commit = self.controller.commit

        def recorded(*records: Record) -> None:
            self.records += records
            commit(*records)

        self.controller.commit = recorded  # type: ignore[method-assign]

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def start_offset(self) -> int:
        return self.first_offset

    def read(self, offset: int, end_offset: int) -> Iterator[LogEntry]:
        at = offset - self.first_offset
        return iter(entries_of(self.records[at : end_offset - self.first_offset], offset))

    async def base(self, offset: int) -> Base:
        return Base(image=self._base, timestamp_ms=1)


class Brokers:
    """Three brokers with the events on."""

    def __init__(self, folder: Path) -> None:
        config = dataclasses.replace(QUICK, metadata_events_topic_enable=True)
        self.harness = Harness(folder, count=3, config=config)
        self.cluster = self.harness.cluster
        self.log = self.harness.call(lambda: ControllersLog(self.harness))
        self.drivers = [self.harness.call(lambda i=i: self._driver(i)) for i in (1, 2, 3)]

    def _driver(self, broker_id: int) -> EventsDriver:
        return self.cluster.brokers[broker_id].server.services.events_driver(self.log)

    def commit(self, *records: Record) -> None:
        self.harness.call(lambda: self.log.controller.commit(*records))

    def topic_id(self) -> bytes:
        topic = self.log.image.topic(EVENTS_TOPIC)
        assert topic is not None
        return topic.topic_id

    def lead(self, broker_id: int, isr: tuple[int, ...]) -> None:
        self.commit(PartitionChange(self.topic_id(), 0, isr=isr, leader=broker_id))

    def rows(self, broker_id: int) -> list[Row]:
        def read() -> list[Row]:
            replica = self.cluster.replica(broker_id, EVENTS_TOPIC)
            pieces = read_back(lambda: replica.log)
            return [(r.key.decode(), r.value) for piece in pieces for r in piece]  # type: ignore[union-attr]

        return self.harness.call(read)

    def high_watermark(self, broker_id: int) -> int:
        core = self.cluster.replica(broker_id, EVENTS_TOPIC).core
        return core.high_watermark

    def last_offset(self, broker_id: int) -> int:
        values = [value for _, value in self.rows(broker_id) if value is not None]
        return json.loads(values[-1])["offset"] if values else -1

    def wait_told(self, broker_id: int) -> None:
        """All records so far, of which the last has an event."""
        end_offset = self.log.image.end_offset
        eventually(
            lambda: self.last_offset(broker_id) == end_offset - 1,
            f"broker {broker_id} told all below {end_offset}",
        )

    def close(self) -> None:
        for each in self.drivers:
            self.harness.run(each.stop())
        self.harness.close()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    yield made
    made.close()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def made(brokers: Brokers) -> None:
    """The next image shows that the topic is missing, and the brokers make it."""
    brokers.commit(NoOp())
    eventually(lambda: brokers.log.image.topic(EVENTS_TOPIC), "the topic is made")


def test_the_topic_is_made_without_a_client_and_again_after_its_deletion(brokers: Brokers) -> None:
    made(brokers)
    first = brokers.topic_id()
    topic = brokers.log.image.topic(EVENTS_TOPIC)
    assert topic is not None
    assert [len(p.replicas) for p in topic.partitions.values()] == [3]
    configs = brokers.log.image.topic_configs(EVENTS_TOPIC)
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")
    brokers.commit(RemoveTopic(first))
    eventually(
        lambda: brokers.log.image.topic(EVENTS_TOPIC) and brokers.topic_id() != first,
        "it is made again",
    )


def test_a_new_leader_goes_on_behind_its_own_log(brokers: Brokers) -> None:
    made(brokers)
    for leader in (2, 3, 1, 1):
        brokers.harness.call(lambda n=leader: brokers.log.controller.create(f"t{n}", [(1, 2, 3)]))
        brokers.lead(leader, (1, 2, 3))
        brokers.wait_told(leader)
    events = [json.loads(value) for _, value in brokers.rows(1) if value is not None]
    offsets = [event["offset"] for event in events if event["kind"] not in ("gap", "snapshot")]
    log = brokers.log
    assert offsets == list(range(log.first_offset, log.image.end_offset))[-len(offsets) :]
    assert len(offsets) == sum(not isinstance(record, NoOp) for record in log.records)


@pytest.mark.parametrize("key", [b"topic/a", b"\xff"])
def test_a_topic_with_strange_records_fails_its_replica_and_no_broker(
    brokers: Brokers, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """An older build let clients have a topic of this name."""
    made(brokers)
    brokers.wait_told(1)
    terms = ProduceTerms(-1, 0, 0, 0)
    replica = brokers.cluster.replica(1, EVENTS_TOPIC)
    batch = build_batch([(key, b"{}")], timestamp_ms=1)
    assert brokers.harness.call(lambda: replica.append_own(batch, terms)) == ErrorCode.NONE
    brokers.lead(1, (1, 2, 3))
    eventually(lambda: replica.is_offline, "the replica is offline")
    assert "delete the topic, and the brokers make it again" in caplog.text
    topic_id = brokers.harness.call(lambda: brokers.log.controller.create("other", [(1, 2, 3)]))
    assert brokers.cluster.replica(1, "other").core.topic_id == topic_id


@pytest.mark.parametrize("is_on", [False, True])
def test_a_metadata_request_makes_the_topic_only_if_events_are_written(
    tmp_path: Path, is_on: bool
) -> None:
    config = dataclasses.replace(
        QUICK, metadata_events_topic_enable=is_on, metadata_events_topic_replication_factor=1
    )
    harness = Harness(tmp_path, count=1, config=config)
    try:
        client = RawClient(harness.cluster.brokers[1].port)
        asked = {"topics": [{"name": EVENTS_TOPIC}, {"name": "auto-made"}]}
        answer = client.call("metadata", 9, asked)
        errors = {topic.error_code for topic in answer.topics}
        assert errors == {KioError.unknown_topic_or_partition}
        client.close()
        # One request to the controller makes all that are missing.
        controller = harness.cluster.controller
        eventually(lambda: controller.image.topic("auto-made"), "auto-creation")
        assert (controller.image.topic(EVENTS_TOPIC) is not None) == is_on
    finally:
        harness.close()


def test_only_partition_0_has_events(brokers: Brokers) -> None:
    brokers.harness.call(
        lambda: brokers.log.controller.create(EVENTS_TOPIC, [(1, 2, 3), (1, 2, 3)])
    )
    brokers.wait_told(1)
    brokers.harness.run(turns(100))
    assert brokers.cluster.replica(1, EVENTS_TOPIC, 1).log.end_offset == 0


def test_with_too_few_in_sync_nothing_is_gathered(brokers: Brokers) -> None:
    made(brokers)
    leader = brokers.log.image.topic(EVENTS_TOPIC).partitions[0].leader  # type: ignore[union-attr]
    # The followers stay in touch, and the leader's proposals to take them back are refused.
    brokers.log.controller.refuse_alter_with = ErrorCode.INELIGIBLE_REPLICA
    brokers.wait_told(leader)
    written = len(brokers.rows(leader))
    brokers.commit(PartitionChange(brokers.topic_id(), 0, isr=(leader,)))
    for number in range(20):
        brokers.harness.call(lambda n=number: brokers.log.controller.create(f"t{n}", [(1, 2, 3)]))
    # A few turns of the loop are enough for a leader that may write; this one may not.
    brokers.harness.run(turns(100))
    assert len(brokers.rows(leader)) == written
    brokers.log.controller.refuse_alter_with = None
    brokers.commit(PartitionChange(brokers.topic_id(), 0, isr=(1, 2, 3)))
    brokers.wait_told(leader)


def test_the_topic_waits_for_enough_brokers_and_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "RETRY_S", 0.01)
    config = dataclasses.replace(QUICK, metadata_events_topic_enable=True)
    harness = Harness(tmp_path, count=2, config=config)
    try:
        services = harness.cluster.brokers[1].server.services
        log = harness.call(lambda: ControllersLog(harness))
        made = harness.call(lambda: services.events_driver(log))
        harness.call(lambda: log.controller.commit(NoOp()))
        refusals = services.internal_topics.refusals
        eventually(lambda: EVENTS_TOPIC in refusals, "the refusal is known")
        assert "cannot be made" in refusals[EVENTS_TOPIC]
        harness.run(made.stop())
    finally:
        harness.close()


def test_a_fenced_broker_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "RETRY_S", 0)
    config = dataclasses.replace(QUICK, metadata_events_topic_enable=True)
    harness = Harness(tmp_path, count=1, config=config)
    try:
        services = harness.cluster.brokers[1].server.services
        log = harness.call(lambda: ControllersLog(harness))
        epoch = log.image.brokers[1].broker_epoch
        harness.call(
            lambda: log.controller.commit(BrokerRegistrationChange(1, epoch, is_fenced=True))
        )
        made = harness.call(lambda: services.events_driver(log))
        with mock.patch.object(services.internal_topics, "make") as make:
            harness.call(lambda: log.controller.commit(NoOp()))
            harness.run(turns(100))
            assert make.call_count == 0
        harness.run(made.stop())
    finally:
        harness.close()
