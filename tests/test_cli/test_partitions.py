"""`kvorum partitions`: its input files, and each action through a broker and through a
controller."""

from __future__ import annotations

import json
import random
import sys

import pytest

from kvorum.cli import partitions
from kvorum.cli.main import main
from kvorum.cli.reassignment_file import (
    BadFile,
    generate,
    read_assignment,
    read_log_dirs,
    read_topics,
    usable_brokers,
    write_assignment,
)
from kvorum.client.failures import CommandFailed
from kvorum.metadata.controller.decide.placement import UsableBroker
from tests.command import kvorum
from tests.live.cluster import Cluster
from tests.polling import eventually

# The files.


def test_what_is_written_is_read_back():
    assignment = {("a", 0): (1, 2), ("a", 1): (2, 3), ("b", 0): (3,)}
    assert read_assignment(write_assignment(assignment)) == assignment


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "too many levels"),
        ("[]", '"partitions"'),
        ({"partitions": []}, "not empty"),
        ({"version": 2, "partitions": [{}]}, "version 2"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "replicas"),
        ({"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}, "NUMBER"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [True]}]}, "BROKER ID"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}, "t-0"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, "repeat"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "twice"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["data"]}]},
            'log_dirs of t-0: "data" is neither',
        ),
        (
            {
                "partitions": [
                    {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/data"]}
                ]
            },
            "as many as its replicas",
        ),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_the_reason(document, words):
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(CommandFailed, match=words):
        read_assignment(text)


def test_the_directories_of_a_file_are_read_and_written_by_replica():
    assignment = {("t", 0): (1, 2), ("t", 1): (2,)}
    log_dirs = {("t", 0, 2): "/disk2", ("t", 1, 2): "/disk1"}
    text = write_assignment(assignment, log_dirs)
    assert '"log_dirs":["any","/disk2"]' in text
    assert read_assignment(text) == assignment
    assert read_log_dirs(text) == log_dirs
    assert read_log_dirs(write_assignment(assignment)) == {}


def test_the_answer_of_generate_is_a_plan():
    plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}]}
    assert read_assignment(json.dumps({"current": {}, "proposed": plan})) == {("t", 0): (2, 1)}
    with pytest.raises(BadFile, match="--generate with --out FILE writes such a file"):
        read_assignment(json.dumps({"proposed": {}}))


def test_a_file_that_will_not_do_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(partitions, "_open", lambda options: (None, None))
    file = tmp_path / "m.json"
    file.write_text("{}")
    code, _, err = kvorum("partitions", "reassign", file, "--verify")
    assert code == 1
    assert err.startswith(f'kvorum: {file}: the file needs a list "partitions" that is not empty;')


def test_racks_of_some_brokers_only_are_refused_or_given_up():
    known = {i: {"rack": "a" if i < 3 else None, "is_fenced": i == 2} for i in (1, 2, 3)}
    with pytest.raises(CommandFailed, match=r"\[3\] of --broker-list have no rack"):
        usable_brokers([1, 2, 3], known, with_racks=True)
    assert usable_brokers([1, 2], known, with_racks=True) == [
        UsableBroker(1, "a", True), UsableBroker(2, "a", False),
    ]  # fmt: skip
    without = usable_brokers([1, 3], known, with_racks=False)
    assert [broker.rack for broker in without] == [None, None]
    with pytest.raises(CommandFailed, match=r"\[4\] of --broker-list are not registered"):
        usable_brokers([1, 4], known, with_racks=True)


@pytest.mark.parametrize(
    ("rows", "words"),
    [([], "empty"), (["t"], "NAME"), ([{"topic": ""}], "NAME"), ([{"topic": "t"}] * 2, "twice")],
)
def test_a_list_of_topics_that_will_not_do_is_refused(rows, words):
    with pytest.raises(CommandFailed, match=words):
        read_topics(json.dumps({"topics": rows}))


def test_a_proposal_keeps_each_topics_factor_and_uses_the_brokers_named():
    current = {("a", p): (1, 2) for p in range(6)} | {("b", 0): (1, 2, 3)}
    brokers = [UsableBroker(i, None, True) for i in (4, 5, 6)]
    proposed = generate(current, brokers, random.Random(1))
    assert {key: len(r) for key, r in proposed.items()} == {k: len(r) for k, r in current.items()}
    assert {r for replicas in proposed.values() for r in replicas} == {4, 5, 6}
    with pytest.raises(CommandFailed, match="replication factor 3"):
        generate(current, brokers[:2], random.Random(1))


# The command.

live = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("partitions"), controllers=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture(params=["broker", "controller"])
def via(request, cluster, monkeypatch, capsys):
    """Runs a command: (exit code, stdout, stderr)."""
    options = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
    }[request.param]

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvorum", *map(str, arguments), *options])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    run.name = request.param
    return run


def json_of(via, *arguments):
    code, out, err = via(*arguments, "-o", "json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


class TestLive:
    pytestmark = live

    def test_partitions_are_added_and_elected(self, via):
        name = f"life-{via.name}"
        json_of(via, "topics", "create", name, "--partitions", 1, "--replication-factor", 2)
        added = ["partitions", "add", name, "--partitions", 3]
        assert json_of(via, *added, "--validate-only")["validate_only"] is True
        assert json_of(via, *added, "--assignment", "102:101,101:102")["partitions"] == 3
        (found,) = json_of(via, "topics", "describe", name)
        assert [p["replicas"] for p in found["partitions"][1:]] == [[102, 101], [101, 102]]

        for target in (name, f"{name}:0"):
            rows = json_of(via, "partitions", "elect", target)
            assert {row["error"] for row in rows} == {"ELECTION_NOT_NEEDED"}
        assert json_of(via, "partitions", "elect", "--all") == []
        code, out, err = via("partitions", "elect", f"{name}:9")
        assert code == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in out
        assert f"{name}-9" in err

    def test_a_move_is_generated_executed_verified_and_not_cancelled_any_more(self, via, tmp_path):
        name = f"moved-{via.name}"
        json_of(via, "topics", "create", name, "--partitions", 2, "--replication-factor", 1)
        topics_file, plan = tmp_path / "topics.json", tmp_path / "plan.json"
        topics_file.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
        generate_words = ["partitions", "reassign", "--generate", topics_file]
        generated = json_of(via, *generate_words, "--broker-list", "102")
        assert [p["replicas"] for p in generated["proposed"]["partitions"]] == [[102], [102]]
        code, out, _ = via(*generate_words, "--broker-list", "101,102", "--out", plan)
        assert code == 0
        assert out.rstrip().endswith(plan.read_text().rstrip())
        assert set(read_assignment(plan.read_text())) == {(name, 0), (name, 1)}
        assert "Current partition replica assignment" in out
        assert "Proposed partition reassignment configuration" in out

        plan.write_text(json.dumps(generated))
        begun = json_of(via, "partitions", "reassign", "--execute", plan)
        assert {row["error"] for row in begun["partitions"]} == {"NONE"}
        assert begun["before"] == generated["current"]
        eventually(
            lambda: (
                {r["state"] for r in json_of(via, "partitions", "reassign", "--verify", plan)}
                == {"complete"}
            ),
            "the move is complete",
        )
        assert json_of(via, "partitions", "reassign", "--list") == []
        generated["proposed"]["partitions"][0]["log_dirs"] = ["/nowhere"]
        plan.write_text(json.dumps(generated))
        code, _, err = via("partitions", "reassign", "--execute", plan)
        assert code == 1
        asked = "no online data directory /nowhere" if via.name == "broker" else "give -b BROKER"
        assert asked in err
        plan.write_text(json.dumps({**generated, "proposed": generated["current"]}))
        code, out, err = via("partitions", "reassign", "--cancel", plan, "-o", "json")
        assert (code, json.loads(out)) == (0, [])
        assert "nothing is cancelled" in err

    def test_a_cluster_is_healthy_while_a_partition_moves(self, via, cluster, tmp_path):
        name = f"moving-{via.name}"
        json_of(via, "topics", "create", name, "--replica-assignment", "101")
        value, plan = tmp_path / "value", tmp_path / "plan.json"
        value.write_bytes(bytes(900_000))
        # More than one answer to a fetch: the throttle lets one pass at once.
        for _ in range(3):
            words = ("produce", name, "-i", value, "--whole-file", "-b", cluster.bootstrap)
            assert kvorum(*words)[0] == 0
        rows = [{"topic": name, "partition": 0, "replicas": [102]}]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        assert via("partitions", "reassign", "--execute", plan, "--throttle", 1)[0] == 0
        (ongoing,) = json_of(via, "partitions", "reassign", "--list")
        assert ongoing["adding_replicas"] == [102]
        assert json_of(via, "health")["is_healthy"]
        assert via("partitions", "reassign", "--cancel", plan)[0] == 0

    def test_refusals_name_the_reason(self, via, tmp_path):
        name = f"refused-{via.name}"
        json_of(via, "topics", "create", name, "--partitions", 2)
        plan = tmp_path / "plan.json"
        rows = [{"topic": name, "partition": p, "replicas": [999 - p]} for p in (0, 1)]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        for arguments, words in (
            (["add", name, "--partitions", 2], "INVALID_PARTITIONS"),
            (["add", "nobody", "--partitions", 2], "UNKNOWN_TOPIC_OR_PARTITION"),
            (["add", name, "--partitions", 3, "--assignment", "9"], "INVALID_REPLICA_ASSIGNMENT"),
            (["reassign", "--execute", plan], "brokers [998, 999] of FILE are not registered"),
            (["reassign", "--verify", plan], f"{name}-0, {name}-1"),
            (["elect", "nobody"], "UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            code, _, err = via("partitions", *arguments)
            assert code == 1, arguments
            assert words in err, err


@pytest.mark.parametrize(
    "arguments",
    [
        ["reassign"],
        ["reassign", "--execute"],
        ["reassign", "--list", "-"],
        ["reassign", "--generate", "-"],
        ["reassign", "--execute", "-", "--broker-list", "1"],
        ["reassign", "--generate", "-", "--broker-list", "one"],
        ["reassign", "--generate", "-", "--broker-list", "1,1"],
        ["reassign", "--execute", "-", "--out", "plan.json"],
        ["reassign", "--verify", "--execute", "-"],
        ["reassign", "--execute", "--verify", "-"],
        ["elect"],
        ["elect", "--all", "t"],
        ["add", "t"],
        ["add", "t", "--partitions", "0"],
        ["add", "t", "--partitions", "2", "--assignment", "one:two"],
    ],
)
def test_wrong_usage_exits_with_2(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kvorum", "partitions", *arguments, "-b", "127.0.0.1:1"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err
