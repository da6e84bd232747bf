"""The live job on real topics: windows, late events, and each event once over kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from kvorum import Cluster
from kvorum.analytics import events
from kvorum.analytics.event_tables import ForeignOutput, OutputFailed
from tests.polling import eventually
from tests.test_analytics.sessions import JOB_DEADLINE_S, spark_session
from tests.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

#: The first millisecond of a window of ten seconds.
T0 = 1_700_000_000_000
S = 1_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(
        controllers=1, brokers=1, proxies=False, metrics=False,
        settings={"metadata.events.topic.enable": "true"},
        directory=tmp_path_factory.mktemp("cluster"),
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session(tmp_path_factory.mktemp("spark")) as spark:
        yield spark


class Job:
    """The job's options and tables in a folder, and a topic of hand-made events."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str = "") -> None:
        self.cluster = cluster
        self.folder = folder
        self.output = folder / "out"
        self.topic = topic or cluster.create_topic(f"made-{folder.name}")
        self._offset = 0

    def arguments(self, *more: str) -> list[str]:
        return [
            "--bootstrap", self.cluster.bootstrap_servers, "--output", str(self.output),
            "--checkpoint", str(self.folder / "checkpoint"), "--topic", self.topic, *more,
        ]  # fmt: skip

    def once(self, session: Any, *more: str) -> None:
        """Follow the topic to its present end."""
        options = events.parser().parse_args(self.arguments("--once", *more))
        events.run(session, options, threading.Event(), lambda _: None)

    def tell(self, *rows: tuple[str, int]) -> None:
        """Events of these kinds at these times (ms)."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for kind, at_ms in rows:
            value = {
                "version": 1, "offset": self._offset, "epoch": 1, "timestamp_ms": at_ms,
                "kind": kind, "topic": "orders", "partition": 0, "leader": 101, "isr": [101, 102],
            }  # fmt: skip
            self._offset += 1
            text = json.dumps(value).encode()
            producer.produce(self.topic, text, key=b"partition/orders/0", timestamp=at_ms)
        assert producer.flush(30) == 0

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, with those of unfinished writes left out as any reader does."""
        files = sorted((self.output / table).glob("day=*/batch=*/*.parquet"))
        return [
            row | {"day": file.parent.parent.name[4:], "batch": int(file.parent.name[6:])}
            for file in files
            for row in pq.ParquetFile(file).read().to_pylist()
        ]

    def counts(self, table: str) -> dict[tuple[int, str], int]:
        """The number of events by window start (s after T0) and kind."""
        found: Counter[tuple[int, str]] = Counter()
        for row in self.rows(table):
            start_s = round(row["window_start"].timestamp()) - T0 // S
            found[start_s, row["kind"]] += row["events"]
        return dict(found)

    def offsets(self) -> list[int]:
        return sorted(row["offset"] for row in self.rows("events"))


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> Job:
    return Job(cluster, tmp_path)


def test_late_events_correct_their_window_until_it_is_closed(job: Job, session: Any) -> None:
    job.tell(("a", T0), ("a", T0 + 9_999), ("b", T0 + 10 * S), ("a", T0 + 71 * S))
    producer = Producer({"bootstrap.servers": job.cluster.bootstrap_servers})
    producer.produce(job.topic, None, key=b"topic/orders", timestamp=T0)
    assert producer.flush(30) == 0
    job.once(session)
    assert job.counts("churn") == {(0, "a"): 2, (10, "b"): 1, (70, "a"): 1}
    assert job.counts("late") == {}
    # The watermark is 71 s - 1 min: the first window has ended before it, the second has not.
    job.tell(("a", T0 + 5 * S), ("a", T0 + 9_999), ("b", T0 + 19_999), ("c", T0 + 200 * S))
    job.tell(("c", T0 + 20 * S))  # the same batch: its watermark is that of the batch before
    job.once(session)
    counted = {(0, "a"): 2, (10, "b"): 2, (70, "a"): 1, (200, "c"): 1, (20, "c"): 1}
    assert job.counts("churn") == counted
    assert job.counts("late") == {(0, "a"): 2}
    assert {row["watermark"].timestamp() for row in job.rows("late")} == {(T0 + 11 * S) / S}
    job.tell(("c", T0 + 139_999), ("c", T0 + 140 * S))
    job.once(session)
    assert job.counts("churn") == counted | {(140, "c"): 1}
    assert job.counts("late") == {(0, "a"): 2, (130, "c"): 1}
    assert job.offsets() == list(range(11))
    first = min(job.rows("events"), key=lambda row: row["offset"])
    assert (first["kind"], first["topic"], first["isr"]) == ("a", "orders", [101, 102])
    assert (first["key"], first["day"]) == ("partition/orders/0", "2023-11-14")
    assert json.loads(first["value_json"])["timestamp_ms"] == T0


def test_days_are_those_of_utc_whatever_the_session_says(job: Job, session: Any) -> None:
    """spark-submit may have given the session another time zone. In Tokyo, T0 is a day later."""
    key = "spark.sql.session.timeZone"
    before = session.conf.get(key)
    session.conf.set(key, "Asia/Tokyo")
    try:
        job.tell(("a", T0))
        job.once(session)
    finally:
        session.conf.set(key, before)
    assert {row["day"] for table in ("events", "churn") for row in job.rows(table)} == {
        "2023-11-14"
    }


def test_the_cluster_tells_of_itself(cluster: Cluster, session: Any, tmp_path: Path) -> None:
    cluster.create_topic("told", partitions=2)
    job = Job(cluster, tmp_path, events.TOPIC)
    job.once(session)
    offsets = job.offsets()
    assert len(set(offsets)) == len(offsets) > 0
    told = [row["kind"] for row in job.rows("events") if row["topic"] == "told"]
    assert sorted(told) == ["partition_created", "partition_created", "topic_created"]


def test_another_output_topic_or_window_is_refused_in_a_sentence(
    job: Job, session: Any, tmp_path: Path
) -> None:
    job.tell(("a", T0))
    job.once(session)
    with pytest.raises(ForeignOutput, match="was begun with --window 10000ms, not 5000ms; give"):
        job.once(session, "--window", "5s")
    with pytest.raises(ForeignOutput, match="--watermark 60000ms, not 1000ms"):
        job.once(session, "--watermark", "1s")
    with pytest.raises(ForeignOutput, match="another checkpoint; give the checkpoint that"):
        job.once(session, "--checkpoint", str(tmp_path / "other"))
    with pytest.raises(
        ForeignOutput, match="has a table churn and no progress of this job; choose"
    ):
        (tmp_path / "strange" / "churn").mkdir(parents=True)
        job.once(session, "--output", str(tmp_path / "strange"))
    missing = Job(job.cluster, tmp_path / "missing", "nowhere")
    with pytest.raises(StreamingQueryException) as error:
        missing.once(session)
    assert events.sentence(error.value) == (
        f"topic nowhere does not exist in the cluster at {job.cluster.bootstrap_servers}; create "
        "it, or correct the option that names it"
    )
    assert not missing.output.exists()


def test_an_output_that_cannot_be_written_is_refused_before_anything_starts(
    job: Job, session: Any
) -> None:
    (job.folder / "file").write_text("")
    for option in ("--output", "--checkpoint"):
        with pytest.raises(OutputFailed, match=r"file/x cannot be written: .+; choose another"):
            job.once(session, option, str(job.folder / "file" / "x"))
    assert sorted(path.name for path in job.folder.iterdir()) == ["file"]


@pytest.mark.parametrize("table", ["events", "churn"])
def test_a_table_that_cannot_be_written_ends_the_job_in_a_sentence(
    job: Job, session: Any, table: str
) -> None:
    job.tell(("a", T0))
    job.once(session)
    shutil.rmtree(job.output / table)
    (job.output / table).write_text("")
    job.tell(("a", T0))
    with pytest.raises(StreamingQueryException) as error:
        job.once(session)
    assert re.match(rf"file:.*/out cannot be written: .*{table}", events.sentence(error.value))
    assert events.exit_code(error.value) == events.EXIT_FAILED


@pytest.mark.parametrize("content", [b"", b"5", b"{}", b'{"id": 7}', b"\xff"])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(
    job: Job, session: Any, content: bytes
) -> None:
    (job.folder / "checkpoint").mkdir()
    (job.folder / "checkpoint" / "metadata").write_bytes(content)
    with pytest.raises(ForeignOutput, match=r"checkpoint/metadata is damaged: .+; start a new"):
        job.once(session)


def test_a_checkpoint_that_fails_its_checksum_is_refused_in_a_sentence(
    job: Job, session: Any
) -> None:
    job.tell(("a", T0))
    job.once(session)
    metadata = job.folder / "checkpoint" / "metadata"
    metadata.write_text(metadata.read_text().replace("id", "di"))
    with pytest.raises(ForeignOutput, match=r"metadata is damaged: .*Checksum"):
        job.once(session)


def test_a_progress_that_was_lost_is_a_refusal_also_within_a_batch(job: Job, session: Any) -> None:
    job.tell(("a", T0))
    job.once(session)
    newest = max((job.output / "progress").iterdir())
    (job.output / "progress" / "0.json").write_bytes(newest.read_bytes())
    newest.unlink()
    job.tell(("a", T0))
    with pytest.raises(StreamingQueryException) as error:
        job.once(session)
    assert "lacks the progress of batch 1; restore" in events.sentence(error.value)
    assert events.exit_code(error.value) == events.EXIT_USAGE


def start(job: Job, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.test_analytics.killed_events", str(job.folder)]
    with open(job.folder / "log", "ab") as log:
        return subprocess.Popen(
            [*command, *job.arguments(*more)], cwd=ROOT, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver, its JVM and its Python workers at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def test_a_killed_job_adds_its_batch_once(job: Job, session: Any) -> None:
    job.tell(*(("a", T0 + at * S) for at in range(40)), ("b", T0 + 200 * S))
    job.tell(("a", T0), ("b", T0 + 199 * S))
    log = job.folder / "log"
    (job.folder / "stop-at").write_text("2")
    # Batch 0 is empty; batch 2 has a late event.
    killed = start(job, "--offsets-per-trigger", "41", "--once")
    try:
        eventually(
            lambda: (job.folder / "reached").exists() or killed.poll() is not None,
            "batch 2 is half written",
            deadline_s=JOB_DEADLINE_S,
        )
        assert killed.poll() is None, log.read_text()[-4000:]
    finally:
        kill_group(killed)
    assert job.offsets() == list(range(43))
    assert job.counts("late") == {}
    job.once(session, "--offsets-per-trigger", "41")
    assert job.offsets() == list(range(43))
    starts = {(start, "a"): 10 for start in (0, 10, 20, 30)}
    assert job.counts("churn") == {**starts, (200, "b"): 1, (190, "b"): 1}
    assert job.counts("late") == {(0, "a"): 1}
    assert {row["batch"] for row in job.rows("late")} == {2}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_job_that_follows_and_another_goes_on(
    job: Job, session: Any, number: signal.Signals
) -> None:
    log = job.folder / "log"
    follower = start(job, "--trigger", "1s")
    try:
        eventually(
            lambda: b"following" in log.read_bytes() or follower.poll() is not None,
            "the job follows",
            deadline_s=JOB_DEADLINE_S,
        )
        assert follower.poll() is None, log.read_text()[-4000:]
        # SIGINT as a terminal sends it: to the JVM and the workers of Python, too.
        (os.killpg if number == signal.SIGINT else os.kill)(follower.pid, number)
        assert follower.wait(60) == 0, log.read_text()[-4000:]
    finally:
        kill_group(follower)
    said = log.read_text()
    assert "stopped; a restart with this checkpoint goes on here" in said
    # PySpark's own server of accumulators may print one while the JVM ends.
    tracebacks = said.split("Traceback (most recent call last)")[1:]
    assert [each for each in tracebacks if "socketserver.py" not in each] == []
    job.tell(("a", T0))
    job.once(session)
    assert job.offsets() == [0]
