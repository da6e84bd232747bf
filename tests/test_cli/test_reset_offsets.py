"""`kvorum groups reset-offsets` and `delete-offsets`, beside kafka-consumer-groups' own answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kvorum.cli.offset_plan import BadPlan, Scope, parse_scope, plan_text, read_plan, shifted
from kvorum.client.cluster.offsets import Bounds
from tests.clients.groups import QUICK_GROUPS, Reader, committed_offsets, consumer, together
from tests.clients.java_tools import groups, needs_java, rows
from tests.command import kvorum
from tests.live.clients import Topics
from tests.live.cluster import Cluster
from tests.test_cli.pipes import piped, sent

TOPIC = "orders"
START_MS = 1_700_000_000_000
RECORDS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more = (*QUICK_GROUPS, "offsets.topic.num.partitions=5")
    folder = tmp_path_factory.mktemp("reset")
    with Cluster(folder, controllers=1, brokers=2, settings=more) as cluster:
        Topics(cluster.bootstrap).create(TOPIC, partitions=3, replicas=2)
        for partition in range(2):
            lines = "".join(
                f'{{"value": "{n}", "timestamp": {START_MS + 1000 * n}}}\n' for n in range(RECORDS)
            )
            sent(cluster, TOPIC, "-f", "json", "-p", partition, stdin=lines.encode())
        yield cluster


def fill_group(cluster: Cluster, group: str, offsets: dict[int, int]) -> None:
    """A group without members that has committed these offsets."""
    from confluent_kafka import TopicPartition

    client = consumer(cluster.bootstrap, group)
    try:
        rows = [TopicPartition(TOPIC, p, offset) for p, offset in offsets.items()]
        client.commit(offsets=rows, asynchronous=False)
    finally:
        client.close()


def reset(cluster: Cluster, group: str, *arguments: object) -> list[dict[str, Any]]:
    done = piped(cluster, "groups", "reset-offsets", group, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def planned(rows: list[dict[str, Any]]) -> dict[int, int]:
    return {row["partition"]: row["new_offset"] for row in rows}


WAYS = [
    (["--to-earliest"], {0: 2, 1: 0, 2: 0}),
    (["--to-latest"], {0: 10, 1: 10, 2: 0}),
    (["--to-offset", "7"], {0: 7, 1: 7, 2: 0}),
    (["--to-offset", "1"], {0: 2, 1: 1, 2: 0}),
    (["--to-datetime", "2023-11-14T22:13:26.000"], {0: 6, 1: 6, 2: 0}),
    (["--to-datetime", "2099-01-01T00:00:00.000"], {0: 10, 1: 10, 2: 0}),
    (["--by-duration", "P1D"], {0: 10, 1: 10, 2: 0}),
]
#: A time before 1970, which Kafka's tool refuses.
LONG_AGO = (["--by-duration", "P99999D"], {0: 2, 1: 0, 2: 0})


@pytest.fixture(scope="module")
def trimmed(cluster: Cluster) -> Cluster:
    """Partition 0 begins at offset 2."""
    done = piped(cluster, "topics", "trim", TOPIC, "-p", 0, "--offset", 2)
    assert done.returncode == 0, done.stderr
    return cluster


@pytest.mark.live
@pytest.mark.parametrize(("way", "expected"), [*WAYS, LONG_AGO])
def test_the_plan_of_each_way(trimmed, way, expected):
    assert planned(reset(trimmed, "plans", "--topic", TOPIC, *way)) == expected
    assert planned(reset(trimmed, "plans", "--topic", f"{TOPIC}:1", *way)) == {1: expected[1]}
    # Nothing was executed.
    assert committed_offsets(trimmed.bootstrap, "plans", TOPIC, 3) == [-1001] * 3


@pytest.mark.live
@pytest.mark.java
@needs_java
@pytest.mark.parametrize("way", [way for way, _ in WAYS] + [["--shift-by", "-4"]])
def test_kafkas_tool_has_the_same_plan(trimmed, way):
    fill_group(trimmed, "same", {0: 5, 1: 2, 2: 0})
    said = groups(trimmed, "--reset-offsets", "--group", "same", "--topic", TOPIC, *way)
    theirs = {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(said)}
    assert planned(reset(trimmed, "same", "--topic", TOPIC, *way)) == theirs
    assert sorted(theirs) == [0, 1, 2]


@pytest.mark.live
def test_a_plan_is_executed_and_a_member_goes_on_from_it(trimmed):
    fill_group(trimmed, "worker", {0: 10, 1: 10})
    done = reset(trimmed, "worker", "--all-topics", "--shift-by", -3, "--execute")
    assert [(row["committed_offset"], row["new_offset"], row["error"]) for row in done] == [
        (10, 7, "NONE")
    ] * 2
    assert committed_offsets(trimmed.bootstrap, "worker", TOPIC, 3) == [7, 7, -1001]
    reader = Reader(trimmed.bootstrap, "worker", TOPIC)
    together([reader], lambda: len(reader.seen) >= 6, "the rest is read")
    reader.close()
    assert sorted(reader.seen) == [(p, offset) for p in range(2) for offset in (7, 8, 9)]


@pytest.mark.live
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_refused_and_its_offsets_stay(trimmed, protocol):
    group = f"busy-{protocol}"
    more = {}
    if protocol == "consumer":
        more = {
            "group_protocol": "consumer", "session_timeout_ms": None, "heartbeat_interval_ms": None,
        }  # fmt: skip
    reader = Reader(trimmed.bootstrap, group, TOPIC, **more)
    together([reader], lambda: len(reader.seen) >= 18, "all records are read")
    reader.commit()
    arguments = ("groups", "reset-offsets", group, "--all-topics", "--to-earliest")
    for more_arguments in ((), ("--execute",)):
        done = piped(trimmed, *arguments, *more_arguments)
        assert done.returncode == 1
        assert f"group {group} has members (1, state Stable): stop them".encode() in done.stderr
    deleted = piped(trimmed, "groups", "delete-offsets", group, "--topic", TOPIC)
    (said,) = deleted.stderr.decode().splitlines()
    assert deleted.returncode == 1 and said.startswith(
        f"kvorum: not deleted: {TOPIC}-0, {TOPIC}-1 (GROUP_SUBSCRIBED_TO_TOPIC: members"
    )
    assert f"stop them first, kvorum groups describe {group} --members" in said
    elsewhere = piped(trimmed, "groups", "delete-offsets", group, "--topic", "elsewhere")
    assert f"group {group} has no committed offset of elsewhere".encode() in elsewhere.stderr
    assert committed_offsets(trimmed.bootstrap, group, TOPIC, 3)[:2] == [10, 10]
    reader.close()
    reset(trimmed, group, "--topic", TOPIC, "--to-offset", 4, "--execute")
    assert committed_offsets(trimmed.bootstrap, group, TOPIC, 3) == [4, 4, 0]


@pytest.mark.live
@pytest.mark.java
@needs_java
def test_offsets_are_exported_and_read_back_by_both_tools(trimmed, tmp_path):
    fill_group(trimmed, "kept", {0: 3, 1: 9})
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    arguments = ("groups", "reset-offsets", "kept", "--all-topics", "--to-current", "--export")
    ours.write_bytes(piped(trimmed, *arguments).stdout)
    assert ours.read_text() == f"{TOPIC},0,3\n{TOPIC},1,9\n"
    of_group = ("--reset-offsets", "--group", "kept")
    theirs.write_text(groups(trimmed, *of_group, "--all-topics", "--to-current", "--export"))
    reset(trimmed, "kept", "--topic", TOPIC, "--to-latest", "--execute")
    assert planned(reset(trimmed, "kept", "--from-file", theirs, "--execute")) == {0: 3, 1: 9}
    reset(trimmed, "kept", "--topic", TOPIC, "--to-latest", "--execute")
    groups(trimmed, *of_group, "--from-file", str(ours), "--execute")
    assert committed_offsets(trimmed.bootstrap, "kept", TOPIC, 3) == [3, 9, 0]


@pytest.mark.live
def test_offsets_are_deleted(trimmed):
    fill_group(trimmed, "old", {0: 3, 1: 4, 2: 0})
    done = piped(
        trimmed, "groups", "delete-offsets", "old", "--topic", f"{TOPIC}:0,2", "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    assert [(row["partition"], row["committed_offset"], row["error"])
            for row in json.loads(done.stdout)] == [(0, 3, "NONE"), (2, 0, "NONE")]  # fmt: skip
    assert committed_offsets(trimmed.bootstrap, "old", TOPIC, 3) == [-1001, 4, -1001]


@pytest.mark.live
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reset-offsets", "g", "--topic", "nowhere", "--to-latest"], "topic nowhere: UNKNOWN"),
        (["reset-offsets", "g", "--topic", f"{TOPIC}:7", "--to-latest"], "orders-7: there is no"),
        (["reset-offsets", "g", "--topic", TOPIC, "--shift-by", "1"], "no committed offset to"),
        (["reset-offsets", "g", "--topic", TOPIC, "--to-current"], "has no committed offset"),
        (["reset-offsets", "g", "--all-topics", "--to-latest"], "name topics with --topic"),
        (["delete-offsets", "g", "--topic", TOPIC], "GROUP_ID_NOT_FOUND: there is no such group"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(trimmed, arguments, words):
    done = piped(trimmed, "groups", *arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"kvorum: ") and done.stderr.count(b"\n") == 1
    assert words.encode() in done.stderr


@pytest.mark.live
def test_a_file_of_offsets_that_is_no_text_is_one_sentence(trimmed, tmp_path):
    (tmp_path / "plan").write_bytes(b"\xff\xfe")
    done = piped(trimmed, "groups", "reset-offsets", "g", "--from-file", str(tmp_path / "plan"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == f"kvorum: {tmp_path}/plan is not UTF-8, see byte 0\n".encode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "t"], "give one of --to-earliest"),
        (["--topic", "t", "--to-earliest", "--to-latest"], "give one of --to-earliest"),
        (["--to-earliest"], "give --topic or --all-topics"),
        (["--topic", "t", "--all-topics", "--to-earliest"], "give --topic or --all-topics"),
        (["--topic", "t", "--from-file", __file__], "names the partitions itself"),
        (["--topic", "t:x", "--to-latest"], "'t:x' is not TOPIC or TOPIC:0,2"),
        (["--topic", "t", "--to-datetime", "soon"], "'soon' is no time"),
        (["--topic", "t", "--by-duration", "soon"], "'soon' is no duration"),
        (["--topic", "t", "--to-offset", "-1"], "-1 is not in the range"),
        (["--topic", "t", "--to-latest", "--execute", "--export"], "give --execute or --export"),
        (["--topic", "t", "--to-latest", "--bootstrap-controller", "h:1"], "controllers know"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(arguments, words):
    code, out, err = kvorum("groups", "reset-offsets", "g", *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_scopes_and_files_are_read():
    assert parse_scope("t") == Scope(topic="t")
    assert parse_scope("t:0,2,0") == Scope(topic="t", numbers=(0, 2))
    text = "a,0,5\n\nother,a,1,6\ng,b,2,7\n"
    assert read_plan(text, "g", "f") == {("a", 0): 5, ("b", 2): 7}
    assert read_plan(plan_text({("a", 1): 5}), "g", "f") == {("a", 1): 5}
    for text in ("", "a,0", "a,x,1", "a,0,-1", "a,-1,1", "g,a,0,1,2", "other,a,0,1"):
        with pytest.raises(BadPlan, match=r"line 1|no offset of group g"):
            read_plan(text, "g", "f")
    with pytest.raises(BadPlan, match=r"^bad\.csv, line 1: 'a,x,1' is not topic,partition,offset$"):
        read_plan("a,x,1", "g", "bad.csv")
    for text in (":1", "t:", "t:-1", "t:1,,2"):
        with pytest.raises(BadPlan):
            parse_scope(text)


def test_a_shift_stays_within_the_log():
    bounds = {("t", 0): Bounds(start=3, end=9), ("t", 1): Bounds(start=0, end=9)}
    committed = {("t", 0): 5, ("t", 1): 5}
    assert shifted(committed, committed, bounds, -4) == {("t", 0): 3, ("t", 1): 1}
    assert shifted(committed, committed, bounds, 100) == {("t", 0): 9, ("t", 1): 9}


@pytest.mark.parametrize("way", [["--to-offset", "0"], ["--shift-by", "0"]])
def test_a_zero_is_a_number_like_any_other(way):
    code, _, err = kvorum("groups", "reset-offsets", "g", "--topic", "t", *way, "-b", "127.0.0.1:1")
    assert (code, "no broker reachable" in err) == (3, True), err
