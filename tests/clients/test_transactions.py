"""Transactions of librdkafka against real processes that are killed, and Kafka's own tools.

The rules must hold after any crash: a transaction that the client was told is committed is read
whole, one that it was told is aborted is not read at all, and one with an unknown outcome is read
whole or not at all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kvorum.broker.coordinator.keys import partition_of
from tests.clients.java_tools import needs_java, tool
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

PARTITIONS = 3
ROUNDS = 6
TRANSACTIONS_PER_ROUND = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more = [
        "transaction.state.log.num.partitions=5",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    ]
    with Cluster(tmp_path_factory.mktemp("transactions"), settings=more) as cluster:
        yield cluster


def producer(cluster: Cluster, transactional_id: str, **more: object) -> Producer:
    made = Producer(
        settings(
            cluster.bootstrap,
            transactional_id=transactional_id,
            linger_ms=0,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            **more,
        )
    )
    retried(made.init_transactions)
    return made


def retried(call: Callable[[float], object]) -> None:
    """Call until it succeeds; errors that the client calls retriable are retried."""
    while True:
        try:
            call(DEADLINE_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def write(made: Producer, topic: str, number: int) -> None:
    for partition in range(PARTITIONS):
        made.produce(topic, f"{number}".encode(), partition=partition)


def committed(cluster: Cluster, topic: str) -> Counter[int]:
    """The count of each transaction's number up to the present last stable offset.

    Waits until no transaction is open: then the last stable offset is the end.
    """
    reader = settings(
        cluster.bootstrap, group_id="g", enable_auto_commit=False, enable_partition_eof=True,
        isolation_level="read_committed",
    )  # fmt: skip
    dirty = Consumer(reader | {"isolation.level": "read_uncommitted"})
    clean = Consumer(reader)
    parts = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def is_at_rest() -> bool:
        return all(
            clean.get_watermark_offsets(part, DEADLINE_S)
            == dirty.get_watermark_offsets(part, DEADLINE_S)
            for part in parts
        )

    eventually(is_at_rest, "every transaction is decided")
    clean.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    counts: Counter[int] = Counter()
    at_end = 0
    while at_end < PARTITIONS:
        message = clean.poll(DEADLINE_S)
        assert message is not None, "no more records"
        if message.error():
            at_end += 1
        else:
            counts[int(message.value())] += 1
    clean.close()
    dirty.close()
    return counts


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    """The leader of the transactional id's partition, by a hash that clients need not know."""
    partition = partition_of(transactional_id, 5)
    return Topics(cluster.bootstrap).leader("__transaction_state", partition)


def test_a_coordinator_killed_between_decision_and_markers_leaves_no_half(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("killed", partitions=PARTITIONS, min_insync_replicas=2)
    made = producer(cluster, "killed")
    for number in range(3):
        made.begin_transaction()
        write(made, "killed", number)
        made.flush(DEADLINE_S)
        victim = broker_name(coordinator(cluster, "killed"))
        retried(made.commit_transaction)
        # EndTxn is answered: the decision is replicated, and the markers may not be written yet.
        cluster.kill(victim)
        made.begin_transaction()
        write(made, "killed", 100 + number)
        retried(made.abort_transaction)
        cluster.restart(victim)
    assert committed(cluster, "killed") == dict.fromkeys(range(3), PARTITIONS)


def test_whoever_is_killed_transactions_stay_whole(cluster: Cluster) -> None:
    """Producers continue while any broker is killed; consumers read exactly the transactions that
    were acknowledged."""
    Topics(cluster.bootstrap).create("whole", partitions=PARTITIONS, min_insync_replicas=2)
    rng = random.Random(11)
    made = producer(cluster, "whole")
    told: dict[int, bool | None] = {}
    number = 0
    for _ in range(ROUNDS):
        victim = broker_name(rng.choice([101, 102, 103]))
        strike_at = rng.randrange(TRANSACTIONS_PER_ROUND)
        for at in range(TRANSACTIONS_PER_ROUND):
            number += 1
            told[number] = None
            try:
                made.begin_transaction()
                write(made, "whole", number)
                if at == strike_at:
                    cluster.kill(victim)
                if rng.random() < 0.3:
                    retried(made.abort_transaction)
                    told[number] = False
                else:
                    retried(made.commit_transaction)
                    told[number] = True
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    retried(made.abort_transaction)
                    told[number] = False
                else:
                    made = producer(cluster, "whole")
        cluster.restart(victim)
    counts = committed(cluster, "whole")
    for number, outcome in told.items():
        expected = {True: {PARTITIONS}, False: {0}, None: {0, PARTITIONS}}[outcome]
        assert counts[number] in expected, f"transaction {number}: told {outcome}"
    assert sum(outcome is True for outcome in told.values()) > ROUNDS


def test_a_producer_that_is_gone_is_aborted_in_time(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("gone", partitions=PARTITIONS, min_insync_replicas=2)
    made = producer(cluster, "gone", transaction_timeout_ms=1_500, message_timeout_ms=1_500)
    made.begin_transaction()
    write(made, "gone", 1)
    assert made.flush(DEADLINE_S) == 0
    assert committed(cluster, "gone") == {}
    with pytest.raises(KafkaException):
        made.commit_transaction(DEADLINE_S)


# --- Apache Kafka's own tools and clients ------------------------------------------------------


def transactions(cluster: Cluster, *arguments: str) -> str:
    """kafka-transactions.sh."""
    return tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", cluster.bootstrap,
        *arguments,
    )  # fmt: skip


@needs_java
@pytest.mark.java
def test_kafka_transactions_lists_describes_and_aborts(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("tool", partitions=PARTITIONS, min_insync_replicas=2)
    # Ten tools start a JVM each, while the transaction is open.
    made = producer(cluster, "tool", transaction_timeout_ms=600_000)
    made.begin_transaction()
    write(made, "tool", 1)
    assert made.flush(DEADLINE_S) == 0
    row = next(x for x in transactions(cluster, "list").splitlines() if x.startswith("tool "))
    assert row.split()[-1] == "Ongoing"
    described = transactions(cluster, "describe", "--transactional-id", "tool")
    assert all(f"tool-{partition}" in described for partition in range(PARTITIONS))
    producers = transactions(cluster, "describe-producers", "--topic", "tool", "--partition", "0")
    producer_id, epoch = producers.splitlines()[1].split()[:2]
    # The tool looks for transactions older than its --max-transaction-timeout, by default 15
    # minutes: there is none, so it prints the header alone.
    hanging = transactions(cluster, "find-hanging", "--topic", "tool", "--partition", "0")
    assert len(hanging.splitlines()) == 1
    for broker_id in (101, 102, 103):
        # Ask every replica, leader or not. With 0 minutes the tool looks up every open transaction
        # at its coordinator.
        here = transactions(
            cluster, "describe-producers", "--topic", "tool", "--partition", "0",
            "--broker-id", str(broker_id),
        )  # fmt: skip
        assert here.splitlines()[1].split()[:2] == [producer_id, epoch]
        hanging = transactions(
            cluster, "find-hanging", "--broker-id", str(broker_id),
            "--max-transaction-timeout", "0",
        )  # fmt: skip
        assert len(hanging.splitlines()) == 1
    transactions(
        cluster, "abort", "--topic", "tool", "--partition", "0", "--producer-id", producer_id,
        "--producer-epoch", epoch, "--coordinator-epoch", "0",
    )  # fmt: skip
    producers = transactions(cluster, "describe-producers", "--topic", "tool", "--partition", "0")
    assert producers.splitlines()[1].split()[-1] == "None"
    made.abort_transaction(DEADLINE_S)


@needs_java
@pytest.mark.java
def test_kafkas_own_producer_works_with_the_newest_protocol(cluster: Cluster) -> None:
    """ProducerPerformance commits a transaction every 50 ms; epochs rise with each (KIP-890)."""
    Topics(cluster.bootstrap).create("java-txn", partitions=1, min_insync_replicas=2)
    tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java-txn",
        "--num-records", "2000", "--record-size", "20", "--throughput", "2000",
        "--producer-props", f"bootstrap.servers={cluster.bootstrap}",
        "--transactional-id", "java-txn", "--transaction-duration-ms", "50",
    )  # fmt: skip
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap,
        "--topic", "java-txn", "--partition", "0", "--offset", "earliest",
        "--isolation-level", "read_committed", "--timeout-ms", "5000",
    )  # fmt: skip
    described = transactions(cluster, "describe", "--transactional-id", "java-txn")
    fields = dict(
        zip(described.splitlines()[0].split(), described.splitlines()[1].split(), strict=False)
    )
    assert fields["TransactionState"] == "CompleteCommit"
    assert int(fields["ProducerEpoch"]) > 3
    assert len(read.splitlines()) == 2000
