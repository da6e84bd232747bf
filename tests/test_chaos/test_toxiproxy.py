"""The adapter and the injector against a real toxiproxy server."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import urllib.request

import pytest

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.faults import (
    LIVE_FAULTS,
    Bandwidth,
    CutLink,
    CutPower,
    HealLinks,
    KillNode,
    Latency,
    LimitData,
    LinkDown,
    NetworkPartition,
    PauseNode,
    ResetPeer,
    ResumeNode,
    SlowClose,
)
from kvorum.chaos.history import HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.host import processes, toxiproxy
from kvorum.chaos.live.host.links import Link, ProxyStream, plan_links
from kvorum.chaos.live.host.toxiproxy import Toxic, Toxiproxy, ToxiproxyError
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer, find_server
from kvorum.chaos.live.systems.kvorum import KvorumSystem
from kvorum.chaos.targets import (
    CLIENTS,
    PartitionView,
    TargetView,
    UnresolvableTarget,
    parse_target,
)
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.polling import eventually

from .endpoints import RecordingServer, connect, is_open, rest_of

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    port = processes.free_ports(1, random.Random())
    log_file = str(tmp_path_factory.mktemp("toxiproxy") / "toxiproxy.log")
    with ToxiproxyServer(port=port, log_file=log_file) as running:
        yield running


@pytest.fixture
def lab(server, tmp_path):
    """One controller and two brokers made of recording servers, with all their proxies."""
    lab = Lab(server.api, tmp_path)
    yield lab
    lab.close()


class Lab:
    def __init__(self, api: Toxiproxy, tmp_path) -> None:
        self.api = api
        first = processes.free_ports(3 + 2 + 2 + 2, random.Random())
        self.plan = plan_links(
            1, 2, client_port=first, controller_port=first + 2, proxy_port=first + 3
        )
        self.nodes = {
            "broker-101": RecordingServer(first),
            "broker-102": RecordingServer(first + 1),
            "controller-1": RecordingServer(first + 2),
        }
        api.populate(self.plan.links)
        self.peers: list[socket.socket] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.data_dir = tmp_path / "cluster"
        self.data_dir.mkdir()
        self.cluster = KvorumSystem(
            shape=parse_experiment("x", MINIMAL).configuration,
            plan=self.plan,
            data_dir=str(self.data_dir),
            log_file=str(tmp_path / "cluster.log"),
            client_port=first,
            controller_port=first + 2,
        )
        self.history_file = str(tmp_path / "history.jsonl")
        self.history = HistoryWriter(self.history_file)
        self.injector = Injector(
            system=self.cluster,
            toxiproxy=api,
            history=self.history,
            view=self.view,
            rng=random.Random(1),
        )

    def view(self) -> TargetView:
        return TargetView(
            controllers=("controller-1",),
            brokers=("broker-101", "broker-102"),
            killed=frozenset(self.cluster.killed),
            paused=frozenset(self.cluster.paused),
            active_controller="controller-1",
            partitions={
                ("orders", 0): PartitionView(
                    leader="broker-101", replicas=("broker-101",), isr=("broker-101",)
                ),
                ("orders", 1): PartitionView(
                    leader="broker-102",
                    replicas=("broker-102", "broker-101"),
                    isr=("broker-102", "broker-101"),
                ),
            },
        )

    def open(self, source: str, destination: str) -> socket.socket:
        """Open a connection, and pass bytes through it in both directions."""
        link = self.plan.link(source, destination)
        node = self.nodes[destination]
        before = node.received
        peer = self.connect(link.listen)
        peer.sendall(b"hello")
        try:
            eventually(lambda: node.received == before + b"hello", f"{link.name} carries bytes")
        except AssertionError as error:
            error.add_note(
                f"before: {before!r}, now: {node.received!r}, accepted {node.accepted}, closed "
                f"{node.closed}, toxics {self.api.toxics(link)}, sender open: {is_open(peer)}"
            )
            raise
        node.send_to_all(b"hi")
        assert peer.recv(2) == b"hi"
        return peer

    def connect(self, address: str) -> socket.socket:
        """Open a connection; the lab closes it at the end."""
        peer = connect(address)
        self.peers.append(peer)
        return peer

    def start_process(self, name: str) -> subprocess.Popen[bytes]:
        """Start a process in the place of a node, and enter it into cluster.json."""
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        self.children.append(child)
        entry = {
            "name": name, "id": 101, "roles": ["broker"], "pid": child.pid, "state": "running",
            "listener": "127.0.0.1:1", "advertised": "127.0.0.1:1", "directory": "", "log_file": "",
        }  # fmt: skip
        text = json.dumps({"version": 1, "nodes": [entry]})
        (self.data_dir / "cluster.json").write_text(text)
        return child

    def events(self):
        self.history.flush()
        return list(read_history(self.history_file))

    def close(self) -> None:
        self.injector.end_all()
        self.history.close()
        for child in self.children:
            child.kill()
            child.wait()
        for opened in [*self.peers, *self.nodes.values()]:
            opened.close()


MINIMAL = """\
title: t
method: [{type: action, name: a, provider: {type: kvorum, func: heal}}]
"""


def target(text: str):
    return parse_target(text)


def test_server_tells_its_version(server):
    assert server.version


def test_populate_creates_every_proxy_at_once(lab):
    have = lab.api.proxies()
    for link in lab.plan.links:
        assert have[link.name] == (link.listen, link.upstream)


def test_proxy_on_a_taken_port_is_an_error(lab):
    taken = lab.plan.links[0].listen
    extra = Link(source="x", destination="y", listen=taken, upstream="127.0.0.1:1")
    with pytest.raises(ToxiproxyError):
        lab.api.populate([extra])


def test_a_server_on_a_taken_port_is_refused_although_another_one_answers_there(lab, tmp_path):
    server = ToxiproxyServer(port=lab.api._port, log_file=str(tmp_path / "log"))
    with pytest.raises(processes.ProcessFailed, match="the port is in use"):
        server.start()
    assert not (tmp_path / "log").exists()


def test_unknown_toxic_and_unknown_proxy_are_errors(lab):
    link = lab.plan.links[0]
    bad = Toxic(name="x", kind="no-such-toxic", stream=ProxyStream.UPSTREAM, attributes={})
    with pytest.raises(ToxiproxyError, match="refused"):
        lab.api.add_toxic(link, bad)
    nowhere = Link(source="no", destination="where", listen="", upstream="")
    with pytest.raises(ToxiproxyError, match="refused"):
        lab.api.toxics(nowhere)


def test_absent_server_is_an_error_and_no_hang():
    port = processes.free_ports(1, random.Random())
    with pytest.raises(ToxiproxyError, match="cannot be reached"):
        Toxiproxy("127.0.0.1", port).version()


def test_a_server_that_hangs_is_one_sentence_of_ours(monkeypatch):
    monkeypatch.setattr(toxiproxy, "CALL_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ToxiproxyError) as caught:
            Toxiproxy("127.0.0.1", port).version()
    assert str(caught.value).startswith(f"toxiproxy at 127.0.0.1:{port} gave no answer within ")
    assert "HTTPConnectionPool" not in str(caught.value)


def test_missing_server_program_says_what_to_do(monkeypatch):
    monkeypatch.setenv("KVORUM_TOXIPROXY_SERVER", "/nowhere/toxiproxy-server")
    with pytest.raises(ConfigError, match="KVORUM_TOXIPROXY_SERVER"):
        find_server()


def test_one_way_cut_swallows_one_direction_and_keeps_the_connection(lab):
    peer = lab.open("broker-101", "broker-102")
    back = lab.open("broker-102", "broker-101")
    cut = lab.injector.inject(
        "cut", CutLink(source=target("broker-101"), destination=target("broker-102"))
    )
    peer.sendall(b"lost")
    lab.nodes["broker-102"].send_to_all(b"still heard")
    assert peer.recv(100) == b"still heard"
    # The other connection: answers of broker-101 vanish, what broker-102 sends arrives.
    back.sendall(b" asks")
    eventually(lambda: lab.nodes["broker-101"].received.endswith(b" asks"), "the question arrives")
    lab.nodes["broker-101"].send_to_all(b"swallowed")
    assert is_open(peer)
    assert is_open(back)
    assert b"lost" not in lab.nodes["broker-102"].received
    lab.injector.end(cut)
    # Bytes are missing from both streams, so both connections must be closed; none may go on with a
    # hole.
    eventually(lambda: not is_open(peer) and not is_open(back), "holed connections are closed")
    assert b"lost" not in lab.nodes["broker-102"].received
    assert rest_of(back) == b""
    lab.open("broker-101", "broker-102").close()


def test_cut_holds_for_connections_opened_later(lab):
    lab.injector.inject("cut", CutLink(source=target("clients"), destination=target("broker-101")))
    link = lab.plan.link(CLIENTS, "broker-101")
    peer = lab.connect(link.listen)
    peer.sendall(b"into the void")
    eventually(lambda: lab.nodes["broker-101"].accepted == 1, "the proxy connects")
    lab.nodes["broker-101"].send_to_all(b"back")
    assert peer.recv(4) == b"back"
    assert lab.nodes["broker-101"].received == b""


def test_isolate_cuts_both_ways_from_the_named_set_only(lab):
    lab.injector.inject(
        "apart", NetworkPartition(target=target("broker-101"), away_from=target("controllers"))
    )
    have = {link.name: lab.api.toxics(link) for link in lab.plan.links}
    assert len(have["broker-101.controller-1"]) == 2
    assert {name for name, toxics in have.items() if toxics} == {"broker-101.controller-1"}
    lab.open("broker-102", "controller-1").close()


def test_shaping_faults_reach_the_proxies_with_their_figures(lab):
    ends = {"source": target("broker-101"), "destination": target("broker-102")}
    lab.injector.inject("slow", Latency(**ends, latency_ms=150, jitter_ms=20, both_ways=True))
    lab.injector.inject("thin", Bandwidth(**ends, kilobytes_per_second=5))
    kinds = {
        link.name: sorted(lab.api.toxics(link).values())
        for link in lab.plan.links
        if lab.api.toxics(link)
    }
    assert kinds == {
        "broker-101.broker-102": ["bandwidth", "latency", "latency"],
        "broker-102.broker-101": ["bandwidth", "latency", "latency"],
    }
    lab.injector.inject("heal", HealLinks())
    assert not any(lab.api.toxics(link) for link in lab.plan.links)


def test_bytes_on_a_slow_or_thin_link_come_after_later_ones_on_another(lab):
    node = lab.nodes["broker-101"]
    slow, other = lab.open("clients", "broker-101"), lab.open("broker-102", "broker-101")
    ends = {"source": target(CLIENTS), "destination": target("broker-101")}
    for fault in (Latency(**ends, latency_ms=20_000), Bandwidth(**ends, kilobytes_per_second=1)):
        injected = lab.injector.inject("held back", fault)
        before = node.received.count(b"s")
        slow.sendall(b"s" * 30_000)
        for number in range(10):
            ahead = node.received.count(b"x")
            other.sendall(b"x")
            eventually(
                lambda ahead=ahead: node.received.count(b"x") > ahead, f"byte {number} overtakes"
            )
        assert node.received.count(b"s") - before < 30_000, fault
        lab.injector.end(injected)
        whole = before + 30_000
        eventually(lambda whole=whole: node.received.count(b"s") == whole, "all came in the end")


def test_a_connection_closes_after_its_limit_of_bytes(lab):
    node = lab.nodes["broker-101"]
    ends = {"source": target(CLIENTS), "destination": target("broker-101")}
    lab.injector.inject("limited", LimitData(**ends, limit_bytes=7))
    peer = lab.connect(lab.plan.link(CLIENTS, "broker-101").listen)
    peer.sendall(b"0123456789")
    eventually(lambda: not is_open(peer), "the connection is closed")
    eventually(lambda: node.closed == 1, "the node sees the end")
    assert node.received == b"0123456"


def test_a_slow_close_reaches_the_node_after_later_ones_on_another_link(lab):
    node = lab.nodes["broker-101"]
    slow = lab.open("clients", "broker-101")
    others = [lab.open("broker-102", "broker-101") for _ in range(5)]
    ends = {"source": target(CLIENTS), "destination": target("broker-101")}
    injected = lab.injector.inject("slow close", SlowClose(**ends, delay_ms=20_000))
    slow.close()
    for count, other in enumerate(others, 1):
        other.close()
        eventually(lambda count=count: node.closed == count, f"connection {count} is closed")
    lab.injector.end(injected)
    eventually(lambda: node.closed == len(others) + 1, "the end of the fault lets the close pass")


def test_down_closes_and_refuses_until_it_ends(lab):
    peer = lab.open("clients", "broker-102")
    down = lab.injector.inject(
        "down", LinkDown(source=target("clients"), destination=target("broker-102"))
    )
    eventually(lambda: not is_open(peer), "the connection is closed")
    with pytest.raises(ConnectionError):
        connect(lab.plan.link(CLIENTS, "broker-102").listen)
    lab.injector.end(down)
    lab.open("clients", "broker-102").close()


def test_reset_peer_resets(lab):
    peer = lab.open("clients", "broker-101")
    lab.injector.inject(
        "reset", ResetPeer(source=target("clients"), destination=target("broker-101"))
    )
    peer.sendall(b"x")
    eventually(lambda: not is_open(peer), "the connection is reset")


def test_a_toxicity_of_half_resets_half_of_the_connections_and_spares_the_others(lab):
    node, link = lab.nodes["broker-101"], lab.plan.link(CLIENTS, "broker-101")
    peers = [lab.connect(link.listen) for _ in range(100)]
    eventually(lambda: node.accepted == 100, "every connection is through")
    fault = ResetPeer(source=target(CLIENTS), destination=target("broker-101"), toxicity=50)
    lab.injector.inject("reset some", fault)
    for peer in peers:
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"x")

    def spared() -> int:
        return sum(is_open(peer) for peer in peers)

    # Wait until each connection was reset or its byte came through.
    eventually(lambda: spared() == len(node.received) == 100 - node.closed, "all are settled")
    # Five standard deviations on each side of 50.
    assert 25 <= spared() <= 75


def test_a_cut_of_half_the_connections_swallows_the_bytes_of_about_half(lab):
    node, link = lab.nodes["broker-101"], lab.plan.link(CLIENTS, "broker-101")
    peers = [lab.connect(link.listen) for _ in range(100)]
    eventually(lambda: node.accepted == 100, "every connection is through")
    ends = {"source": target(CLIENTS), "destination": target("broker-101")}
    cut = lab.injector.inject("cut some", CutLink(**ends, toxicity=50))
    for peer in peers:
        peer.sendall(b"x")
    eventually(lambda: len(node.received) >= 25, "the bytes of the spared connections arrive")
    assert all(map(is_open, peers))
    lab.injector.end(cut)
    eventually(lambda: not any(map(is_open, peers)), "the end of a cut closes every connection")
    assert len(node.received) <= 75


def test_no_toxic_joins_a_cut_that_spares_connections(lab):
    ends = {"source": target(CLIENTS), "destination": target("broker-101")}
    cut = lab.injector.inject("cut some", CutLink(**ends, toxicity=50))
    slow = Latency(**ends, latency_ms=5)
    with pytest.raises(UnresolvableTarget, match="'cut some' cuts a share of the connections of"):
        lab.injector.inject("slow", slow)
    assert lab.injector.active() == [cut]
    # The other direction is a stream of its own.
    back = Latency(source=ends["destination"], destination=ends["source"], latency_ms=5)
    lab.injector.inject("slow answers", back)
    lab.injector.end(cut)
    lab.injector.inject("cut all", CutLink(**ends))
    lab.injector.inject("slow", slow)


@pytest.mark.parametrize(
    "name",
    [name for name, kind in LIVE_FAULTS.items() if "toxicity" in kind.__dataclass_fields__],
)
def test_every_toxic_reaches_the_proxy_with_its_toxicity(lab, name):
    needed = {
        "latency": {"latency_ms": 5},
        "bandwidth": {"kilobytes_per_second": 5},
        "slice": {"slice_bytes": 5},
        "limit_data": {"limit_bytes": 5},
        "slow_close": {"delay_ms": 5},
    }
    ends = {"source": CLIENTS, "destination": "broker-101", "toxicity": 30}
    lab.injector.inject(name, build_fault(name, ends | needed.get(name, {})))
    link = lab.plan.link(CLIENTS, "broker-101")
    url = f"http://127.0.0.1:{lab.api._port}/proxies/{link.name}/toxics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        (toxic,) = json.load(answer)
    assert toxic["toxicity"] == pytest.approx(0.3)


def test_faults_are_written_with_what_they_concern(lab):
    injected = lab.injector.inject(
        "apart", NetworkPartition(target=target("broker-101"), away_from=target("controllers"))
    )
    lab.injector.end(injected)
    lab.injector.end(injected)
    begin, end = lab.events()
    details = details_of(begin)
    assert details["nodes"] == ["broker-101"]
    assert details["links"] == ["broker-101.controller-1"]
    assert (details["led_partitions"], details["held_partitions"]) == ([0], [0, 1])
    assert details["is_active_controller"] is False
    assert details_of(end)["id"] == details["id"]


def test_fault_on_no_link_is_refused_and_leaves_nothing(lab):
    with pytest.raises(UnresolvableTarget, match="no link"):
        lab.injector.inject(
            "none", CutLink(source=target("clients"), destination=target("controllers"))
        )
    assert lab.injector.active() == []
    assert lab.events() == []


def test_fault_that_needs_the_simulator_is_refused_by_name(lab):
    with pytest.raises(KvorumError, match="cannot do cut_power"):
        lab.injector.inject("dark", CutPower(target=target("broker-101"), duration_ms=100))
    assert lab.injector.active() == []
    assert lab.events() == []


def test_pause_and_resume_stop_and_continue_a_process(lab):
    child = lab.start_process("broker-101")

    def state() -> str:
        with open(f"/proc/{child.pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    lab.injector.inject("pause", PauseNode(target=target("broker-101")))
    eventually(lambda: state() == "T", "the process is stopped")
    assert lab.cluster.paused == {"broker-101"}
    with pytest.raises(UnresolvableTarget, match="already"):
        lab.injector.inject("pause", PauseNode(target=target("broker-101")))
    lab.injector.inject("resume", ResumeNode())
    eventually(lambda: state() != "T", "the process goes on")
    assert lab.injector.active() == []


def test_kill_ends_a_process_at_once(lab):
    child = lab.start_process("broker-101")
    lab.injector.inject("kill", KillNode(target=target("broker-101")))
    assert child.wait(5) == -9
    assert lab.cluster.killed == {"broker-101"}
    # There is no launcher here that could restart it.
    lab.injector._active.clear()


def test_nothing_of_the_server_is_left_after_stop(tmp_path):
    port = processes.free_ports(1, random.Random())
    running = ToxiproxyServer(port=port, log_file=str(tmp_path / "log"))
    running.start()
    pid = running._process.pid
    running.stop()
    assert not processes.is_alive(pid)
    with pytest.raises(ConnectionError):
        connect(f"127.0.0.1:{port}")


def test_ports_that_are_all_taken_are_told_with_the_way_out(monkeypatch):
    monkeypatch.setattr(processes, "is_free", lambda host, port: False)
    with pytest.raises(processes.ProcessFailed, match=r"no port is free between 20000 and .*; end"):
        processes.free_ports(1, random.Random(1))
    with pytest.raises(processes.ProcessFailed, match="no 7 ports in a row are free between"):
        processes.free_ports(7, random.Random(1))


def test_two_runs_at_once_get_ports_of_their_own() -> None:
    ask = (
        "import random, sys; from kvorum.chaos.live.host.processes import free_ports;"
        "print(free_ports(60, random.Random(7)), flush=True); sys.stdin.read()"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        first, second = (int(run.stdout.readline()) for run in runs)
        assert abs(first - second) >= 60
    finally:
        for run in runs:
            run.communicate()
