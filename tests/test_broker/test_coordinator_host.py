"""The host of coordinators' shards: loads, appends, waits for replication, ends with the lead.

The shard here is a map that lives in a partition: as small as one can be that uses every event and
every effect.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.coordinator.loading import read_back
from kvorum.broker.coordinator.model import (
    Answer,
    Append,
    Ask,
    Barrier,
    CoordinatorRecord,
    Durable,
    Effect,
    Event,
    Instant,
    ReplayedRecord,
    Request,
    SetTimer,
    TimerFired,
    Told,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.coordinator.shard_context import State
from kvorum.metadata.image.records import Partition, PartitionChange, Record, RemoveTopic, Topic
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.test_broker.harness import Harness, wait_until

TOPIC = "kept"


@dataclass(frozen=True)
class Put:
    key: str
    value: str
    producer: tuple[int, int] | None = None


@dataclass(frozen=True)
class Get:
    key: str
    needs_replicas: ClassVar[bool] = False


@dataclass(frozen=True)
class PutSoon:
    """Written when a timer fires; answered by what comes after the barrier."""

    key: str
    value: str


@dataclass(frozen=True)
class AskAround:
    needs_replicas: ClassVar[bool] = False


class MapShard:
    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.values: dict[str, str] = {}
        self.open: dict[int, dict[str, str]] = {}
        self.deleted: list[str] = []
        self.asking: list[int] = []

    def replay(self, record: ReplayedRecord) -> None:
        value = (record.value or b"").decode()
        if record.is_transactional:
            self.open.setdefault(record.producer_id, {})[record.key.decode()] = value
        else:
            self.values[record.key.decode()] = value

    def replay_end(self, end: TransactionEnd) -> None:
        written = self.open.pop(end.producer_id, {})
        if end.is_commit:
            self.values.update(written)

    def on_loaded(self, now: Instant) -> list[Effect]:
        return []

    def step(self, event: Event, now: Instant) -> list[Effect]:
        match event:
            case Request(token=token, body=Put(key, value, None)):
                self.values[key] = value
                return [_written(key, value), Answer(token=token, response="put")]
            case Request(token=token, body=Put(key, value, producer)):
                self.open.setdefault(producer[0], {})[key] = value
                record = CoordinatorRecord(key.encode(), value.encode())
                return [
                    Append(records=(record,), producer=producer),
                    Answer(token=token, response="put"),
                ]
            case Request(token=token, body=Get(key)):
                return [Answer(token=token, response=self.values.get(key), is_durable=False)]
            case Request(token=token, body=PutSoon(key, value)):
                name = (token, key, value)
                return [SetTimer(name=name, deadline_ms=now.monotonic_ms + 20)]
            case TimerFired(name=(token, key, value)):
                self.values[key] = value
                return [_written(key, value), Barrier(tag=(token, "soon"))]
            case Durable(tag=(token, answer)):
                return [Answer(token=token, response=answer, is_durable=False)]
            case Request(token=token, body=AskAround()):
                return [Ask(question=token)]
            case Told(fact=(token, answer)):
                return [Answer(token=token, response=answer, is_durable=False)]
            case TransactionEnded(end=end):
                self.replay_end(end)
            case TopicsChanged(deleted=deleted):
                self.deleted += deleted
        return []


def _written(key: str, value: str) -> Append:
    return Append(records=(CoordinatorRecord(key.encode(), value.encode()),))


class Kept:
    """Three brokers, and the map's host on each."""

    def __init__(self, directory: Path, configs: dict[str, str] | None = None) -> None:
        self.harness = Harness(directory, count=3, config=BrokerConfig(min_insync_replicas=2))
        self.cluster = self.harness.cluster
        self.hosts = {i: self.harness.call(lambda i=i: self._host(i)) for i in (1, 2, 3)}
        self.topic_id = self.harness.call(
            lambda: self.cluster.controller.create(TOPIC, [(1, 2, 3)], configs)
        )
        self.wait_for_term(1)

    def _host(self, broker_id: int) -> CoordinatorHost:
        def ask(term: Any, question: Any) -> None:
            asyncio.get_running_loop().call_soon(
                host.tell, 0, term.leader_epoch, (question, f"heard by {broker_id}")
            )

        host = CoordinatorHost(
            topic=TOPIC,
            replicas=self.cluster.brokers[broker_id].manager,
            make_shard=lambda _, leader_epoch: MapShard(leader_epoch),
            ask=ask,
        )
        return host

    def term(self, broker_id: int) -> Any:
        return self.hosts[broker_id]._terms.get(0)

    def wait_for_term(self, broker_id: int, leader_epoch: int = 0) -> None:
        def is_there() -> bool:
            term = self.term(broker_id)
            return (
                term is not None
                and term.state is State.ACTIVE
                and term.leader_epoch >= leader_epoch
            )

        wait_until(lambda: self.harness.call(is_there), f"broker {broker_id} has the term")

    def ask(self, broker_id: int, body: Any) -> Any:
        return self.harness.run(self.hosts[broker_id].request(key="k", body=body))

    def begin(self, broker_id: int, body: Any) -> asyncio.Future[Any]:
        """A request that is not waited for."""
        return asyncio.run_coroutine_threadsafe(
            self.hosts[broker_id].request(key="k", body=body), self.harness.loop
        )

    def lead(self, broker_id: int, isr: tuple[int, ...]) -> int:
        """The new leader's epoch."""
        controller = self.cluster.controller
        self.harness.call(lambda: controller.lead(self.topic_id, 0, broker_id, isr))
        partition = controller.image.partition(self.topic_id, 0)
        assert partition is not None
        return partition.leader_epoch

    def close(self) -> None:
        for host in self.hosts.values():
            self.harness.run(host.stop())
        self.harness.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


@pytest.mark.parametrize(
    ("key", "partition"),
    [("test", 48), ("my-group", 12), ("polygenelubricants", 0), ("console-consumer-1", 24)],
)
def test_a_key_lies_where_java_puts_it(key: str, partition: int) -> None:
    assert partition_of(key, 50) == partition


def test_what_was_answered_is_there_after_a_fail_over(kept: Kept) -> None:
    assert kept.ask(1, Put("a", "1")) == "put"
    assert kept.ask(2, Put("a", "2")) is ErrorCode.NOT_COORDINATOR
    kept.lead(2, (2, 3, 1))
    kept.wait_for_term(2)
    assert kept.ask(2, Get("a")) == "1"
    assert kept.ask(1, Get("a")) is ErrorCode.NOT_COORDINATOR


def test_a_key_without_topic_has_no_coordinator(kept: Kept) -> None:
    controller = kept.cluster.controller
    kept.harness.call(lambda: controller.commit(RemoveTopic(kept.topic_id)))
    assert kept.ask(1, Get("a")) is ErrorCode.NOT_COORDINATOR


def test_an_answer_waits_for_the_followers_and_the_lost_leadership_ends_the_wait(
    kept: Kept,
) -> None:
    for follower in (2, 3):
        kept.harness.run(kept.cluster.brokers[follower].manager.fetchers.stop())
    waiting = kept.begin(1, Put("b", "1"))
    # The shard knows already, and says so to who asks for no more.
    wait_until(lambda: kept.ask(1, Get("b")) == "1", "the shard has stepped")
    assert not waiting.done()
    kept.lead(2, (2, 3))
    assert waiting.result(5) is ErrorCode.NOT_COORDINATOR
    kept.wait_for_term(2)
    assert kept.ask(2, Get("b")) is None


def test_with_too_few_in_sync_nothing_is_begun_but_reads_go_on(kept: Kept) -> None:
    assert kept.ask(1, Put("c", "1")) == "put"
    kept.lead(1, (1,))
    kept.wait_for_term(1, leader_epoch=1)
    for follower in (2, 3):
        kept.harness.run(kept.cluster.brokers[follower].manager.fetchers.stop())
    kept.lead(1, (1,))
    assert kept.ask(1, Put("c", "2")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    kept.wait_for_term(1)
    assert kept.ask(1, Get("c")) == "1"


def test_a_new_epoch_of_the_same_leader_is_a_new_term(kept: Kept) -> None:
    assert kept.ask(1, Put("d", "1")) == "put"
    before = kept.term(1)
    epoch = kept.lead(1, (1, 2, 3))
    kept.wait_for_term(1, leader_epoch=epoch)
    after = kept.term(1)
    assert after is not before
    assert after.shard.leader_epoch == epoch == before.leader_epoch + 1
    assert kept.ask(1, Get("d")) == "1"


def test_only_the_isr_changes_and_the_term_goes_on(kept: Kept) -> None:
    before = kept.term(1)
    controller = kept.cluster.controller
    kept.harness.call(lambda: controller.commit(PartitionChange(kept.topic_id, 0, isr=(1, 2))))
    assert kept.term(1) is before


def test_a_timer_fires_once_and_what_it_wrote_is_durable_before_it_is_told(kept: Kept) -> None:
    assert kept.ask(1, PutSoon("e", "1")) == "soon"
    core = kept.cluster.replica(1, TOPIC).core
    assert core.high_watermark == core.end_offset == 1
    assert kept.term(1)._timers == {}


def test_a_question_is_answered_by_the_driver(kept: Kept) -> None:
    assert kept.ask(1, AskAround()) == "heard by 1"


def test_records_of_a_transaction_count_from_its_commit_marker_on(kept: Kept) -> None:
    producer = (7000, 0)
    assert kept.ask(1, Put("f", "1", producer)) == "put"
    assert kept.ask(1, Get("f")) is None
    end = TransactionEnd(*producer, is_commit=True)
    kept.harness.call(lambda: kept.hosts[1].transaction_ended(0, end))
    assert kept.ask(1, Get("f")) == "1"
    # The marker itself never reached the log here, so for the next leader it is still open.
    kept.lead(2, (2, 3, 1))
    kept.wait_for_term(2)
    assert kept.ask(2, Get("f")) is None
    assert kept.term(2).shard.open == {7000: {"f": "1"}}


def test_shards_hear_of_topics_that_are_gone(kept: Kept) -> None:
    controller = kept.cluster.controller
    topic_id = kept.harness.call(lambda: controller.create("short-lived", [(2, 3)]))
    kept.harness.call(lambda: controller.commit(RemoveTopic(topic_id)))
    assert kept.term(1).shard.deleted == ["short-lived"]


def deleted_in_a_new_term(kept: Kept, *images: tuple[Record, ...]) -> list[str]:
    """What the shard has heard of by the time it serves, if these images follow each other while
    the log is read."""

    def publish() -> None:
        for records in images:
            kept.cluster.controller.commit(*records)
            assert kept.term(1).state is State.LOADING

    assert kept.ask(1, Put("l", "1")) == "put"
    kept.harness.call(publish)
    kept.wait_for_term(1, leader_epoch=1)
    deleted: list[str] = kept.term(1).shard.deleted
    return deleted


def test_a_shard_hears_of_topics_that_go_while_its_log_is_read(kept: Kept) -> None:
    controller = kept.cluster.controller
    ids = [kept.harness.call(lambda n=n: controller.create(n, [(2, 3)])) for n in ("one", "two")]
    again = (Topic("two", b"2" * 16), Partition(b"2" * 16, 0, (2, 3), (2, 3), 2))
    lead = PartitionChange(kept.topic_id, 0, isr=(1, 2, 3), leader=1)
    found = deleted_in_a_new_term(
        kept, (lead,), (RemoveTopic(ids[0]),), (RemoveTopic(ids[1]), *again)
    )
    assert found == ["one", "two"]


def test_what_was_made_anew_before_the_term_is_not_taken_for_gone(kept: Kept) -> None:
    # Others may have led since, and taken what the log now says of the new one.
    controller = kept.cluster.controller
    ids = [kept.harness.call(lambda n=n: controller.create(n, [(2, 3)])) for n in ("one", "two")]
    again = (Topic("two", b"2" * 16), Partition(b"2" * 16, 0, (2, 3), (2, 3), 2))
    lead = PartitionChange(kept.topic_id, 0, isr=(1, 2, 3), leader=1)
    removed = (RemoveTopic(ids[0]), RemoveTopic(ids[1]))
    assert deleted_in_a_new_term(kept, (*removed, *again, lead)) == ["one"]


def test_a_log_that_cannot_be_read_serves_nobody(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    assert kept.ask(1, Put("g", "1")) == "put"
    replica = kept.cluster.replica(1, TOPIC)
    path = Path(replica.log.directory) / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.seek(61)
        file.write(b"\xff" * 8)
    kept.lead(1, (1, 2, 3))
    wait_until(lambda: replica.is_offline, "the load has failed")
    assert kept.ask(1, Get("g")) is ErrorCode.NOT_COORDINATOR
    assert "cannot load the coordinator of kept-0" in caplog.text
    assert f"{path} at byte 0: the CRC of batch 0 does not match" in caplog.text
    # It is told as lost, so that another one leads, and serves.
    kept.lead(2, (2, 3))
    wait_until(lambda: kept.term(2).state is State.ACTIVE, "another one has loaded")
    assert kept.ask(2, Get("g")) == "1"


def test_while_the_log_is_read_the_answer_is_to_try_again(kept: Kept) -> None:
    for at in range(3):
        assert kept.ask(1, Put("h", str(at) * 100_000)) == "put"

    async def lead_and_ask() -> Any:
        kept.cluster.controller.lead(kept.topic_id, 0, 1, (1, 2, 3))
        assert kept.term(1).state is State.LOADING
        return await kept.hosts[1].request(key="k", body=Get("h"))

    assert kept.harness.run(lead_and_ask()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    kept.wait_for_term(1, leader_epoch=1)
    assert kept.ask(1, Get("h")) == "2" * 100_000


def test_a_batch_that_cannot_be_written_is_forgotten_and_the_term_begins_anew(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, configs={"segment.bytes": str(1 << 20)})
    try:
        assert kept.ask(1, Put("i", "1")) == "put"
        before = kept.term(1)
        assert kept.ask(1, Put("i", "2" * (2 << 20))) is ErrorCode.NOT_COORDINATOR
        wait_until(lambda: kept.term(1) is not before, "another term")
        kept.wait_for_term(1)
        assert kept.ask(1, Get("i")) == "1"
        assert not kept.cluster.replica(1, TOPIC).is_offline
    finally:
        kept.close()


@pytest.mark.parametrize("kept", [0, 12])
def test_a_log_that_became_shorter_is_not_taken_for_a_compacted_one(
    tmp_path: Path, kept: int
) -> None:
    # Half a memory: offsets that were committed would be none.
    log = Log.new(OsDisk(), str(tmp_path / "kept-0"), LogConfig())
    for at in range(20):
        batch = build_batch([(b"k%d" % at, b"v")], timestamp_ms=1)
        log.append_as_leader(batch, leader_epoch=0, now_ms=1)
    assert sum(map(len, read_back(log))) == 20
    path = tmp_path / "kept-0" / f"{0:020d}.log"
    os.truncate(path, kept * path.stat().st_size // 20)
    with pytest.raises(CorruptData):
        list(read_back(log))
