"""kafka-log-dirs, unchanged, against a broker with two data directories, one of which fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.java_tools import needs_java, tool
from tests.live.by_hand import HandMade
from tests.live.clients import Load, Topics
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.java, needs_java]


def described(made: HandMade) -> dict[str, tuple[str | None, set[str]]]:
    """By directory: the error that the tool shows, and the partitions."""
    said = tool(
        "org.apache.kafka.tools.LogDirsCommand",
        "--describe",
        "--bootstrap-server",
        made.bootstrap,
        "--broker-list",
        "101",
    )
    answer = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    (broker,) = answer["brokers"]
    return {
        row["logDir"]: (row["error"], {p["partition"] for p in row["partitions"]})
        for row in broker["logDirs"]
    }


def test_kafka_log_dirs_shows_each_directory_and_the_failed_one(tmp_path: Path) -> None:
    made = HandMade(
        tmp_path,
        controllers=1,
        brokers=1,
        settings=("replica.high.watermark.checkpoint.interval.ms=200",),
    )
    try:
        first = made.data("broker-101")
        second = first.with_name("second")
        made.change("broker-101", log_dirs=f"{first},{second}")
        made.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("brokers", "list", "-b", made.bootstrap).returncode == 0, "it serves"
        )
        Topics(made.bootstrap).create("t", 2, 1)
        load = Load(made.bootstrap, "t", 2)
        load.wait_more()
        load.finish()
        assert described(made) == {
            str(first): (None, {"t-0"}),
            str(second): (None, {"t-1"}),
        }
        second.rename(second.with_name("aside"))
        second.write_text("no directory\n")
        eventually(lambda: described(made)[str(second)][0] is not None, "it is shown as failed")
        found = described(made)
        assert found[str(first)] == (None, {"t-0"})
        assert "KafkaStorageException" in str(found[str(second)][0])
        assert found[str(second)][1] == set()
    finally:
        made.close()
