"""Three brokers in one process, replicating over real sockets, under a hand-made controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.partition.core.follower_state import LONG_AGO_MS
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.records import BrokerRegistrationChange, PartitionChange, RegisterBroker
from kvorum.runtime.disk import OsDiskFile
from kvorum.runtime.sockets import connect_tcp
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.producing import batch, produce
from tests.test_broker.raw_client import RawClient, produce_values

CONFIG = BrokerConfig(replica_lag_time_max_ms=400, replica_fetch_wait_max_ms=100)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=CONFIG)
    yield harness
    harness.close()


def create(harness: Harness, replicas: tuple[int, ...] = (1, 2, 3), **configs: str) -> bytes:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return harness.call(lambda: harness.cluster.controller.create("t", [replicas], named))


def replica(harness: Harness, broker_id: int) -> Replica:
    return harness.cluster.replica(broker_id, "t")


def log_bytes(harness: Harness, broker_id: int) -> bytes:
    log = replica(harness, broker_id).log
    if log.end_offset == log.start_offset:
        return b""
    return log.read(log.start_offset, bytes_max=1 << 30, end_offset=log.end_offset).read()


def wait_equal(harness: Harness, *broker_ids: int) -> None:
    def are_equal() -> bool:
        return len({harness.call(lambda b=b: log_bytes(harness, b)) for b in broker_ids}) == 1

    eventually(are_equal, f"equal logs on {broker_ids}")


def wait_isr(harness: Harness, topic_id: bytes, *isr: int) -> None:
    controller = harness.cluster.controller

    def isr_is() -> bool:
        partition = controller.image.partition(topic_id, 0)
        return partition is not None and set(partition.isr) == set(isr)

    eventually(isr_is, f"ISR {isr}")


def register_anew(harness: Harness, broker_id: int) -> None:
    """Register again like a process that hung, was fenced, and continues: over its existing
    connections."""

    def register() -> None:
        controller = harness.cluster.controller
        harness.cluster.fence(broker_id)
        known = controller.image.brokers[broker_id]
        epoch = controller.image.end_offset + 1
        controller.commit(
            RegisterBroker(
                broker_id, epoch, known.incarnation_id, known.endpoints, known.rack,
                features=known.features, log_dirs=known.log_dirs,
            )
        )  # fmt: skip
        controller.commit(BrokerRegistrationChange(broker_id, epoch, is_fenced=False))

    harness.call(register)


def test_a_follower_that_registered_anew_gets_back_in_sync(harness: Harness) -> None:
    topic_id = create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    register_anew(harness, 3)
    assert harness.cluster.controller.image.partition(topic_id, 0).isr == (1, 2)
    wait_isr(harness, topic_id, 1, 2, 3)
    assert produce(harness, 1, b"b") is KioError.none


def pause(harness: Harness, broker_id: int, is_paused: bool) -> None:
    fetchers = harness.cluster.brokers[broker_id].manager.fetchers
    harness.call(lambda: fetchers.pause(is_paused))


def test_acks_all_is_answered_when_every_member_has_the_records(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"a", b"b") is KioError.none
    for broker_id in (1, 2, 3):
        assert replica(harness, broker_id).log.end_offset == 2
    assert replica(harness, 1).core.high_watermark == 2
    eventually(
        lambda: all(replica(harness, b).core.high_watermark == 2 for b in (2, 3)),
        "followers hear of the watermark",
    )


def test_appends_to_a_follower_are_refused_with_the_leader(harness: Harness) -> None:
    create(harness)
    client = RawClient(harness.cluster.brokers[2].port)
    answer = client.call("produce", 10, produce_values("t", batch(b"x")))
    row = answer.responses[0].partition_responses[0]
    assert row.error_code is KioError.not_leader_or_follower
    assert row.current_leader.leader_id == 1
    assert answer.node_endpoints[0].port == harness.cluster.brokers[1].port
    client.close()


def test_a_lagging_follower_leaves_the_isr_and_comes_back(harness: Harness) -> None:
    topic_id = create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    pause(harness, 3, True)
    assert produce(harness, 1, b"b") is KioError.none, "waits for the shrink, then answers"
    wait_isr(harness, topic_id, 1, 2)
    assert replica(harness, 3).log.end_offset == 1
    pause(harness, 3, False)
    wait_isr(harness, topic_id, 1, 2, 3)
    wait_equal(harness, 1, 2, 3)


def test_the_watermark_waits_for_members_the_controller_has_not_let_go(harness: Harness) -> None:
    create(harness)
    harness.cluster.controller.is_answering = False
    pause(harness, 3, True)
    assert produce(harness, 1, b"a", timeout_ms=900) is KioError.request_timed_out
    assert replica(harness, 1).core.high_watermark == 0
    harness.cluster.controller.is_answering = True
    eventually(lambda: replica(harness, 1).core.high_watermark == 1, "the shrink commits")


def test_too_small_an_isr_refuses_acks_all_but_not_acks_1(harness: Harness) -> None:
    topic_id = create(harness, min_insync_replicas="2")
    for broker_id in (2, 3):
        pause(harness, broker_id, True)
    timed_out = produce(harness, 1, b"a", timeout_ms=1500)
    assert timed_out is KioError.request_timed_out
    wait_isr(harness, topic_id, 1)
    assert produce(harness, 1, b"b") is KioError.not_enough_replicas
    assert produce(harness, 1, b"c", acks=1) is KioError.none
    assert replica(harness, 1).core.high_watermark == 0, "nothing commits under min ISR"
    pause(harness, 2, False)
    wait_isr(harness, topic_id, 1, 2)
    eventually(lambda: replica(harness, 1).core.high_watermark == 2, "the watermark goes on")
    assert produce(harness, 1, b"d") is KioError.none


def test_an_isr_that_shrinks_after_the_append_is_told(harness: Harness) -> None:
    topic_id = create(harness, min_insync_replicas="2")
    for broker_id in (2, 3):
        pause(harness, broker_id, True)
    client = RawClient(harness.cluster.brokers[1].port)
    client.send("produce", 9, produce_values("t", batch(b"a")))
    eventually(lambda: replica(harness, 1).pending_acks, "the append waits")

    def shrink_and_relax() -> None:
        leader = replica(harness, 1)
        for follower in leader.core.followers.values():
            follower.last_caught_up_ms = LONG_AGO_MS
        harness.cluster.controller.commit(PartitionChange(topic_id, 0, isr=(1,)))
        # The high watermark had already passed the batch when the shrink arrived:
        leader.core.high_watermark = 1
        leader.on_high_watermark()

    harness.call(shrink_and_relax)
    row = client.answer("produce", 9).responses[0].partition_responses[0]
    assert row.error_code is KioError.not_enough_replicas_after_append
    client.close()


def test_a_lost_leadership_fails_what_waits(harness: Harness) -> None:
    topic_id = create(harness)
    for broker_id in (2, 3):
        pause(harness, broker_id, True)
    client = RawClient(harness.cluster.brokers[1].port)
    client.send("produce", 9, produce_values("t", batch(b"a")))
    eventually(lambda: replica(harness, 1).pending_acks, "the append waits")
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (2, 3)))
    row = client.answer("produce", 9).responses[0].partition_responses[0]
    assert row.error_code is KioError.not_leader_or_follower
    client.close()


def test_an_old_leaders_unreplicated_records_are_cut(harness: Harness) -> None:
    topic_id = create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    for broker_id in (2, 3):
        pause(harness, broker_id, True)
    assert produce(harness, 1, b"lost-1", b"lost-2", acks=1) is KioError.none
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (2, 3)))
    for broker_id in (2, 3):
        pause(harness, broker_id, False)
    assert produce(harness, 2, b"kept") is KioError.none
    wait_equal(harness, 1, 2, 3)
    assert b"kept" in log_bytes(harness, 1)
    assert b"lost" not in log_bytes(harness, 1)
    wait_isr(harness, topic_id, 1, 2, 3)


def test_a_restarted_broker_catches_up_and_rejoins(harness: Harness) -> None:
    topic_id = create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    harness.run(harness.cluster.stop_broker(3))
    wait_isr(harness, topic_id, 1, 2)
    assert produce(harness, 1, *[b"x" * 1000] * 50) is KioError.none
    harness.run(harness.cluster.start_broker(3, is_clean=True))
    wait_isr(harness, topic_id, 1, 2, 3)
    wait_equal(harness, 1, 2, 3)


def test_leaders_change_hands_with_acknowledged_records_kept(harness: Harness) -> None:
    topic_id = create(harness, min_insync_replicas="2")
    acknowledged = []
    leader = 1
    for turn in range(6):
        for n in range(5):
            value = f"v-{turn}-{n}".encode()
            if produce(harness, leader, value) is KioError.none:
                acknowledged.append(value)
        follower = leader % 3 + 1
        partition = harness.cluster.controller.image.partition(topic_id, 0)
        assert partition is not None
        if follower in partition.isr:
            isr = partition.isr
            harness.call(
                lambda f=follower, i=isr: harness.cluster.controller.lead(topic_id, 0, f, i)
            )
            leader = follower
    wait_equal(harness, 1, 2, 3)
    data = log_bytes(harness, 1)
    assert len(acknowledged) == 30
    assert all(value in data for value in acknowledged)


def test_a_recreated_topic_starts_empty_everywhere(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"old") is KioError.none
    client = RawClient(harness.cluster.brokers[2].port)
    client.call("delete_topics", 4, {"topic_names": ["t"], "timeout": 5000})
    client.close()
    create(harness)
    assert produce(harness, 1, b"new") is KioError.none
    wait_equal(harness, 1, 2, 3)
    assert b"old" not in log_bytes(harness, 3)


def test_a_directory_of_an_older_topic_of_that_name_is_removed_at_start(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"old") is KioError.none
    harness.run(harness.cluster.stop_broker(3))
    client = RawClient(harness.cluster.brokers[1].port)
    client.call("delete_topics", 4, {"topic_names": ["t"], "timeout": 5000})
    client.close()
    create(harness, (1, 2, 3))
    assert produce(harness, 1, b"new") is KioError.none
    harness.run(harness.cluster.start_broker(3, is_clean=True))
    wait_equal(harness, 1, 2, 3)
    assert b"old" not in log_bytes(harness, 3)


def test_directories_of_topics_gone_meanwhile_are_removed_at_start(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"old") is KioError.none
    harness.run(harness.cluster.stop_broker(3))
    client = RawClient(harness.cluster.brokers[1].port)
    client.call("delete_topics", 4, {"topic_names": ["t"], "timeout": 5000})
    client.close()
    data = harness.cluster.directory / "broker-3"
    assert (data / "t-0").exists()
    harness.run(harness.cluster.start_broker(3, is_clean=True))
    eventually(lambda: not list(data.glob("t-0*")), "the directory goes")


def test_a_changed_address_is_followed(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    harness.run(harness.cluster.stop_broker(1, fence=False))
    harness.run(harness.cluster.start_broker(1, is_clean=True))
    assert produce(harness, 1, b"b") is KioError.none
    wait_equal(harness, 1, 2, 3)


def test_a_leader_out_of_reach_is_found_again(harness: Harness) -> None:
    create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    cluster = harness.cluster
    cluster.unreachable.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        harness.call(cluster.brokers[broker_id].manager.fetchers.on_brokers_changed)
    assert produce(harness, 1, b"b", timeout_ms=50) is KioError.request_timed_out
    cluster.unreachable.clear()
    eventually(lambda: replica(harness, 1).core.high_watermark == 2, "replication resumes")


def test_thousands_of_idle_partitions_cost_nothing_per_fetch(harness: Harness) -> None:
    controller = harness.cluster.controller
    harness.call(lambda: controller.create("many", [(1, 2, 3)] * 1000))
    create(harness)
    assert produce(harness, 1, b"a") is KioError.none
    leader = harness.cluster.brokers[1].manager

    def states():
        # Looked up each time, because a follower may not have opened its session yet. A follower
        # that connected again has a second session; its first one stays until the cache needs the
        # place.
        sessions = [s for s in leader.fetch_services.sessions._sessions.values() if s.is_replica]
        return list({s.replica_id: s for s in sessions}.values())

    eventually(
        lambda: len(states()) == 2 and all(len(s.partitions) == 1001 for s in states()),
        "both followers watch everything in one session",
    )
    eventually(
        lambda: harness.call(lambda: max(len(s.dirty) for s in states())) <= 1,
        "only what changed is dirty",
    )


def test_high_watermarks_survive_a_clean_restart(harness: Harness) -> None:
    create(harness, (1,))
    assert produce(harness, 1, b"a", b"b") is KioError.none
    harness.run(harness.cluster.stop_broker(1, fence=False))
    text = (harness.cluster.directory / "broker-1" / "replication-offset-checkpoint").read_text()
    assert text == "0\n1\nt 0 2\n"
    harness.run(harness.cluster.start_broker(1, is_clean=True))
    assert replica(harness, 1).core.high_watermark == 2


def test_a_crashed_leader_recovers_its_log_and_follows(harness: Harness) -> None:
    topic_id = create(harness)
    for n in range(20):
        assert produce(harness, 1, b"v%d" % n) is KioError.none
    harness.run(harness.cluster.crash_broker(1))
    harness.call(lambda: harness.cluster.fence(1))
    assert produce(harness, 2, b"after") is KioError.none
    harness.run(harness.cluster.start_broker(1, is_clean=False))
    wait_isr(harness, topic_id, 1, 2, 3)
    wait_equal(harness, 1, 2, 3)
    assert replica(harness, 1).log.end_offset == 21


def test_foreign_directories_are_left_alone(harness: Harness) -> None:
    harness.run(harness.cluster.stop_broker(3))
    data = harness.cluster.directory / "broker-3"
    for name in ("__cluster_metadata-0", "somebodys-7", "snapshots"):
        (data / name).mkdir()
        (data / name / "file").write_text("x")
    (data / "old-0.0123-delete").mkdir()
    harness.run(harness.cluster.start_broker(3, is_clean=False))
    eventually(lambda: not (data / "old-0.0123-delete").exists(), "leftovers go")
    for name in ("__cluster_metadata-0", "somebodys-7", "snapshots"):
        assert (data / name / "file").exists()


def test_rolled_segments_are_flushed_and_checkpointed(harness: Harness) -> None:
    create(harness, (1,), segment_bytes="4096")
    for _ in range(10):
        assert produce(harness, 1, b"x" * 1000) is KioError.none
    log = replica(harness, 1).log
    assert log.segment_count > 1
    eventually(lambda: log.durable_end_offset >= log.segments.bases[-1], "the flush")


def test_a_damaged_log_is_refused_at_every_start_and_the_others_serve(harness: Harness) -> None:
    create(harness, (1,))
    assert produce(harness, 1, *[b"x" * 100] * 3) is KioError.none
    assert produce(harness, 1, b"y" * 100) is KioError.none
    log_file = harness.cluster.directory / "broker-1" / "t-0" / f"{0:020d}.log"
    harness.run(harness.cluster.crash_broker(1))
    data = bytearray(log_file.read_bytes())
    data[100] ^= 1  # in the first batch, with a sound one behind it: no torn tail
    log_file.write_bytes(data)
    harness.call(lambda: harness.cluster.controller.create("sound", [(2,)]))
    for is_clean in (False, True):
        broker = harness.run(harness.cluster.start_broker(1, is_clean=is_clean))
        assert broker.manager.registry.find_by_name("t", 0) is None
        assert produce(harness, 1, b"z") is KioError.kafka_storage_error
        harness.run(harness.cluster.stop_broker(1, fence=False))
    assert log_file.read_bytes() == data, "damage is not repaired by guessing"


def replica_is_whole_after_an_unclean_start(harness: Harness) -> bool:
    harness.run(harness.cluster.start_broker(1))
    return replica(harness, 1).log.end_offset == 1


def test_a_failing_disk_takes_its_directory_down_and_is_not_written_to_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(harness, (1,))
    assert produce(harness, 1, b"x") is KioError.none
    with monkeypatch.context() as patched:

        def refuse(self: OsDiskFile, data: object, position: int) -> None:
            raise OSError(28, "no space left on device")

        patched.setattr(OsDiskFile, "pwrite", refuse)
        assert produce(harness, 1, b"y") is KioError.kafka_storage_error
    assert replica(harness, 1).is_offline
    assert produce(harness, 1, b"z") is KioError.kafka_storage_error
    harness.run(harness.cluster.stop_broker(1, fence=False))
    assert not (harness.cluster.directory / "broker-1" / "unclean-logs").exists()
    assert replica_is_whole_after_an_unclean_start(harness)


def test_an_idle_follower_that_caught_up_is_proposed_when_the_metadata_settles_the_isr(
    tmp_path: Path,
) -> None:
    # Bad sequence: an image settles one proposal while a second follower has caught up; idle
    # partitions are not named in incremental fetches, so nothing else would propose that one
    # before the periodic check, half of replica.lag.time.max.ms later.
    harness = Harness(tmp_path, count=3, config=BrokerConfig(replica_lag_time_max_ms=3_600_000))
    try:
        topic_id = create(harness)
        assert produce(harness, 1, b"a") is KioError.none
        controller = harness.cluster.controller
        epoch = controller.image.brokers[3].broker_epoch

        def flap() -> None:
            controller.commit(
                PartitionChange(topic_id, 0, isr=(1, 2)),
                BrokerRegistrationChange(3, epoch, is_fenced=True),
            )
            controller.commit(
                BrokerRegistrationChange(3, epoch, is_fenced=False),
                PartitionChange(topic_id, 0, isr=(1,)),
            )

        harness.call(flap)
        eventually(lambda: 3 in controller.image.partition(topic_id, 0).isr, "3 is back")
    finally:
        harness.close()


def test_what_a_start_has_checked_the_next_start_need_not_check_again(harness: Harness) -> None:
    create(harness)
    for value in (b"a", b"b", b"c"):
        assert produce(harness, 1, value) is KioError.none
    wait_equal(harness, 1, 2, 3)
    directory = harness.cluster.directory / "broker-3"
    checkpoint = directory / "recovery-point-offset-checkpoint"
    assert not checkpoint.exists() or "t 0" not in checkpoint.read_text()
    harness.run(harness.cluster.crash_broker(3))
    harness.run(harness.cluster.start_broker(3))
    eventually(lambda: checkpoint.exists() and "t 0 3\n" in checkpoint.read_text(), "it is noted")


@pytest.mark.parametrize("host", ["broker1..svc", "b" * 64 + ".svc"])
def test_a_host_that_is_no_name_is_an_error_of_its_connection_alone(host: str) -> None:
    # Bug: a follower of a broker with such a host in its registration ended by an unhandled error.
    async def connect() -> None:
        await connect_tcp(asyncio.get_running_loop(), (host, 9092))

    with pytest.raises(OSError, match="is no address"):
        asyncio.run(connect())
