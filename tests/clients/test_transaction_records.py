"""Apache Kafka's own kafka-dump-log reads what a coordinator has written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvorum.broker.transactions.core.model import EPOCH_EXHAUSTED
from kvorum.broker.transactions.core.requests import ProducerIdentity
from kvorum.storage.format.batch import build_batch, stamp
from tests.clients.java_tools import needs_java, tool
from tests.command import kvorum
from tests.test_transactions.calls import A, B, add, end, finish, init, with_epoch
from tests.test_transactions.host import Host

pytestmark = [pytest.mark.java, needs_java]


def dumped(host: Host, folder: Path) -> list[dict]:
    """Each value in the coordinator's log, as the tool prints it."""
    directory = folder / "__transaction_state-0"
    directory.mkdir()
    out = bytearray()
    for offset, record in enumerate(host.log):
        batch = build_batch([record], timestamp_ms=1000)
        stamp(batch, 0, base_offset=offset, leader_epoch=0)
        out += batch
    segment = directory / f"{0:020d}.log"
    segment.write_bytes(out)
    decoder = ("--files", str(segment), "--transaction-log-decoder")
    said = tool("org.apache.kafka.tools.DumpLogSegments", *decoder)
    ours = kvorum("log", "dump", str(segment), "--transaction-log-decoder")
    assert ours[:2] == (0, said)
    assert '"transactionalId":"x"' in said
    return [json.loads(text) for text in re.findall(r"payload: (\{.*\})", said)]


def test_kafkas_tool_reads_every_state(tmp_path: Path) -> None:
    host = Host()
    who = host.call(init())
    host.call(add(who, A, B))
    host.call(end(who))
    finish(host)
    rows = dumped(host, tmp_path)
    assert [row["version"] for row in rows] == ["1"] * 4
    assert [row["data"]["transactionStatus"] for row in rows] == [
        "Empty", "Ongoing", "PrepareCommit", "CompleteCommit",
    ]  # fmt: skip
    assert [row["data"]["producerEpoch"] for row in rows] == [0, 0, 1, 1]
    assert rows[1]["data"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 1]}]
    assert rows[2]["data"]["clientTransactionVersion"] == 2
    assert {row["data"]["previousProducerId"] for row in rows} == {who.producer_id}


def test_kafkas_tool_reads_the_change_of_producer_ids(tmp_path: Path) -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    host.call(add(ProducerIdentity(7, EPOCH_EXHAUSTED), A))
    host.call(end(ProducerIdentity(7, EPOCH_EXHAUSTED)))
    finish(host)
    prepared, complete = (row["data"] for row in dumped(host, tmp_path)[-2:])
    assert (prepared["producerId"], prepared["nextProducerId"]) == (7, 1000)
    assert (complete["producerId"], complete["previousProducerId"]) == (1000, 7)


def test_kafkas_tool_reads_tombstones(tmp_path: Path) -> None:
    host = Host()
    host.call(init())
    host.advance(9 * 24 * 3_600_000)
    assert host.state("x") is None
    assert len(dumped(host, tmp_path)) == 1


def test_kafkas_tool_reads_the_first_version(tmp_path: Path) -> None:
    host = Host(level=0)
    who = host.call(init())
    host.call(add(who, A, version=0))
    rows = dumped(host, tmp_path)
    assert [row["version"] for row in rows] == ["0", "0"]
