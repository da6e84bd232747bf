"""Lesson 13."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage

_RECORDS, _CRASH_AT = 30, 20
_PROGRAM = f"""\
import os, sys
from confluent_kafka import Consumer, Producer, TopicPartition
how, crash = sys.argv[1], "crash" in sys.argv
servers = {{"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"]}}
ids = {{"transactional.id": how}} if how == "exactly" else {{}}
producer = Producer({{**servers, **ids}})
if how == "exactly":
    producer.init_transactions()                  # aborts what a dead one left open
consumer = Consumer({{**servers, "group.id": how, "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "isolation.level": "read_committed"}})
consumer.assign(consumer.committed([TopicPartition("orders", 0)], 10))
while True:
    record = consumer.poll(10)
    number = record.offset()
    dies = crash and number == {_CRASH_AT}
    if how == "at-most":
        consumer.commit(record, asynchronous=False)
        if dies: os._exit(1)                      # told, and not yet done
        producer.produce(how, record.value()); producer.flush()
    elif how == "at-least":
        producer.produce(how, record.value()); producer.flush()
        if dies: os._exit(1)                      # done, and not yet told
        consumer.commit(record, asynchronous=False)
    else:
        producer.begin_transaction()
        producer.produce(how, record.value()); producer.flush()
        producer.send_offsets_to_transaction(
            [TopicPartition("orders", 0, number + 1)], consumer.consumer_group_metadata())
        if dies: os._exit(1)                      # both in an open transaction
        producer.commit_transaction()
    if number == {_RECORDS - 1}:
        consumer.close(); break
"""


def show(stage: Stage) -> None:
    stage.run("kvorum topics create orders --partitions 1")
    stage.run(f"seq -f 'order-%02.0f' {_RECORDS} | kvorum produce orders")
    stage.say(
        "relay.py reads orders, writes each to another topic, and commits its place in three ways:"
    )
    stage.write("relay.py", _PROGRAM)
    found = {}
    for how in ("at-most", "at-least", "exactly"):
        stage.run(f"kvorum topics create {how} --partitions 1")
        stage.run_in_vain(f"{stage.python} relay.py {how} crash")
        stage.run(f"{stage.python} relay.py {how}")
        stage.run(f"kvorum consume {how} > {how}")
        counts = stage.run(f"wc -l < {how}; sort -u {how} | wc -l").split()
        found[how] = (int(counts[0]), int(counts[1]))
    stage.fact(
        f"At most once: {found['at-most'][0]} of {_RECORDS}. The place was committed, the work was "
        "not done.",
        found["at-most"] == (_RECORDS - 1, _RECORDS - 1),
    )
    stage.fact(
        f"At least once: {found['at-least'][0]}. The work was done, and done again.",
        found["at-least"] == (_RECORDS + 1, _RECORDS),
    )
    stage.fact(
        f"Exactly once: {found['exactly'][0]}, each one once. Work and place are in one "
        "transaction, so the crash undid both.",
        found["exactly"] == (_RECORDS, _RECORDS),
    )
    shares = {how: (once, total - once) for how, (total, once) in found.items()}
    title = f"{_RECORDS} records, a crash, and what was written"
    stage.draw(bars(title, shares, "records", ((0, "once"), (1, "again"))))


LESSON = Lesson(
    number=13,
    name="deliveries",
    title="At most once, at least once, exactly once",
    claim=(
        "How often a record is processed when its application dies is a question of the order in "
        "which the work is done and the offset is committed; a transaction makes them one step."
    ),
    show=show,
    seen="the same crash, and three outcomes that the program chose.",
    code="kvorum/broker/transactions",
    page="docs/protocol/transactions.md",
    try_next="kvorum chaos run transactional-copy.yaml, with many workers and kills",
)
