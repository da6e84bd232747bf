"""Makes groups/mixed-4.1.0.log: the records of a group that Apache Kafka 4.1 took from the classic
protocol to the consumer protocol and back while members were there.

Run: python -m tests.golden.make_mixed_group LIBRARY TARGET PORT (see make.py)
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

GROUP = "mixed"
PARTITIONS = 3


def consumer(bootstrap: str, **more: str) -> Consumer:
    base = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "client.id": "maker",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    if "group_protocol" in more:
        del base["partition.assignment.strategy"]
    made = Consumer(base | {key.replace("_", "."): value for key, value in more.items()})
    made.subscribe(["orders"])
    return made


def share(members: list[Consumer], what: str) -> None:
    """Poll until all partitions are owned and everybody has some."""

    def is_shared() -> bool:
        for member in members:
            member.poll(0.1)
        owned = [len(member.assignment()) for member in members]
        return sum(owned) == PARTITIONS and min(owned) > 0

    eventually(is_shared, what)


def run(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(DEADLINE_S)
    classic = consumer(bootstrap, group_instance_id="static-1", client_rack="r1")
    share([classic], "the classic member has all")
    new = consumer(bootstrap, group_protocol="consumer")
    share([classic, new], "a member of the consumer protocol joins: the group is upgraded")
    classic.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    new.close()
    share([classic], "it leaves: the group is downgraded")
    classic.close()


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
