"""A cluster whose nodes have different hosts, one of them an IPv6 address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.live.clients import settings
from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_nodes_find_each_other_and_clients_find_them(tmp_path: Path, ports: Ports) -> None:
    folder = tmp_path / "conf"
    places = ("--controller", "1@[::1]", "--broker", "101@127.0.0.2", "--broker", "102@[::1]")
    base = ("--port", str(ports.broker), "--controller-port", str(ports.controller))
    done = run_kvorum("init", str(folder), *places, *base, "--rack", "a", "--rack", "b")
    assert done.returncode == 0, done.stderr
    nodes: list[Command] = []
    try:
        for name in ("controller-1", "broker-101", "broker-102"):
            role, file = name.partition("-")[0], str(folder / f"{name}.toml")
            nodes.append(Command(role, "--config", file, error_file=tmp_path / f"{name}.err"))
        first, second = f"127.0.0.2:{ports.broker}", f"[::1]:{ports.broker}"
        create = ("topics", "create", "t", "--replication-factor", "2", "-b", second)
        eventually(lambda: run_kvorum(*create).returncode == 0, "both brokers are in service")
        status = run_kvorum("quorum", "status", "-b", first)
        assert f"CONTROLLER://[::1]:{ports.controller}" in status.stdout, status.stderr
        endpoints = run_kvorum("metadata", "cat", "/brokers/102/endpoints", "-b", first)
        assert f"PLAINTEXT://[::1]:{ports.broker}" in endpoints.stdout, endpoints.stderr
        producer = Producer(settings(first, acks="all"))
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
    finally:
        for node in reversed(nodes):
            node.close()
