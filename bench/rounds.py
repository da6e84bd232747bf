"""One round of one side: a fresh cluster, a warm-up, every figure once, and the stop."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from bench import java_client
from bench.client import Throughput, consume, latencies_ms, produce
from bench.cluster import BenchCluster, BenchFailed, active_controller, bootstrap_of, pids
from bench.coordinators import (
    commits_per_second,
    idle_group_percent,
    join_seconds,
    transaction_latencies_ms,
)
from bench.figures import percentile
from bench.gaps import broker_gap, controller_gap_s
from bench.kafka_cluster import fetch_jars
from bench.processes import (
    BROKER,
    CONTROLLER,
    cpu_percent_over,
    cpu_seconds,
    resident_mb,
)
from bench.share_groups import delivery_ms, drain_seconds
from bench.streams_groups import TASKS, count_seconds, rebalance_seconds
from bench.table import ProcessRow
from bench.topics import (
    batch_per_second,
    create,
    delete,
    new_topic,
    open_admin,
    seconds_to_first_write,
    seconds_to_leaders,
    single_per_second,
    wait_gone,
    wait_in_sync,
)
from kvorum.runtime.errors import KvorumError

PARTITIONS = 3
LARGE_RECORD_BYTES = 1_000
SMALL_RECORD_BYTES = 100
#: Pause between the end of load and the measurement of idle CPU.
SETTLE_S = 5.0


def figure_errors() -> tuple[type[Exception], ...]:
    """The errors that fail a figure without ending the run."""
    from confluent_kafka import KafkaException

    return (KvorumError, KafkaException, OSError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The sizes of all loads, the same for both sides."""

    warm_records: int
    warm_small_records: int
    warm_latency_records: int
    warm_topics: int
    large_records: int
    java_records: int
    small_records: int
    latency_records: int
    share_records: int
    share_latency_records: int
    streams_records: int
    single_topics: int
    batch_topics: int
    large_topics: int
    large_topic_partitions: int
    offset_commits: int
    transactions: int
    idle_s: float


FULL = Load(
    warm_records=500_000,
    warm_small_records=2_000_000,
    warm_latency_records=1_500,
    warm_topics=200,
    large_records=600_000,
    java_records=400_000,
    small_records=3_000_000,
    latency_records=3_000,
    share_records=600_000,
    share_latency_records=2_000,
    streams_records=600_000,
    single_topics=150,
    batch_topics=1_000,
    large_topics=2,
    large_topic_partitions=1_000,
    offset_commits=20_000,
    transactions=300,
    idle_s=10.0,
)
QUICK = Load(
    warm_records=50_000,
    warm_small_records=100_000,
    warm_latency_records=200,
    warm_topics=20,
    large_records=100_000,
    java_records=60_000,
    small_records=300_000,
    latency_records=500,
    share_records=100_000,
    share_latency_records=300,
    streams_records=100_000,
    single_topics=30,
    batch_topics=200,
    large_topics=2,
    large_topic_partitions=1_000,
    offset_commits=4_000,
    transactions=60,
    idle_s=3.0,
)


@dataclass(slots=True)
class Record:
    """The results of a side's rounds so far. failures: group to the first reason."""

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    resident_mb: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    idle_percent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def process_rows(self, side: str) -> list[ProcessRow]:
        """Medians over the rounds, by process."""
        return [
            ProcessRow(
                side=side,
                name=name,
                resident_mb=_median(self.resident_mb.get(name)),
                idle_cpu_percent=_median(self.idle_percent.get(name)),
            )
            for name in dict.fromkeys([*self.resident_mb, *self.idle_percent])
        ]


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None


class Round:
    """Use: run(). The cluster is stopped when it returns or raises."""

    def __init__(
        self,
        *,
        cluster: BenchCluster,
        number: int,
        groups: Collection[str],
        load: Load,
        record: Record,
        say: Callable[[str], None],
        library: Path,
    ) -> None:
        """library: the folder of Apache Kafka's jars, whose clients are the load for both sides."""
        self._cluster = cluster
        self._number = number
        self._groups = groups
        self._load = load
        self._record = record
        self._say = say
        self._bootstrap = bootstrap_of(cluster)
        self._library = library

    def run(self) -> None:
        try:
            self._cluster.prepare()
            self._start()
            self._measure("warm-up", self._warm)
            # In this order: memory is read after the produce and consume load, idle CPU before
            # thousands of topics are created and deleted, and faults that kill nodes come last.
            for group, take in (
                ("produce", self._produce),
                ("consume", self._consume),
                ("java", self._java),
                ("latency", self._latency),
                ("memory", self._memory),
                ("idle", self._idle),
                ("topics", self._topics),
                ("partitions", self._partitions),
                ("groups", self._coordinate),
                ("transactions", self._transact),
                ("queues", self._queues),
                ("streams", self._streams),
                ("controller-gap", self._controller_gap),
                ("controller-hang", self._controller_hang),
                ("broker-gap", self._broker_gap),
            ):
                if group in self._groups:
                    self._measure(group, take)
        finally:
            self._cluster.stop()

    def _start(self) -> None:
        """Start the cluster. A failure ends the run, since nothing can be measured."""
        seconds = seconds_to_first_write(self._cluster)
        self._sample("start_s", seconds)

    def _measure(self, group: str, take: Callable[[], None]) -> None:
        # Writes of the previous figures that are still under way to the disk must not slow this
        # one.
        os.sync()
        began = time.monotonic()
        try:
            take()
        except figure_errors() as error:
            reason = f"round {self._number}: {error}"
            self._record.failures.setdefault(group, reason)
            self._say(f"  {group} FAILED: {error}")
            return
        self._say(f"  {group} took {time.monotonic() - began:.1f} s")

    def _sample(self, key: str, value: float) -> None:
        self._record.samples[key].append(value)
        self._say(f"    {key} = {value:.4g}")

    def _topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """Create a topic; returns when all leaders are known and all replicas are in sync."""
        create(open_admin(self._bootstrap), [new_topic(name, partitions)])
        views = wait_in_sync(self._cluster, name, partitions)
        leaders = {view.leader for view in views.values()}
        most = min(PARTITIONS, partitions)
        if len(leaders) != most:
            self._record.notes.append(
                f"{self._cluster.side}, round {self._number}: {len(leaders)} of {most} "
                f"brokers lead the partitions of {name}"
            )
        os.sync()  # as in _measure
        return name

    def _remove(self, *names: str) -> None:
        delete(open_admin(self._bootstrap), names)
        wait_gone(self._cluster, names)

    def _produce_to(
        self, topic: str, *, records: int, record_bytes: int, acks: str
    ) -> tuple[Throughput, float]:
        """The throughput, and the CPU seconds that the brokers spent on it.

        CPU is read after the followers have caught up, since their work belongs to the figure.
        """
        self._topic(topic)
        brokers = pids(self._cluster, BROKER)
        before = cpu_seconds(brokers)
        result = produce(
            self._bootstrap,
            topic,
            partitions=PARTITIONS,
            records=records,
            record_bytes=record_bytes,
            acks=acks,
        )
        after = cpu_seconds(brokers)
        # An acks=all figure is valid only if all three replicas stayed in sync to the end.
        wait_in_sync(self._cluster, topic, PARTITIONS)
        return result, sum(after[pid] - before[pid] for pid in brokers)

    def _warm(self) -> None:
        load = self._load
        self._produce_to(
            "warm-one", records=load.warm_records, record_bytes=LARGE_RECORD_BYTES, acks="1"
        )
        self._produce_to(
            "warm-all", records=load.warm_records, record_bytes=LARGE_RECORD_BYTES, acks="all"
        )
        self._produce_to(
            "warm-small",
            records=load.warm_small_records,
            record_bytes=SMALL_RECORD_BYTES,
            acks="all",
        )
        for topic in ("warm-one", "warm-all"):
            consume(
                self._bootstrap,
                topic,
                partitions=PARTITIONS,
                records=load.warm_records,
                record_bytes=LARGE_RECORD_BYTES,
            )
        latencies_ms(
            self._bootstrap,
            "warm-one",
            partitions=PARTITIONS,
            records=load.warm_latency_records,
            record_bytes=SMALL_RECORD_BYTES,
        )
        admin = open_admin(self._bootstrap)
        singles = max(1, load.warm_topics // 4)
        single_per_second(admin, singles, "warm-single")
        batch_per_second(admin, load.warm_topics, "warm-batch")
        self._remove(
            *("warm-one", "warm-all", "warm-small"),
            *(f"warm-single-{i}" for i in range(singles)),
            *(f"warm-batch-{i}" for i in range(load.warm_topics)),
        )

    def _produce(self) -> None:
        load = self._load
        large = LARGE_RECORD_BYTES
        result, _ = self._produce_to(
            "one", records=load.large_records, record_bytes=large, acks="1"
        )
        self._sample("produce_one_mb_s", result.mb_per_s)
        result, cpu_s = self._produce_to(
            "all", records=load.large_records, record_bytes=large, acks="all"
        )
        self._sample("produce_all_mb_s", result.mb_per_s)
        self._sample("cpu_s_per_gb", cpu_s / result.gigabytes)
        result, _ = self._produce_to(
            "small", records=load.small_records, record_bytes=SMALL_RECORD_BYTES, acks="all"
        )
        self._sample("produce_small_k_s", result.thousands_per_s)
        self._remove("one", "all", "small")

    def _consume(self) -> None:
        """Uses a topic of its own: records of another size in it would be counted as large ones."""
        load = self._load
        records, record_bytes = load.large_records, LARGE_RECORD_BYTES
        self._produce_to("read", records=records, record_bytes=record_bytes, acks="all")
        result = consume(
            self._bootstrap,
            "read",
            partitions=PARTITIONS,
            records=records,
            record_bytes=record_bytes,
        )
        self._sample("consume_mb_s", result.mb_per_s)
        self._remove("read")

    def _java(self) -> None:
        brokers = pids(self._cluster, BROKER)
        cpu_s = moved_gb = 0.0
        library, bootstrap = self._library, self._bootstrap
        fetch_jars(library)
        topics = {case.key: self._topic(case.key) for case in java_client.PRODUCES}
        for case in java_client.PRODUCES:
            records = int(self._load.java_records * case.share)
            before = cpu_seconds(brokers)
            mb_s = java_client.produce(library, bootstrap, topics[case.key], case, records)
            wait_in_sync(self._cluster, topics[case.key], PARTITIONS)
            cpu_s += sum(cpu_seconds(brokers).values()) - sum(before.values())
            moved_gb += records * 1.5 * case.record_bytes / 1e9
            self._sample(case.key, mb_s)
            os.sync()
        before = cpu_seconds(brokers)
        records = self._load.java_records
        topic = topics[java_client.CONSUMED_KEY]
        mb_s = java_client.consume(library, bootstrap, topic, records, LARGE_RECORD_BYTES)
        cpu_s += sum(cpu_seconds(brokers).values()) - sum(before.values())
        moved_gb += records * LARGE_RECORD_BYTES / 1e9
        self._sample("java_consume_mb_s", mb_s)
        self._sample("java_cpu_s_per_gb", cpu_s / moved_gb)
        self._remove(*topics.values())

    def _queues(self) -> None:
        fetch_jars(self._library)
        records = self._load.share_records
        for key, name, members, partitions, record_bytes in (
            ("share_small_k_s", "queue-small", 4, 1, SMALL_RECORD_BYTES),
            ("share_large_k_s", "queue-large", 4, 1, LARGE_RECORD_BYTES),
            ("share_wide_k_s", "queue-wide", 100, 100, SMALL_RECORD_BYTES),
        ):
            count = records // 3 if record_bytes == LARGE_RECORD_BYTES else records
            seconds, cpu_s = self._drain(name, members, partitions, count, record_bytes)
            self._sample(key, count / seconds / 1e3)
            if key == "share_small_k_s":
                self._sample("share_cpu_us", cpu_s / count * 1e6)
        found = delivery_ms(
            self._library,
            self._bootstrap,
            self._topic("queue-latency", 1),
            members=4,
            records=self._load.share_latency_records,
        )
        self._sample("share_p99_ms", percentile(found, 99))
        self._remove("queue-small", "queue-large", "queue-wide", "queue-latency")

    def _streams(self) -> None:
        fetch_jars(self._library)
        records = self._load.streams_records
        source, sink = self._topic("words"), self._topic("counts")
        produce(
            self._bootstrap, source, partitions=PARTITIONS, records=records,
            record_bytes=SMALL_RECORD_BYTES, acks="all",
        )  # fmt: skip
        os.sync()
        brokers = pids(self._cluster, BROKER)
        before = sum(cpu_seconds(brokers).values())
        seconds = count_seconds(self._library, self._bootstrap, source, sink, records)
        cpu_s = sum(cpu_seconds(brokers).values()) - before
        self._sample("streams_k_s", records / seconds / 1e3)
        self._sample("streams_cpu_us", cpu_s / records * 1e6)
        tasks = self._topic("tasks", TASKS)
        self._sample("streams_rebalance_s", rebalance_seconds(self._bootstrap, tasks, tasks))
        self._remove("words", "counts", "tasks")

    def _drain(
        self, name: str, members: int, partitions: int, records: int, record_bytes: int
    ) -> tuple[float, float]:
        """The seconds in which a share group reads a topic, and those of the brokers' CPU."""
        topic = self._topic(name, partitions)
        produce(
            self._bootstrap, topic, partitions=partitions, records=records,
            record_bytes=record_bytes, acks="all",
        )  # fmt: skip
        os.sync()
        brokers = pids(self._cluster, BROKER)
        before = sum(cpu_seconds(brokers).values())
        seconds = drain_seconds(
            self._library, self._bootstrap, topic, members=members, records=records
        )
        return seconds, sum(cpu_seconds(brokers).values()) - before

    def _latency(self) -> None:
        found = latencies_ms(
            self._bootstrap,
            self._topic("latency"),
            partitions=PARTITIONS,
            records=self._load.latency_records,
            record_bytes=SMALL_RECORD_BYTES,
        )
        self._sample("latency_p50_ms", percentile(found, 50))
        self._sample("latency_p99_ms", percentile(found, 99))

    def _memory(self) -> None:
        largest: dict[str, float] = defaultdict(float)
        for process in self._cluster.processes():
            resident = resident_mb(process.pid)
            self._record.resident_mb[process.name].append(resident)
            largest[process.role] = max(largest[process.role], resident)
        self._sample("controller_rss_mb", largest[CONTROLLER])
        self._sample("broker_rss_mb", largest[BROKER])

    def _idle(self) -> None:
        time.sleep(SETTLE_S)
        processes = self._cluster.processes()
        percents = cpu_percent_over([p.pid for p in processes], self._load.idle_s)
        for process in processes:
            self._record.idle_percent[process.name].append(percents[process.pid])
        self._sample("idle_cpu_percent", sum(percents.values()))

    def _topics(self) -> None:
        load = self._load
        admin = open_admin(self._bootstrap)
        # Three controllers fsync each topic, after all pending writes of the previous loads.
        os.sync()
        self._sample("topics_single_per_s", single_per_second(admin, load.single_topics, "single"))
        self._sample("topics_batch_per_s", batch_per_second(admin, load.batch_topics, "batch"))
        self._remove(
            *(f"single-{i}" for i in range(load.single_topics)),
            *(f"batch-{i}" for i in range(load.batch_topics)),
        )

    def _partitions(self) -> None:
        load = self._load
        names = [f"wide-{i}" for i in range(load.large_topics)]
        topics = [new_topic(name, load.large_topic_partitions) for name in names]
        admin = open_admin(self._bootstrap)
        shown_s, served_s = seconds_to_leaders(self._cluster, admin, topics)
        self._sample("partitions_shown_s", shown_s)
        self._sample("partitions_served_s", served_s)
        self._remove(*names)

    def _coordinate(self) -> None:
        brokers = pids(self._cluster, BROKER)

        def cpu_s() -> float:
            return sum(cpu_seconds(brokers).values())

        whole_s, after_delay_s = join_seconds(self._bootstrap)
        self._sample("group_join_s", after_delay_s)
        self._record.notes.append(
            f"{self._cluster.side}, round {self._number}: 100 members were in their group "
            f"{whole_s:.2f} s after the first of them asked, initial delay and all"
        )
        commits, topic = self._load.offset_commits, self._topic("offsets")
        commits_per_second(self._bootstrap, topic, commits // 2)
        self._sample("offset_commits_per_s", commits_per_second(self._bootstrap, topic, commits))
        time.sleep(SETTLE_S)
        percent = idle_group_percent(self._bootstrap, self._load.idle_s, cpu_s)
        self._sample("idle_groups_percent", percent)
        self._remove(topic)

    def _transact(self) -> None:
        topic = self._topic("transactions")
        count = self._load.transactions
        found = transaction_latencies_ms(
            self._bootstrap, topic, partitions=PARTITIONS, transactions=count, warm=count // 3
        )
        self._sample("transaction_p50_ms", percentile(found, 50))
        self._remove(topic)

    def _controller_gap(self) -> None:
        self._controller_fault("controller_gap_s", signal.SIGKILL, "gap")

    def _controller_hang(self) -> None:
        self._controller_fault("controller_hang_s", signal.SIGSTOP, "hang")

    def _controller_fault(self, key: str, number: signal.Signals, prefix: str) -> None:
        gap_s, refusals = controller_gap_s(self._cluster, number=number, prefix=prefix)
        self._sample(key, gap_s)
        if refusals:
            codes = ", ".join(sorted(set(refusals)))
            self._record.notes.append(
                f"{self._cluster.side}, round {self._number}: {len(refusals)} topic requests "
                f"refused around the fault of {key} ({codes})"
            )
        # The node has restarted: the next fault must find a full quorum.
        if len(pids(self._cluster, CONTROLLER)) < 3:
            raise BenchFailed("the controller did not come back")
        time.sleep(SETTLE_S)
        active_controller(self._cluster)

    def _broker_gap(self) -> None:
        gap = broker_gap(self._cluster, topic="gap-records", victim_index=self._number)
        self._sample("broker_gap_led_s", gap.led_s)
        self._sample("broker_gap_others_s", gap.others_s)
        self._sample("lost", gap.delivery.lost)
        self._sample("duplicated", gap.delivery.duplicated)
        side = f"{self._cluster.side}, round {self._number}"
        self._record.notes.append(
            f"{side}: {gap.acknowledged:,} records acknowledged around the broker's death, "
            f"{gap.refused} refused, {gap.delivery.misplaced} out of order"
        )
