"""Makes groups/consumer-4.1.0.log: the records of a group of the consumer protocol (KIP-848), as
Apache Kafka 4.1 wrote them for two members: one that subscribes by names, and a static one in a
rack that subscribes by an expression, joins, takes over a partition and goes away for a while.

Run: python -m tests.golden.make_groups LIBRARY TARGET PORT (see make.py)
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.golden.make import kafka
from tests.polling import DEADLINE_S, eventually

GROUP = "golden"


def consumer(bootstrap: str, topics: list[str], **more: str) -> Consumer:
    base = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "group.protocol": "consumer",
        "client.id": "maker",
    }
    made = Consumer(base | {key.replace("_", "."): value for key, value in more.items()})
    made.subscribe(topics)
    return made


def run(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(
        [NewTopic("orders", 3, 1), NewTopic("payments", 2, 1)]
    ).values():
        made.result(DEADLINE_S)
    first = consumer(bootstrap, ["orders", "payments"], group_remote_assignor="range")
    eventually(lambda: (first.poll(0.1), len(first.assignment()) == 5)[1], "the first has all")
    second = consumer(bootstrap, ["^pay.*"], group_instance_id="static-1", client_rack="r1")

    def is_shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return (len(first.assignment()), len(second.assignment())) == (4, 1)

    eventually(is_shared, "they share")
    first.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    second.close()
    first.close()


def make(library: Path, target: Path, port: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with kafka(library, folder, port) as bootstrap:
            run(bootstrap)
        segment = folder / "data" / "__consumer_offsets-0" / f"{0:020d}.log"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(segment, target)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
