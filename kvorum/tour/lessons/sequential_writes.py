"""Lesson 3."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after

_RECORDS = 50_000
_LOG = "lab/broker-101/lines-0/00000000000000000000.log"
_SLACK = 65_536
"""Bytes of checkpoints that the broker may write meanwhile."""
_SEND = f"""\
import os
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "batch.size": 16384, "linger.ms": 50}})
for number in range({_RECORDS}):
    producer.produce("lines", f"line {{number:06}} {{'.' * 88}}")
producer.flush()
"""
_READ = f"""\
import os, sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({{"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "group.id": "readers", "enable.auto.commit": False,
                     "max.partition.fetch.bytes": sys.argv[1]}})
consumer.assign([TopicPartition("lines", 0, 0)])
records = 0
while records < {2 * _RECORDS}:
    records += len(consumer.consume(1000, 1))
"""
_COUNT = f"""\
grep -e char -e syscw /proc/$1/io
echo log: $(wc -c < {_LOG})
echo batches: $(kvorum log dump {_LOG} | grep -c baseOffset)
"""


def show(stage: Stage) -> None:
    stage.run("kvorum topics create lines --partitions 1")
    stage.say("send.py sends batches of up to 16 KiB; read.py fetches slices of a given size.")
    stage.write("send.py", _SEND)
    stage.write("read.py", _READ)
    stage.say(
        "The kernel counts for each process: rchar, bytes read from files; wchar, bytes written to "
        "files; syscw, the calls that wrote. A sendfile counts in all, send and recv in none."
    )
    stage.write("count", _COUNT)
    count = f"sh count {stage.process_of('broker-101')}"
    stage.run(f"{stage.python} send.py; cp {_LOG} before")
    first = stage.run(count)
    stage.run(f"{stage.python} send.py")
    second = stage.run(count)
    kept = stage.run(f"cmp -n $(wc -c < before) before {_LOG} && echo the same")
    stage.fact("Of what was in the file before, no byte has changed.", "the same" in kept)
    names = ("log", "batches", "wchar", "syscw")
    grown, batches, written, calls = (_growth(name, first, second) for name in names)
    stage.fact(
        f"The file grew by {grown:,} bytes, {batches} batches; the broker wrote {written:,}, in "
        f"{calls} calls. Every byte is written once, a call a batch, at the end.",
        0 < grown <= written <= grown + _SLACK and batches <= calls <= batches + batches // 4,
    )
    stage.run(f"{stage.python} read.py 1048576")
    third = stage.run(count)
    stage.run(f"{stage.python} read.py 20000")
    last = stage.run(count)
    total = number_after("log", last)
    sent, copied = _growth("wchar", second, third), _growth("wchar", third, last)
    stage.fact(
        f"The file stays as it is, {total:,} bytes. For a consumer of large slices wchar grew by "
        f"{sent:,}: sendfile, from the page cache to the socket.",
        _growth("log", second, last) == 0 and sent > total - total // 10,
    )
    read = _growth("rchar", third, last)
    stage.fact(
        f"For one of small slices it grew by {copied:,}, and rchar by {read:,}: up to 64 KiB the "
        "broker reads a slice into its memory, which costs less than another call.",
        copied < _SLACK and read > total - total // 10,
    )
    figures = {"file grew by": grown, "broker wrote": written, "sendfile, large slices": sent}
    title = "Bytes written to the file, and sent from it by sendfile"
    stage.draw(bars(title, {**figures, "sendfile, small slices": copied}, "bytes"))


def _growth(name: str, before: str, after: str) -> int:
    return number_after(name, after) - number_after(name, before)


LESSON = Lesson(
    number=3,
    name="sequential-writes",
    title="Appends are sequential, reads go by sendfile",
    claim=(
        "A broker writes every batch once, at the end of a file, and hands a consumer's bytes from "
        "the page cache to the socket by sendfile, without a look at them."
    ),
    show=show,
    seen="the kernel's counters of a broker, which tell what it did with each byte.",
    code="kvorum/broker/network/connection.py",
    page="docs/log.md",
    try_next="strace -f -c -e trace=sendfile,pread64 -p PID, while read.py runs",
    brokers=1,
)
