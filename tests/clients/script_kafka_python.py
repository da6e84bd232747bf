"""The scenarios of scenarios.json with kafka-python.

`python -m tests.clients.script_kafka_python BOOTSTRAP PREFIX NAME...`
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka import (
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
    errors,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import CommitFailedError, KafkaError, OffsetOutOfRangeError

from tests.clients.script import FENCED, Outcome, codec_value, error_name, failed, run
from tests.clients.script_kafka_python_base import (
    BROKERS,
    NAMES,
    PYTHON_CODECS,
    admin,
    assigned,
    committed,
    consumer,
    create,
    described,
    fill,
    make,
    name,
    partitions_of,
    read,
    take,
    with_producer,
)
from tests.polling import DEADLINE_S, eventually


def codec(codec_name: str) -> Outcome:
    topic = make(f"codec-{codec_name}")

    def send(client: KafkaProducer) -> None:
        for i in range(20):
            headers = [("h", b"%d" % i)]
            client.send(topic, codec_value(i), key=b"k%d" % i, headers=headers)

    with_producer(send, compression_type=None if codec_name == "none" else codec_name, linger_ms=20)
    found = read(topic, 20)
    return {
        "records": len(found),
        "key": found[19].key.decode(),
        "header": found[19].headers[0][1].decode(),
        "value_bytes": len(found[19].value),
    }


def nulls() -> Outcome:
    topic = make("nulls")

    def send(client: KafkaProducer) -> None:
        client.send(topic, b"v", partition=0)
        client.send(topic, None, key=b"k", partition=0)

    with_producer(send)
    found = read(topic, 2)
    return {
        "keys": [row.key and row.key.decode() for row in found],
        "values": [row.value and row.value.decode() for row in found],
    }


def seek_offset() -> Outcome:
    topic = make("seek-offset")
    fill(topic, count=20)
    client = assigned(topic)
    take(client, 20)
    client.seek(TopicPartition(topic, 0), 13)
    return {"offsets": [row.offset for row in take(client, 7)]}


def seek_time() -> Outcome:
    topic = make("seek-time")
    base = int(time.time()) * 1000 - 3_600_000

    def send(client: KafkaProducer) -> None:
        for i in range(10):
            client.send(topic, b"v", partition=0, timestamp_ms=base + i * 1000)

    with_producer(send)
    client = assigned(topic)
    partition = TopicPartition(topic, 0)
    client.seek(partition, client.offsets_for_times({partition: base + 5_500})[partition].offset)
    return {"offset": take(client, 1)[0].offset}


def pause() -> Outcome:
    topic = make("pause", 2)
    fill(topic, 2, 5)
    client = consumer()
    client.assign([TopicPartition(topic, p) for p in range(2)])
    client.pause(TopicPartition(topic, 0))
    first = {row.partition for row in take(client, 5)}
    client.resume(TopicPartition(topic, 0))
    return {"first": list(first), "then": list({row.partition for row in take(client, 5)})}


def idempotent() -> Outcome:
    topic = make("idempotent")
    fill(topic, count=200, enable_idempotence=True, batch_size=200)
    found = read(topic, 200)
    is_in_order = [row.value for row in found] == [b"%d" % i for i in range(200)]
    return {"records": len(found), "in_order": is_in_order}


def transaction() -> Outcome:
    topic = make("transaction")

    def use(client: KafkaProducer) -> None:
        client.init_transactions()
        for number in range(3):
            client.begin_transaction()
            for i in range(5):
                client.send(topic, b"%d/%d" % (number, i), partition=0).get(DEADLINE_S)
            if number == 1:
                client.abort_transaction()
            else:
                client.commit_transaction()

    with_producer(use, transactional_id=topic)
    seen = read(topic, 10, isolation_level="read_committed")
    every = read(topic, 15, isolation_level="read_uncommitted")
    numbers = dict.fromkeys(row.value.decode().split("/")[0] for row in seen)
    return {"committed": list(numbers), "uncommitted": len(every)}


def transaction_offsets() -> Outcome:
    topic = make("transaction-offsets")
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(10, "", -1)}
    found: list[int] = []

    def use(client: KafkaProducer) -> None:
        client.init_transactions()
        for is_committed in (False, True):
            client.begin_transaction()
            client.send(topic, b"v").get(DEADLINE_S)
            client.send_offsets_to_transaction(offsets, topic)
            if is_committed:
                client.commit_transaction()
                # A commit is answered before its markers are written.
                eventually(lambda: committed(topic, topic) >= 0, "the markers")
            else:
                client.abort_transaction()
            found.append(committed(topic, topic))

    with_producer(use, transactional_id=topic)
    return {"after_abort": found[0], "after_commit": found[1]}


def commit(of: str, *, is_asynchronous: bool) -> Outcome:
    topic = make(of)
    fill(topic, count=20)
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(10, "", -1)}
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 20)
    if is_asynchronous:
        answers: list[object] = []
        client.commit_async(offsets, callback=lambda _, answer: answers.append(answer))
        eventually(
            lambda: answers, "the commit is answered", meanwhile=lambda: client.poll(timeout_ms=20)
        )
    else:
        client.commit(offsets)
    client.close()
    client = consumer(topic)
    client.subscribe([topic])
    found = {"committed": committed(topic, topic), "next": take(client, 1)[0].offset}
    client.close()
    return found


def pattern() -> Outcome:
    for last in "ab":
        fill(make(f"pattern-{last}"))
    client = consumer(name("pattern"))
    client.subscribe(pattern=f"^{name('pattern-')}.*")
    topics = sorted(row.topic.removeprefix(name("")) for row in take(client, 2))
    client.close()
    return {"topics": topics}


class Member(threading.Thread, ConsumerRebalanceListener):
    """A subscribed consumer, polled by its own thread until closed.

    Two that take turns in one thread keep each other waiting in a rebalance.
    """

    def __init__(self, topic: str, **more: object) -> None:
        super().__init__(daemon=True)
        self.client = consumer(topic, **more)
        self.held: list[int] = []
        self.assigns = 0
        self.revoked = 0
        self._is_closing = threading.Event()
        self.client.subscribe([topic], listener=self)
        self.start()

    def run(self) -> None:
        while not self._is_closing.is_set():
            self.client.poll(timeout_ms=100)
            self.held = sorted(row.partition for row in self.client.assignment())
        self.client.close()

    def on_partitions_assigned(self, _: list[TopicPartition]) -> None:
        self.assigns += 1

    def on_partitions_revoked(self, rows: list[TopicPartition]) -> None:
        self.revoked += len(rows)

    def close(self) -> None:
        self._is_closing.set()
        self.join(DEADLINE_S)


def pair(of: str, first: dict[str, object], second: dict[str, object]) -> tuple[Member, Member]:
    """Two members once each has two of four partitions."""
    topic = make(of, 4)
    one = Member(topic, **first)
    eventually(lambda: len(one.held) == 4, "the first has all")
    two = Member(topic, **second)
    eventually(lambda: len(one.held) == len(two.held) == 2, "each has two")
    return one, two


def rebalance() -> Outcome:
    one, two = pair("rebalance", {}, {})
    together = [len(one.held), len(two.held)]
    two.close()
    eventually(lambda: len(one.held) == 4, "the other has all again")
    one.close()
    return {"together": together, "alone": 4}


def static_member() -> Outcome:
    second: dict[str, object] = {"group_instance_id": "two"}
    one, two = pair("static-member", {"group_instance_id": "one"}, second)
    before, assigns = two.held, one.assigns
    two.close()
    again = Member(name("static-member"), **second)
    eventually(lambda: len(again.held) == 2, "it is back")
    same, after = before == again.held, one.assigns
    one.close()
    again.close()
    return {"same_partitions": same, "others_rebalanced": after - assigns}


def cooperative() -> Outcome:
    sticky: dict[str, object] = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    one, two = pair("cooperative", sticky, sticky)
    found = {"kept": len(one.held), "revoked": one.revoked}
    one.close()
    two.close()
    return found


def offset_of(topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    return int(admin.list_partition_offsets({partition: spec})[partition].offset)


def list_offsets() -> Outcome:
    topic = make("list-offsets")
    fill(topic, count=20)
    return {
        "earliest": offset_of(topic, OffsetSpec.EARLIEST),
        "latest": offset_of(topic, OffsetSpec.LATEST),
    }


def delete_records() -> Outcome:
    topic = make("delete-records")
    fill(topic, count=20)
    partition = TopicPartition(topic, 0)
    deleted = admin.delete_records({partition: 7}, timeout_ms=10_000)
    return {
        "low": deleted[partition]["low_watermark"],
        "earliest": offset_of(topic, OffsetSpec.EARLIEST),
        "first": read(topic, 1)[0].offset,
    }


def retention(topic: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
    found = admin.describe_configs([resource], config_filter="all")
    return str(found["topic"][topic]["retention.ms"]["value"])


def admin_topics() -> Outcome:
    topic = make("admin-topics", 3, {"retention.ms": "3600000"})
    rows: list[Any] = []
    gone: list[int] = []

    # Judge and keep one answer: the next broker that is asked may not know of it yet.
    def is_there() -> bool:
        rows[:] = described(topic)["partitions"]
        return len(rows) == 3

    def is_gone() -> bool:
        gone[:] = [described(topic)["error_code"]]
        return gone != [0]

    eventually(is_there, "it is described")
    before = retention(topic)
    change = {"retention.ms": "7200000"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=change)])
    eventually(lambda: retention(topic) == "7200000", "it is altered")
    admin.create_partitions({topic: 5})
    eventually(lambda: partitions_of(topic) == 5, "it has grown")
    admin.delete_topics([topic])
    eventually(is_gone, "it is gone")
    return {
        "partitions": len(rows),
        "replicas": len(rows[0]["replica_nodes"]),
        "retention": before,
        "altered": "7200000",
        "grown": 5,
        "after_delete": error_name(gone[0]),
    }


def admin_groups() -> Outcome:
    topic = make("admin-groups")
    fill(topic)
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 1)
    client.commit()
    client.close()

    def is_listed() -> bool:
        return topic in [row["group_id"] for row in admin.list_groups()]

    def state() -> str:
        return str(admin.describe_groups([topic])[topic]["group_state"])

    eventually(lambda: state() == "Empty", "the group is empty")
    listed = is_listed()
    admin.delete_groups([topic])
    return {"state": "Empty", "listed": listed, "listed_after_delete": is_listed()}


def refusal(action: Callable[[], Any]) -> Outcome:
    """The error that a call ends with."""
    try:
        action()
    except KafkaError as error:
        code = getattr(error, "errno", None)
        return {"error": str(error)} if code is None or code < 0 else failed(code)
    return failed(None)


def failed_by_name(class_name: str) -> Outcome:
    """A failure by the name of kafka-python's error class, where the client gives nothing else."""
    return failed(getattr(errors, class_name).errno)


def fewer_partitions() -> Outcome:
    topic = make("fewer", 3)
    return refusal(lambda: admin.create_partitions({topic: 2}))


def too_large() -> Outcome:
    topic = make("too-large", configs={"max.message.bytes": "1000"})
    return refusal(lambda: with_producer(lambda p: p.send(topic, b"x" * 5_000).get(DEADLINE_S)))


def out_of_range() -> Outcome:
    topic = make("out-of-range")
    fill(topic)
    client = assigned(topic, auto_offset_reset="none")
    client.seek(TopicPartition(topic, 0), 1_000)
    try:
        take(client, 1)
    except OffsetOutOfRangeError as error:
        return failed(error.errno)
    return failed(None)


def fenced() -> Outcome:
    topic = make("fenced")

    def begin(client: KafkaProducer) -> None:
        client.init_transactions()
        client.begin_transaction()
        client.send(topic, b"v").get(DEADLINE_S)

    old = KafkaProducer(bootstrap_servers=BROKERS, transactional_id=topic)
    begin(old)

    def use(young: KafkaProducer) -> Outcome:
        begin(young)
        found = refusal(old.commit_transaction)
        young.commit_transaction()
        return {"is_fenced": True} if found["error"] in FENCED else found

    found: Outcome = with_producer(use, transactional_id=topic)
    old.close(timeout=0)
    return found


def bad_commit(of: str, generation: int, member_id: str | None = None) -> Outcome:
    """A transactional offset commit that claims this generation and member id (None: the own
    one).
    """
    topic = make(of)
    fill(topic)
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 1)
    own = client.group_metadata().member_id if member_id is None else member_id
    claimed = ConsumerGroupMetadata(topic, generation, own, None)
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)}

    def use(writer: KafkaProducer) -> Outcome:
        writer.init_transactions()
        writer.begin_transaction()
        try:
            writer.send_offsets_to_transaction(offsets, claimed)
        except CommitFailedError as error:
            return failed_by_name(str(error).split()[-1])
        finally:
            writer.abort_transaction()
        return failed(None)

    found: Outcome = with_producer(use, transactional_id=topic)
    client.close()
    return found


def group_not_empty() -> Outcome:
    topic = make("group-not-empty")
    fill(topic)
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 1)
    found = admin.delete_groups([topic])
    client.close()
    return failed_by_name(str(found[topic]))


def not_enough_replicas() -> Outcome:
    topic = name("not-enough-replicas")
    settings: dict[str, object] = {"acks": "all", "retries": 0, "enable_idempotence": False}
    return refusal(lambda: with_producer(lambda p: p.send(topic, b"v").get(DEADLINE_S), **settings))


SCENARIOS: dict[str, Callable[[], Outcome]] = {
    f"codec-{each}": partial(codec, each) for each in PYTHON_CODECS
} | {
    "nulls": nulls,
    "seek-offset": seek_offset,
    "seek-time": seek_time,
    "pause": pause,
    "idempotent": idempotent,
    "transaction": transaction,
    "transaction-offsets": transaction_offsets,
    "commit-sync": partial(commit, "commit-sync", is_asynchronous=False),
    "commit-async": partial(commit, "commit-async", is_asynchronous=True),
    "pattern": pattern,
    "rebalance": rebalance,
    "static-member": static_member,
    "cooperative": cooperative,
    "list-offsets": list_offsets,
    "delete-records": delete_records,
    "admin-topics": admin_topics,
    "admin-groups": admin_groups,
    "error-unknown-topic": lambda: failed(described(name("unknown"))["error_code"]),
    "error-topic-exists": lambda: refusal(partial(create, make("exists"))),
    "error-topic-name": lambda: refusal(partial(create, name("not a name!"))),
    "error-replication-factor": lambda: refusal(partial(create, name("nine"), 1, 9)),
    "error-config": lambda: refusal(
        partial(create, name("config"), configs={"retention.ms": "never"})
    ),
    "error-fewer-partitions": fewer_partitions,
    "error-too-large": too_large,
    "error-out-of-range": out_of_range,
    "error-fenced": fenced,
    "error-illegal-generation": partial(bad_commit, "illegal-generation", 99),
    "error-unknown-member": partial(bad_commit, "unknown-member", 1, "nobody"),
    "error-group-not-empty": group_not_empty,
    "error-not-enough-replicas": not_enough_replicas,
}

if __name__ == "__main__":
    run(SCENARIOS, NAMES, KafkaError)
    admin.close()
