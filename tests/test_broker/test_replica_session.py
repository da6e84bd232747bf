"""The follower's half of a fetch session, without a socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kvorum.broker.fetch.follower_fetch import ReplicaFetcher
from kvorum.broker.fetch.log_start_ack import LogStartAcks
from kvorum.broker.manager.background_jobs import BackgroundJobs
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.metadata_answers.suspects import Suspects
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.metadata.image.image import PartitionImage
from kvorum.runtime.clock import SYSTEM_CLOCK
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from kvorum.wire.replica_fetch_codec import ReplicaAnswer, ReplicaFetchAnswer
from tests.test_broker.lone_replica import CONFIG, TOPIC_ID, answer, fail, replica_of, session_of


def test_a_session_is_opening_until_its_first_answer():
    session = session_of()
    session.add((TOPIC_ID, 0), replica_of())
    session.next_request()
    assert session.take_epoch() == 0
    assert session.is_opening
    session.take_answer(answer(7), memoryview(b""))
    assert not session.is_opening
    assert session.take_epoch() == 1
    assert not session.is_opening


def test_no_second_request_leaves_while_a_session_is_opened():
    # Seed 227 of the simulated partitions: the second request opened another session, which was
    # dropped together with the partitions that only this request listed.
    sent = []
    fetcher = ReplicaFetcher(
        leader=2, broker_id=1, config=CONFIG, controller=SimpleNamespace(broker_epoch=1),
        peer_address=lambda _: None, quota=ReplicationQuota(0), clock=SYSTEM_CLOCK, connect=None,
        starts=LogStartAcks(fail),
        suspects=Suspects(SYSTEM_CLOCK.monotonic_ms),
    )  # fmt: skip
    fetcher._sock = object()
    fetcher._send_fetch = lambda: sent.append(fetcher.session.next_request())
    fetcher.session.add((TOPIC_ID, 0), replica_of(0))
    fetcher.session.take_epoch()
    fetcher._in_flight.append(1)
    fetcher.session.add((TOPIC_ID, 1), replica_of(1))
    fetcher.on_partitions_changed()
    assert sent == []
    fetcher.session.take_answer(answer(7), memoryview(b""))
    fetcher.on_partitions_changed()
    assert len(sent) == 1


def test_partitions_made_one_after_the_other_share_a_request():
    async def run():
        sent: list[list[int]] = []
        has_shared = asyncio.Event()
        # The clock stands still; otherwise a pause of the test process would end the partitions'
        # wait.
        clock = SimpleNamespace(monotonic_ms=lambda: 1_000)
        fetcher = ReplicaFetcher(
            leader=2, broker_id=1, config=CONFIG, controller=SimpleNamespace(broker_epoch=1),
            peer_address=lambda _: None, quota=ReplicationQuota(0), clock=clock,
            connect=None, starts=LogStartAcks(fail),
            suspects=Suspects(SYSTEM_CLOCK.monotonic_ms),
        )  # fmt: skip

        def send():
            listed, _ = fetcher.session.next_request()
            sent.append([row.partition_id for _, rows in listed for row in rows])
            if len(sent) == 2:
                has_shared.set()

        def make(partition_id):
            fetcher.session.add((TOPIC_ID, partition_id), replica_of(partition_id))
            fetcher.on_newcomer()

        fetcher._sock, fetcher._send_fetch = object(), send
        for partition_id in range(4):
            make(partition_id)
        assert sent == [[0]]  # nobody waits for the first
        await has_shared.wait()
        assert sent == [[0], [1, 2, 3]]
        make(4)
        fetcher.close()
        assert fetcher._newcomers is None or fetcher._newcomers.cancelled()

    asyncio.run(run())


def test_nothing_is_asked_while_every_partition_pauses():
    # Bug: the leader answers an empty fetch at once, so follower and leader took half a core each.
    async def run():
        frames = []
        fetcher = ReplicaFetcher(
            leader=2, broker_id=1, config=CONFIG, controller=SimpleNamespace(broker_epoch=1),
            peer_address=lambda _: None, quota=ReplicationQuota(0), clock=SYSTEM_CLOCK,
            connect=None, starts=LogStartAcks(fail),
            suspects=Suspects(SYSTEM_CLOCK.monotonic_ms),
        )  # fmt: skip
        fetcher._sock = object()
        fetcher._lost = asyncio.get_running_loop().create_future()
        fetcher._flush = lambda: (frames.append(bytes(fetcher._output)), fetcher._output.clear())
        session = fetcher.session
        for partition_id in (0, 1):
            session.add((TOPIC_ID, partition_id), replica_of(partition_id))
        fetcher._send_fetch()
        refused = [
            ReplicaAnswer(TOPIC_ID, i, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0, None, 0, 0)
            for i in (0, 1)
        ]
        session.take_answer(ReplicaFetchAnswer(1, 0, 7, refused), memoryview(b""))
        assert session.is_paused and not session.is_empty
        fetcher._send_fetch()  # one request removes them from the session
        fetcher._send_fetch()
        assert len(frames) == 2
        session.add((TOPIC_ID, 0), session._partitions[TOPIC_ID, 0].replica)
        assert not session.is_paused
        fetcher._send_fetch()
        assert len(frames) == 3
        session.remove((TOPIC_ID, 0))
        session.remove((TOPIC_ID, 1))
        assert session.is_paused and session.is_empty
        session.close()

    asyncio.run(run())


def test_a_replica_whose_disk_failed_takes_no_more_records():
    # Seed 52: with each fetch the replica vouched for records that its disk may not hold.
    session, replica = session_of(), replica_of()
    session.add((TOPIC_ID, 0), replica)
    session.next_request()
    replica.go_offline()
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=1, leader_epoch=0))
    session.take_answer(answer(7, batch=batch), memoryview(batch))
    assert replica.log.end_offset == 0
    assert session.is_empty


def test_two_jobs_flush_one_log_in_turn():
    # Seed 1: the second found a flush under way, which ended the process.
    async def flush_twice():
        replica, registry = replica_of(), ReplicaRegistry()
        replica.log.append_as_leader(
            build_batch([(None, b"x")], timestamp_ms=1), leader_epoch=0, now_ms=1
        )
        maintenance = BackgroundJobs(
            registry=registry, configs=None, directories=None, fetchers=None, isr=None,
            clock=SYSTEM_CLOCK, on_directory_error=None,
        )  # fmt: skip
        await asyncio.gather(maintenance._flush(replica), maintenance._flush(replica))
        return replica.log.durable_end_offset, registry.metrics.flush_s.count

    assert asyncio.run(flush_twice()) == (1, 2)


def test_records_that_came_twice_bring_the_watermark_that_came_with_them():
    # Seed 2308: two requests were under way. The leader assumed that the follower got the high
    # watermark of the second answer, although the follower dropped that answer.
    session, replica = session_of(), replica_of()
    replica.become_follower(PartitionImage((1, 2), (1, 2), 2, 0, 0))
    session.add((TOPIC_ID, 0), replica)
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=1, leader_epoch=0))
    for high_watermark in (0, 1):
        session.next_request()
        session.take_epoch()
        found = answer(7, batch=batch)
        part = found.partitions[0]._replace(high_watermark=high_watermark)
        session.take_answer(found._replace(partitions=[part]), memoryview(batch))
        assert replica.log.end_offset == 1
        assert replica.core.high_watermark == high_watermark


def test_an_answer_for_the_replica_that_was_here_before_is_dropped():
    # Seed 1127: the partition was moved away and back while a fetch was under way, and records
    # fetched for the old log were appended to the new, empty one.
    session, old, new = session_of(), replica_of(), replica_of()
    session.add((TOPIC_ID, 0), old)
    session.next_request()
    session.take_epoch()
    session.remove((TOPIC_ID, 0))
    session.add((TOPIC_ID, 0), new)
    session.next_request()
    session.take_epoch()
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=1, base_offset=280, leader_epoch=0))
    session.take_answer(answer(7, batch=batch), memoryview(batch))
    assert (new.log.start_offset, new.log.end_offset) == (0, 0)


def test_an_answer_to_what_was_asked_in_an_epoch_before_is_dropped():
    # Bad sequence: 1. A fetch of epoch 0 is under way. 2. Another leader is elected, then the first
    # one again, whose log may have been truncated meanwhile. 3. The answer of epoch 0 comes, with
    # records that may no longer exist.
    session, replica = session_of(), replica_of()
    image = PartitionImage((1, 2), (1, 2), 2, 0, 0)
    replica.become_follower(image)
    session.add((TOPIC_ID, 0), replica)
    session.next_request()
    session.take_epoch()
    replica.become_follower(PartitionImage((1, 2), (1, 2), 2, 2, 2))
    session.add((TOPIC_ID, 0), replica)
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=1, leader_epoch=0))
    session.take_answer(answer(7, batch=batch), memoryview(batch))
    assert replica.log.end_offset == 0
    session.next_request()
    session.take_epoch()
    session.take_answer(answer(7, batch=batch), memoryview(batch))
    assert replica.log.end_offset == 1


def test_a_late_error_of_the_old_session_does_not_let_a_second_one_be_opened():
    # Bug: partitions that only the second request listed were never fetched. It must wait for the
    # first.
    session = session_of()
    session.add((TOPIC_ID, 0), replica_of())
    session.next_request()
    session.take_epoch()
    session.take_answer(answer(7), memoryview(b""))
    for _ in range(2):  # two requests of session 7, which the leader has lost
        session.next_request()
        session.take_epoch()
    lost = ReplicaFetchAnswer(1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND.value, 0, [])
    session.take_answer(lost, memoryview(b""))
    session.next_request()
    session.take_epoch()
    assert session.is_opening
    session.take_answer(lost, memoryview(b""))
    assert session.is_opening, "the request that opens one is still out"
    session.take_answer(answer(8), memoryview(b""))
    assert not session.is_opening and session.session_id == 8


def test_a_start_that_retention_has_moved_is_in_the_next_request():
    # Bug: a DeleteRecords below this start waited until its deadline, and so did the next one.
    async def ask():
        session, replica = session_of(), replica_of()
        session.add((TOPIC_ID, 0), replica)
        for _ in range(3):
            replica.log.append_as_leader(
                build_batch([(None, b"x")], timestamp_ms=0), leader_epoch=0, now_ms=0
            )
        session.next_request()
        assert not session.has_changes
        session.report_log_start((TOPIC_ID, 0))
        session.report_log_start((TOPIC_ID, 1))  # followed no more
        ((_, (listed,)),), _ = session.next_request()
        return listed.partition_id

    assert asyncio.run(ask()) == 0


def test_a_leader_that_refuses_this_follower_is_told_of_once_a_minute(caplog):
    async def run():
        session = session_of()
        session.add((TOPIC_ID, 0), replica_of())
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for _ in range(3):
            session.next_request()
            denied = [ReplicaAnswer(TOPIC_ID, 0, code, 0, 0, None, 0, 0)]
            session.take_answer(ReplicaFetchAnswer(1, 0, 7, denied), memoryview(b""))
            assert session.is_paused
            session.add((TOPIC_ID, 0), session._partitions[TOPIC_ID, 0].replica)
        session.close()

    asyncio.run(run())
    (line,) = caplog.messages
    assert "refuses the fetches of this broker: its user there needs CLUSTER_ACTION" in line


@pytest.mark.parametrize(
    ("base_offset", "is_refused"),
    [(0, False), (2, True), (3, True), (4, False)],
)
def test_a_batch_that_begins_below_the_end_and_ends_above_it_is_refused(base_offset, is_refused):
    # Bug: the batch was taken for one that came twice, and fetched again at once: half a core on
    # either side.
    async def run():
        session, replica = session_of(), replica_of()
        first = build_batch([(b"k", b"v")] * 4, timestamp_ms=0, leader_epoch=0)
        replica.log.append_as_follower(bytes(first), now_ms=0)
        session.add((TOPIC_ID, 0), replica)
        session.next_request()
        batch = bytes(
            build_batch([(b"k", b"v")] * 4, timestamp_ms=0, leader_epoch=0, base_offset=base_offset)
        )
        session.take_answer(answer(7, batch=batch), memoryview(batch))
        assert session.is_paused is is_refused
        assert replica.log.end_offset == (8 if base_offset == 4 else 4)
        session.close()

    asyncio.run(run())
