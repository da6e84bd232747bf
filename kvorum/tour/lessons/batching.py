"""Lesson 4."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage

_RECORDS, _HEADER = 2_000, 61
_COUNT = re.compile(r"(\d+) batches, (\d+) bytes")
_PROGRAM = f"""\
import os, sys
from confluent_kafka import Producer
topic, linger_ms, codec = sys.argv[1:]
producer = Producer({{"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "linger.ms": linger_ms, "compression.type": codec}})
for number in range({_RECORDS}):
    producer.produce(topic, f"order {{number:06}} of some customer, as usual")
    if linger_ms == "0":
        producer.flush()
producer.flush()
"""


def show(stage: Stage) -> None:
    stage.say(f"send.py sends {_RECORDS} records, with a linger.ms and a codec:")
    stage.write("send.py", _PROGRAM)
    found = {}
    for topic, linger_ms, codec in (
        ("alone", 0, "none"),
        ("lingering", 20, "none"),
        ("packed", 20, "zstd"),
    ):
        stage.run(f"kvorum topics create {topic} --partitions 1")
        stage.run(f"{stage.python} send.py {topic} {linger_ms} {codec}")
        log = f"lab/broker-101/{topic}-0/00000000000000000000.log"
        told = stage.run(
            f"echo $(kvorum log dump {log} | grep -c baseOffset) batches, $(wc -c < {log}) bytes"
        )
        counts = _COUNT.search(told)
        found[topic] = (0, 0) if counts is None else (int(counts[1]), int(counts[2]))
    alone, lingering, packed = found["alone"], found["lingering"], found["packed"]
    stage.fact(f"Sent one by one: {alone[0]} batches, a request each.", alone[0] == _RECORDS)
    stage.fact(
        f"With linger.ms=20: {lingering[0]} batches, and {100 * lingering[1] // alone[1]} % of "
        "the bytes.",
        lingering[0] * 10 < alone[0] and lingering[1] < alone[1],
    )
    stage.fact(
        f"Compressed: {100 * packed[1] // alone[1]} % of the bytes, on the wire, on each disk, and "
        "to each consumer: the broker stores what the producer packed.",
        packed[1] * 2 < lingering[1],
    )
    settings = {"linger.ms=0": alone, "linger.ms=20": lingering, "and zstd": packed}
    shares = {
        label: (_HEADER * batches, size - _HEADER * batches)
        for label, (batches, size) in settings.items()
    }
    title = f"The log of the same {_RECORDS} records"
    stage.draw(bars(title, shares, "bytes", ((0, "headers of batches"), (1, "records"))))


LESSON = Lesson(
    number=4,
    name="batching",
    title="Batching, linger and compression",
    claim=(
        "The producer decides the cost of a record: how many it puts into a batch, how long it "
        "waits for them (linger.ms), and whether it compresses the batch."
    ),
    show=show,
    seen="the same records as thousands of requests, and as a few.",
    code="kvorum/broker/api/produce.py",
    page="docs/walks/produce.md",
    try_next="the same with 200 ms, and with lz4",
)
