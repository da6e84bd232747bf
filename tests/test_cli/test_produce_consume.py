"""`kvorum produce` and `consume` beside real clients: what one writes, the others read."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

from tests.clients.groups import Reader, committed_offsets, described, together
from tests.clients.java_tools import console_consumer, needs_java, tool
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, Command, broker_name
from tests.polling import DEADLINE_S, eventually
from tests.test_cli.pipes import piped, printed, read_json, sent, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW_MS = 1_700_000_000_000
KEYS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more = (
        "group.consumer.session.timeout.ms=6000",
        "group.consumer.min.session.timeout.ms=6000",
        "group.consumer.heartbeat.interval.ms=300",
        "group.consumer.min.heartbeat.interval.ms=300",
        "offsets.topic.num.partitions=5",
        "transaction.state.log.num.partitions=5",
        "log.cleaner.backoff.ms=50",
    )
    folder = tmp_path_factory.mktemp("records")
    with Cluster(folder, controllers=1, settings=more) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").rstrip("]")[:100]
    Topics(cluster.bootstrap).create(name, partitions=3, replicas=3)
    return name


def confluent_reads(cluster: Cluster, topic: str, count: int) -> list[Message]:
    """The first `count` records that librdkafka reads, by partition and offset."""
    more = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    reader = Consumer(settings(cluster.bootstrap, group_id="confluent", **more))
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[Message] = []
    try:
        eventually(
            lambda: found.extend(reader.consume(count - len(found), 1)) or len(found) >= count,
            f"{count} records are read",
        )
    finally:
        reader.close()
    assert [message.error() for message in found] == [None] * count
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def confluent_writes(cluster: Cluster, topic: str, rows: list[dict], **more: object) -> None:
    writer = Producer(settings(cluster.bootstrap, **more))
    for row in rows:
        writer.produce(topic, **row)
    assert writer.flush(DEADLINE_S) == 0


# --- one writes, the other reads -------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_reads_what_kvorum_wrote(cluster, topic, codec):
    records = [
        {"key": "k1", "value": "v" * 300, "headers": {"h": "1", "n": None}, "timestamp": NOW_MS},
        {"key": "k1", "value": None},
        {"key_base64": "/w==", "value_base64": "AP8=", "timestamp": NOW_MS - 5},
        {"value": "", "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": "2"}]},
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    rows = sent(
        cluster, topic, "-f", "json", "-z", codec, "-p", 1, "--header", "all=x", stdin=lines
    )
    assert rows == [
        {"topic": topic, "partition": 1, "records": 4, "first_offset": 0, "last_offset": 3}
    ]
    found = confluent_reads(cluster, topic, 4)
    assert [(m.key(), m.value()) for m in found] == [
        (b"k1", b"v" * 300), (b"k1", None), (b"\xff", b"\x00\xff"), (None, b""),
    ]  # fmt: skip
    everywhere = ("all", b"x")
    assert [m.headers() for m in found] == [
        [everywhere, ("h", b"1"), ("n", None)],
        [everywhere],
        [everywhere],
        [everywhere, ("h", b"1"), ("h", b"2")],
    ]
    assert found[0].timestamp() == (TIMESTAMP_CREATE_TIME, NOW_MS)
    assert found[2].timestamp() == (TIMESTAMP_CREATE_TIME, NOW_MS - 5)
    assert found[1].timestamp()[1] > NOW_MS


@pytest.mark.parametrize("codec", CODECS)
def test_kvorum_reads_what_confluent_wrote(cluster, topic, codec):
    rows = [
        {"key": b"k", "value": b"v" * 300, "headers": [("h", b"1"), ("n", None)]},
        {"key": b"k", "value": None},
        {"key": b"\xff", "value": b"\x00\xff"},
    ]
    rows = [{**row, "partition": 2, "timestamp": NOW_MS + at} for at, row in enumerate(rows)]
    confluent_writes(cluster, topic, rows, compression_type=codec)
    base = {"topic": topic, "partition": 2}
    assert read_json(cluster, topic) == [
        {**base, "offset": 0, "timestamp": NOW_MS, "key": "k", "value": "v" * 300,
         "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}]},
        {**base, "offset": 1, "timestamp": NOW_MS + 1, "key": "k", "value": None, "headers": []},
        {**base, "offset": 2, "timestamp": NOW_MS + 2, "key_base64": "/w==",
         "value_base64": "AP8=", "headers": []},
    ]  # fmt: skip


def test_a_key_has_the_partition_that_other_clients_give_it(cluster, topic):
    keys = [b"key-%d" % number for number in range(KEYS)]
    sent(cluster, topic, "-K", ":", stdin=b"".join(b"%s:kvorum\n" % key for key in keys))
    rows = [{"key": key, "value": b"confluent"} for key in keys]
    confluent_writes(cluster, topic, rows, partitioner="murmur2_random")
    found = [line.split() for line in printed(cluster, topic, "-f", r"%k %p\n")]
    partitions = {key: {p for k, p in found if k == key} for key in keys}
    assert len(found) == 2 * KEYS
    assert all(len(where) == 1 for where in partitions.values())
    assert set.union(*partitions.values()) == {b"0", b"1", b"2"}


@pytest.mark.java
@needs_java
def test_kafkas_console_consumer_reads_what_kvorum_wrote(cluster, topic):
    lines = b'{"key":"k","value":"v","headers":{"h":"1"},"timestamp":1700000000000}\n'
    lines += b'{"key":"gone","value":null,"timestamp":1700000000001}\n'
    sent(cluster, topic, "-f", "json", "-p", 0, "-z", "lz4", stdin=lines)
    shown = [f"print.{name}=true" for name in ("key", "timestamp", "headers", "offset")]
    properties = [word for name in shown for word in ("--formatter-property", name)]
    said = console_consumer(
        cluster, "--topic", topic, "--partition", "0", "--from-beginning", "--max-messages", "2",
        *properties,
    )  # fmt: skip
    assert said.splitlines() == [
        f"CreateTime:{NOW_MS}\tOffset:0\th:1\tk\tv",
        f"CreateTime:{NOW_MS + 1}\tOffset:1\tNO_HEADERS\tgone\tnull",
    ]


@pytest.mark.java
@needs_java
def test_kvorum_reads_what_kafkas_console_producer_wrote(cluster, topic):
    arguments = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    properties = ("parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NIL")
    properties = [word for name in properties for word in ("--reader-property", name)]
    stdin = "h:1\tk:v\nh:2\tgone:NIL\n"
    tool(
        "org.apache.kafka.tools.ConsoleProducer", *arguments, *properties,
        "--compression-codec", "zstd", stdin=stdin,
    )  # fmt: skip
    found = sorted(printed(cluster, topic, "-f", r"%h|%k|%v\n", "--null", "<null>"))
    assert found == [b"h=1|k|v", b"h=2|gone|<null>"]


# --- ways to give and to print records -------------------------------------------------------


def test_values_come_from_arguments_files_and_stdin(cluster, topic, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1\n2\n")
    two.write_bytes(b"3\r\n4")
    assert sum(row["records"] for row in sent(cluster, topic, "-p", 0, "a", "b c", "")) == 3
    sent(cluster, topic, "-p", 0, "-Z", "")
    sent(cluster, topic, "-p", 0, "-i", one, "-i", two)
    sent(cluster, topic, "-p", 0, "-i", one, "--whole-file", "-k", "file", "--timestamp", NOW_MS)
    done = piped(cluster, "produce", topic, "-p", 0, stdin=b"x\n\ny")
    assert b"3 records to " + topic.encode() in done.stderr
    values = [b"a", b"b c", b"", None, b"1", b"2", b"3\r", b"4", b"1\n2\n", b"x", b"", b"y"]
    found = confluent_reads(cluster, topic, len(values))
    assert [message.value() for message in found] == values
    assert (found[8].key(), found[8].timestamp()[1]) == (b"file", NOW_MS)
    assert printed(cluster, topic, "-p", 0, "-o", "8:9", "--print-key") == [
        b"file\t1", b"2", b"",
    ]  # fmt: skip


def test_a_bad_line_ends_with_its_number_after_the_lines_before_it(cluster, topic):
    done = piped(cluster, "produce", topic, "-K", ":", stdin=b"a:1\nb:2\nbroken\nc:3\n")
    assert done.returncode == 1
    assert b"kvorum: stdin, line 3: there is no key separator ':'" in done.stderr
    assert sorted(printed(cluster, topic)) == [b"1", b"2"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers(cluster, topic, acks):
    lines = b"".join(b"%d\n" % number for number in range(2000))
    rows = sent(cluster, topic, "--acks", acks, stdin=lines)
    assert sum(row["records"] for row in rows) == 2000
    assert all((row["first_offset"] is None) == (acks == "0") for row in rows)
    count = eventually(
        lambda: len(printed(cluster, topic)) == 2000 and 2000, "all records are there"
    )
    assert count == 2000


def test_a_batch_above_the_topics_limit_is_halved_and_a_record_above_it_is_named(cluster, topic):
    Topics(cluster.bootstrap).create("small", partitions=1, max_message_bytes=1000)
    lines = b"".join(b"%099d\n" % number for number in range(100))
    (row,) = sent(cluster, "small", stdin=lines)
    assert (row["records"], row["last_offset"]) == (100, 99)
    assert printed(cluster, "small") == lines.splitlines()
    done = piped(cluster, "produce", "small", stdin=b"x" * 3000)
    assert done.returncode == 1
    assert b"small-0: MESSAGE_TOO_LARGE: " in done.stderr
    assert b"0 records were acknowledged" in done.stderr


def test_ranges_of_offsets_and_times(cluster, topic):
    lines = "".join(
        f'{{"value": "{n}", "partition": 0, "timestamp": {NOW_MS + 1000 * n}}}\n' for n in range(10)
    )
    sent(cluster, topic, "-f", "json", stdin=lines.encode())
    only = (topic, "-p", 0)
    for offsets, expected in (
        ("start", range(10)),
        ("7", range(7, 10)),
        ("+8", range(8, 10)),
        ("-2", range(8, 10)),
        ("-99", range(10)),
        ("2:5", range(2, 5)),
        (":3", range(3)),
        ("-4:-1", range(6, 9)),
        (f"@{NOW_MS + 6500}", range(7, 10)),
        ("@2023-11-14T22:13:23:@2023-11-14T22:13:25", range(3, 5)),
        ("@2099-01-01", range(0)),
        ("10", range(0)),
    ):
        found = [int(line) for line in printed(cluster, *only, "-o", offsets)]
        assert found == [*expected], offsets
    assert printed(cluster, *only, "-o", 2, "-n", 3) == [b"2", b"3", b"4"]
    done = piped(cluster, "consume", *only, "-o", 11)
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"kvorum: {topic}-0: offset 11 is beyond its end, 10".encode() in done.stderr


def test_deleted_records_are_skipped_with_a_word(cluster, topic):
    sent(cluster, topic, "-p", 0, *range(10))
    done = piped(cluster, "consume", topic, "-o", 2, "-p", 1)
    assert done.returncode == 1 and b"offset 2 is beyond its end, 0" in done.stderr
    trimmed = piped(cluster, "topics", "trim", topic, "-p", 0, "--offset", 6)
    assert trimmed.returncode == 0, trimmed.stderr
    done = piped(cluster, "consume", topic, "-p", 0, "-o", 2)
    assert done.stdout.split() == [b"6", b"7", b"8", b"9"]
    assert b"begins at offset 6; older records were deleted" in done.stderr


def test_aborted_and_open_transactions_are_hidden_and_markers_always(cluster, topic):
    for number, ending in enumerate(("commit", "abort", "open", "commit")):
        writer = Producer(settings(cluster.bootstrap, transactional_id=f"{topic}-{number}"))
        writer.init_transactions(DEADLINE_S)
        writer.begin_transaction()
        for at in range(3):
            writer.produce(topic, f"{ending}-{number}-{at}", partition=at % 2)
        assert writer.flush(DEADLINE_S) == 0
        if ending == "commit" and number == 0:
            writer.commit_transaction(DEADLINE_S)
        elif ending == "abort":
            writer.abort_transaction(DEADLINE_S)
        elif ending == "open":
            left = writer
        else:
            writer.commit_transaction(DEADLINE_S)
    # An open transaction bounds the last stable offset: what follows it is not shown yet.
    assert sorted(printed(cluster, topic)) == [b"commit-0-0", b"commit-0-1", b"commit-0-2"]
    everything = printed(cluster, topic, "--isolation", "read_uncommitted")
    assert len(everything) == 12
    left.abort_transaction(DEADLINE_S)
    expected = [f"commit-{n}-{at}".encode() for n in (0, 3) for at in range(3)]
    eventually(lambda: sorted(printed(cluster, topic)) == expected, "the abort is complete")


def test_a_compacted_topic_is_read_across_its_gaps(cluster):
    Topics(cluster.bootstrap).create(
        "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_ms=100,
        min_compaction_lag_ms=0,
    )  # fmt: skip
    for turn in range(4):
        lines = b"".join(b"k%d:%d-%s\n" % (key, turn, b"x" * 100) for key in range(100))
        sent(cluster, "compacted", "-K", ":", stdin=lines)

    def is_compacted() -> bool:
        # A new record lets the active segment roll.
        sent(cluster, "compacted", "-k", "last", "x")
        return len(printed(cluster, "compacted")) < 400

    eventually(is_compacted, "the cleaner has run")
    found = dict(line.split() for line in printed(cluster, "compacted", "-f", r"%k %v\n"))
    assert len(found) == 101
    assert all(value.startswith(b"3-") for key, value in found.items() if key != b"last")


# --- following, ends, failures ---------------------------------------------------------------


def test_following_shows_new_records_and_ends_with_a_count(cluster, topic, tmp_path):
    sent(cluster, topic, "before")
    arguments = ("consume", topic, "-F", "-b", cluster.bootstrap)
    follower = Command(*arguments, error_file=tmp_path / "errors")
    try:
        follower.wait_line("before")
        sent(cluster, topic, "after")
        follower.wait_line("after")
        follower.send(signal.SIGINT)
        assert follower.wait() == 130
    finally:
        follower.close()
    assert follower.errors().split("\n")[0] == "2 records"


def test_a_line_of_a_slow_pipe_is_sent_at_once(cluster, topic):
    with started(cluster, "produce", topic) as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            eventually(lambda n=number: len(printed(cluster, topic)) == n + 1, "it has arrived")
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_producer_with_the_count_of_stored_records(cluster, topic, number):
    with started(cluster, "produce", topic) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        eventually(lambda: len(printed(cluster, topic)) == 2, "both are stored")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 130
        said = process.stderr.read().decode()
    assert said.startswith(f"2 records to {topic} in ")
    assert "not acknowledged" not in said


def test_a_closed_pipe_ends_quietly(cluster, topic):
    # Far more than a pipe holds.
    sent(cluster, topic, "-p", 0, stdin=b"x" * 100 + b"\n" + (b"y" * 1000 + b"\n") * 8_000)
    with started(cluster, "consume", topic) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(DEADLINE_S)
    assert errors == b""


@pytest.mark.parametrize("command", [("produce", "nowhere", "v"), ("consume", "nowhere")])
def test_a_topic_that_is_not_there_is_named_with_the_way_to_make_it(cluster, command):
    done = piped(cluster, *command)
    assert done.returncode == 1
    assert b"topic nowhere: UNKNOWN_TOPIC_OR_PARTITION" in done.stderr
    assert b"kvorum topics create nowhere" in done.stderr


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_a_name_that_no_topic_can_have_is_explained_as_at_its_creation(cluster, name):
    done, creation = (
        piped(cluster, name, "two words"),
        piped(cluster, "topics", "create", "two words"),
    )
    assert done.returncode == 1
    assert b"INVALID_TOPIC_EXCEPTION: topic name 'two words' has characters" in done.stderr
    assert done.stderr == creation.stderr


@pytest.mark.parametrize("command", [("produce", "v"), ("consume",)])
def test_a_partition_that_is_not_there_is_named(cluster, topic, command):
    name, *values = command
    done = piped(cluster, name, topic, *values, "-p", 3)
    assert done.returncode == 1
    assert f"{topic}-3: there is no such partition; {topic} has 3".encode() in done.stderr


def test_no_record_is_lost_or_doubled_when_leaders_die(cluster, topic):
    total, victim = 60_000, Topics(cluster.bootstrap).leader(topic)
    try:
        with started(cluster, "produce", topic, "-o", "json") as process:
            assert process.stdin is not None and process.stdout is not None
            for number in range(total):
                process.stdin.write(b"%d\n" % number)
                if number == total // 3:
                    process.stdin.flush()
                    eventually(lambda: printed(cluster, topic, "-n", 1), "records arrive")
                    cluster.kill(broker_name(victim))
            process.stdin.close()
            assert process.wait(2 * DEADLINE_S) == 0
            rows = json.loads(process.stdout.read())
    finally:
        cluster.restart(broker_name(victim))
    assert sum(row["records"] for row in rows) == total
    found = [int(value) for value in printed(cluster, topic)]
    assert sorted(found) == list(range(total))


def test_a_follower_of_a_topic_survives_the_death_of_its_leader(cluster, topic, tmp_path):
    sent(cluster, topic, "-p", 0, "before")
    victim = Topics(cluster.bootstrap).leader(topic)
    arguments = ("consume", topic, "-F", "-b", cluster.bootstrap)
    follower = Command(*arguments, error_file=tmp_path / "errors")
    try:
        follower.wait_line("before")
        cluster.kill(broker_name(victim))
        sent(cluster, topic, "-p", 0, "after")
        follower.wait_line("after")
    finally:
        follower.close()
        cluster.restart(broker_name(victim))
    assert follower.lines == ["before", "after"]


def test_undelivered_records_are_named_when_their_time_is_over(cluster):
    Topics(cluster.bootstrap).create("lonely", replicas=1)
    victim = broker_name(Topics(cluster.bootstrap).leader("lonely"))
    cluster.kill(victim)
    try:
        done = piped(cluster, "produce", "lonely", "v", "--delivery-timeout", 1)
    finally:
        cluster.restart(victim)
    assert done.returncode == 1
    assert b"lonely-0: not acknowledged within 1 s: the partition has no leader" in done.stderr
    assert b"0 records were acknowledged" in done.stderr


# --- groups ----------------------------------------------------------------------------------


def test_a_group_goes_on_where_its_last_member_ended(cluster, topic):
    group = f"g-{topic}"
    sent(cluster, topic, "-p", 0, *range(10))
    assert printed(cluster, topic, "-g", group, "-n", 4) == [b"0", b"1", b"2", b"3"]
    assert committed_offsets(cluster.bootstrap, group, topic, 3)[0] == 4
    assert printed(cluster, topic, "-g", group) == [b"%d" % n for n in range(4, 10)]
    assert printed(cluster, topic, "-g", group) == []
    assert described(cluster, group)["state"] == "Empty"


def test_a_group_whose_next_record_was_deleted_goes_on_behind_it_with_a_word(cluster, topic):
    group = f"g-{topic}"
    sent(cluster, topic, "-p", 0, *range(10))
    assert printed(cluster, topic, "-g", group, "-n", 2) == [b"0", b"1"]
    trimmed = piped(cluster, "topics", "trim", topic, "-p", 0, "--offset", 6)
    assert trimmed.returncode == 0, trimmed.stderr
    done = piped(cluster, "consume", topic, "-g", group)
    assert done.stdout.split() == [b"6", b"7", b"8", b"9"], done.stderr
    assert b"the records up to offset 6 were deleted; going on there" in done.stderr
    assert committed_offsets(cluster.bootstrap, group, topic, 3)[0] == 10


def test_a_group_is_shared_with_confluents_consumer(cluster, topic, tmp_path):
    group = f"g-{topic}"
    arguments = ("consume", topic, "-F", "-g", group, "-f", r"%p\n", "-b", cluster.bootstrap)
    member = Command(*arguments, error_file=tmp_path / "errors")
    other = None
    try:
        eventually(lambda: sizes(cluster, group) == [3], "the first member has all")
        more = {"group_protocol": "consumer", "session_timeout_ms": None}
        other = Reader(cluster.bootstrap, group, topic, heartbeat_interval_ms=None, **more)
        together([other], lambda: other.owned and sizes(cluster, group) == [1, 2], "both")
        theirs = set(other.owned)
        for partition in range(3):
            sent(cluster, topic, "-p", partition, "v")
        together([other], lambda: {p for p, _ in other.seen} == theirs, "it reads its own")
        for partition in {0, 1, 2} - theirs:
            member.wait_line(f"{partition}")
        assert {int(line) for line in member.lines} == {0, 1, 2} - theirs
        other.commit()
        other.close()
        other = None
        eventually(lambda: sizes(cluster, group) == [3], "the first member has all again")
        member.send(signal.SIGINT)
        assert member.wait() == 130
    finally:
        member.close()
        if other is not None:
            other.close()
    assert committed_offsets(cluster.bootstrap, group, topic, 3) == [1, 1, 1]
    assert described(cluster, group)["state"] == "Empty"


def test_a_member_that_printed_nothing_leaves_its_positions_to_the_next(cluster, topic, tmp_path):
    group = f"g-{topic}"
    arguments = ("consume", topic, "-F", "-o", "end", "-g", group, "-b", cluster.bootstrap)
    first, second = (
        Command(*arguments, error_file=tmp_path / f"errors-{n}") for n in range(2)
    )  # fmt: skip
    try:
        eventually(lambda: sizes(cluster, group) == [1, 2], "both have partitions")
        # It must find the partitions of the first only after the records are written.
        second.send(signal.SIGSTOP)
        first.send(signal.SIGINT)
        assert first.wait() == 130
        lines = "".join(f'{{"value": "in-{p}", "partition": {p}}}\n' for p in range(3))
        sent(cluster, topic, "-f", "json", stdin=lines.encode())
        second.send(signal.SIGCONT)
        for partition in range(3):
            second.wait_line(f"in-{partition}")
        eventually(
            lambda: committed_offsets(cluster.bootstrap, group, topic, 3) == [1, 1, 1],
            "what was printed is committed",
        )
    finally:
        first.close()
        second.send(signal.SIGCONT)
        second.close()


def sizes(cluster: Cluster, group: str) -> list[int] | None:
    found = described(cluster, group)
    if found is None or found["state"] != "Stable":
        return None
    return sorted(len(member["partitions"]) for member in found["members"])


def test_a_member_that_is_told_to_stop_leaves_its_group(cluster, topic, tmp_path):
    group = f"g-{topic}"
    sent(cluster, topic, "-p", 0, "a", "b")
    arguments = ("consume", topic, "-F", "-g", group, "-b", cluster.bootstrap)
    member = Command(*arguments, error_file=tmp_path / "errors")
    try:
        member.wait_line("b")
        eventually(
            lambda: committed_offsets(cluster.bootstrap, group, topic, 3)[0] == 2,
            "what was printed is committed",
        )
        member.send(signal.SIGTERM)
        assert member.wait() == 130, member.errors()
    finally:
        member.close()
    # Without a LeaveGroup it would stay a member until its session ends.
    assert described(cluster, group)["state"] == "Empty"
    assert member.errors().split("\n")[0] == "2 records"


def test_a_member_without_a_partition_says_so(cluster, topic, tmp_path):
    group = f"g-{topic}"
    readers = [
        Command("consume", topic, "-F", "-g", group, "-b", cluster.bootstrap,
                error_file=tmp_path / f"errors-{n}")
        for n in range(3)
    ]  # fmt: skip
    try:
        eventually(lambda: sizes(cluster, group) == [1, 1, 1], "each has one")
        done = piped(cluster, "consume", topic, "-g", group, "--timeout", 1)
        assert (done.returncode, done.stdout) == (0, b"")
        assert b"has no partition left for this member" in done.stderr
    finally:
        for reader in readers:
            reader.close()
