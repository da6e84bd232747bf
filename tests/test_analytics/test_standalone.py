"""The job on a standalone cluster of one master and two workers, as spark-submit runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from tests.polling import eventually
from tests.test_analytics.lakes import make_lake
from tests.test_analytics.sessions import JOB_DEADLINE_S

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(pyspark.__file__).parent / "bin"
_LOCAL = "127.0.0.1"


@contextlib.contextmanager
def daemon(log: Path, *command: str) -> Iterator[None]:
    environment = os.environ | {
        "SPARK_LOCAL_IP": _LOCAL,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), *command], stdout=output, stderr=output, env=environment
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture
def master(tmp_path) -> Iterator[str]:
    """The URL of a master with two workers."""
    deploy = "org.apache.spark.deploy"
    log = tmp_path / "master.log"
    with contextlib.ExitStack() as stack:
        options = ("--host", _LOCAL, "--port", "0", "--webui-port", "0")
        stack.enter_context(daemon(log, f"{deploy}.master.Master", *options))

        def url() -> str | None:
            found = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())
            return found[0] if found else None

        address = str(eventually(url, "the master listens", deadline_s=JOB_DEADLINE_S))
        for number in (1, 2):
            worker = ("--cores", "1", "--memory", "512m", "--webui-port", "0", "--host", _LOCAL)
            worker += ("--work-dir", str(tmp_path / f"work-{number}"), address)
            stack.enter_context(
                daemon(tmp_path / f"worker-{number}.log", f"{deploy}.worker.Worker", *worker)
            )
        eventually(
            lambda: log.read_text().count("Registering worker") == 2,
            "both workers joined",
            deadline_s=JOB_DEADLINE_S,
        )
        yield address


def shipped(tmp_path: Path) -> tuple[Path, Path]:
    """The package as a file for --py-files, and the job's own file outside of it."""
    package = tmp_path / "kvorum.zip"
    with zipfile.ZipFile(package, "w") as archive:
        archive.write(ROOT / "kvorum" / "__init__.py", "kvorum/__init__.py")
        for path in (ROOT / "kvorum" / "analytics").rglob("*.py"):
            archive.write(
                path, f"kvorum/analytics/{path.relative_to(ROOT / 'kvorum' / 'analytics')}"
            )
    job = tmp_path / "job.py"
    job.write_bytes((ROOT / "kvorum" / "analytics" / "job.py").read_bytes())
    return package, job


def test_the_job_runs_on_two_workers_as_spark_submit_sets_it_up(tmp_path, master):
    make_lake(tmp_path / "lake", {"a": {"started_wall_ms": 1}, "b": {"started_wall_ms": 2}})
    package, job = shipped(tmp_path)
    command = [str(BIN / "spark-submit"), "--master", master, "--py-files", str(package)]
    command += ["--conf", "spark.sql.shuffle.partitions=7", "--conf", "spark.executor.memory=512m"]
    for side in ("driver", "executor"):
        command += ["--conf", f"spark.{side}.extraJavaOptions=-XX:TieredStopAtLevel=1"]
    command += ["--conf", f"spark.eventLog.dir={tmp_path}", "--conf", "spark.eventLog.enabled=true"]
    command += ["--conf", "spark.eventLog.compress=false", str(job), "--master", "submit"]
    command += ["--lake", f"file://{tmp_path / 'lake'}", "--output", f"file://{tmp_path / 'out'}"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _LOCAL}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["runs"] == ["a", "b"] and summary["tables"]["recoveries"] > 0
    written = pq.read_table(tmp_path / "out" / "tables" / "recoveries.parquet")
    assert written.num_rows == summary["tables"]["recoveries"]
    hosts, settings = seen_in(tmp_path)
    assert len(hosts) == 2, "both workers have run tasks"
    assert settings["spark.sql.shuffle.partitions"] == "7", "what spark-submit says is kept"


def seen_in(folder: Path) -> tuple[set[str], dict[str, str]]:
    """The executors that ran tasks, and Spark's settings, from the event log."""
    executors: set[str] = set()
    settings: dict[str, str] = {}
    for path in folder.glob("**/*app-*"):
        if not path.is_file() or "appstatus" in path.name or path.suffix == ".crc":
            continue
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                executors.add(event["Task Info"]["Executor ID"])
            elif event["Event"] == "SparkListenerEnvironmentUpdate":
                settings |= dict(event["Spark Properties"])
    return executors, settings
