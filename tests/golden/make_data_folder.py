"""Makes a data folder with an older build of Kvorum, for the test that this build reads it.

    git archive COMMIT | tar x -C TREE
    python -m tests.golden.make_data_folder TREE data-DAY.tar.xz

One controller and one broker of that build write topics, a group's offsets, transactions, configs
and quotas, and shut down. `expected.json` in the archive has what must be read back.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kvorum.runtime.config import dump_properties
from tests.live.clients import settings
from tests.live.cluster import Ports
from tests.polling import eventually

CLUSTER_ID = "b2xkLWRhdGEtZm9sZGVyLQ"
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "log.segment.bytes": 1 << 20,
    # The folder is read years later, and must not expire meanwhile.
    "offsets.retention.minutes": (1 << 31) - 1,
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_files(folder: Path, ports: Ports) -> None:
    """The files of both nodes; also those of the test that starts this build on the data."""
    voters = f"1@127.0.0.1:{ports.controller}"
    common = {"cluster.id": CLUSTER_ID, "controller.quorum.voters": voters}
    nodes = {
        "controller-1": {"node.id": 1, "listeners": f"CONTROLLER://127.0.0.1:{ports.controller}"},
        "broker-101": {
            "node.id": 101,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports.broker}",
            **SETTINGS,
        },
    }
    for name, own in nodes.items():
        properties = {**common, **own, "log.dirs": str(folder / "data" / name)}
        (folder / f"{name}.toml").write_text(dump_properties(properties), encoding="utf-8")


def _write_records(bootstrap: str) -> dict[str, object]:
    admin = AdminClient(settings(bootstrap))
    topics = [
        NewTopic("orders", 2, 1),
        NewTopic("copies", 1, 1, config={"retention.ms": "-1"}),
        NewTopic("prices", 1, 1, config={"cleanup.policy": "compact"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    orders: list[list[str]] = [[], []]
    for codec in CODECS:
        producer = Producer(settings(bootstrap, acks="all", compression_type=codec, linger_ms=50))
        for at in range(20):
            value = f"{codec}-{at}"
            producer.produce(
                "orders", value, key=f"k{at}", partition=at % 2, headers=[("codec", codec)]
            )
            orders[at % 2].append(value)
        assert producer.flush(30) == 0
    prices = Producer(settings(bootstrap, acks="all"))
    for at in range(30):
        prices.produce("prices", None if at == 29 else str(at), key=f"k{at % 3}")
    assert prices.flush(30) == 0
    transactional = Producer(settings(bootstrap, transactional_id="copier"))
    transactional.init_transactions(30)
    for is_kept in (True, False, True):
        transactional.begin_transaction()
        transactional.produce("copies", b"kept" if is_kept else b"aborted")
        transactional.flush(30)
        if is_kept:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
    consumer = Consumer(settings(bootstrap, group_id="readers", auto_offset_reset="earliest"))
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    consumer.close()
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    return {
        "orders": orders,
        "copies": ["kept", "kept"],
        "prices": {"k0": "27", "k1": "28", "k2": None},
        "committed": 7,
        "retention.ms": "-1",
    }


def main(tree: str, target: str) -> None:
    """Make `target` with the build in `tree`."""
    environment = {**os.environ, "PYTHONPATH": tree}
    environment = {k: v for k, v in environment.items() if not k.startswith("KVORUM_")}
    ports = Ports()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, ports)
        running = []
        for node in ("controller-1", "broker-101"):
            command = [sys.executable, "-m", "kvorum", node.partition("-")[0]]
            command += ["--config", str(folder / f"{node}.toml")]
            log = open(folder / f"{node}.log", "wb")  # noqa: SIM115
            running.append(
                subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log)
            )
        try:
            bootstrap = f"127.0.0.1:{ports.broker}"
            admin = AdminClient(settings(bootstrap))
            eventually(lambda: _answers(admin), "the broker answers")
            expected = _write_records(bootstrap)
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            ports.close()
            print((folder / "broker-101.log").read_text()[-2000:], file=sys.stderr)
        with tarfile.open(target, "w:xz") as archive:
            archive.add(folder / "data", "data")
            text = json.dumps(expected, indent=1).encode()
            entry = tarfile.TarInfo("expected.json")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=2).brokers)
    except Exception:  # noqa: BLE001 - any failure means not yet
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
