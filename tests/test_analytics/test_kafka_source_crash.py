"""kill -9 of a streaming query in the middle of a batch: its files have every record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from kvorum import Cluster
from tests.polling import eventually
from tests.test_analytics.killed_query import OFFSETS_PER_BATCH
from tests.test_analytics.sessions import JOB_DEADLINE_S
from tests.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

PARTITIONS = 2
RECORDS = 4 * OFFSETS_PER_BATCH


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(
        controllers=1, brokers=1, proxies=False, metrics=False,
        directory=tmp_path_factory.mktemp("cluster"),
    ) as cluster:  # fmt: skip
        yield cluster


def start_query(folder: Path, cluster: Cluster) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.test_analytics.killed_query", str(folder)]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            [*command, cluster.bootstrap_servers], cwd=ROOT, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def kill_group(query: subprocess.Popen) -> None:
    """SIGKILL to the driver, its JVM and its Python workers at once."""
    os.killpg(query.pid, signal.SIGKILL)
    query.wait(30)


def newest_batch(folder: Path) -> int:
    """The newest batch in a log of the checkpoint; -1: none."""
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def produce(cluster: Cluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        producer.produce("orders", str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def test_a_killed_query_reads_its_batch_again_and_files_have_each_record_once(cluster, tmp_path):
    cluster.create_topic("orders", partitions=PARTITIONS)
    produce(cluster, RECORDS)
    # A record of the third batch: batch 0 is empty, batch 1 and batch 2 have the ones before it.
    stop_at = str(OFFSETS_PER_BATCH + 50)
    (tmp_path / "stop-at").write_text(stop_at)
    query = start_query(tmp_path, cluster)
    try:
        eventually(
            lambda: (tmp_path / "reached").exists() or query.poll() is not None,
            "a task is in the middle of a batch",
            deadline_s=JOB_DEADLINE_S,
        )
        assert query.poll() is None, (tmp_path / "log").read_text()[-4000:]
    finally:
        kill_group(query)
    checkpoint = tmp_path / "checkpoint"
    began, ended = newest_batch(checkpoint / "offsets"), newest_batch(checkpoint / "commits")
    assert (began, ended) == (2, 1), "the query was killed inside its batch 2"
    (tmp_path / "stop-at").unlink()
    restarted = start_query(tmp_path, cluster)
    try:
        assert restarted.wait(200) == 0, (tmp_path / "log").read_text()[-4000:]
    finally:
        if restarted.poll() is None:
            kill_group(restarted)
    assert written(tmp_path / "out") == [
        (number % PARTITIONS, number // PARTITIONS, str(number).encode())
        for number in range(RECORDS)
    ]


def written(folder: Path) -> list[tuple[int, int, bytes]]:
    """The rows of the files that the sink's own log names: a killed task may leave others."""
    names = {
        line.partition('"path":"file://')[2].partition('"')[0]
        for log in (folder / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()
        if '"path"' in line
    }
    rows = [
        (row["partition"], row["offset"], row["value"])
        for name in sorted(names)
        for row in pq.ParquetFile(name).read().to_pylist()
    ]
    return sorted(rows, key=lambda row: int(row[2]))
