"""Every command against a running cluster, through a broker and through a controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from kvorum.cli.main import main
from tests.live.cluster import Cluster, run_kvorum

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

TOPIC_KEYS = ["topic", "topic_id", "partitions", "replication_factor"]
PARTITION_KEYS = ["partition", "leader", "leader_epoch", "replicas", "isr", "elr"]
BROKER_KEYS = ["broker_id", "host", "port", "rack", "is_fenced"]
STATUS_KEYS = [
    "cluster_id", "leader_id", "leader_epoch", "high_watermark", "max_follower_lag",
    "max_follower_lag_time_ms", "current_voters", "current_observers",
]  # fmt: skip
IDENTITY_KEYS = ["node_id", "directory_id", "endpoints"]
REPLICA_KEYS = [
    "node_id", "directory_id", "log_end_offset", "last_fetch_timestamp",
    "last_caught_up_timestamp", "clock_ahead_ms", "lag", "status",
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cli"), controllers=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture(params=["broker", "controller", "environment"])
def via(request, cluster, monkeypatch, capsys):
    """Runs a command by one of the ways to name a cluster: (exit code, stdout, stderr)."""
    options = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
        "environment": [],
    }[request.param]
    monkeypatch.delenv("KVORUM_BOOTSTRAP_SERVER", raising=False)
    if not options:
        monkeypatch.setenv("KVORUM_BOOTSTRAP_SERVER", cluster.bootstrap)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvorum", *arguments, *options])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    def bare():
        monkeypatch.setattr(sys, "argv", ["kvorum"])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    run.name, run.options, run.bare = request.param, options, bare
    return run


def json_of(via, *arguments):
    code, out, err = via(*arguments, "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_topic_is_created_listed_described_and_deleted(via):
    name = f"life-{via.name}"
    made = json_of(via, "topics", "create", name, "--partitions", "2", "--replication-factor", "2",
                   "--config", "retention.ms=60000")  # fmt: skip
    assert list(made) == TOPIC_KEYS
    assert (made["topic"], made["partitions"], made["replication_factor"]) == (name, 2, 2)
    assert len(made["topic_id"]) == 22

    listed = [row for row in json_of(via, "topics", "list") if row["topic"] == name]
    assert listed == [made]
    (described,) = json_of(via, "topics", "describe", name)
    assert list(described) == ["topic", "topic_id", "partitions"]
    assert described["topic_id"] == made["topic_id"]
    keys = [*PARTITION_KEYS, "last_known_elr"]
    assert [list(p) for p in described["partitions"]] == [keys] * 2
    for number, partition in enumerate(described["partitions"]):
        assert partition["partition"] == number
        assert set(partition["replicas"]) == set(partition["isr"]) == {101, 102}
        assert partition["leader"] == partition["replicas"][0]

    code, out, _ = via("topics", "describe", name)
    headings, *rows = out.splitlines()
    assert code == 0 and len(rows) == 2
    assert headings.split() == ["TOPIC", *(k.upper() for k in PARTITION_KEYS)]
    code, out, _ = via("topics", "list")
    assert out.splitlines()[0].split() == [k.upper() for k in TOPIC_KEYS]

    gone = json_of(via, "topics", "delete", name)
    assert gone == [{"topic": name, "error": "NONE", "message": ""}]
    assert name not in [row["topic"] for row in json_of(via, "topics", "list")]


def test_replicas_are_placed_by_hand(via):
    name = f"placed-{via.name}"
    made = json_of(via, "topics", "create", name, "--replica-assignment", "102:101,101:102,102:101")
    assert (made["partitions"], made["replication_factor"]) == (3, 2)
    (described,) = json_of(via, "topics", "describe", name)
    replicas = [partition["replicas"] for partition in described["partitions"]]
    assert replicas == [[102, 101], [101, 102], [102, 101]]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--replica-assignment", "102:x"], 2, "must name broker ids"),
        (["--replica-assignment", "102:101,"], 2, "must name broker ids"),
        (["--replica-assignment", "102", "--partitions", "2"], 2, "says both counts"),
        (["--replica-assignment", "102:102"], 1, "INVALID_REPLICA_ASSIGNMENT"),
        (["--replica-assignment", "102:7"], 1, "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(via, arguments, code, words):
    got, out, err = via("topics", "create", f"misplaced-{via.name}", *arguments)
    assert (got, out) == (code, "")
    assert words in err


def test_refusals_exit_with_1_and_name_the_reason(via):
    name = f"refused-{via.name}"
    json_of(via, "topics", "create", name)
    for arguments, words in (
        (["create", name], "TOPIC_ALREADY_EXISTS"),
        (["create", "two words"], "INVALID_TOPIC_EXCEPTION"),
        (["create", "wide", "--replication-factor", "9"], "INVALID_REPLICATION_FACTOR"),
        (["create", "odd", "--config", "no.such=1"], "INVALID_CONFIG"),
        (["describe", "missing"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        code, out, err = via("topics", *arguments)
        assert (code, out) == (1, ""), arguments
        assert words in err and len(err.splitlines()) == 1, err


def test_several_topics_are_created_and_what_is_there_may_stay(via):
    first, second = f"one-{via.name}", f"two-{via.name}"
    assert json_of(via, "topics", "create", first, "--partitions", "3")["partitions"] == 3
    code, out, err = via("topics", "create", first, second)
    assert (code, out) == (1, "") and "TOPIC_ALREADY_EXISTS" in err
    code, out, err = via("topics", "create", first, second, "--if-not-exists", "-o", "json")
    assert code == 0
    assert [(row["topic"], row["partitions"]) for row in json.loads(out)] == [
        (first, 3), (second, 1),
    ]  # fmt: skip
    assert err == f"kvorum: topic {first} is there already, and stays as it is\n"
    # Those that were made before one was refused are told.
    code, out, err = via("topics", "create", f"three-{via.name}", first, "-o", "name")
    assert (code, out) == (1, f"three-{via.name}\n") and "TOPIC_ALREADY_EXISTS" in err
    # Another refusal stays one.
    assert via("topics", "create", "two words", "--if-not-exists")[0] == 1


def test_topics_that_are_gone_already_may_be_deleted(via):
    name = f"gone-{via.name}"
    json_of(via, "topics", "create", name)
    rows = json_of(via, "topics", "delete", name, "missing", "--if-exists")
    assert {row["topic"]: (row["error"], row["message"]) for row in rows} == {
        name: ("NONE", ""), "missing": ("NONE", "there was no such topic"),
    }  # fmt: skip


def test_topics_are_selected_by_pattern_and_printed_by_name(via):
    names = [f"sel-{via.name}-a", f"sel-{via.name}-b"]
    json_of(via, "topics", "create", *names, "--partitions", "2")
    pattern = f"sel-{via.name}-*"
    for command in ("list", "describe"):
        code, out, err = via("topics", command, pattern, "-o", "name")
        assert (code, out.split(), err) == (0, names, "")
        assert via("topics", command, names[1], "-o", "name")[1] == f"{names[1]}\n"
        assert via("topics", command, "no-*", "-o", "name")[:2] == (0, "")
    code, _, err = via("topics", "describe", pattern, "missing")
    assert code == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in err
    for flag in ("--under-replicated", "--unavailable-partitions"):
        assert json_of(via, "topics", "list", pattern, flag) == []


def test_deleting_what_is_not_there_says_so_per_topic_and_exits_with_1(via):
    name = f"half-{via.name}"
    json_of(via, "topics", "create", name)
    code, out, err = via("topics", "delete", name, "missing", "-o", "json")
    assert code == 1
    assert {row["topic"]: row["error"] for row in json.loads(out)} == {
        name: "NONE",
        "missing": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert err == "kvorum: not deleted: missing\n"


def test_brokers_are_listed_and_described(via, cluster):
    rows = json_of(via, "brokers", "list")
    assert [list(row) for row in rows] == [BROKER_KEYS] * 2
    assert [row["broker_id"] for row in rows] == [101, 102]
    assert [row["port"] for row in rows] == [cluster.ports.broker, cluster.ports.broker + 1]
    assert {(row["host"], row["rack"], row["is_fenced"]) for row in rows} == {
        ("127.0.0.1", None, False)
    }
    row = json_of(via, "brokers", "describe", "102")
    assert list(row) == [*BROKER_KEYS, "leaders", "replicas", "out_of_sync"]
    assert row["broker_id"] == 102 and row["out_of_sync"] == 0
    code, out, _ = via("brokers", "list")
    assert code == 0 and out.splitlines()[0].split() == [k.upper() for k in BROKER_KEYS]
    code, out, err = via("brokers", "describe", "7")
    assert (code, out, err) == (1, "", "kvorum: broker 7 is not registered\n")


def test_quorum_status_and_replication(via, cluster):
    status = json_of(via, "quorum", "status")
    assert list(status) == [*STATUS_KEYS, "voters", "observers"]
    assert [list(one) for one in status["voters"]] == [IDENTITY_KEYS]
    endpoint = status["voters"][0]["endpoints"][0]
    assert endpoint.startswith("CONTROLLER://127.0.0.1:")
    assert [one["endpoints"] for one in status["observers"]] == [[], []]
    assert status["cluster_id"] == cluster.document()["cluster_id"]
    assert status["leader_id"] == 1 and status["leader_epoch"] >= 1
    assert status["current_voters"] == [1]
    assert sorted(status["current_observers"]) == [101, 102]
    rows = json_of(via, "quorum", "replication")
    assert [list(row) for row in rows] == [REPLICA_KEYS] * 3
    assert sorted((row["node_id"], row["status"]) for row in rows) == [
        (1, "Leader"), (101, "Observer"), (102, "Observer"),
    ]  # fmt: skip
    code, out, _ = via("quorum", "status")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "".join(word.capitalize() for word in key.split("_")) for key in STATUS_KEYS
    ]
    code, out, _ = via("quorum", "replication")
    assert out.splitlines()[0].split("\t")[0].strip() == "NodeId" and len(out.splitlines()) == 4


def test_timeline_shows_how_the_leader_came_to_be(via):
    rows = json_of(via, "quorum", "timeline")
    assert [list(row) for row in rows] == [["time", "timestamp_ms", "node", "text"]] * len(rows)
    assert {row["node"] for row in rows} == {1}
    assert any(row["text"].endswith("leader=1") for row in rows)
    assert [row["timestamp_ms"] for row in rows] == sorted(row["timestamp_ms"] for row in rows)
    code, out, err = via("quorum", "timeline", "--node", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["TIME", "NODE", "TEXT"]
    assert via("quorum", "timeline", "--node", "101") == (
        1, "", "kvorum: no controller has the id 101; there are 1\n"
    )  # fmt: skip
    assert len(out.splitlines()) == len(rows) + 1


def test_flight_record_is_of_a_controller(via, tmp_path):
    out_file = tmp_path / "flight.jsonl"
    code, out, err = via("raft", "record", "--node", "101", "--out", str(out_file))
    assert (code, out) == (1, "")
    assert err == "kvorum: no controller has the id 101; there are 1\n"
    assert list(tmp_path.iterdir()) == []
    out_file.write_text("an older one")
    out_file.chmod(0o644)
    code, _, err = via("raft", "record", "--node", "1", "--out", str(out_file))
    assert code == 0, err
    assert out_file.stat().st_mode & 0o777 == 0o600, "it holds the records of the metadata"


def test_metadata_is_a_tree(via):
    name = f"tree-{via.name}"
    made = json_of(via, "topics", "create", name, "--config", "min.insync.replicas=2")
    roots = json_of(via, "metadata", "ls")
    assert {"brokers/", "topics/", "configs/"} <= set(roots)
    code, out, _ = via("metadata", "ls", "/topics")
    assert code == 0 and f"{name}/" in out.splitlines()
    code, out, _ = via("metadata", "cat", f"/topics/{name}")
    assert code == 0 and made["topic_id"] in out and json.loads(out)
    code, out, _ = via("metadata", "cat", "/configs")
    assert json.loads(out)["topic"][name] == {"min.insync.replicas": "2"}
    code, out, err = via("metadata", "cat", "/topics/missing")
    assert (code, out) == (1, "")
    assert err == "kvorum: no such path in the metadata: /topics/missing\n"


def test_metadata_is_exported_as_parquet(via, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = json_of(via, "metadata", "export", "--out", str(tmp_path / "out"))
    assert rows
    for row in rows:
        assert list(row) == ["file", "rows"]
        assert parquet.read_metadata(row["file"]).num_rows == row["rows"]


def test_snapshot_is_written_and_read_like_the_cluster(via, tmp_path):
    made = json_of(via, "metadata", "snapshot", "--out", str(tmp_path))
    assert list(made) == ["file", "end_offset", "epoch"]
    done = run_kvorum("metadata", "ls", "/topics", "--snapshot", made["file"], "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json_of(via, "metadata", "ls", "/topics")


def test_completion_offers_the_names_of_the_cluster(via, monkeypatch):
    assert via("topics", "create", "completed", "--partitions", "1")[0] == 0

    def offered(*words):
        # The options stand before the word that is completed.
        line = ["kvorum", words[0], words[1], *via.options, *words[2:]]
        monkeypatch.setenv("_KVORUM_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(line))
        monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
        code, out, err = via.bare()
        assert (code, err) == (0, "")
        return [line.partition(",")[2] for line in out.splitlines()]

    assert offered("topics", "describe", "compl") == ["completed"]
    assert offered("brokers", "describe", "10") == ["101", "102"]
    assert offered("quorum", "timeline", "--node", "1") == ["1"]
    monkeypatch.delenv("_KVORUM_COMPLETE")
    assert via("topics", "delete", "completed")[0] == 0


def test_a_healthy_cluster_passes_every_check(via):
    found = json_of(via, "health")
    assert found["is_healthy"]
    assert [check["check"] for check in found["checks"]] == [
        "leader", "voters", "brokers", "offline partitions", "under min ISR", "under-replicated",
        "log directories",
    ]  # fmt: skip
    code, out, _ = via("health")
    assert code == 0 and out.splitlines()[0].split() == ["CHECK", "STATE", "DETAIL"]


def test_the_level_of_a_nodes_logger_is_changed_until_it_ends(via):
    """Through a controller, that of a controller."""
    logger = ("--entity", "broker-logger", "--name", "1" if via.name == "controller" else "102")

    def level() -> str:
        rows = json_of(via, "configs", "describe", *logger)
        return next(row["value"] for row in rows if row["name"] == "kvorum.rpc")

    code, _, err = via("configs", "alter", *logger, "--set", "kvorum.rpc=DEBUG")
    assert code == 0, err
    assert level() == "DEBUG"
    assert via("configs", "alter", *logger, "--set", "kvorum.rpc=WARN", "--dry-run")[0] == 0
    assert level() == "DEBUG"
    assert via("configs", "alter", *logger, "--delete", "kvorum.rpc")[0] == 0
    assert level() == "INFO"
    code, _, err = via("configs", "alter", *logger, "--set", "kvorum.rpc=LOUD")
    assert code == 1 and "Valid log levels are" in err
    unknown = ("--entity", "broker-logger", "--name", "7")
    code, _, err = via("configs", "describe", *unknown)
    assert code == 1 and " 7" in err
