"""The console beside a cluster of six nodes: what it reads, what it does, what it refuses."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kvorum.chaos.live.host.links import plan_links
from kvorum.chaos.live.host.toxiproxy import Toxiproxy
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer, find_server
from kvorum.runtime.errors import ConfigError
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, Ports, run_kvorum
from tests.live.console import Console
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

LARGE = 10_000_000
TOPIC = "odd.Name_-1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    given = ["message.max.bytes=12000000", "broker.session.timeout.ms=5000"]
    with Cluster(tmp_path_factory.mktemp("console"), settings=given) as cluster:
        Topics(cluster.bootstrap).create(TOPIC, partitions=2)
        Topics(cluster.bootstrap).create("empty", partitions=1)
        write(cluster)
        yield cluster


def write(cluster: Cluster) -> None:
    """Partition 0: 60 small messages of 6 keys; partition 1: 10 MB, binary, JSON, null."""
    producer = Producer(settings(cluster.bootstrap, acks="all", message_max_bytes=12_000_000))
    for number in range(60):
        producer.produce(
            TOPIC,
            json.dumps({"n": number}),
            key=f"k{number % 6}",
            partition=0,
            timestamp=1_700_000_000_000 + number,
            headers=[("trace", b"\xff\x00"), ("none", None)],
        )
    for value in (b"x" * LARGE, bytes(range(256)), b'{"a": [1, 2]}', None):
        producer.produce(TOPIC, value, partition=1)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("page")
    with Console(folder, "--lab", str(cluster.data_dir), "--allow-changes") as console:
        yield console


def read(console: Console, **question: object) -> list[dict]:
    return console.document("/api/messages", topic=TOPIC, **question)["rows"]


def offsets(rows: list[dict]) -> list[int]:
    return [row["offset"] for row in rows]


def test_quorum_brokers_and_topics_are_those_of_the_cluster(
    cluster: Cluster, console: Console
) -> None:
    quorum = console.document("/api/view/quorum")
    described = cluster.cli_json("quorum", "status")
    assert quorum["leader_id"] == described["leader_id"]
    assert quorum["cluster_id"] == cluster.document()["cluster_id"]
    assert [quorum["nodes"][key]["id"] for key in quorum["order"]] == [1, 2, 3, 101, 102, 103]
    assert any("leader=" in line["text"] for line in quorum["timeline"])
    brokers = console.document("/api/view/brokers")["rows"]
    assert {row["state"] for row in brokers.values()} == {"active"}
    assert {row["process"]["state"] for row in brokers.values()} == {"running"}
    assert {"empty", TOPIC} <= set(console.document("/api/view/topics")["order"])
    topic = console.document("/api/view/topic", name=TOPIC)
    assert [sorted(topic["rows"][key]["isr"]) for key in topic["order"]] == [[101, 102, 103]] * 2


def test_messages_by_offset_time_and_key(console: Console) -> None:
    assert offsets(read(console, limit=5)) == [55, 56, 57, 58, 59]
    assert offsets(read(console, **{"from": "earliest", "limit": 3})) == [0, 1, 2]
    assert offsets(read(console, **{"from": "offset", "value": 30, "limit": 2})) == [30, 31]
    assert offsets(read(console, before=30, limit=2)) == [28, 29]
    at = {"from": "time", "value": 1_700_000_000_042, "limit": 1}
    assert offsets(read(console, **at)) == [42]
    found = console.document("/api/messages", topic=TOPIC, key="k4", partition="all")
    assert offsets(found["rows"]) == [number for number in range(60) if number % 6 == 4]
    assert found["note"].startswith("10 of 64 messages")
    later = console.document(
        "/api/messages", topic=TOPIC, **{"from": "time", "value": 2_000_000_000_000}
    )
    assert (later["rows"], later["note"][:18]) == ([], "no message is that")


def test_each_form_of_a_message(console: Console) -> None:
    large, binary, text, null = read(console, partition=1, **{"from": "earliest"})
    assert (large["value"]["bytes"], large["value"]["is_cut"]) == (LARGE, True)
    assert len(large["value"]["text"]) < 10_000
    assert (binary["value"]["form"], binary["value"]["text"][:8]) == ("hex", "00 01 02")
    assert (text["value"]["form"], null["value"]["form"]) == ("json", "null")
    whole = console.document("/api/message", topic=TOPIC, partition=1, offset=2)
    assert whole["value"]["text"] == json.dumps({"a": [1, 2]}, indent=2)
    alone = console.document("/api/message", topic=TOPIC, partition=1, offset=0)
    assert alone["value"]["is_cut"]
    assert len(alone["value"]["text"]) < 1_000_000
    first = read(console, **{"from": "earliest", "limit": 1})[0]
    assert first["timestamp_ms"] == 1_700_000_000_000
    assert [(h["key"], h["value"]["form"]) for h in first["headers"]] == [
        ("trace", "hex"),
        ("none", "null"),
    ]


def test_page_of_large_messages_ends_early_and_goes_on(cluster: Cluster, console: Console) -> None:
    Topics(cluster.bootstrap).create("large", partitions=1)
    producer = Producer(settings(cluster.bootstrap, acks="all", message_max_bytes=12_000_000))
    for _ in range(8):
        producer.produce("large", b"x" * LARGE)
    assert producer.flush(60) == 0
    seen, at = [], 0
    notes = []
    while at < 8:
        page = console.document("/api/messages", topic="large", **{"from": "offset", "value": at})
        seen += offsets(page["rows"])
        notes.append(page.get("note", ""))
        at = page["next"]
    assert seen == list(range(8))
    assert notes[0].startswith("the messages are large: the page ends at offset ")


def test_offset_out_of_range_is_named_with_the_range(console: Console) -> None:
    status, answer = console.ask(
        "/api/messages", topic=TOPIC, **{"from": "offset", "value": 10_000}
    )
    assert (status, answer["error"]) == (404, f"{TOPIC}-0 has no offset 10000; it has 0 to 59")
    assert console.document("/api/messages", topic="empty")["rows"] == []


def test_reading_leaves_no_trace(cluster: Cluster, console: Console) -> None:
    before = cluster.cli_json("groups", "list")
    read(console, **{"from": "earliest"})
    console.document("/api/messages", topic=TOPIC, key="k1", partition="all")
    assert cluster.cli_json("groups", "list") == before


def test_group_is_shown_with_its_lag(cluster: Cluster, console: Console) -> None:
    consumer = Consumer(
        settings(
            cluster.bootstrap,
            group_id="a/group of ours",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_message_max_bytes=12_000_000,
        )
    )
    consumer.subscribe([TOPIC])
    try:
        message = eventually(lambda: consumer.poll(0.2), "a message")
        consumer.commit(message, asynchronous=False)

        def group() -> dict | None:
            status, document = console.ask("/api/view/group", name="a/group of ours")
            return document if status == 200 and document.get("rows") else None

        shown = eventually(group, "the group is shown")
    finally:
        consumer.close()
    (row,) = shown["rows"].values()
    assert row["committed_offset"] == message.offset() + 1
    assert row["lag"] == row["end_offset"] - row["committed_offset"]
    assert [member["client_id"] for member in shown["member_rows"].values()] == ["rdkafka"]


def test_configs_with_defaults_and_without_passwords(console: Console) -> None:
    rows = console.document("/api/configs", kind="topic", name=TOPIC)["rows"]
    values = {row["name"]: row.get("value") for row in rows}
    assert values["retention.ms"] == "604800000"
    broker = console.document("/api/configs", kind="broker", name="101")["rows"]
    assert [row for row in broker if row["is_sensitive"] and row.get("value")] == []
    for kind, name in (("topic", "none"), ("broker", "999"), ("broker", "zebra")):
        status, answer = console.ask("/api/configs", kind=kind, name=name)
        assert (status, name in answer["error"]) == (404, True), answer


def test_metadata_at_an_offset_is_that_of_the_command(cluster: Cluster, console: Console) -> None:
    at = console.document("/api/metadata", path="/")["end"] - 1
    tree = console.document("/api/metadata", path="/brokers/101", at=at)
    done = cluster.cli("metadata", "cat", "/brokers/101", "--at-offset", str(at))
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)
    assert [entry["name"] for entry in tree["entries"]] == list(expected)
    found = console.document("/api/metadata/diff", **{"from": 9, "to": tree["end"]})
    lines = cluster.cli("metadata", "diff", "9", str(tree["end"])).stdout.splitlines()
    assert found["total"] == len(lines)


def state_of(console: Console, node: str) -> str:
    processes = console.document("/api/view/brokers")["rows"].values()
    return next(row["process"]["state"] for row in processes if row["process"]["name"] == node)


def test_broker_is_killed_and_started_again(cluster: Cluster, console: Console) -> None:
    assert console.change("restart", "broker-103")[0] == 409
    assert console.change("kill", "broker-103") == (200, {"text": "broker-103 is killed"})
    cluster.wait_dead("broker-103")
    eventually(lambda: state_of(console, "broker-103") == "dead", "it is shown as dead")
    status, answer = console.change("kill", "broker-103")
    assert (status, answer["error"]) == (409, "broker-103 is not running (state dead)")

    def is_out() -> bool:
        rows = console.document("/api/view/topic", name=TOPIC)["rows"].values()
        return all(103 not in row["isr"] for row in rows)

    eventually(is_out, "its replicas leave the ISR")
    assert console.change("restart", "broker-103") == (200, {"text": "broker-103 runs again"})
    eventually(lambda: not is_out(), "its replicas are back")
    news = [item["text"] for item in console.document("/api/view/brokers")["news"]]
    assert f"broker 103 left the ISR of {TOPIC}-0" in news
    assert f"broker 103 joined the ISR of {TOPIC}-0" in news


def test_logs_of_replicas_are_those_of_their_brokers(cluster: Cluster, console: Console) -> None:
    Topics(cluster.bootstrap).create("watched", partitions=1)
    partition: dict = {}

    def shown(holds: Callable[[dict], bool]) -> bool:
        # The topic may be younger than the console's last look: the status is 404 then.
        _, document = console.ask("/api/view/replication", name="watched")
        rows = document.get("rows", {})
        partition.update(rows.get("0", {}))
        return bool(rows) and holds(partition["replicas"])

    def all_are(high_watermark: int, end: int) -> Callable[[dict], bool]:
        return lambda logs: {ends_of(log) for log in logs.values()} == {(high_watermark, end)}

    eventually(lambda: shown(all_are(0, 0)), "three empty logs are shown")
    producer = Producer(settings(cluster.bootstrap, acks="all"))
    send(producer, "watched", 10)
    eventually(lambda: shown(all_are(10, 10)), "ten records are in all logs")
    leader = str(partition["leader"])
    followers = [each for each in partition["replica_order"] if each != leader]
    for follower in followers:
        console.change("pause", f"broker-{follower}")
    late = Producer(settings(cluster.bootstrap, acks=1))
    send(late, "watched", 5)
    eventually(lambda: shown(lambda logs: ends_of(logs[leader]) == (10, 15)), "HW 10, end 15")
    for follower in followers:
        console.change("resume", f"broker-{follower}")
    eventually(lambda: shown(all_are(15, 15)), "the followers have caught up")
    console.change("kill", f"broker-{leader}")
    eventually(
        lambda: shown(lambda _: partition["leader"] not in (None, int(leader))), "another leads"
    )
    send(producer, "watched", 5)
    epoch = partition["leader_epoch"]

    def is_cut(logs: dict) -> bool:
        return all([epoch, 15] in logs[each]["epochs"] for each in followers)

    eventually(lambda: shown(is_cut), "the new epoch begins at offset 15")
    log = partition["replicas"][leader]
    assert (log["end"], bool(log["problem"])) == (15, True), "the last state of a dead broker"
    assert console.change("restart", f"broker-{leader}")[0] == 200
    eventually(lambda: shown(all_are(20, 20)), "all have all")
    assert "problem" not in partition["replicas"][leader]


def ends_of(log: dict) -> tuple[int | None, int | None]:
    return log.get("high_watermark"), log.get("end")


def send(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.produce(topic, f"record {number}")
    assert producer.flush(60) == 0


def test_controller_is_paused_and_resumed(console: Console) -> None:
    leader = console.document("/api/view/quorum")["leader_id"]
    name = f"controller-{leader}"
    assert console.change("pause", name)[0] == 200

    def leads_another() -> bool:
        view = console.document("/api/view/quorum")
        row = view["nodes"].get(str(leader), {})
        is_other = view.get("leader_id") not in (None, leader)
        return is_other and row["role"] == "unreachable" and row["process"]["state"] == "paused"

    eventually(leads_another, "another controller leads")
    assert console.change("resume", name)[0] == 200
    eventually(
        lambda: console.document("/api/view/quorum")["nodes"][str(leader)]["role"] == "follower",
        "it follows",
    )


def test_cut_without_known_links_says_what_is_missing(console: Console) -> None:
    status, answer = console.change("cut", "broker-101")
    assert status == 409
    assert "--toxiproxy" in answer["error"]
    assert console.document("/api/session")["has_links"] is False


@pytest.mark.parametrize("node", ["", "broker-999", "../x", "0", "broker-101\0"])
def test_node_that_does_not_exist_is_refused(console: Console, node: str) -> None:
    status, answer = console.change("kill", node)
    assert (status, "it has controller-1" in answer["error"]) == (409, True)


def test_console_without_leave_to_change_refuses(cluster: Cluster, tmp_path: Path) -> None:
    with Console(tmp_path, "--lab", str(cluster.data_dir)) as reader:
        assert reader.token == ""
        status, answer = reader.change("kill", "broker-101")
        assert (status, "only reads" in answer["error"]) == (403, True)
        assert state_of(reader, "broker-101") == "running"


def test_console_follows_a_cluster_through_brokers_alone(cluster: Cluster, tmp_path: Path) -> None:
    with Console(tmp_path, "-b", cluster.bootstrap) as console:
        assert console.document("/api/view/quorum")["leader_id"] in (1, 2, 3)
        assert console.command.is_running()
        console.command.send(signal.SIGTERM)
        assert console.command.wait() == 0
        assert console.command.errors() == ""


def test_console_waits_for_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Console(tmp_path, "-b", f"127.0.0.1:{port}", "--timeout", "1") as console:
        meta = eventually(
            lambda: console.document("/api/view/quorum")["meta"].get("error"), "the reason"
        )
        assert f"no broker reachable at 127.0.0.1:{port}" in meta
        console.command.send(signal.SIGINT)
        assert console.command.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--allow-changes"], "--allow-changes needs --lab", 2),
        (["--lab", "{data}", "--allow-changes", "--host", "0.0.0.0"], "address of this machine", 2),
        (["--toxiproxy", "127.0.0.1:1"], "--toxiproxy needs --lab", 2),
        (["--lab", "{data}", "--toxiproxy", "nonsense"], "is not host:port", 2),
        (["--lab", "{data}", "--toxiproxy", "127.0.0.1:1"], "cannot be reached", 1),
        (["--lab", "{empty}"], "there is no cluster in", 1),
        (["--port", "{taken}"], "Address already in use; choose another with --port", 1),
        (["--host", "not a host"], "cannot listen on not a host", 1),
        (["-b", "nonsense"], "'nonsense' is not host:port", 2),
        (["-b", "h:1", "--bootstrap-controller", "h:2"], "not both", 2),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path, arguments: list[str], words: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {
            "data": str(cluster.data_dir),
            "empty": str(tmp_path),
            "taken": str(taken.getsockname()[1]),
        }
        done = run_kvorum("console", *(each.format(**names) for each in arguments))
    assert done.returncode == code
    assert words in done.stderr
    assert done.stdout == ""


def test_host_that_others_reach_needs_a_token(cluster: Cluster, tmp_path: Path) -> None:
    with Console(tmp_path, "-b", cluster.bootstrap, "--host", "0.0.0.0") as console:
        assert console.token
        assert console.document("/api/view/quorum")["leader_id"] > 0
        console.address = console.address.partition("?")[0]
        assert console.ask("/api/view/quorum")[0] == 401


def test_console_with_credentials_needs_a_token(cluster: Cluster, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="ann" password="sesame";\n'
    )
    arguments = ["-b", cluster.bootstrap, "--command-config", str(properties)]
    with Console(tmp_path, *arguments) as console:
        assert console.token
        console.address = console.address.partition("?")[0]
        assert console.ask("/api/view/quorum")[0] == 401


def has_toxiproxy() -> bool:
    try:
        find_server()
    except ConfigError:
        return False
    return True


@pytest.mark.skipif(not has_toxiproxy(), reason="needs toxiproxy-server")
def test_broker_whose_links_are_cut_leaves_the_isr_until_they_are_healed(tmp_path: Path) -> None:
    links_file = tmp_path / "links.json"
    cluster = Cluster(tmp_path, controllers=1, brokers=3, links=links_file)
    api, proxies = Ports(), Ports()
    plan = plan_links(
        1,
        3,
        client_port=cluster.ports.broker,
        controller_port=cluster.ports.controller,
        proxy_port=proxies.broker,
    )
    links_file.write_text(json.dumps(plan.document()))
    with contextlib.ExitStack() as stack:
        stack.callback(api.close)
        stack.callback(proxies.close)
        log = str(tmp_path / "toxiproxy.log")
        stack.enter_context(ToxiproxyServer(port=api.broker, log_file=log))
        toxiproxy = Toxiproxy("127.0.0.1", api.broker)
        toxiproxy.populate(plan.links)
        stack.enter_context(cluster)
        Topics(plan.bootstrap()).create("linked", partitions=1)
        lab = ["--lab", str(cluster.data_dir), "--allow-changes"]
        address = f"127.0.0.1:{api.broker}"
        console = stack.enter_context(Console(tmp_path, *lab, "--toxiproxy", address))
        assert console.document("/api/session")["has_links"] is True

        def isr() -> list[int]:
            return sorted(console.document("/api/view/topic", name="linked")["rows"]["0"]["isr"])

        def is_shown_cut() -> bool:
            row = console.document("/api/view/brokers")["rows"]["103"]
            return bool(row["process"]["is_cut"])

        assert console.change("cut", "broker-103")[0] == 200
        eventually(lambda: isr() == [101, 102], "the broker leaves the ISR")
        eventually(is_shown_cut, "it is shown as cut")
        assert console.change("heal", "broker-103")[0] == 200
        assert not any(toxiproxy.toxics(link) for link in plan.links)
        eventually(lambda: isr() == [101, 102, 103], "the broker joins the ISR again")
        eventually(lambda: not is_shown_cut(), "it is shown as healed")
