"""Exactly once by count: copies of a topic in transactions, offsets and all, under kills.

Two instances of one group read a topic, and each writes what it read, together with how far it has
read, in one transaction (KIP-447). Brokers are killed meanwhile. In the end every record is in the
copy once, as read-committed consumers see it.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kvorum.chaos.live.host.links import LinkPlan, ProxyStream, link_count, plan_links
from kvorum.chaos.live.host.processes import free_ports
from kvorum.chaos.live.host.toxiproxy import Toxic, Toxiproxy
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer, find_server
from kvorum.chaos.live.systems.kvorum import KvorumSystem
from kvorum.runtime.errors import ConfigError
from tests.clients.java_tools import java, needs_java
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

PARTITIONS = 3
RECORDS = 3_000
BATCH = 40
KILLS, CUTS = 4, 6
SETTINGS = [
    "transaction.state.log.num.partitions=5",
    "offsets.topic.num.partitions=5",
    "group.initial.rebalance.delay.ms=200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
]


def has_toxiproxy() -> bool:
    try:
        find_server()
    except ConfigError:
        return False
    return True


needs_toxiproxy = pytest.mark.skipif(not has_toxiproxy(), reason="needs toxiproxy-server")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("copy"), settings=SETTINGS) as cluster:
        yield cluster


class Copier(threading.Thread):
    """One instance; after every fatal error it starts again with the same transactional id."""

    def __init__(self, bootstrap: str, name: str, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.stop = stop
        self.failures: list[BaseException] = []
        self.restarts = -1

    def run(self) -> None:
        while not self.stop.is_set():
            self.restarts += 1
            try:
                self.copy()
            except KafkaException:
                continue
            except BaseException as failure:
                self.failures.append(failure)
                raise

    def copy(self) -> None:
        quick = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
        consumer = Consumer(
            settings(
                self.bootstrap, group_id="copy", enable_auto_commit=False, session_timeout_ms=6_000,
                auto_offset_reset="earliest", isolation_level="read_committed", **quick,
            )
        )  # fmt: skip
        producer = Producer(
            settings(
                self.bootstrap, transactional_id=self.name, linger_ms=0,
                transaction_timeout_ms=10_000, **quick,
            )
        )  # fmt: skip
        try:
            retried(lambda: producer.init_transactions(DEADLINE_S))
            consumer.subscribe(["in"])
            while not self.stop.is_set():
                messages = [m for m in consumer.consume(BATCH, 0.2) if not m.error()]
                if messages:
                    self.copy_batch(consumer, producer, messages)
        finally:
            consumer.close()

    def copy_batch(self, consumer: Consumer, producer: Producer, messages: list) -> None:
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce("out", message.value(), partition=message.partition())
            offsets = consumer.position(consumer.assignment())
            group = consumer.consumer_group_metadata()
            retried(lambda: producer.send_offsets_to_transaction(offsets, group, DEADLINE_S))
            retried(lambda: producer.commit_transaction(DEADLINE_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                retried(lambda: producer.abort_transaction(DEADLINE_S))
            # Records that were read and not committed are read again from the group's offset.
            raise


def retried(call) -> None:
    """Call until it succeeds; errors that the client calls retriable are retried."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def copied(bootstrap: str, topic: str) -> Counter[int]:
    """The count of each number in the copy, as read-committed consumers see it now."""
    reader = Consumer(
        settings(
            bootstrap, group_id="reader", enable_auto_commit=False,
            enable_partition_eof=True, isolation_level="read_committed",
        )
    )  # fmt: skip
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    counts: Counter[int] = Counter()
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = reader.poll(DEADLINE_S)
        assert message is not None, "no more records"
        if message.error():
            at_end.add(message.partition())
        else:
            counts[int(message.value())] += 1
    reader.close()
    return counts


def fill(bootstrap: str) -> None:
    """Topic `in` with RECORDS numbers, and `out` for the copy."""
    for name in ("in", "out"):
        Topics(bootstrap).create(name, partitions=PARTITIONS, min_insync_replicas=2)
    producer = Producer(settings(bootstrap, enable_idempotence=True))
    for number in range(RECORDS):
        producer.produce("in", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@contextlib.contextmanager
def two_copiers(bootstrap: str) -> Iterator[None]:
    """Run two copiers inside the context; at its end every record must be in the copy once."""
    stop = threading.Event()
    copiers = [Copier(bootstrap, f"copier-{number}", stop) for number in range(2)]
    for copier in copiers:
        copier.start()
    try:
        yield
        eventually(
            lambda: len(copied(bootstrap, "out")) == RECORDS,
            "all is copied",
            deadline_s=2 * DEADLINE_S,
        )
    finally:
        stop.set()
        for copier in copiers:
            copier.join(DEADLINE_S)
    assert not any(copier.failures for copier in copiers)
    assert_once(copied(bootstrap, "out"))


def wait_for_share(bootstrap: str, numerator: int, denominator: int) -> None:
    share = RECORDS * numerator // denominator
    eventually(
        lambda: len(copied(bootstrap, "out")) >= share,
        "the copy goes on",
        deadline_s=2 * DEADLINE_S,
    )


def test_a_copy_under_kills_has_every_record_once(cluster: Cluster) -> None:
    fill(cluster.bootstrap)
    rng = random.Random(5)
    with two_copiers(cluster.bootstrap):
        for number in range(KILLS):
            wait_for_share(cluster.bootstrap, number + 1, KILLS + 2)
            victim = broker_name(rng.choice([101, 102, 103]))
            cluster.kill(victim)
            cluster.restart(victim)


@needs_toxiproxy
def test_a_copy_under_cut_links_has_every_record_once(tmp_path: Path) -> None:
    """For a while, proxies swallow the bytes between brokers and between clients and brokers."""
    rng = random.Random(8)
    with behind_proxies(tmp_path) as (plan, toxiproxy):
        bootstrap = plan.bootstrap()
        fill(bootstrap)
        links = [
            link
            for link in plan.links
            if link.destination.startswith("broker") and not link.source.startswith("controller")
        ]
        with two_copiers(bootstrap):
            for number in range(CUTS):
                wait_for_share(bootstrap, number + 1, CUTS + 2)
                for link in rng.sample(links, 3):
                    toxic = Toxic(
                        name="cut", kind="timeout", stream=rng.choice(list(ProxyStream)),
                        attributes={"timeout": 0},
                    )  # fmt: skip
                    toxiproxy.add_toxic(link, toxic)
                # Shorter, or a little longer, than a silent connection lasts before it is given up.
                threading.Event().wait(rng.choice([0.5, 3.5]))
                for link in links:
                    toxiproxy.remove_toxic(link, "cut")


@contextlib.contextmanager
def behind_proxies(folder: Path) -> Iterator[tuple[LinkPlan, Toxiproxy]]:
    """A cluster in which every link goes through a proxy of its own."""
    first = free_ports(6 + link_count(3, 3) + 1, random.Random())
    plan = plan_links(3, 3, client_port=first, controller_port=first + 3, proxy_port=first + 6)
    configuration = SimpleNamespace(
        controllers=3, voters=0, brokers=3, start_timeout_ms=60_000, is_secure=False,
        settings=[tuple(setting.split("=")) for setting in SETTINGS],
    )  # fmt: skip
    port = first + 6 + link_count(3, 3)
    with ToxiproxyServer(port=port, log_file=str(folder / "toxiproxy.log")) as server:
        server.api.populate(plan.links)
        cluster = KvorumSystem(
            shape=configuration, plan=plan, data_dir=str(folder / "cluster"),
            log_file=str(folder / "cluster.log"), client_port=first, controller_port=first + 3,
        )  # fmt: skip
        try:
            cluster.start()
            yield plan, server.api
        finally:
            cluster.stop()


def assert_once(counts: Counter[int]) -> None:
    assert set(counts) == set(range(RECORDS))
    assert set(counts.values()) == {1}, [n for n, count in counts.items() if count > 1][:10]


@needs_java
@pytest.mark.java
def test_kafkas_own_copier_with_random_aborts_copies_once(cluster: Cluster) -> None:
    """TransactionalMessageCopier, of Kafka's system tests: the newest protocol (KIP-890)."""
    if "in" not in Topics(cluster.bootstrap).names():
        fill(cluster.bootstrap)
    Topics(cluster.bootstrap).create("java-out", partitions=PARTITIONS, min_insync_replicas=2)
    command = java(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", cluster.bootstrap,
        "--input-topic", "in", "--input-partition", "0", "--output-topic", "java-out",
        "--consumer-group", "java-copy", "--transactional-id", "java-copier",
        "--transaction-size", "60", "--enable-random-aborts", "--group-mode",
        "--use-group-metadata",
    )  # fmt: skip
    copier = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        eventually(
            lambda: len(copied(cluster.bootstrap, "java-out")) > RECORDS // 10, "the copy goes on"
        )
        victim = broker_name(102)
        cluster.kill(victim)
        cluster.restart(victim)
        said, _ = copier.communicate(timeout=2 * DEADLINE_S)
    finally:
        copier.kill()
    assert copier.returncode == 0, said[-3000:]
    assert_once(copied(cluster.bootstrap, "java-out"))
