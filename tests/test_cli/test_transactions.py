"""`kvorum transactions` beside librdkafka's producers and kafka-transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from kvorum.client.groups.transactions import OpenTransaction, hanging
from kvorum.storage.format.batch import build_batch
from tests.clients.java_tools import needs_java, tool
from tests.command import kvorum
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually
from tests.test_cli.pipes import piped, printed, sent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more = ["transaction.state.log.num.partitions=5"]
    folder = tmp_path_factory.mktemp("transactions")
    with Cluster(folder, controllers=1, brokers=2, settings=more) as cluster:
        Topics(cluster.bootstrap).create("orders", partitions=2, replicas=2)
        yield cluster


def begun(cluster: Cluster, transactional_id: str, topic: str = "orders") -> Producer:
    """A producer with an open transaction, one record of which is in partition 0."""
    made = Producer(settings(cluster.bootstrap, transactional_id=transactional_id))
    made.init_transactions(DEADLINE_S)
    made.begin_transaction()
    made.produce(topic, transactional_id.encode(), partition=0)
    assert made.flush(DEADLINE_S) == 0
    return made


def state_of(cluster: Cluster, transactional_id: str) -> str:
    (found,) = cluster.cli_json("transactions", "describe", transactional_id)
    state: str = found["state"]
    return state


@pytest.mark.live
def test_transactions_are_listed_and_described(cluster):
    before_ms = time.time_ns() // 1_000_000
    made = begun(cluster, "one")
    (row,) = [r for r in cluster.cli_json("transactions", "list")
              if r["transactional_id"] == "one"]  # fmt: skip
    assert row["state"] == "Ongoing" and row["coordinator"] in (101, 102)
    ongoing = cluster.cli_json("transactions", "list", "--state", "ongoing")
    assert "one" in [r["transactional_id"] for r in ongoing]
    assert cluster.cli_json("transactions", "list", "--running-for", "1h") == []
    found = cluster.cli_json("transactions", "list", "--producer-id", str(row["producer_id"]))
    assert [r["transactional_id"] for r in found] == ["one"]
    (described,) = cluster.cli_json("transactions", "describe", "one")
    assert described["partitions"] == ["orders-0"]
    assert described["producer_id"] == row["producer_id"]
    assert before_ms - 60_000 <= described["start_ms"] <= before_ms + 600_000
    producers = cluster.cli_json("transactions", "producers", "orders", "-p", "0")
    (open_one,) = [p for p in producers if p["start_offset"] is not None]
    assert open_one["producer_id"] == row["producer_id"]
    made.commit_transaction(DEADLINE_S)
    eventually(lambda: state_of(cluster, "one") == "CompleteCommit", "it is committed")
    (described,) = cluster.cli_json("transactions", "describe", "one")
    assert described["partitions"] == []
    shown = cluster.cli("transactions", "describe", "one").stdout.splitlines()
    assert "CompleteCommit" in shown[1] and shown[0].startswith("TRANSACTIONAL_ID")


@pytest.mark.live
def test_an_open_transaction_is_aborted_and_its_producer_fenced(cluster):
    made = begun(cluster, "two")
    assert b"two" not in printed(cluster, "orders")
    aborted = cluster.cli_json("transactions", "abort", "two")
    assert aborted["partitions"] == ["orders-0"] and aborted["aborted"] is True
    assert state_of(cluster, "two") in ("CompleteAbort", "Empty")
    with pytest.raises(KafkaException, match=r"[Ff]enced"):
        made.commit_transaction(DEADLINE_S)
    sent(cluster, "orders", "after", "-p", 0)
    values = printed(cluster, "orders")
    assert b"after" in values and b"two" not in values
    again = cluster.cli("transactions", "abort", "two")
    assert again.returncode == 1
    assert again.stderr.startswith("kvorum: transactional id two has no open transaction: ")


@pytest.mark.live
def test_a_transaction_with_a_coordinator_does_not_hang(cluster):
    made = begun(cluster, "three")
    arguments = ("transactions", "find-hanging", "--max-transaction-timeout", "0s")
    assert cluster.cli_json(*arguments) == []
    assert cluster.cli_json(*arguments, "--topic", "orders", "-p", "0") == []
    made.abort_transaction(DEADLINE_S)


def leave_hanging(cluster: Cluster, topic: str) -> None:
    """An open transaction in partition 0 that no coordinator knows: written into the log of a
    killed broker. A bug or a lost coordinator would leave such a one."""
    Topics(cluster.bootstrap).create(topic, replicas=1)
    sent(cluster, topic, "before")
    name = f"broker-{Topics(cluster.bootstrap).leader(topic)}"
    cluster.kill(name)
    batch = build_batch(
        [(None, b"left open")],
        timestamp_ms=time.time_ns() // 1_000_000,
        base_offset=1,
        producer_id=777_777,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    log = cluster.data_dir / name / f"{topic}-0" / f"{0:020d}.log"
    with open(log, "ab") as file:
        file.write(batch)
    cluster.restart(name)
    eventually(lambda: piped(cluster, "produce", topic, "behind").returncode == 0, "it leads")


@pytest.mark.live
def test_a_hanging_transaction_is_found_and_aborted(cluster):
    leave_hanging(cluster, "stuck")
    # Read-committed consumers stop at the last stable offset, before the transaction.
    assert printed(cluster, "stuck") == [b"before"]
    assert cluster.cli_json("transactions", "find-hanging") == []
    (found,) = cluster.cli_json(
        "transactions", "find-hanging", "--max-transaction-timeout", "0s", "--topic", "stuck"
    )
    assert (found["topic"], found["partition"], found["start_offset"]) == ("stuck", 0, 1)
    assert (found["producer_id"], found["producer_epoch"]) == (777_777, 3)
    place = ("--topic", "stuck", "-p", "0", "--start-offset")
    wrong = cluster.cli("transactions", "abort", *place, "5")
    assert wrong.returncode == 1
    assert "no open transaction begins at offset 5; open ones begin at: 1" in wrong.stderr
    aborted = cluster.cli_json("transactions", "abort", *place, "1")
    assert aborted["producer_id"] == 777_777
    assert set(printed(cluster, "stuck")) == {b"before", b"behind"}
    assert cluster.cli_json("transactions", "find-hanging", "--max-transaction-timeout", "0s") == []


@pytest.mark.live
@pytest.mark.java
@needs_java
def test_kafkas_tool_finds_the_same_hanging_transaction(cluster):
    leave_hanging(cluster, "stuck-too")
    said = tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", cluster.bootstrap,
        "find-hanging", "--topic", "stuck-too", "--max-transaction-timeout", "0",
    )  # fmt: skip
    theirs = said.splitlines()[1].split()
    (ours,) = cluster.cli_json(
        "transactions", "find-hanging", "--max-transaction-timeout", "0s", "--topic", "stuck-too"
    )
    keys = ("topic", "partition", "producer_id", "producer_epoch")
    assert theirs[:4] == [str(ours[key]) for key in keys]
    assert str(ours["start_offset"]) in theirs


_NO_SUCH_ID = (
    "transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND: there is no such id; "
    "kvorum transactions list"
)


@pytest.mark.live
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe", "nobody"], _NO_SUCH_ID),
        (["abort", "nobody"], _NO_SUCH_ID),
        (["producers", "nowhere"], "topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"),
        (["producers", "orders", "-p", "9"], "orders-9: there is no such partition"),
        (["find-hanging", "--topic", "nowhere"], "topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_is_not_there_is_one_sentence(cluster, arguments, words):
    done = cluster.cli("transactions", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kvorum: {words}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe"], "Missing argument"),
        (["describe", ""], "the transactional id is empty"),
        (["abort"], "give TRANSACTIONAL_ID, or --topic"),
        (["abort", "a", "--topic", "t"], "give TRANSACTIONAL_ID, or --topic"),
        (["abort", "--topic", "t"], "go together"),
        (["list", "--running-for", "soon"], "'soon' is no duration"),
        (["list", "--state", "Open"], "'Open' is not one of"),
        (["find-hanging", "-p", "1"], "--partition needs --topic"),
        (["find-hanging", "--max-transaction-timeout", "15"], "'15' is no duration"),
        (["list", "--bootstrap-controller", "h:1"], "controllers know nothing of transactions"),
    ],
)
def test_bad_options_are_refused(arguments, words):
    code, out, err = kvorum("transactions", *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_only_what_no_coordinator_will_end_hangs():
    def found(producer_id: int, epoch: int = 1, partition: int = 0) -> OpenTransaction:
        return OpenTransaction(
            partition=("t", partition), producer_id=producer_id, producer_epoch=epoch,
            coordinator_epoch=-1, start_offset=0, last_ms=0,
        )  # fmt: skip

    def held(producer_id: int, state: str, *partitions: str, epoch: int = 1) -> dict[str, object]:
        return {"producer_id": producer_id, "producer_epoch": epoch, "state": state,
                "partitions": list(partitions)}  # fmt: skip

    known = [
        held(1, "Ongoing", "t-0"),
        held(2, "PrepareAbort", "t-0"),
        held(3, "CompleteCommit"),
        held(4, "Ongoing", "t-1"),
        held(5, "Ongoing", "t-0", epoch=2),
        # The coordinator raised the epoch with its decision; the partition learns of it from the
        # marker.
        held(7, "PrepareCommit", "t-0", epoch=2),
        held(8, "PrepareCommit", "t-0", epoch=0),
    ]
    candidates = [found(number) for number in range(1, 9)]
    assert [row.producer_id for row in hanging(candidates, known)] == [3, 4, 5, 6, 8]
