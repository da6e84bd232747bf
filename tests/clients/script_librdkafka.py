"""The scenarios of scenarios.json with librdkafka, by confluent-kafka.

`python -m tests.clients.script_librdkafka BOOTSTRAP PREFIX NAME...`
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
)

from tests.clients.script import CODECS, FENCED, Outcome, codec_value, error_name, failed, run
from tests.clients.script_librdkafka_base import (
    NAMES,
    Answers,
    admin,
    assigned,
    committed,
    consumer,
    create,
    fill,
    make,
    name,
    partitions_of,
    producer,
    take,
)
from tests.polling import DEADLINE_S, eventually


def codec(codec_name: str) -> Outcome:
    topic = make(f"codec-{codec_name}")
    answers = Answers(producer(compression_type=codec_name, linger_ms=20))
    for i in range(20):
        answers.send(topic, codec_value(i), key=b"k%d" % i, headers=[("h", b"%d" % i)])
    answers.flush()
    found = take(assigned(topic), 20)
    return {
        "records": len(found),
        "key": found[19].key().decode(),
        "header": found[19].headers()[0][1].decode(),
        "value_bytes": len(found[19].value()),
    }


def nulls() -> Outcome:
    topic = make("nulls")
    answers = Answers(producer())
    answers.send(topic, b"v")
    answers.send(topic, None, key=b"k")
    answers.flush()
    found = take(assigned(topic), 2)
    return {
        "keys": [row.key() and row.key().decode() for row in found],
        "values": [row.value() and row.value().decode() for row in found],
    }


def seek_offset() -> Outcome:
    topic = make("seek-offset")
    fill(topic, count=20)
    client = assigned(topic)
    take(client, 20)
    client.seek(TopicPartition(topic, 0, 13))
    return {"offsets": [row.offset() for row in take(client, 7)]}


def seek_time() -> Outcome:
    topic = make("seek-time")
    base = int(time.time()) * 1000 - 3_600_000
    answers = Answers(producer())
    for i in range(10):
        answers.send(topic, b"v", partition=0, timestamp=base + i * 1000)
    answers.flush()
    client = consumer("unused")
    (found,) = client.offsets_for_times([TopicPartition(topic, 0, base + 5_500)], DEADLINE_S)
    client.assign([found])
    return {"offset": take(client, 1)[0].offset()}


def pause() -> Outcome:
    topic = make("pause", 2)
    fill(topic, 2, 5)
    client = consumer("unused")
    client.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(2)])
    client.pause([TopicPartition(topic, 0)])
    first = {row.partition() for row in take(client, 5)}
    client.resume([TopicPartition(topic, 0)])
    return {"first": list(first), "then": list({row.partition() for row in take(client, 5)})}


def idempotent() -> Outcome:
    topic = make("idempotent")
    fill(topic, count=200, enable_idempotence=True, batch_num_messages=10)
    found = take(assigned(topic), 200)
    is_in_order = [row.value() for row in found] == [b"%d" % i for i in range(200)]
    return {"records": len(found), "in_order": is_in_order}


def transactional(of: str) -> Producer:
    client = producer(transactional_id=name(of))
    client.init_transactions(DEADLINE_S)
    return client


def transaction() -> Outcome:
    topic = make("transaction")
    client = transactional("transaction")
    for number in range(3):
        client.begin_transaction()
        for i in range(5):
            client.produce(topic, b"%d/%d" % (number, i), partition=0)
        client.flush(DEADLINE_S)
        if number == 1:
            client.abort_transaction(DEADLINE_S)
        else:
            client.commit_transaction(DEADLINE_S)
    seen = take(assigned(topic, isolation_level="read_committed"), 10)
    every = take(assigned(topic, isolation_level="read_uncommitted"), 15)
    numbers = dict.fromkeys(row.value().decode().split("/")[0] for row in seen)
    return {"committed": list(numbers), "uncommitted": len(every)}


def transaction_offsets() -> Outcome:
    topic = make("transaction-offsets")
    fill(topic, count=10)
    reader = consumer(topic)
    client = transactional("transaction-offsets")
    found: list[int] = []
    for is_committed in (False, True):
        client.begin_transaction()
        offsets = [TopicPartition(topic, 0, 10)]
        client.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), DEADLINE_S)
        if is_committed:
            client.commit_transaction(DEADLINE_S)
            # A commit is answered before its markers are written.
            eventually(lambda: committed(topic, topic) >= 0, "the markers")
        else:
            client.abort_transaction(DEADLINE_S)
        found.append(committed(topic, topic))
    return {"after_abort": found[0], "after_commit": found[1]}


def commit(of: str, *, is_asynchronous: bool) -> Outcome:
    topic = make(of)
    fill(topic, count=20)
    answers: list[KafkaError | None] = []
    client = consumer(topic, on_commit=lambda error, _: answers.append(error))
    client.subscribe([topic])
    take(client, 20)
    client.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=is_asynchronous)
    if is_asynchronous:
        eventually(lambda: answers, "the commit is answered", meanwhile=lambda: client.poll(0.02))
    client.close()
    client = consumer(topic)
    client.subscribe([topic])
    found = {"committed": committed(topic, topic), "next": take(client, 1)[0].offset()}
    client.close()
    return found


def pattern() -> Outcome:
    for last in "ab":
        fill(make(f"pattern-{last}"))
    client = consumer(name("pattern"))
    client.subscribe([f"^{name('pattern-')}.*"])
    topics = sorted(row.topic().removeprefix(name("")) for row in take(client, 2))
    client.close()
    return {"topics": topics}


class Member:
    """A subscribed consumer that counts what it is given and what is taken from it."""

    def __init__(self, topic: str, **more: object) -> None:
        self.client = consumer(topic, **more)
        self.assigns = 0
        self.revoked = 0
        self.client.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    @property
    def held(self) -> list[int]:
        return sorted(row.partition for row in self.client.assignment())

    def _on_assign(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.assigns += 1

    def _on_revoke(self, _: Consumer, rows: list[TopicPartition]) -> None:
        self.revoked += len(rows)


def poll(*members: Member) -> None:
    for member in members:
        member.client.poll(0.02)


def pair(of: str, first: dict[str, object], second: dict[str, object]) -> tuple[Member, Member]:
    """Two members once each has two of four partitions."""
    topic = make(of, 4)
    one = Member(topic, **first)
    eventually(lambda: len(one.held) == 4, "the first has all", meanwhile=lambda: poll(one))
    two = Member(topic, **second)
    eventually(
        lambda: len(one.held) == len(two.held) == 2,
        "each has two",
        meanwhile=lambda: poll(one, two),
    )
    return one, two


def rebalance() -> Outcome:
    one, two = pair("rebalance", {}, {})
    together = [len(one.held), len(two.held)]
    two.client.close()
    eventually(lambda: len(one.held) == 4, "the other has all again", meanwhile=lambda: poll(one))
    one.client.close()
    return {"together": together, "alone": 4}


def static_member() -> Outcome:
    second: dict[str, object] = {"group_instance_id": "two"}
    one, two = pair("static-member", {"group_instance_id": "one"}, second)
    before, assigns = two.held, one.assigns
    two.client.close()
    again = Member(name("static-member"), **second)
    eventually(lambda: len(again.held) == 2, "it is back", meanwhile=lambda: poll(one, again))
    found = {
        "same_partitions": before == again.held,
        "others_rebalanced": one.assigns - assigns,
    }
    one.client.close()
    again.client.close()
    return found


def cooperative() -> Outcome:
    sticky: dict[str, object] = {"partition_assignment_strategy": "cooperative-sticky"}
    one, two = pair("cooperative", sticky, sticky)
    found = {"kept": len(one.held), "revoked": one.revoked}
    one.client.close()
    two.client.close()
    return found


def offset_of(topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    offset: int = admin.list_offsets({partition: spec})[partition].result(DEADLINE_S).offset
    return offset


def list_offsets() -> Outcome:
    topic = make("list-offsets")
    fill(topic, count=20)
    return {
        "earliest": offset_of(topic, OffsetSpec.earliest()),
        "latest": offset_of(topic, OffsetSpec.latest()),
    }


def delete_records() -> Outcome:
    topic = make("delete-records")
    fill(topic, count=20)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    return {
        "low": deleted.result(DEADLINE_S).low_watermark,
        "earliest": offset_of(topic, OffsetSpec.earliest()),
        "first": take(assigned(topic), 1)[0].offset(),
    }


def retention(topic: str) -> str:
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    value: str = described.result(DEADLINE_S)["retention.ms"].value
    return value


def admin_topics() -> Outcome:
    topic = make("admin-topics", 3, {"retention.ms": "3600000"})
    described: dict[int, PartitionMetadata] = {}

    def is_there() -> bool:
        # Judge and keep one answer: the next broker that is asked may not know of the topic yet.
        described.update(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
        return len(described) == 3

    eventually(is_there, "a broker describes it")
    before = retention(topic)
    change = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    eventually(lambda: retention(topic) == "7200000", "it is altered")
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    eventually(lambda: partitions_of(topic) == 5, "it has grown")
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    gone: list[KafkaError] = []

    def is_gone() -> bool:
        # Judge and keep one answer: the next broker that is asked may not know of the deletion yet.
        error = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].error
        gone.extend([] if error is None else [error])
        return bool(gone)

    eventually(is_gone, "it is gone")
    return {
        "partitions": len(described),
        "replicas": len(described[0].replicas),
        "retention": before,
        "altered": "7200000",
        "grown": 5,
        "after_delete": error_name(gone[0].code()),
    }


def admin_groups() -> Outcome:
    topic = make("admin-groups")
    fill(topic)
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 1)
    client.commit(asynchronous=False)
    client.close()

    def is_listed() -> bool:
        listed = admin.list_consumer_groups().result(DEADLINE_S).valid
        return topic in [row.group_id for row in listed]

    def is_empty() -> bool:
        described = admin.describe_consumer_groups([topic])[topic].result(DEADLINE_S)
        return bool(described.state.name == "EMPTY")

    eventually(is_empty, "the group is empty")
    listed = is_listed()
    admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S)
    return {"state": "Empty", "listed": listed, "listed_after_delete": is_listed()}


def refusal(action: Any) -> Outcome:
    """The error that an admin call ends with."""
    try:
        action()
    except KafkaException as error:
        return failed(error.args[0].code())
    return failed(None)


def unknown_topic() -> Outcome:
    found = admin.list_topics(name("unknown"), timeout=DEADLINE_S).topics[name("unknown")]
    return failed(found.error and found.error.code())


def fewer_partitions() -> Outcome:
    topic = make("fewer", 3)
    fewer = admin.create_partitions([NewPartitions(topic, 2)])[topic]
    return refusal(lambda: fewer.result(DEADLINE_S))


def too_large() -> Outcome:
    answers = Answers(producer())
    answers.send(make("too-large", configs={"max.message.bytes": "1000"}), b"x" * 5_000)
    return failed(answers.flush())


def out_of_range() -> Outcome:
    topic = make("out-of-range")
    fill(topic)
    client = assigned(topic, 1_000, auto_offset_reset="error")
    error = eventually(lambda: client.poll(0.1), "an answer").error()
    # librdkafka's own code for "no reset policy"; its text names the broker's error.
    is_reset = error.code() == KafkaError._AUTO_OFFSET_RESET
    return {
        "error": "OFFSET_OUT_OF_RANGE" if is_reset and "out of range" in error.str() else str(error)
    }


def fenced() -> Outcome:
    topic = make("fenced")
    old, young = transactional("fenced"), None
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(DEADLINE_S)
    young = transactional("fenced")
    try:
        old.commit_transaction(DEADLINE_S)
    except KafkaException as error:
        code = error.args[0].code()
        is_fenced = code == KafkaError._FENCED or error_name(code) in FENCED
        return {"is_fenced": True} if is_fenced else failed(code)
    finally:
        young.begin_transaction()
        young.commit_transaction(DEADLINE_S)
    return failed(None)


def group_not_empty() -> Outcome:
    topic = make("group-not-empty")
    fill(topic)
    client = consumer(topic)
    client.subscribe([topic])
    take(client, 1)
    found = refusal(lambda: admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S))
    client.close()
    return found


def not_enough_replicas() -> Outcome:
    answers = Answers(producer(acks="all", retries=0))
    answers.send(name("not-enough-replicas"), b"v")
    return failed(answers.flush())


SCENARIOS = {f"codec-{each}": partial(codec, each) for each in CODECS} | {
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
    "error-unknown-topic": unknown_topic,
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
    "error-group-not-empty": group_not_empty,
    "error-not-enough-replicas": not_enough_replicas,
}

if __name__ == "__main__":
    run(SCENARIOS, NAMES, KafkaException)
