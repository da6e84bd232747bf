"""The fault `packet_loss`: rules of nftables on loopback, for the packets of one link alone."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import threading

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.faults import KillNode, PacketLoss
from kvorum.chaos.history import FAULT_END, HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.host import packet_filter
from kvorum.chaos.live.host.links import Link, ProxyStream, plan_links
from kvorum.chaos.live.host.packet_filter import (
    PacketFilter,
    PacketFilterFailed,
    rules_of,
    why_no_packet_loss,
)
from kvorum.chaos.live.systems import opening
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.limits import lacking
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import TargetView, parse_target
from kvorum.runtime.errors import KvorumError
from tests.polling import eventually

LOSS = PacketLoss(
    source=parse_target("broker-101"), destination=parse_target("broker-102"), loss_percent=30
)

#: Offset in bytes of `tcpi_total_retrans`, the number of packets sent again, in Linux's struct
#: tcp_info.
_TOTAL_RETRANS = 100


@pytest.fixture
def able():
    reason = why_no_packet_loss()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def why_unable(monkeypatch):
    """A machine that may not drop packets."""
    reason = "nft may not drop packets (Operation not permitted); run as root"
    monkeypatch.setattr(opening, "why_no_packet_loss", lambda: reason)
    return reason


def link(port: int) -> Link:
    return Link(source="a", destination="b", listen=f"127.0.0.1:{port}", upstream="127.0.0.1:1")


def test_each_direction_of_a_link_is_told_by_the_address_of_its_proxy():
    assert rules_of((link(7), ProxyStream.UPSTREAM), loss_percent=5) == (
        'iifname "lo" ip daddr 127.0.0.1 tcp dport 7 numgen random mod 100 < 5 counter drop'
    )
    assert rules_of((link(7), ProxyStream.DOWNSTREAM), loss_percent=100) == (
        'iifname "lo" ip saddr 127.0.0.1 tcp sport 7 counter drop'
    )


def test_the_fault_needs_links_and_lost_packets_and_describes_itself():
    assert needs_of(LOSS) == {Capability.LINKS, Capability.PACKET_LOSS}
    clients = PacketLoss(
        source=parse_target("clients"), destination=parse_target("brokers"), loss_percent=1
    )
    assert needs_of(clients) == {Capability.CLIENT_LINKS, Capability.PACKET_LOSS}
    assert LOSS.text() == "packet_loss broker-101 -> broker-102 loss_percent=30"


@pytest.mark.parametrize("loss_percent", [0, 101, 5.5])
def test_a_loss_is_a_whole_per_cent(loss_percent):
    ends = {"source": "clients", "destination": "brokers"}
    problems = build_fault("packet_loss", {**ends, "loss_percent": loss_percent})
    assert isinstance(problems, list)
    assert [problem.key for problem in problems] == ["loss_percent"]


class RecordedFilter:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def lose(self, name, streams, *, loss_percent) -> None:
        self.calls.append(
            ("lose", name, [(one.name, stream) for one, stream in streams], loss_percent)
        )

    def lost(self, name) -> int:
        return 17

    def stop(self, name) -> None:
        self.calls.append(("stop", name))


class LinkedSystem:
    max_nodes_down = None
    killed = paused = frozenset()
    fault_boards: dict = {}
    plan = plan_links(1, 2, client_port=1, controller_port=3, proxy_port=10)

    def view(self) -> TargetView:
        return TargetView(controllers=self.plan.controllers, brokers=self.plan.brokers)


def test_a_loss_hits_every_stream_in_its_direction_and_its_end_tells_how_much(tmp_path):
    path = str(tmp_path / "h.jsonl")
    system, packets = LinkedSystem(), RecordedFilter()
    with HistoryWriter(path, run_id="1", system="kvorum") as history:
        injector = Injector(
            system=system,
            toxiproxy=None,
            history=history,
            view=system.view,
            rng=random.Random(1),
            packets=packets,
        )
        injected = injector.inject("x", LOSS)
        assert injected.is_of_links
        streams = [
            ("broker-101.broker-102", ProxyStream.UPSTREAM),
            ("broker-102.broker-101", ProxyStream.DOWNSTREAM),
        ]
        assert packets.calls == [("lose", "fault_0", streams, 30)]
        injector.end(injected)
        assert packets.calls[1:] == [("stop", "fault_0")]
    (ended,) = (event for event in read_history(path) if event.f == FAULT_END)
    assert details_of(ended)["lost_packets"] == 17


def test_a_machine_that_may_not_drop_packets_refuses_before_anything_starts(why_unable):
    choice = choose_system("kvorum")
    (problem,) = lacking(LOSS, choice)
    assert problem == (
        "'packet_loss broker-101 -> broker-102 loss_percent=30' needs lost packets, which the "
        f"system kvorum does not have here: {why_unable}"
    )


def test_a_run_without_lost_packets_does_not_try_them_out(monkeypatch):
    monkeypatch.setattr(opening, "why_no_packet_loss", lambda: pytest.fail("tried out"))
    monkeypatch.setattr(packet_filter, "why_no_packet_loss", lambda: pytest.fail("tried out"))
    choice = choose_system("kvorum")
    assert lacking(KillNode(target=parse_target("one")), choice) == []
    with pytest.raises(pytest.fail.Exception, match="tried out"):
        lacking(LOSS, choice)


def test_the_reason_names_nft_and_the_way_out(monkeypatch):
    monkeypatch.setattr(packet_filter, "_nft", lambda: None)
    monkeypatch.setattr(packet_filter, "_TIMEOUT_MS", 100)
    packet_filter.why_no_packet_loss.cache_clear()
    try:
        assert why_no_packet_loss() == (
            "nft is not on PATH; install nftables, and run as root, or with CAP_NET_ADMIN"
        )
        monkeypatch.setattr(packet_filter, "_nft", lambda: "/bin/false")
        packet_filter.why_no_packet_loss.cache_clear()
        assert why_no_packet_loss().startswith("/bin/false may not drop packets (it ended with 1)")
        with contextlib.closing(PacketFilter()) as filter, pytest.raises(PacketFilterFailed):
            filter.lose("x", [(link(7), ProxyStream.UPSTREAM)], loss_percent=1)
    finally:
        packet_filter.why_no_packet_loss.cache_clear()


def tables() -> str:
    done = subprocess.run(
        [packet_filter._nft(), "list", "ruleset"], capture_output=True, text=True, check=True
    )
    return done.stdout


class Echo:
    """Sends back what it gets, on one connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while data := connection.recv(65_536):
                connection.sendall(data)

    def close(self) -> None:
        self._thread.join(60)
        self._listener.close()


@pytest.mark.live
def test_packets_of_the_link_are_lost_and_sent_again_and_no_others(able):
    filter, echo, other = PacketFilter(), Echo(), Echo()
    streams = [(link(echo.port), ProxyStream.UPSTREAM), (link(echo.port), ProxyStream.DOWNSTREAM)]
    try:
        with (
            socket.create_connection(("127.0.0.1", echo.port)) as victim,
            socket.create_connection(("127.0.0.1", other.port)) as spared,
        ):
            filter.lose("fault_1", streams, loss_percent=20)
            for number in range(30):
                for end in (victim, spared):
                    end.sendall(b"%08d" % number)
                    assert end.recv(8, socket.MSG_WAITALL) == b"%08d" % number
            assert filter.lost("fault_1") > 0
            assert retransmits(victim) > 0
            assert retransmits(spared) == 0
            filter.stop("fault_1")
            before = retransmits(victim)
            for _ in range(30):
                victim.sendall(b"x")
                assert victim.recv(1) == b"x"
            assert retransmits(victim) == before
    finally:
        filter.close()
        echo.close()
        other.close()
    assert filter._table not in tables()


def retransmits(end: socket.socket) -> int:
    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[_TOTAL_RETRANS : _TOTAL_RETRANS + 4], sys.byteorder)


@pytest.mark.live
def test_a_run_that_is_killed_outright_leaves_no_rule_behind(able):
    code = (
        "import sys\n"
        "from kvorum.chaos.live.host.links import Link, ProxyStream\n"
        "from kvorum.chaos.live.host.packet_filter import PacketFilter\n"
        "filter = PacketFilter()\n"
        "link = Link(source='a', destination='b', listen='127.0.0.1:9', upstream='127.0.0.1:1')\n"
        "filter.lose('fault_1', [(link, ProxyStream.UPSTREAM)], loss_percent=50)\n"
        "print(filter._table, flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    table = run.stdout.readline().strip()
    assert table in tables()
    run.kill()
    run.communicate()
    eventually(lambda: table not in tables(), "the kernel has removed the table")


@pytest.mark.live
def test_rules_that_are_gone_are_an_error_and_no_silence(able):
    filter = PacketFilter()
    filter.lose("fault_1", [(link(9), ProxyStream.UPSTREAM)], loss_percent=1)
    filter._process.kill()
    filter._process.wait()
    with pytest.raises(PacketFilterFailed, match="the rules of fault_1 are gone: nft ended with"):
        filter.lost("fault_1")
    with pytest.raises(PacketFilterFailed, match="nft takes no command"):
        filter.stop("fault_1")
    filter.close()


@pytest.mark.live
@pytest.mark.timeout(120)
def test_clients_deliver_through_a_lossy_link_and_nothing_through_a_dead_one(able, tmp_path):
    from confluent_kafka import Producer

    with Cluster(controllers=1, brokers=1, directory=tmp_path, proxies=True) as cluster:
        topic = cluster.create_topic("orders")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        ends = {"source": "clients", "destination": "broker-101"}
        with cluster.fault("packet_loss", **ends, loss_percent=15, both_ways=True) as lossy:
            for number in range(40):
                producer.produce(topic, b"%d" % number)
                producer.poll(0.01)
            assert producer.flush(60) == 0
        assert lossy.lost_packets > 0
        packets = cluster._injector._packets
        with cluster.fault("packet_loss", **ends, loss_percent=100) as dead:
            producer.produce(topic, b"waits")
            eventually(
                lambda: packets.lost(f"fault_{dead.fault_id}") > 2,
                "the record was sent again",
                meanwhile=lambda: producer.poll(0.05),
            )
            assert len(producer) == 1
        assert producer.flush(60) == 0


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_cluster_without_proxies_has_no_link_to_lose_packets_on(tmp_path):
    with (
        Cluster(controllers=1, brokers=1, directory=tmp_path, proxies=False) as cluster,
        pytest.raises(KvorumError, match="which this cluster does not have; "),
    ):
        cluster.inject("packet_loss", source="clients", destination="brokers", loss_percent=1)
