"""Apache Kafka's own kafka-dump-log reads what our brokers wrote, and says what we say.

The other way round, our tools on a folder that Apache Kafka wrote: tests/test_storage/test_golden.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kvorum.broker.config.broker_config import BrokerConfig
from tests.clients.java_tools import needs_java, run_tool, tool
from tests.command import kvorum
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.transaction_writer import Writer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = [pytest.mark.java, needs_java]


def files_of(directory: Path) -> list[str]:
    """The files that the tool takes; it ignores `.deleted` files with a message."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return [str(path) for path in sorted(directory.iterdir()) if path.suffix in kinds]


def without_first_batches(error: str) -> str:
    """Complaints of Kafka 4.4's tool, without those about the first batch of a file that does not
    begin at offset 0: the tool assumes that the previous batch ended at offset -1.
    """
    lines = [line for line in error.splitlines() if "  -1 is followed by" not in line]
    kept = [
        line
        for line, after in pairwise([*lines, ""])
        if "Non-consecutive offsets in" not in line or "is followed by" in after
    ]
    return "".join(f"{line}\n" for line in kept)


def agree(directory: Path, *, has_gaps: bool = False) -> str:
    """Assert that both tools print the same for all files with each set of options, without
    complaints.
    """
    files = files_of(directory)
    said = ""
    for option in ("--print-data-log", "--index-sanity-check", "--verify-index-only"):
        done = run_tool(
            "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), option
        )
        assert done.returncode == 0, done.stdout + done.stderr
        out, error = done.stdout, done.stderr
        error = without_first_batches(error)
        assert kvorum("log", "dump", *files, option) == (0, out, error)
        complaints = [line for line in error.splitlines() if "is followed by" not in line]
        if has_gaps:
            complaints = [line for line in complaints if "Non-consecutive offsets" not in line]
        assert complaints == []
        assert "isvalid: false" not in out
        said += out
    code, verdict, _ = kvorum("log", "verify", str(directory))
    assert (code, ": sound;" in verdict) == (0, True)
    return said


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    config = BrokerConfig(log_cleaner_backoff_ms=20, log_index_interval_bytes=300)
    harness = Harness(tmp_path_factory.mktemp("dumped"), count=2, config=config)
    yield harness
    harness.close()


def make(harness: Harness, name: str, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)], named))


def produce(harness: Harness, topic: str, codec: str, *, rounds: int = 6) -> None:
    settings = {"bootstrap.servers": harness.bootstrap, "compression.codec": codec}
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
    for at in range(rounds):
        for key in range(10):
            headers = [("h", b"1"), ("n", None)] if key % 3 else None
            value = None if key == at else b"value-%d " % at * 8
            producer.produce(topic, value, b"key-%d" % key, headers=headers)
        assert producer.flush(DEADLINE_S) == 0


def directory_of(harness: Harness, broker_id: int, topic: str) -> Path:
    return Path(harness.cluster.directory) / f"broker-{broker_id}" / f"{topic}-0"


def restart(harness: Harness, broker_id: int) -> None:
    harness.run(harness.cluster.stop_broker(broker_id))
    harness.run(harness.cluster.start_broker(broker_id, is_clean=True))


def test_kafkas_tool_reads_our_logs_after_rolls_and_a_restart_on_leader_and_follower(
    harness: Harness,
) -> None:
    make(harness, "codecs", segment_bytes="4000")
    make(harness, "stamped", segment_bytes="4000", message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        produce(harness, "codecs", codec)
        produce(harness, "stamped", codec, rounds=2)
    eventually(
        lambda: harness.cluster.replica(2, "codecs").log.end_offset == 60 * len(CODECS),
        "it is replicated",
    )
    for broker_id in (2, 1):
        restart(harness, broker_id)
        for topic, stamp in (("codecs", "CreateTime"), ("stamped", "LogAppendTime")):
            directory = directory_of(harness, broker_id, topic)
            said = agree(directory)
            assert stamp in said
            assert all(f"compresscodec: {codec}" in said for codec in CODECS)
        assert len(list(directory_of(harness, broker_id, "codecs").glob("*.log"))) > 2


def test_kafkas_tool_unpacks_what_our_broker_packed(harness: Harness) -> None:
    for target, level in (
        ("gzip", "9"),
        ("lz4", "17"),
        ("lz4", "1"),
        ("snappy", ""),
        ("zstd", "-5"),
        ("zstd", "22"),
    ):
        topic = f"packed-{target}-{level}"
        levels = {f"compression_{target}_level": level} if level else {}
        make(harness, topic, segment_bytes="4000", compression_type=target, **levels)
        for codec in CODECS:
            produce(harness, topic, codec, rounds=2)
        said = agree(directory_of(harness, 1, topic))
        assert said.count("compresscodec: ") == said.count(f"compresscodec: {target}") > 0
        # Every record is shown, which needs Java to unpack it.
        assert said.count("payload: value-1") == 9 * len(CODECS)


def test_kafkas_tool_reads_what_our_cleaner_left(harness: Harness) -> None:
    make(
        harness,
        "compacted",
        cleanup_policy="compact",
        segment_bytes="3000",
        min_cleanable_dirty_ratio="0.01",
    )
    for codec in CODECS:
        produce(harness, "compacted", codec)

    def is_clean() -> bool:
        log = harness.cluster.replica(1, "compacted").log
        store = harness.cluster.replica(1, "compacted").log_dir.store
        done = store.checkpoints.cleaner_offset("compacted", 0) or 0
        return done >= log.segments.bases[-1] > 0

    eventually(lambda: harness.call(is_clean), "it is compacted")
    restart(harness, 1)
    said = agree(directory_of(harness, 1, "compacted"), has_gaps=True)
    assert "deleteHorizonMs: OptionalLong[" in said


def test_kafkas_tool_reads_our_transactions(harness: Harness) -> None:
    make(harness, "transactional", segment_bytes="500")
    eventually(
        lambda: harness.cluster.replica(1, "transactional").core.is_leader, "there is a leader"
    )
    writer = Writer(harness, "transactional")
    for at in range(8):
        writer.put(b"value", 7, at)
        writer.put(b"other", 8, at)
        writer.end(7, is_commit=at % 2 == 0)
        if at % 3 == 2:
            writer.end(8, is_commit=False)
    # Otherwise the other replica, which leads during the restart, may hold fewer records, and this
    # replica would truncate to its end.
    writer.wait_replicated()
    restart(harness, 1)
    said = agree(directory_of(harness, 1, "transactional"))
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in said
    assert "lastStableOffset: " in said
    assert "currentTxnFirstOffset: OptionalLong[" in said


def test_kafka_delete_records_deletes_records(harness: Harness, tmp_path: Path) -> None:
    make(harness, "deleted")
    produce(harness, "deleted", "none")
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions":[{"topic":"deleted","partition":0,"offset":25}],"version":1}')
    out = tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        *("--bootstrap-server", harness.bootstrap, "--offset-json-file", str(plan)),
    )
    assert "partition: deleted-0\tlow_watermark: 25" in out
    starts = [harness.cluster.replica(b, "deleted").log.start_offset for b in (1, 2)]
    assert starts == [25, 25]
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    (future,) = admin.delete_records([TopicPartition("deleted", 0, 30)]).values()
    assert future.result(DEADLINE_S).low_watermark == 30
