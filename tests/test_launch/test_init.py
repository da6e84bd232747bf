"""`kvorum init`: which files it writes for which hosts, and what it refuses to write."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvorum.cli.init import init
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.config import dump_properties, load_properties
from kvorum.snapshots.store import SnapshotStore

RNG = random.Random(1)


def run(folder: Path, *arguments: str) -> str:
    """The process's stderr."""
    done = CliRunner().invoke(init, [str(folder), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stderr


def refusal(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(init, [str(folder), *arguments])
    assert done.exception is not None and not folder.exists(), done.output
    return str(done.exception)


def properties(folder: Path, name: str) -> dict[str, Any]:
    return load_properties(str(folder / f"{name}.toml"))


def voters(folder: Path, name: str) -> list[tuple[int, str, int]]:
    """Id, host and port of each voter in a controller's bootstrap checkpoint."""
    directory = folder / "data" / name / "__cluster_metadata-0"
    store = SnapshotStore(OsAsyncDisk(), str(directory))
    header = asyncio.run(store.bootstrap())
    assert header is not None
    return [(node_id, host, port) for node_id, _, host, port in header.voters]


SEVERAL = ("--controller", "1@h1", "--controller", "2@h2", "--controller", "3@[fe80::3]:7000")


def test_nodes_of_several_hosts_get_addresses_that_files_and_checkpoints_agree_on(tmp_path):
    folder = tmp_path / "c"
    run(folder, *SEVERAL, "--broker", "101@h4", "--broker", "102@h4", "--broker", "103@h5")
    places = [(1, "h1", 9192), (2, "h2", 9192), (3, "fe80::3", 7000)]
    for node_id, listener in ((1, "h1:9192"), (2, "h2:9192"), (3, "[fe80::3]:7000")):
        assert voters(folder, f"controller-{node_id}") == places
        known = properties(folder, f"controller-{node_id}")
        assert known["listeners"] == f"CONTROLLER://{listener}"
        assert known["controller.quorum.bootstrap.servers"] == "h1:9192,h2:9192,[fe80::3]:7000"
    listeners = [properties(folder, f"broker-{i}")["listeners"] for i in (101, 102, 103)]
    assert listeners == [f"PLAINTEXT://{at}" for at in ("h4:9092", "h4:9093", "h5:9092")]
    broker = properties(folder, "broker-101")
    assert broker["offsets.topic.replication.factor"] == "3"
    assert broker["default.replication.factor"] == "3", "as with kvorum dev"


def test_two_brokers_go_on_with_transactions_when_one_is_away(tmp_path):
    run(tmp_path / "c", "--controllers", "1", "--brokers", "2")
    broker = properties(tmp_path / "c", "broker-101")
    assert broker["transaction.state.log.replication.factor"] == "2"
    assert broker["transaction.state.log.min.isr"] == "1"


def test_racks_go_to_the_brokers_in_their_order(tmp_path):
    folder = tmp_path / "c"
    brokers = ("--broker", "7@h4", "--broker", "5@h5")
    run(folder, *SEVERAL, *brokers, "--rack", "a", "--rack", "b")
    assert [properties(folder, f"broker-{i}")["broker.rack"] for i in (7, 5)] == ["a", "b"]
    assert "broker.rack" not in properties(folder, "controller-1")
    said = refusal(tmp_path / "d", *SEVERAL, *brokers, "--rack", "a")
    assert said == "1 --rack for 2 brokers; give each one"


def test_static_voters_of_several_hosts_have_an_ipv6_address_in_brackets(tmp_path):
    run(tmp_path / "c", *SEVERAL, "--static")
    known = properties(tmp_path / "c", "controller-2")
    assert known["controller.quorum.voters"] == "1@h1:9192,2@h2:9192,3@[fe80::3]:7000"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_all_nodes_may_listen_on_an_ipv6_address(tmp_path, host):
    run(tmp_path / "c", "--host", host, "--controllers", "1", "--brokers", "1")
    assert voters(tmp_path / "c", "controller-1") == [(1, "::1", 9192)]
    assert properties(tmp_path / "c", "broker-101")["listeners"] == "PLAINTEXT://[::1]:9092"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "a,b"], "must be one host; for several hosts give each node with --controller"),
        (["--host", "a b"], "must be a host name, an IPv4 or an IPv6 address"),
        (["--host", "h:9092"], "must be a host name, an IPv4 or an IPv6 address"),
        (["--host", "h" * 127], "must be a host name"),
        (["--host", "bad_host!"], "--host='bad_host!' must be a host name"),
        (["--bind", "bad host"], "--bind='bad host' must be a host name"),
        (["--controller", "4@bad_host!"], "--controller='bad_host!' must be a host name"),
        (["--controller", "1@"], "--controller='1@' must be of the form ID@HOST"),
        (["--host", "::"], "says where nobody can connect"),
        (["--host", "0.0.0.0"], "says where nobody can connect"),
        (["--controller", "h1"], "must be of the form ID@HOST or ID@HOST:PORT"),
        (["--controller", "1@::1"], "an IPv6 address goes in brackets"),
        (["--controller", "1@h:0"], "port '0' is not in 1 to 65535"),
        (["--controller", "1@h", "--broker", "1@h"], "two nodes have the id 1"),
        (["--controller", "1@h:5", "--broker", "2@h:5"], "would both listen on h:5"),
        (["--controller", "1@h", "--controllers", "1"], "--controllers does not go with"),
        (["--controller", "1@h", "--host", "g"], "--host does not go with"),
        (["--broker", "101@h"], "needs at least one controller"),
        (["--set", "metrics.listener=HTTP://h:9404"], "cannot be that of every node on 127.0.0.1"),
        (["--set", "metadata.log.dir=/m"], "'metadata.log.dir' is decided by kvorum init"),
    ],
)
def test_nodes_that_cannot_be_are_refused_before_anything_is_written(tmp_path, arguments, words):
    assert words in refusal(tmp_path / "c", *arguments)


def pages(folder):
    """metrics.listener of every node."""
    names = sorted(path.stem for path in folder.glob("*.toml"))
    return {name: properties(folder, name).get("metrics.listener") for name in names}


def test_each_node_gets_a_page_of_metrics_on_a_port_of_its_own(tmp_path):
    folder = tmp_path / "c"
    nodes = ["--controller", "1@h1", "--broker", "101@h1", "--broker", "102@h2"]
    run(folder, *nodes, "--metrics-port", "9092")
    assert pages(folder) == {
        "controller-1": "HTTP://h1:9093",  # 9092 is the listener of broker-101
        "broker-101": "HTTP://h1:9094",
        "broker-102": "HTTP://h2:9093",
    }


def test_pages_of_metrics_avoid_the_listeners_of_brokers_and_are_bound_as_they_are(tmp_path):
    folder = tmp_path / "c"
    shape = ["--controllers", "1", "--brokers", "1", "--secure", "--bind", "0.0.0.0"]
    run(folder, *shape, "--port", "9092", "--metrics-port", "9392")
    listeners = properties(folder, "broker-101")["listeners"]
    port = int(listeners.rpartition(":")[2])
    again = tmp_path / "d"
    run(again, *shape, "--port", "9092", "--metrics-port", str(port))
    assert pages(again) == {
        "controller-1": f"HTTP://0.0.0.0:{port + 1}",
        "broker-101": f"HTTP://0.0.0.0:{port + 2}",
    }


def test_a_page_of_metrics_is_given_once(tmp_path):
    twice = ["--set", "metrics.listener=HTTP://h:1", "--metrics-port", "9404"]
    nodes = ["--controller", "1@h", "--broker", "101@g"]
    said = refusal(tmp_path / "c", *nodes, *twice)
    assert "give --metrics-port or --set metrics.listener, not both" in said


def test_a_broker_more_names_the_factors_that_were_meant_for_fewer(tmp_path):
    folder = tmp_path / "c"
    run(folder, "--controllers", "1", "--brokers", "1")
    said = run(folder, "--add", "broker")
    assert "raise offsets.topic.replication.factor from 1 to 2, transaction.state" in said
    assert properties(folder, "broker-102")["offsets.topic.replication.factor"] == "1"
    assert "raise offsets.topic.replication.factor from 1 to 3" in run(folder, "--add", "broker")
    for name in ("broker-101", "broker-102", "broker-103"):
        raised = properties(folder, name) | {
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.replication.factor": "3",
            "share.coordinator.state.topic.min.isr": "2",
            "metadata.events.topic.replication.factor": "3",
            "metadata.events.topic.min.isr": "2",
        }
        (folder / f"{name}.toml").write_text(dump_properties(raised))
    assert run(folder, "--add", "broker") == ""


def test_first_broker_of_a_quorum_without_any_gets_factors_that_it_can_place(tmp_path):
    folder = tmp_path / "c"
    run(folder, "--controllers", "1", "--brokers", "0")
    run(folder, "--add", "broker")
    assert properties(folder, "broker-101")["offsets.topic.replication.factor"] == "1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics.listener", "HTTP://127.0.0.1:9404"),
        ("metadata.log.dir", "/ssd/kvorum"),
        ("advertised.listeners", "PLAINTEXT://h1:9092"),
        ("broker.rack", "a"),
    ],
)
def test_an_added_node_does_not_take_what_is_anothers_and_says_so(tmp_path, name, value):
    folder = tmp_path / "c"
    run(folder, "--controllers", "1", "--brokers", "3")
    pattern = properties(folder, "broker-103") | {name: value, "log.segment.bytes": 2_000_000}
    (folder / "broker-103.toml").write_text(dump_properties(pattern))
    said = run(folder, "--add", "broker", "--host", "h9")
    assert f"{name}={value} is of node 103 alone" in said
    added = properties(folder, "broker-104")
    assert name not in added and added["log.segment.bytes"] == 2_000_000
    assert added["listeners"] == "PLAINTEXT://h9:9094"


def test_an_added_broker_may_have_a_rack_and_the_port_of_another_host(tmp_path):
    folder = tmp_path / "c"
    run(folder, *SEVERAL, "--broker", "101@h4", "--rack", "a")
    run(folder, "--add", "broker", "--host", "h5", "--port", "9092", "--rack", "b")
    added = properties(folder, "broker-102")
    assert (added["listeners"], added["broker.rack"]) == ("PLAINTEXT://h5:9092", "b")


def test_one_call_adds_one_node(tmp_path):
    refused = refusal(tmp_path / "c", "--add", "controller", "--add", "broker")
    assert "--add makes one node: give it once, and call kvorum init for each node" in refused


def test_nodes_bind_apart_from_what_they_advertise(tmp_path):
    folder = tmp_path / "c"
    places = ("--controller", "1@h1", "--broker", "101@h4", "--broker", "102@h5")
    run(folder, *places, "--bind", "0.0.0.0")
    for name, listener, host, port in (
        ("controller-1", "CONTROLLER", "h1", 9192), ("broker-102", "PLAINTEXT", "h5", 9092),
    ):  # fmt: skip
        found = properties(folder, name)
        assert found["listeners"] == f"{listener}://0.0.0.0:{port}"
        assert found["advertised.listeners"] == f"{listener}://{host}:{port}"
    # An additional node does the same.
    said = run(folder, "--add", "broker", "--host", "h6")
    added = properties(folder, "broker-103")
    assert added["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert added["advertised.listeners"] == "PLAINTEXT://h6:9092"
    assert "advertised.listeners" not in said


def test_a_preset_is_in_every_file(tmp_path):
    run(tmp_path / "c", "--controllers", "1", "--brokers", "1", "--preset", "relaxed")
    for name in ("controller-1", "broker-101"):
        assert properties(tmp_path / "c", name)["kvorum.preset"] == "relaxed"


def test_folders_are_below_the_file(tmp_path):
    run(tmp_path / "c", "--controllers", "1", "--brokers", "1")
    assert properties(tmp_path / "c", "broker-101")["log.dirs"] == "data/broker-101"
