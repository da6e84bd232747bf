"""This build reads the data folders that older builds wrote, and goes on with them.

The folders are made by `tests/golden/make_data_folder.py`; docs/upgrading.md lists them.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.golden.make_data_folder import write_files
from tests.live.clients import settings
from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FOLDERS = sorted(GOLDEN.glob("data-*.tar.xz"))


class Started:
    """A controller and a broker of this build on the data of an archive."""

    def __init__(self, archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as packed:
            # Python before 3.11.4 has no filters, and later ones want to be told.
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            packed.extractall(folder, **safe)
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        self.ports = Ports()
        write_files(folder, self.ports)
        self.bootstrap = f"127.0.0.1:{self.ports.broker}"
        self.nodes = [
            Command(
                name.partition("-")[0],
                "--config",
                str(folder / f"{name}.toml"),
                error_file=folder / f"{name}.err",
            )
            for name in ("controller-1", "broker-101")
        ]

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.close()
        self.ports.close()

    def cli(self, *arguments: str) -> str:
        done = run_kvorum(*arguments, "-b", self.bootstrap)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, topic: str, partition: int, count: int) -> list[tuple[Any, Any]]:
        """(key, value) of the first `count` committed records."""
        consumer = Consumer(
            settings(self.bootstrap, group_id="check", isolation_level="read_committed")
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[Any, Any]] = []
        try:
            while len(found) < count:
                batch = consumer.consume(count - len(found), DEADLINE_S)
                assert batch, f"{topic}-{partition}: {len(found)} of {count} records"
                assert all(message.error() is None for message in batch)
                found += [(_text(message.key()), _text(message.value())) for message in batch]
        finally:
            consumer.close()
        return found


def _text(data: bytes | str | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda path: path.name.partition(".")[0])
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    started = Started(request.param, tmp_path_factory.mktemp("old"))
    try:
        eventually(
            lambda: run_kvorum("health", "-b", started.bootstrap).returncode == 0,
            "the cluster of the old data is healthy",
        )
        yield started
    finally:
        started.close()


def test_there_is_a_folder_of_an_older_build() -> None:
    assert FOLDERS


def test_records_of_every_codec_are_there(started: Started) -> None:
    for partition, values in enumerate(started.expected["orders"]):
        found = started.read("orders", partition, len(values))
        assert [value for _, value in found] == values


def test_committed_transactions_are_seen_and_aborted_ones_are_not(started: Started) -> None:
    values = started.expected["copies"]
    assert [value for _, value in started.read("copies", 0, len(values))] == values


def test_a_compacted_topic_has_the_newest_record_of_each_key(started: Started) -> None:
    assert dict(started.read("prices", 0, 30)) == started.expected["prices"]


def test_groups_and_configs_are_kept(started: Started) -> None:
    rows = json.loads(started.cli("groups", "describe", "readers", "-o", "json"))
    assert f'"committed_offset": {started.expected["committed"]}' in json.dumps(rows)
    configs = started.cli("configs", "describe", "--entity", "topic", "--name", "orders")
    assert ["topic=orders", "retention.ms", started.expected["retention.ms"]] == (
        configs.splitlines()[1].split()[:3]
    )


def test_new_records_follow_the_old_ones(started: Started) -> None:
    producer = Producer(settings(started.bootstrap, transactional_id="copier", acks="all"))
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("copies", b"new")
    producer.commit_transaction(DEADLINE_S)
    values = [*started.expected["copies"], "new"]
    assert [value for _, value in started.read("copies", 0, len(values))] == values
