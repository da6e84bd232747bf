"""`kvorum controller` and `kvorum broker` from hand-written TOML files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kvorum.launch.directories.identity import DirectoryLock
from tests.live.clients import Topics, read_all, settings
from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import eventually

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"
OTHER_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

CONTROLLER = """\
"node.id" = {node_id}
"cluster.id" = "{cluster_id}"
listeners = "CONTROLLER://127.0.0.1:{port}"

[controller.quorum]
voters = "1@127.0.0.1:{controller_port}"

[log]
dirs = "{directory}"
"""

BROKER = """\
"node.id" = {node_id}
"cluster.id" = "{cluster_id}"
listeners = "PLAINTEXT://127.0.0.1:{port}"
"controller.quorum.voters" = "1@127.0.0.1:{controller_port}"
"log.dirs" = "{directory}"
"auto.create.topics.enable" = false
"""


class Hand:
    """The files of a cluster of two nodes, and the processes started from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = Ports()
        self.commands: list[Command] = []
        self.bootstrap = f"127.0.0.1:{self.ports.broker}"

    def file(self, role: str, text: str | None = None, *, more: str = "", **fields: object) -> str:
        """Write the configuration of a node; its path."""
        is_controller = role == "controller"
        values = {
            "node_id": 1 if is_controller else 101,
            "cluster_id": CLUSTER_ID,
            "port": self.ports.controller if is_controller else self.ports.broker,
            "controller_port": self.ports.controller,
            "directory": self.folder / role,
            **fields,
        }
        template = text if text is not None else (CONTROLLER if is_controller else BROKER)
        path = self.folder / f"{role}.toml"
        path.write_text(more + template.format(**values))
        return str(path)

    def start(self, role: str) -> Command:
        command = Command(role, "--config", self.file(role), error_file=self.folder / f"{role}.err")
        self.commands.append(command)
        return command

    def close(self) -> None:
        for command in reversed(self.commands):
            command.close()
        self.ports.close()


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    hand = Hand(tmp_path)
    yield hand
    hand.close()


@pytest.mark.live
def test_controller_and_broker_serve_stop_cleanly_and_come_back(hand: Hand) -> None:
    for value in (b"one", b"two"):
        # The broker first: it waits for its controller.
        broker, controller = hand.start("broker"), hand.start("controller")
        Topics(hand.bootstrap).create("handmade", replicas=1)
        producer = Producer(settings(hand.bootstrap, acks="all"))
        producer.produce("handmade", value)
        assert producer.flush(30) == 0
        for node in (broker, controller):
            node.send(signal.SIGTERM)
            assert node.wait() == 0, node.errors()
            assert node.lines == []
        assert (hand.folder / "broker" / ".kafka_cleanshutdown").is_file()
    hand.start("controller")
    hand.start("broker")
    assert read_all(hand.bootstrap, "handmade") == [[b"one", b"two"]]


@pytest.mark.live
def test_second_process_on_a_directory_in_use_is_refused(hand: Hand) -> None:
    first = hand.start("controller")
    lock = hand.folder / "controller" / ".lock"
    eventually(lambda: lock.exists() and "claims epoch" in first.errors(), "the controller leads")
    done = run_kvorum(
        "controller", "--config", hand.file("controller", port=hand.ports.controller + 1)
    )
    assert done.returncode == 2
    assert "is in use by another process" in done.stderr.splitlines()[-1]
    assert first.is_running()


@pytest.mark.live
def test_port_in_use_is_refused(hand: Hand) -> None:
    first = hand.start("controller")
    eventually(lambda: "claims epoch" in first.errors(), "the controller leads")
    directory = hand.folder / "elsewhere"
    done = run_kvorum("controller", "--config", hand.file("controller", directory=directory))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"kvorum: cannot listen on 127.0.0.1:{hand.ports.controller}: Address already in use; give "
        "this node a free port and an address of this machine"
    )
    assert not directory.exists()


@pytest.mark.live
def test_broker_whose_port_is_taken_does_not_join_the_cluster(hand: Hand) -> None:
    hand.start("controller")
    hand.start("broker")
    topics = Topics(hand.bootstrap)
    topics.create("held", replicas=1)
    other = hand.file("broker", node_id=102, directory=hand.folder / "elsewhere")
    said = refused(hand, "broker", other)
    assert f"cannot listen on 127.0.0.1:{hand.ports.broker}, " in said
    assert "Address already in use" in said
    assert not (hand.folder / "elsewhere").exists()
    done = run_kvorum("brokers", "list", "-b", hand.bootstrap, "-o", "json")
    assert [row["broker_id"] for row in json.loads(done.stdout)] == [101], done.stderr


def refused(hand: Hand, role: str, path: str) -> str:
    """The last line of a start that is refused."""
    done = run_kvorum(role, "--config", path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_property_that_would_be_a_lie_ends_the_start(hand: Hand, role: str) -> None:
    more = '"process.roles" = "broker,controller"\n'
    assert "a node has one role" in refused(hand, role, hand.file(role, more=more))
    assert not (hand.folder / role).exists()


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_mistyped_name_ends_the_start_and_leaves_nothing(hand: Hand, role: str) -> None:
    said = refused(hand, role, hand.file(role, more='"metrics.listner" = "127.0.0.1:0"\n'))
    assert "unknown property 'metrics.listner' (did you mean 'metrics.listener'?); correct" in said
    assert not (hand.folder / role).exists()


@pytest.mark.live
def test_names_that_nothing_obeys_are_in_the_log_of_the_start(hand: Hand) -> None:
    more = '"num.io.threads" = 8\n"zookeeper.connect" = "z:2181"\n'
    path = hand.file("controller", more=more)
    node = Command("controller", "--config", path, error_file=hand.folder / "controller.err")
    hand.commands.append(node)
    eventually(lambda: "claims epoch" in node.errors(), "the controller leads")
    assert "WARNING kvorum.node num.io.threads=8 is kept and changes nothing" in node.errors()
    assert "zookeeper.connect is kept and changes nothing" in node.errors()


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_the_file_of_the_other_role_is_said_to_be_that(hand: Hand, role: str) -> None:
    other = "controller" if role == "broker" else "broker"
    said = refused(hand, role, hand.file(other))
    assert f"this is a {other}'s file, and not a {role}'s: listeners=" in said
    assert f"run it with kvorum {other} --config" in said


def test_missing_key_is_named(hand: Hand) -> None:
    text = BROKER.replace('"cluster.id" = "{cluster_id}"\n', "")
    assert "property 'cluster.id' is required" in refused(hand, "broker", hand.file("broker", text))


def test_wrong_type_names_property_value_and_type(hand: Hand) -> None:
    more = '"log.segment.bytes" = "big"\n"controller.quorum.fetch.timeout.ms" = true\n'
    said = refused(hand, "broker", hand.file("broker", more=more))
    assert "property 'log.segment.bytes' must be a whole number, not 'big'" in said
    assert "property 'controller.quorum.fetch.timeout.ms' must be a whole number, not True" in said


@pytest.mark.parametrize(
    ("role", "fields", "words"),
    [
        ("broker", {"node_id": 1}, "node.id=1 is a controller in controller.quorum.voters"),
        ("controller", {"node_id": 2}, "node.id=2 is not in controller.quorum.voters"),
        ("broker", {"cluster_id": "short"}, "cluster.id: not a uuid: 'short'"),
        ("broker", {"port": "x"}, "listeners: '127.0.0.1:x' is not host:port"),
        ("broker", {"node_id": -1}, "node.id='-1' must lie between 0 and 2147483647"),
    ],
)
def test_identity_that_cannot_be_is_refused(hand: Hand, role, fields, words) -> None:  # type: ignore[no-untyped-def]
    assert words in refused(hand, role, hand.file(role, **fields))


def test_file_that_is_missing_or_not_toml_is_refused(hand: Hand) -> None:
    missing = str(hand.folder / "missing.toml")
    assert f"cannot read {missing}: No such file" in refused(hand, "broker", missing)
    assert "is not TOML" in refused(hand, "broker", hand.file("broker", "a = = 1\n"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"cluster.id={OTHER_CLUSTER_ID}\nnode.id=1", f"belongs to cluster {OTHER_CLUSTER_ID}"),
        (f"cluster.id={CLUSTER_ID}\nnode.id=2", "belongs to node 2"),
    ],
)
def test_directory_of_another_is_refused(hand: Hand, line: str, words: str) -> None:
    directory = hand.folder / "controller"
    directory.mkdir()
    (directory / "meta.properties").write_text(
        f"version=1\n{line}\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBA\n"
    )
    assert words in refused(hand, "controller", hand.file("controller"))


def test_directory_of_somebody_else_is_refused_and_left_alone(hand: Hand) -> None:
    directory = hand.folder / "broker"
    directory.mkdir()
    (directory / "photo.jpg").write_text("x")
    said = refused(hand, "broker", hand.file("broker"))
    assert "has no meta.properties (it holds 'photo.jpg')" in said
    assert os.listdir(directory) == ["photo.jpg"]


def test_lock_is_free_again_after_release(tmp_path: Path) -> None:
    DirectoryLock(str(tmp_path)).release()
    DirectoryLock(str(tmp_path)).release()
