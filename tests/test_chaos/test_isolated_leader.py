"""A leader that is cut off from the controllers alone, behind a real toxiproxy."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.live.host import processes
from kvorum.chaos.live.host.links import link_count, plan_links
from kvorum.chaos.live.host.toxiproxy import Toxic
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from kvorum.chaos.live.systems.kvorum import KvorumSystem
from kvorum.chaos.targets import CLIENTS
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

EXPERIMENT = """\
title: any
method: [{type: action, name: any, provider: {type: kvorum, func: kill, arguments: {
  target: active-controller, duration_ms: 1000}}}]
"""
NEVER_MS = 600_000
"""More than the test takes: no time-out of the client ends the wait for an answer."""

PRODUCER = {
    "linger.ms": 0, "enable.idempotence": True, "request.timeout.ms": NEVER_MS,
    "socket.timeout.ms": 300_000, "message.timeout.ms": 2 * NEVER_MS,
}  # fmt: skip


def cut_off_from_the_controllers(broker_id: int, plan: Any, server: ToxiproxyServer) -> None:
    for controller in plan.controllers:
        streams = plan.streams(f"broker-{broker_id}", controller, both_ways=True)
        assert streams
        for link, stream in streams:
            name = f"cut-{stream.value}"
            server.api.add_toxic(
                link, Toxic(name=name, kind="timeout", stream=stream, attributes={"timeout": 0})
            )


class Administrator:
    """An admin client that at first knows one broker alone, and takes it for the controller."""

    def __init__(self, plan: Any, broker_id: int) -> None:
        address = plan.link(CLIENTS, f"broker-{broker_id}").listen
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._created = 0

    def creates_a_topic(self) -> bool:
        self._created += 1
        name = f"side-{self._created}"
        created = self._admin.create_topics([NewTopic(name, 1, 2)], request_timeout=5)
        return created[name].exception(10) is None


def test_its_clients_go_to_the_new_leader_while_the_cut_lasts(tmp_path: Any) -> None:
    first = processes.free_ports(6 + link_count(3, 3) + 1, random.Random())
    plan = plan_links(3, 3, client_port=first, controller_port=first + 3, proxy_port=first + 6)
    cluster = KvorumSystem(
        shape=parse_experiment("x.yaml", EXPERIMENT).configuration,
        plan=plan,
        data_dir=str(tmp_path / "cluster"),
        log_file=str(tmp_path / "cluster.log"),
        client_port=first,
        controller_port=first + 3,
    )
    api_port = first + 6 + link_count(3, 3)
    with ToxiproxyServer(port=api_port, log_file=str(tmp_path / "toxiproxy.log")) as server:
        server.api.populate(plan.links)
        try:
            cluster.start()
            admin = AdminClient({"bootstrap.servers": plan.bootstrap()})
            topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
            admin.create_topics([topic])["t"].result(20)

            def leader() -> int:
                found: int = admin.list_topics("t", timeout=10).topics["t"].partitions[0].leader
                return found

            old = eventually(lambda: max(leader(), 0), "there is a leader")
            producer = Producer({"bootstrap.servers": plan.bootstrap(), **PRODUCER})
            written: list[object] = []

            def write() -> None:
                producer.produce("t", b"v", on_delivery=lambda error, _: written.append(error))

            write()
            eventually(lambda: producer.poll(0.05) or written, "the first is written")
            consumer = Consumer({"bootstrap.servers": plan.bootstrap(), "group.id": "g"})
            consumer.assign([TopicPartition("t", 0, 0)])
            read: list[int] = []

            def read_on() -> bool:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    read.append(message.offset() or 0)
                return bool(read)

            eventually(read_on, "the first is read")
            administrator = Administrator(plan, old)
            eventually(administrator.creates_a_topic, "a topic is created")
            cut_off_from_the_controllers(old, plan, server)
            sent = 1

            def is_deposed() -> bool:
                # The producer keeps sending records to the old leader.
                nonlocal sent
                write()
                sent += 1
                producer.poll(0.05)
                return leader() not in (-1, old)

            eventually(is_deposed, "another leads")
            write()
            poll = functools.partial(producer.poll, 0.05)
            eventually(lambda: len(written) == sent + 1, "all are written", meanwhile=poll)
            assert written == [None] * (sent + 1)
            eventually(administrator.creates_a_topic, "it asks another while the cut lasts")
            # By itself, librdkafka refreshes its metadata only every five minutes.
            eventually(
                lambda: [read_on(), len(read) == sent + 1][1], "all are read, from the new leader"
            )
            consumer.close()
        finally:
            cluster.stop()
