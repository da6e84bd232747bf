"""Topics in Spark: batch and streaming reads and writes, on Kvorum and on Apache Kafka."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from kvorum import Cluster
from kvorum.analytics.kafka_source import register
from kvorum.analytics.kafka_source.errors import DataLoss, ReadFailed
from kvorum.analytics.kafka_source.fetch import read_range
from kvorum.analytics.kafka_source.options import parse_read_options
from kvorum.analytics.kafka_source.plan import OffsetRange
from tests.clients.java_tools import needs_java
from tests.polling import eventually
from tests.test_analytics.sessions import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

EPOCH_MS = 1_700_000_000_000
SYSTEMS = ["kvorum", pytest.param("kafka", marks=[pytest.mark.java, needs_java])]
#: For tests in which Kvorum and Apache Kafka could not differ.
on_kvorum = pytest.mark.parametrize("cluster", ["kvorum"], indirect=True)


class Topics:
    """A cluster and a session that knows the format, with the few calls that tests repeat."""

    def __init__(self, cluster: Cluster, spark) -> None:
        self.cluster = cluster
        self.spark = spark
        self.servers = cluster.bootstrap_servers

    def options(self, **options: object) -> dict[str, str]:
        """`__` in a name stands for a dot."""
        texts = {
            name.replace("__", "."): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in options.items()
        }
        return {"kafka.bootstrap.servers": self.servers, **texts}

    def read(self, **options: object):
        return self.spark.read.format("kvorum").options(**self.options(**options)).load()

    def stream(self, **options: object):
        return self.spark.readStream.format("kvorum").options(**self.options(**options)).load()

    def produce(self, topic: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
        """Records `first` and on: value is the number, the partition its remainder."""
        producer = self.producer()
        for number in range(first, first + count):
            producer.produce(topic, str(number), partition=number % partitions)
        assert producer.flush(30) == 0

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 5, **settings})

    def values(self, frame) -> list[str]:
        rows = frame.select(F.col("value").cast("string")).collect()
        return sorted((row[0] for row in rows), key=int)

    def offsets_read(self, wanted: OffsetRange, **options: object) -> list[int]:
        """The records that a task reads, without Spark around it."""
        given = {name.lower(): value for name, value in self.options(**options).items()}
        parsed = parse_read_options({"subscribe": wanted.topic, **given})
        batches = read_range(wanted, ("offset", "value"), parsed)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture(scope="module", params=SYSTEMS)
def cluster(request, tmp_path_factory):
    settings = {"log.cleaner.backoff.ms": "50", "group.initial.rebalance.delay.ms": "0"}
    proxies = request.param == "kafka"
    with Cluster(
        controllers=1, brokers=1, system=request.param, settings=settings, proxies=proxies,
        metrics=False, directory=tmp_path_factory.mktemp(request.param),
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark")) as spark:
        yield spark


@pytest.fixture
def topics(cluster, session):
    register(session)
    return Topics(cluster, session)


def of(topic: str, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic=topic, partition=0, start_offset=start, end_offset=end)


def message(error: BaseException) -> str:
    """The last line of a Python traceback: what the source itself says."""
    lines = [line for line in str(error).splitlines() if "kafka_source.errors." in line]
    return lines[-1].partition(": ")[2]


def test_a_batch_has_every_column_as_it_was_written(topics):
    name = topics.cluster.create_topic("a.b_c-1", partitions=2)
    producer = topics.producer()
    producer.produce(name, b"\x00v", key=b"k\xff", partition=0, timestamp=EPOCH_MS,
                     headers=[("h", b"1"), ("h", None), ("", b"")])  # fmt: skip
    producer.produce(name, None, key=b"gone", partition=1, timestamp=EPOCH_MS + 1)
    producer.produce(name, b"", key=None, partition=1, timestamp=EPOCH_MS + 2)
    assert producer.flush(30) == 0
    frame = topics.read(subscribe=name, includeHeaders=True)
    millis = F.unix_millis("timestamp").alias("millis")
    rows = frame.select("*", millis).drop("timestamp").orderBy("partition", "offset").collect()
    assert [tuple(row) for row in rows] == [
        (b"k\xff", b"\x00v", name, 0, 0, 0, [("h", b"1"), ("h", None), ("", b"")], EPOCH_MS),
        (b"gone", None, name, 1, 0, 0, None, EPOCH_MS + 1),
        (None, b"", name, 1, 1, 0, None, EPOCH_MS + 2),
    ]


def test_the_log_append_time_is_told_apart(topics):
    name = topics.cluster.create_topic(
        "appended", config={"message.timestamp.type": "LogAppendTime"}
    )
    producer = topics.producer()
    producer.produce(name, b"v", timestamp=EPOCH_MS)
    assert producer.flush(30) == 0
    (row,) = (
        topics.read(subscribe=name).select("timestampType", F.unix_millis("timestamp")).collect()
    )
    assert row[0] == 1
    assert row[1] > EPOCH_MS + 3_600_000


def test_ranges_are_split_and_every_record_is_read_once(topics):
    name = topics.cluster.create_topic("split", partitions=3)
    topics.produce(name, 1000, partitions=3)
    frame = topics.read(subscribe=name, minPartitions=8, maxRecordsPerPartition=200)
    assert frame.rdd.getNumPartitions() == 8
    assert topics.values(frame) == [str(number) for number in range(1000)]
    only = topics.spark.read.format("kvorum").schema("offset long, value binary")
    narrow = only.options(**topics.options(assign=json.dumps({name: [1]}))).load()
    assert narrow.columns == ["offset", "value"]
    assert topics.values(narrow) == [str(number) for number in range(1, 1000, 3)]


@on_kvorum
def test_filters_on_partitions_and_offsets_leave_ranges_out(topics):
    name = topics.cluster.create_topic("pruned", partitions=3)
    topics.produce(name, 300, partitions=3)
    pushdown = "spark.sql.python.filterPushdown.enabled"
    topics.spark.conf.set(pushdown, "true")
    try:
        register(topics.spark)
        frame = topics.read(subscribe=name).where("partition = 1 AND offset >= 90 AND key IS NULL")
        assert frame.rdd.getNumPartitions() == 1
        assert topics.values(frame) == [str(number) for number in range(271, 300, 3)]
    finally:
        topics.spark.conf.unset(pushdown)
    register(topics.spark)
    assert topics.read(subscribe=name).where("partition = 1").rdd.getNumPartitions() == 3


def test_positions_in_time(topics):
    name = topics.cluster.create_topic("timed")
    producer = topics.producer()
    for number in range(10):
        producer.produce(name, str(number), timestamp=EPOCH_MS + number * 1000)
    assert producer.flush(30) == 0
    both = topics.read(
        subscribePattern="time.", startingTimestamp=EPOCH_MS + 2500,
        endingOffsetsByTimestamp=json.dumps({name: {"0": EPOCH_MS + 7000}}),
    )  # fmt: skip
    assert topics.values(both) == ["3", "4", "5", "6"]
    late = topics.read(subscribe=name, startingTimestamp=EPOCH_MS + 99_000)
    with pytest.raises(AnalysisException) as refused:
        late.count()
    assert message(refused.value) == (
        "startingTimestamp finds no record at or after its timestamp in timed-0; choose an earlier "
        "timestamp, or set startingOffsetsByTimestampStrategy to latest"
    )


def test_aborted_records_are_invisible_and_markers_are_skipped(topics):
    name = topics.cluster.create_topic("transactional")
    writer = topics.producer(**{"transactional.id": "spark"})
    writer.init_transactions(30)

    def transaction(first: int, *, is_committed: bool) -> None:
        writer.begin_transaction()
        for number in range(first, first + 5):
            writer.produce(name, str(number))
        assert writer.flush(30) == 0
        writer.commit_transaction(30) if is_committed else writer.abort_transaction(30)

    transaction(0, is_committed=True)
    transaction(10, is_committed=False)
    transaction(20, is_committed=True)
    # This transaction ends with aborted records and a marker, with no committed record behind them
    # up to the end of the reader's range.
    transaction(30, is_committed=False)
    writer.begin_transaction()
    writer.produce(name, "40")
    assert writer.flush(30) == 0
    committed = ["0", "1", "2", "3", "4", "20", "21", "22", "23", "24"]
    assert topics.values(topics.read(subscribe=name)) == committed
    everything = topics.read(subscribe=name, kafka__isolation__level="read_uncommitted")
    assert len(topics.values(everything)) == 21
    # A range may also begin and end among aborted records and markers.
    assert topics.offsets_read(of(name, 5, 12)) == []
    assert topics.offsets_read(of(name, 3, 13)) == [3, 4, 12]
    writer.abort_transaction(30)


def test_a_compacted_topic_ends_where_its_log_ends(topics):
    config = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"}
    name = topics.cluster.create_topic("compacted", config=config)
    producer = topics.producer()

    def put(number: int) -> None:
        # Each flush makes a segment of its own, because the cleaner does not touch the newest one.
        producer.produce(name, str(number), key=str(number % 3))
        assert producer.flush(30) == 0

    for number in range(30):
        put(number)

    def is_compacted() -> bool:
        # Between two looks, a new record rolls the segment, so that the older ones can be cleaned.
        return len(topics.offsets_read(of(name, 0, 29))) < 29

    eventually(is_compacted, "the cleaner has removed records", meanwhile=lambda: put(0))
    rows = topics.read(subscribe=name).select("offset").collect()
    found = sorted(row[0] for row in rows)
    assert found[-1] >= 29 and len(found) < found[-1] + 1
    # A range may end in a gap, with records behind it.
    assert topics.offsets_read(of(name, 0, found[0])) == []


def test_records_that_are_gone_fail_a_task_or_are_left_out(topics, caplog):
    name = topics.cluster.create_topic("deleted")
    topics.produce(name, 20)
    deleted = topics.cluster.admin().delete_records([TopicPartition(name, 0, 8)])
    (answer,) = deleted.values()
    assert answer.result(30).low_watermark == 8
    with pytest.raises(
        DataLoss, match="partition deleted-0: offsets 2 to 8 are gone, since its log"
    ):
        topics.offsets_read(of(name, 2, 20))
    assert topics.offsets_read(of(name, 2, 20), failOnDataLoss=False) == list(range(8, 20))
    assert topics.offsets_read(of(name, 2, 6), failOnDataLoss=False) == []
    assert "offsets 2 to 8 are gone" in caplog.text
    quick = {"kafkaConsumer__pollTimeoutMs": 300}
    with pytest.raises(DataLoss, match="offsets 20 to 25 are gone, since its log ends at 20"):
        topics.offsets_read(of(name, 18, 25), **quick)
    lenient = topics.offsets_read(of(name, 18, 25), failOnDataLoss=False, **quick)
    assert lenient == [18, 19]
    with pytest.raises(DataLoss, match="partition nowhere-0: offsets 0 to 5 are gone"):
        topics.offsets_read(of("nowhere", 0, 5), **quick)
    start = json.dumps({name: {"0": 2}})
    with pytest.raises(AnalysisException) as lost:
        topics.read(subscribe=name, startingOffsets=start).count()
    assert message(lost.value).startswith(
        "startingOffsets is 2 for deleted-0, whose log has offsets 8 to 20; choose"
    )
    rest = topics.read(subscribe=name, startingOffsets=start, failOnDataLoss=False)
    assert topics.values(rest) == [str(number) for number in range(8, 20)]


@on_kvorum
def test_what_cannot_be_is_refused_in_one_sentence(topics):
    for act, words in [
        (
            lambda: topics.read(subscrib="a"),
            "unknown option 'subscrib' of a read; did you mean subscribe?",
        ),
        (
            lambda: topics.read(subscribe="missing").count(),
            f"topic missing does not exist in the cluster at {topics.servers}; create it, or "
            "correct the option that names it",
        ),
        (
            lambda: topics.spark.range(1).write.format("kvorum").mode("append")
            .options(**topics.options(topic="a")).save(),
            "the rows have no column value, only id; name one value",
        ),
        (
            lambda: topics.spark.range(1).write.format("kvorum").mode("overwrite").save(),
            "a topic cannot be overwritten; use the save mode append",
        ),
    ]:  # fmt: skip
        with pytest.raises(AnalysisException) as refused:
            act()
        assert message(refused.value) == words


@on_kvorum
def test_a_cluster_that_does_not_answer_is_named(topics):
    options = parse_read_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a",
         "kafka.default.api.timeout.ms": "300"}
    )  # fmt: skip
    from kvorum.analytics.kafka_source.clients import TopicsClient

    with pytest.raises(ReadFailed) as failed:
        TopicsClient(options).partitions()
    assert str(failed.value) == (
        "no broker at 127.0.0.1:1 answered within 0.3 s; check kafka.bootstrap.servers and that "
        "the cluster runs"
    )


def run_now(frame, folder: Path, **options: str):
    """A query that reads what is there, into files. Returns its numbers of rows, batch by batch."""
    query = (
        frame.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_stream_goes_on_where_it_ended_and_finds_new_partitions(topics, tmp_path):
    name = topics.cluster.create_topic("streamed", partitions=2)
    topics.produce(name, 100, partitions=2)
    frame = topics.stream(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    assert run_now(frame, tmp_path) == [0, 30, 30, 30, 10]
    topics.produce(name, 20, partitions=2, first=100)
    grown = topics.cluster.admin().create_partitions([NewPartitions(name, 3)])[name]
    assert grown.result(30) is None
    topics.cluster.wait_until("all-led")
    producer = topics.producer()
    for number in range(120, 130):
        producer.produce(name, str(number), partition=2)
    assert producer.flush(30) == 0
    assert sum(run_now(frame, tmp_path)) == 30
    written = topics.spark.read.parquet(str(tmp_path / "out"))
    assert topics.values(written) == [str(number) for number in range(130)]


def test_a_stream_whose_topic_was_deleted_fails_with_a_sentence(topics, tmp_path):
    name = topics.cluster.create_topic("vanished")
    topics.produce(name, 5)
    run_now(topics.stream(subscribe=name, startingOffsets="earliest"), tmp_path)
    assert topics.cluster.admin().delete_topics([name])[name].result(30) is None
    eventually(
        lambda: name not in topics.cluster.admin().list_topics(timeout=30).topics, "it is gone"
    )
    with pytest.raises(StreamingQueryException) as lost:
        run_now(topics.stream(subscribe=name), tmp_path)
    assert "topic vanished does not exist" in str(lost.value) or (
        "the query has read vanished-0, which no longer exists" in str(lost.value)
    )


def test_rows_become_records(topics):
    name = topics.cluster.create_topic("written", partitions=4)
    rows = [
        ("k1", b"v1", [("h", b"x"), ("h", None)], name, 3),
        ("k2", None, [], name, None),
        (None, b"", None, name, 0),
    ]
    columns = (
        "key string, value binary, headers array<struct<key string, value binary>>, "
        "topic string, partition int"
    )
    frame = topics.spark.createDataFrame(rows, columns)
    frame.write.format("kvorum").options(**topics.options()).mode("append").save()
    found = topics.read(subscribe=name, includeHeaders=True).orderBy("value").collect()
    by_key = {row.key: row for row in found}
    assert by_key[b"k1"].value == b"v1" and by_key[b"k1"].partition == 3
    assert by_key[b"k1"].headers == [("h", b"x"), ("h", None)]
    assert by_key[b"k2"].value is None and by_key[b"k2"].headers is None
    assert by_key[None].value == b"" and by_key[None].partition == 0


def test_the_option_topic_goes_before_the_column_and_keys_choose_javas_partitions(topics):
    name = topics.cluster.create_topic("keyed", partitions=8)
    frame = topics.spark.range(40).selectExpr(
        "'elsewhere' AS topic", "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    frame.write.format("kvorum").options(**topics.options(topic=name)).mode("append").save()
    # Partitions of Java's producer: murmur2 of the key, without its sign, modulo 8.
    found = {int(row.key): row.partition for row in topics.read(subscribe=name).collect()}
    assert found == {number: murmur2(str(number).encode()) % 8 for number in range(40)}


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key (Utils.murmur2), without its sign."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


@on_kvorum
@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("value string, topic string", {}, "a row has topic null; set the option topic"),
        (
            "value string",
            {"topic": "written", "kafka__max__request__size": 1000},
            "a record for written was not acknowledged: Broker: Message size too large; raise "
            "kafka.max.request.size",
        ),
        (
            "value string, partition int",
            {"topic": "written"},
            "a record for written-77 was not acknowledged: Local: Unknown partition; correct the "
            "column partition",
        ),
    ],
    ids=["null topic", "size", "partition"],
)
def test_a_record_that_cannot_be_written_fails_the_query(topics, columns, options, words):
    row = {"value": "x" * 2000, "topic": None, "partition": 77}
    names = [column.partition(" ")[0] for column in columns.split(", ")]
    frame = topics.spark.createDataFrame([tuple(row[name] for name in names)], columns)
    writer = frame.write.format("kvorum").options(**topics.options(**options)).mode("append")
    with pytest.raises(Exception, match="WriteFailed") as failed:
        writer.save()
    assert words in message(failed.value)


def test_a_stream_copies_a_topic_into_another(topics, tmp_path):
    source = topics.cluster.create_topic("from", partitions=2)
    target = topics.cluster.create_topic("to", partitions=2)
    topics.produce(source, 50, partitions=2)
    query = (
        topics.stream(subscribe=source, startingOffsets="earliest")
        .select("key", "value")
        .writeStream.format("kvorum")
        .options(**topics.options(topic=target))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert topics.values(topics.read(subscribe=target)) == [str(number) for number in range(50)]


@on_kvorum
def test_a_thread_that_registers_the_format_can_write(topics):
    name = topics.cluster.create_topic("threaded")
    frame = topics.spark.range(3).selectExpr("CAST(id AS STRING) AS value")

    def work() -> None:
        register(topics.spark)
        frame.write.format("kvorum").options(**topics.options(topic=name)).mode("append").save()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert topics.values(topics.read(subscribe=name)) == ["0", "1", "2"]
