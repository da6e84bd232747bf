"""Groups whose members are restarted one by one with the other protocol, under load."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from confluent_kafka import KafkaException, Producer

from tests.clients.groups import Reader
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

PARTITIONS = 6
MEMBERS = 3
QUICK = (
    "group.initial.rebalance.delay.ms=100",
    "group.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=300",
    "group.consumer.min.heartbeat.interval.ms=300",
    "offsets.topic.num.partitions=5",
)
COMMIT_EVERY = 25


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("migration"), settings=QUICK) as cluster:
        yield cluster


class Load:
    """Writes a few records to all partitions with each turn, and keeps what consumers did with
    them. acknowledged: by partition, the highest acknowledged commit. again: records that were read
    although they lie below an acknowledged commit.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        Topics(bootstrap).create(topic, partitions=PARTITIONS, replicas=3)
        self.topic = topic
        self.producer = Producer(settings(bootstrap, acks="all"))
        self.sent: dict[int, int] = defaultdict(int)
        self.acknowledged: dict[int, int] = defaultdict(int)
        self.read: set[tuple[int, int]] = set()
        self.again: list[tuple[int, int]] = []

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, b"%d" % self.sent[partition], partition=partition)
            self.sent[partition] += 1
        self.producer.poll(0)

    def has_all(self) -> bool:
        return len(self.read) == sum(self.sent.values())


class Worker(Reader):
    """A consumer that commits what it has read now and then, and before it gives anything up."""

    def __init__(self, load: Load, bootstrap: str, group_id: str, **more: object) -> None:
        self.load = load
        self.unsaved = 0
        super().__init__(bootstrap, group_id, load.topic, **more)
        self.client.subscribe([load.topic], on_revoke=lambda *_: self.save())

    def poll(self, timeout_s: float = 0.02) -> None:
        before = len(self.seen)
        super().poll(timeout_s)
        for row in self.seen[before:]:
            if row[1] < self.load.acknowledged[row[0]]:
                self.load.again.append(row)
            self.load.read.add(row)
            self.unsaved += 1
        if self.unsaved >= COMMIT_EVERY:
            self.save()

    def save(self) -> None:
        try:
            rows = self.commit()
        except KafkaException:
            # There is no offset to commit, or a rebalance is under way: records that are not
            # committed are read again.
            return
        self.unsaved = 0
        for row in rows:
            if row.error is None:
                known = self.load.acknowledged
                known[row.partition] = max(known[row.partition], row.offset)


def worker(load, cluster, group_id, protocol, assignor, instance):
    if protocol == "consumer":
        # The coordinator sets these time-outs in this protocol, and librdkafka refuses them.
        more = {"session_timeout_ms": None, "heartbeat_interval_ms": None}
    else:
        more = {"partition_assignment_strategy": assignor}
    return Worker(
        load, cluster.bootstrap, group_id, group_protocol=protocol,
        group_instance_id=instance, **more,
    )  # fmt: skip


def under_load(load, workers, condition, what):
    """Write and let every worker poll, until the condition holds."""

    def is_so():
        load.produce()
        for one in workers:
            one.poll()
        return condition()

    eventually(is_so, what)


def is_shared(workers):
    owned = sorted(row for one in workers for row in one.owned)
    return owned == list(range(PARTITIONS)) and all(one.owned for one in workers)


def described(cluster, group_id):
    done = cluster.cli("groups", "describe", group_id, "-o", "json")
    if done.returncode != 0:
        return None
    (found,) = json.loads(done.stdout)
    return found


def roll(load, cluster, group_id, workers, protocol, assignor, instances):
    """Stop each worker and start it with the other protocol, one after the other."""
    for place, old in enumerate(list(workers)):
        under_load(load, workers, lambda: is_shared(workers), "all is shared before the restart")
        old.save()
        old.close()
        workers[place] = worker(load, cluster, group_id, protocol, assignor, instances[place])
    under_load(load, workers, lambda: is_shared(workers), f"all is shared by {protocol}")
    kind = "consumer" if protocol == "consumer" else "classic"
    under_load(
        load,
        workers,
        lambda: (
            (found := described(cluster, group_id)) is not None
            and (found["type"], found["state"]) == (kind, "Stable")
        ),
        f"the group is a {kind} one",
    )


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_are_rolled_there_and_back_and_there_again(cluster, assignor, is_static):
    group_id = f"rolled-{assignor}-{is_static}"
    load = Load(cluster.bootstrap, group_id)
    instances = [f"worker-{n}" if is_static else None for n in range(MEMBERS)]
    workers = [worker(load, cluster, group_id, "classic", assignor, i) for i in instances]
    for protocol in ("consumer", "classic", "consumer"):
        roll(load, cluster, group_id, workers, protocol, assignor, instances)
    assert load.producer.flush(DEADLINE_S) == 0

    def everything():
        for one in workers:
            one.poll()
        return load.has_all()

    eventually(everything, "every record is read")
    assert load.again == []
    for one in workers:
        one.close()


def test_a_mixed_group_outlives_its_coordinators_broker(cluster):
    group_id = "outlives"
    load = Load(cluster.bootstrap, group_id)
    workers = [
        worker(load, cluster, group_id, protocol, "cooperative-sticky", None)
        for protocol in ("classic", "consumer")
    ]
    under_load(load, workers, lambda: is_shared(workers), "both have some")
    before = described(cluster, group_id)
    assert (before["type"], len(before["members"])) == ("consumer", 2)
    broker = broker_name(before["coordinator"])
    cluster.kill(broker)
    third = worker(load, cluster, group_id, "consumer", None, None)
    workers.append(third)
    under_load(load, workers, lambda: is_shared(workers), "a third joins under the next one")
    cluster.restart(broker)
    workers.pop(1).close()
    workers.pop(1).close()
    under_load(load, workers, lambda: is_shared(workers), "the classic one has all")
    under_load(
        load,
        workers,
        lambda: (found := described(cluster, group_id)) and found["type"] == "classic",
        "the group is classic again",
    )
    assert load.producer.flush(DEADLINE_S) == 0

    def everything():
        workers[0].poll()
        return load.has_all()

    eventually(everything, "every record is read")
    assert load.again == []
    workers[0].close()
