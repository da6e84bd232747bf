"""The host of coordinators' shards: it loads them, appends, waits for replication, and ends them
with the leadership."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.coordinator.loading import read_back
from kvorum.broker.coordinator.model import TransactionEnd
from kvorum.broker.coordinator.shard_context import ShardState
from kvorum.metadata.image.records import Partition, PartitionChange, Record, RemoveTopic, Topic
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.polling import eventually
from tests.test_broker.map_shard import TOPIC, AskAround, Get, Kept, Put, PutSoon


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
    # The shard has the new state already, and answers a read with it.
    eventually(lambda: kept.ask(1, Get("b")) == "1", "the shard has stepped")
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
    assert len(kept.term(1)._timers) == 0


def test_a_question_is_answered_by_the_driver(kept: Kept) -> None:
    assert kept.ask(1, AskAround()) == "heard by 1"


def test_records_of_a_transaction_count_from_its_commit_marker_on(kept: Kept) -> None:
    producer = (7000, 0)
    assert kept.ask(1, Put("f", "1", producer)) == "put"
    assert kept.ask(1, Get("f")) is None
    end = TransactionEnd(*producer, is_commit=True)
    kept.harness.call(lambda: kept.hosts[1].transaction_ended(0, end))
    assert kept.ask(1, Get("f")) == "1"
    # The test wrote no marker to the log, so for the next leader the transaction is still open.
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
    """The deleted topics that the shard is told of before it serves, if these records are committed
    while its log is loaded."""

    def publish() -> None:
        for records in images:
            kept.cluster.controller.commit(*records)
            assert kept.term(1).state is ShardState.LOADING

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
    # Other brokers may have led since the deletion, and written state of the new topic to the log.
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
    eventually(lambda: replica.is_offline, "the load has failed")
    assert kept.ask(1, Get("g")) is ErrorCode.NOT_COORDINATOR
    assert "cannot load the coordinator of kept-0" in caplog.text
    assert f"{path} at byte 0: the CRC of batch 0 does not match" in caplog.text
    # The replica is reported as lost, so that another one leads, and serves.
    kept.lead(2, (2, 3))
    eventually(lambda: kept.term(2).state is ShardState.ACTIVE, "another one has loaded")
    assert kept.ask(2, Get("g")) == "1"


def test_while_the_log_is_read_the_answer_is_to_try_again(kept: Kept) -> None:
    for at in range(3):
        assert kept.ask(1, Put("h", str(at) * 100_000)) == "put"

    async def lead_and_ask() -> Any:
        kept.cluster.controller.lead(kept.topic_id, 0, 1, (1, 2, 3))
        assert kept.term(1).state is ShardState.LOADING
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
        eventually(lambda: kept.term(1) is not before, "another term")
        kept.wait_for_term(1)
        assert kept.ask(1, Get("i")) == "1"
        assert not kept.cluster.replica(1, TOPIC).is_offline
    finally:
        kept.close()


@pytest.mark.parametrize("kept", [0, 12])
def test_a_log_that_became_shorter_is_not_taken_for_a_compacted_one(
    tmp_path: Path, kept: int
) -> None:
    # A shard with half of its state would answer that committed offsets do not exist.
    log = Log.new(OsDisk(), str(tmp_path / "kept-0"), LogConfig())
    for at in range(20):
        batch = build_batch([(b"k%d" % at, b"v")], timestamp_ms=1)
        log.append_as_leader(batch, leader_epoch=0, now_ms=1)
    assert sum(map(len, read_back(lambda: log))) == 20
    path = tmp_path / "kept-0" / f"{0:020d}.log"
    os.truncate(path, kept * path.stat().st_size // 20)
    with pytest.raises(CorruptData):
        list(read_back(lambda: log))
