"""Faults of disks and clocks at the processes that they hit, of Kvorum and of Apache Kafka."""

from __future__ import annotations

import time

import pytest

from kvorum import Cluster
from kvorum.chaos.live.systems.protocol import RUNNING
from tests.clients.java_tools import needs_java
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

HOUR_MS = 3_600_000
#: A bound for the difference of clocks that should be equal: they are read one after the other, on
#: a busy machine.
SKEW_MS = 120_000


@pytest.fixture(
    scope="module", params=["kvorum", pytest.param("kafka", marks=[pytest.mark.java, needs_java])]
)
def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"faulty-{request.param}")
    with Cluster(
        system=request.param,
        directory=folder,
        proxies=None if request.param == "kafka" else False,
        start_timeout_s=180,
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole(cluster):
    """Each test begins and ends with a healthy cluster."""
    cluster.wait_until("isr-full", timeout_s=120)
    cluster.wait_until("all-alive", timeout_s=120)
    yield
    cluster.heal()
    cluster.wait_until("all-alive", timeout_s=120)


def boards(cluster: Cluster):
    return cluster._running().fault_boards


def send(cluster: Cluster, topic: str) -> int:
    """Send one record with acks=all; returns its timestamp as the broker's answer has it."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
    )
    timestamps: list[int] = []

    def delivered(error, message) -> None:
        assert error is None, error
        timestamps.append(message.timestamp()[1])

    producer.produce(topic, b"value", on_delivery=delivered)
    assert producer.flush(120) == 0
    (timestamp_ms,) = timestamps
    return timestamp_ms


def creation(cluster: Cluster, topic: str):
    """A request to create a topic that goes on for as long as it takes."""
    from confluent_kafka.admin import NewTopic

    return cluster.admin().create_topics(
        [NewTopic(topic, 1, 3)], request_timeout=110, operation_timeout=110
    )[topic]


def leader_of(cluster: Cluster, topic: str) -> str | None:
    (view,) = cluster.state().partitions_of(topic)
    return view.leader


def test_a_stepped_clock_shows_in_the_timestamps_that_the_broker_gives(cluster):
    topic = cluster.create_topic(
        "stepped", replication_factor=3, config={"message.timestamp.type": "LogAppendTime"}
    )
    assert abs(send(cluster, topic) - time.time() * 1000) < SKEW_MS
    with cluster.fault("step_clock", target="leader:stepped/0", step_ms=-HOUR_MS):
        stepped_ms = send(cluster, topic)
        assert abs(stepped_ms + HOUR_MS - time.time() * 1000) < SKEW_MS
    assert abs(send(cluster, topic) - time.time() * 1000) < SKEW_MS


def test_nothing_is_committed_while_the_controllers_disks_are_slow(cluster):
    with cluster.fault("slow_disk", target="controllers", sync_delay_ms=HOUR_MS, duration_ms=1) as (
        injected
    ):
        created = creation(cluster, "slow")

        def waiting() -> int:
            return sum(boards(cluster)[name].hits().delayed_syncs > 0 for name in injected.nodes)

        # The active controller has appended the record, but no majority has it on disk.
        eventually(waiting, "a controller waits in an fsync")
        assert not created.done()
        assert "slow" not in {topic for topic, _ in cluster.state().partitions}
    # Either outcome of that request is right: it may have timed out, or a second attempt may have
    # found the topic.
    created.exception(timeout=120)
    cluster.wait_until("active-controller", timeout_s=120)
    creation(cluster, "after").result(timeout=120)
    cluster.wait_until("all-led", timeout_s=120)
    assert sum(hits.delayed_syncs for hits in injected.hits.values()) > 0


def test_a_broker_with_a_full_disk_ends_its_partitions_move_and_it_comes_back(cluster):
    topic = cluster.create_topic("full", replication_factor=3)
    send(cluster, topic)
    with cluster.fault("fill_disk", target="leader:full/0", duration_ms=1) as injected:
        (victim,) = injected.nodes
        send(cluster, topic)
        cluster.wait_until(
            lambda: leader_of(cluster, topic) not in (None, victim), what="another broker leads"
        )
        eventually(lambda: state_of(cluster, victim) != RUNNING, "the broker has ended")
        assert "No space left on device" in cluster.logs(victim)
        # The fault killed it: this is no death that nobody asked for.
        assert cluster._running().died_unasked() == []
    assert injected.hits[victim].failed_calls > 0
    cluster.wait_until("isr-full", timeout_s=120)
    assert victim in cluster.state().partitions_of(topic)[0].isr


def test_a_controller_whose_fsyncs_fail_ends_and_comes_back(cluster):
    with cluster.fault("fail_disk", target="standby-controller", duration_ms=1) as injected:
        (victim,) = injected.nodes
        creation(cluster, "failing").result(timeout=120)
        eventually(lambda: state_of(cluster, victim) != RUNNING, "the controller has ended")
        assert "Input/output error" in cluster.logs(victim)
        assert cluster._running().died_unasked() == []
    assert injected.hits[victim].failed_calls > 0
    eventually(lambda: state_of(cluster, victim) == RUNNING, "the controller runs again")


def test_a_broker_whose_writes_fail_loses_the_lead(cluster):
    topic = cluster.create_topic("unwritable", replication_factor=3)
    arguments = {"operation": "write", "error": "EROFS", "duration_ms": 1}
    with cluster.fault("fail_disk", target="leader:unwritable/0", **arguments) as injected:
        (victim,) = injected.nodes
        send(cluster, topic)
        assert leader_of(cluster, topic) != victim
        assert "Read-only file system" in cluster.logs(victim)
    cluster.wait_until("isr-full", timeout_s=120)


def state_of(cluster: Cluster, name: str) -> str:
    return next(node.state for node in cluster.nodes() if node.name == name)
