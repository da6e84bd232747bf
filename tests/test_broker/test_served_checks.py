"""Damage in old records of a leader, which no start reads: the fetch of a follower finds it."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.fetch.follower_fetch_session import REFUSED_MAX_MS
from kvorum.metadata.image.records import LOST_DIRECTORY, NO_LEADER
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.lone_replica import TOPIC_ID, answer, replica_of, session_of
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values

RECORDS = 40
CONFIG = BrokerConfig(log_segment_bytes=1_000)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=CONFIG)
    yield harness
    harness.close()


def filled(harness: Harness, replicas: tuple[int, ...]) -> None:
    """A topic led by broker 1 whose segments hold ten batches or so each."""
    harness.call(lambda: harness.cluster.controller.create("t", [replicas]))
    client = RawClient(harness.cluster.ports[1])
    for _ in range(RECORDS):
        batch = bytes(build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000)))
        reply = client.call("produce", 9, produce_values("t", batch, acks=-1))
        assert reply.responses[0].partition_responses[0].error_code is KioError.none
    client.close()


def partition(harness: Harness):
    return harness.cluster.controller.image.topic("t").partitions[0]


def lead_with_damage(harness: Harness) -> Path:
    """Broker 1 stops in good order, a byte of its second segment changes, and it leads again."""
    cluster = harness.cluster
    log = cluster.replica(1, "t").log
    base_offset = log.segments.bases[1]
    assert base_offset < log.segments.bases[-1]
    path = Path(log.directory) / f"{base_offset:020d}.log"
    harness.run(cluster.stop_broker(1, fence=len(partition(harness).isr) > 1))
    data = bytearray(path.read_bytes())
    data[int.from_bytes(data[8:12], "big") + 11] ^= 0x10  # the last one of the first batch
    path.write_bytes(data)
    harness.run(cluster.start_broker(1, is_clean=True))
    eventually(lambda: 1 in partition(harness).isr, "broker 1 is in sync")
    topic_id = cluster.controller.image.topic_ids["t"]
    if partition(harness).leader != 1:
        isr = partition(harness).isr
        harness.call(lambda: cluster.controller.lead(topic_id, 0, 1, isr))
    eventually(lambda: cluster.replica(1, "t").core.is_leader, "broker 1 leads")
    return path


def begin_anew(harness: Harness, broker_id: int) -> None:
    """Start a follower on an empty disk, as after a replacement."""
    shutil.rmtree(harness.cluster.directory / f"broker-{broker_id}")
    harness.run(harness.cluster.start_broker(broker_id))


def test_a_leader_that_serves_damage_gives_its_lead_to_a_replica_in_sync(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    filled(harness, (1, 2, 3))
    harness.run(harness.cluster.stop_broker(3))
    with caplog.at_level(logging.INFO):
        path = lead_with_damage(harness)
        begin_anew(harness, 3)
        eventually(lambda: set(partition(harness).isr) == {2, 3}, "broker 3 has caught up")
    assert partition(harness).leader == 2
    assert partition(harness).directory_of(1) == LOST_DIRECTORY
    assert harness.cluster.replica(3, "t").log.end_offset == RECORDS
    port = harness.cluster.ports[1]
    told = [r.getMessage() for r in caplog.records if "refuses the records" in r.getMessage()]
    assert len(told) == 1
    assert (
        f"t-0 refuses the records that broker 1 at 127.0.0.1:{port} sends from offset " in told[0]
    )
    assert str(harness.cluster.directory) not in told[0]
    (lost,) = [r.getMessage() for r in caplog.records if "t-0 is offline" in r.getMessage()]
    assert f"{path} at byte" in lost and "partitions restore" in lost


def test_damage_that_was_found_once_is_not_forgotten_by_a_restart(harness: Harness) -> None:
    # The recovery point is above the damage, so recovery at the start would not find it.
    filled(harness, (1, 2, 3))
    harness.run(harness.cluster.stop_broker(3))
    lead_with_damage(harness)
    begin_anew(harness, 3)
    eventually(lambda: set(partition(harness).isr) == {2, 3}, "broker 3 has caught up")
    for is_clean in (True, False):
        harness.run(harness.cluster.stop_broker(1))
        harness.run(harness.cluster.start_broker(1, is_clean=is_clean))
        assert [b.name for b in harness.cluster.brokers[1].manager.registry.broken] == ["t-0"]
        assert partition(harness).directory_of(1) == LOST_DIRECTORY


def test_the_last_replica_in_sync_goes_offline_as_it_does_at_a_start_and_says_so(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    filled(harness, (1, 2))
    harness.run(harness.cluster.stop_broker(2))
    assert partition(harness).isr == (1,)
    with caplog.at_level(logging.ERROR):
        lead_with_damage(harness)
        begin_anew(harness, 2)
        eventually(lambda: partition(harness).leader == NO_LEADER, "the leader has given up")
    assert partition(harness).isr == (1,)
    assert "t-0 is offline" in caplog.text
    registry = harness.cluster.brokers[1].manager.registry
    assert len(registry.broken) + sum(replica.is_offline for replica in registry.all()) == 1


def test_a_follower_that_asks_twice_of_a_sound_leader_costs_nobody_anything(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvorum.broker.fetch import reread_verification as reread_verification

    checked: list[object] = []
    check = reread_verification.first_damage
    monkeypatch.setattr(
        reread_verification,
        "first_damage",
        lambda *read: checked.append(check(*read)) or checked[-1],
    )
    filled(harness, (1, 2))
    harness.run(harness.cluster.stop_broker(2))
    follower = harness.cluster.replica(1, "t").core.followers[2]
    harness.call(lambda: setattr(follower, "sent_offset", 0))
    begin_anew(harness, 2)
    eventually(lambda: set(partition(harness).isr) == {1, 2}, "broker 2 has caught up")
    eventually(lambda: checked == [None], "it was looked at")
    assert partition(harness).leader == 1


def test_a_follower_pauses_longer_and_longer_and_says_once_who_sent_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(times: int) -> tuple[list[int], int]:
        session, replica = session_of(), replica_of()
        delays: list[int] = []
        leave = session._leave
        session._leave = lambda *a: (delays.append(a[2]), leave(*a))  # type: ignore[method-assign]
        session.add((TOPIC_ID, 0), replica)
        sound = bytes(build_batch([(None, b"x")], timestamp_ms=1, leader_epoch=0))
        damaged = sound[:-1] + bytes([sound[-1] ^ 1])
        for batch in [damaged] * times + [sound]:
            session._resume((TOPIC_ID, 0), session._partitions[TOPIC_ID, 0])
            session.next_request()
            session.take_epoch()
            session.take_answer(answer(7, batch=batch), memoryview(batch))
        session.close()
        return delays, replica.log.end_offset

    with caplog.at_level(logging.INFO):
        delays, end_offset = asyncio.run(refuse(20))
    assert delays[:4] == [10, 20, 40, 80]
    assert delays[-1] == REFUSED_MAX_MS
    assert end_offset == 1
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert texts[0].startswith(
        "t-0 refuses the records that broker 2 at host:9092 sends from offset 0 on: "
        "CORRUPT_MESSAGE: the CRC of batch 0 is wrong"
    )
    assert texts[1] == "t-0 continues: broker 2 at host:9092 sent valid records"


def test_a_leader_whose_file_became_shorter_gives_its_lead_away(harness: Harness) -> None:
    # The file is truncated at the end of a batch, so the rest is sound. Bug: the followers waited
    # for the missing batches for ever.
    cluster = harness.cluster
    filled(harness, (1, 2))
    eventually(lambda: cluster.replica(2, "t").log.end_offset == RECORDS, "it is replicated")
    harness.call(lambda: cluster.brokers[2].manager.fetchers.pause(True))
    client = RawClient(cluster.ports[1])
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000)))
    leader = cluster.replica(1, "t")
    base_offset = leader.log.segments.bases[-1]
    client.call("produce", 9, produce_values("t", batch, acks=1))
    os.truncate(Path(leader.log.directory) / f"{base_offset:020d}.log", 0)
    client.close()
    harness.call(lambda: cluster.brokers[2].manager.fetchers.pause(False))
    eventually(lambda: leader.is_offline, "it has looked")


def test_damage_behind_what_a_fetch_was_given_costs_the_replica_and_no_more(
    harness: Harness,
) -> None:
    # To know how much lies below the high watermark, the leader also reads the headers of batches
    # behind those that it sends; one of them is damaged.
    cluster = harness.cluster
    configs = {"segment.bytes": "110000"}
    harness.call(lambda: cluster.controller.create("t", [(1, 2)], configs))
    client = RawClient(cluster.ports[1])
    batch = bytes(build_batch([(None, bytes(5000))], timestamp_ms=int(time.time() * 1000)))
    for _ in range(10):
        client.call("produce", 9, produce_values("t", batch))
    leader = cluster.replica(1, "t")
    eventually(lambda: leader.core.high_watermark == 10, "all is committed")
    harness.call(lambda: cluster.brokers[2].manager.fetchers.pause(True))
    for _ in range(30):
        client.call("produce", 9, produce_values("t", batch, acks=1))
    with (Path(leader.log.directory) / f"{0:020d}.log").open("r+b") as file:
        file.seek(10 * len(batch) + 16)
        file.write(b"\x07")  # the magic of the first batch above the watermark
    partitions = [fetch_partition(0, bytes_max=6_000)]
    values = fetch_values("t", 0, max_wait_ms=500, min_bytes=50_000, partitions=partitions)
    row = client.call("fetch", 12, values).responses[0].partitions[0]
    assert row.error_code is KioError.none
    assert leader.is_offline
    row = client.call("fetch", 12, values).responses[0].partitions[0]
    assert row.error_code is KioError.kafka_storage_error
    client.close()
