from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from kvorum.chaos.checks import run_checks_of
from kvorum.chaos.history import HistoryWriter, read_history
from kvorum.chaos.live.observation.changes import HIGH_WATERMARK_MS, Changes
from kvorum.chaos.live.observation.nodes import views_of
from kvorum.chaos.live.observation.observer import Observer
from kvorum.chaos.live.observation.views import MetadataView, ObservedNode, QuorumView
from kvorum.chaos.live.systems.protocol import Node as SystemNode
from kvorum.chaos.live.systems.protocol import NotObservable, QuorumStatus
from kvorum.chaos.outages.observations import (
    PartitionSeen,
    QuorumSeen,
    Unanswered,
    read_observation,
)
from kvorum.wire.kio_codec import encode_response
from tests.polling import eventually

from .histories import HistoryBuilder

PARTITION = {
    "error_code": 0, "partition_index": 3, "leader_id": 102, "leader_epoch": 7,
    "replica_nodes": [101, 102, 103], "isr_nodes": [102, 103], "offline_replicas": [],
}  # fmt: skip


def metadata(partitions: list[dict[str, Any]], *, error: int = 0) -> bytes:
    topic = {
        "error_code": error, "name": "orders", "topic_id": None, "is_internal": False,
        "partitions": partitions, "topic_authorized_operations": -2147483648,
    }  # fmt: skip
    answer = {
        "throttle_time": 0, "brokers": [], "cluster_id": "c", "controller_id": 101,
        "topics": [topic],
    }  # fmt: skip
    return bytes(encode_response("metadata", 12, answer))


class Node:
    """Answers every frame with what `answer` makes of its body; None closes the connection."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = 0
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with peer:
                self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        while head := peer.recv(4, socket.MSG_WAITALL):
            request = peer.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            self.asked += 1
            body = self._answer(self.asked)
            if body is None:
                return
            message = request[4:8] + b"\x00" + body
            peer.sendall(struct.pack(">i", len(message)) + message)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the accept, so that the thread ends.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()


def broker_view(node: Node) -> MetadataView:
    return MetadataView(
        node="broker-101", address=node.address, topics=["orders"], timeout_ms=5_000
    )


def looked(view: ObservedNode) -> list[object]:
    """The views of one look; the connection is closed afterwards."""
    with closing(view):
        return list(view.observe())


def test_a_broker_says_who_leads_in_which_epoch():
    with Node(lambda _: metadata([PARTITION])) as node:
        (seen,) = looked(broker_view(node))
    assert seen == PartitionSeen(
        observer="broker-101", topic="orders", partition=3, leader=102, leader_epoch=7,
        isr=(102, 103), replicas=(101, 102, 103),
    )  # fmt: skip


def test_a_topic_with_an_error_is_no_observation():
    with Node(lambda _: metadata([PARTITION], error=3)) as node:
        assert looked(broker_view(node)) == []


def test_a_connection_that_a_broker_closed_is_opened_again():
    with Node(lambda number: None if number == 2 else metadata([])) as node:
        view = broker_view(node)
        view.observe()
        view.observe()
        assert (node.connections, node.asked) == (2, 3)
        view.close()


def test_a_broker_that_closes_a_new_connection_does_not_answer():
    with Node(lambda _: None) as node, pytest.raises(ConnectionError, match="closed"):
        looked(broker_view(node))


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\x00" * 3])
def test_an_answer_that_is_none_is_an_error(answer):
    with Node(lambda _: answer) as node, pytest.raises(ConnectionError, match="metadata"):
        looked(broker_view(node))


@pytest.mark.parametrize(("leader_id", "high_watermark"), [(1, 40), (2, -1)])
def test_only_the_leaders_own_high_watermark_counts(leader_id, high_watermark):
    def ask(name: str) -> QuorumStatus:
        assert name == "controller-1"
        return QuorumStatus(leader_id=leader_id, leader_epoch=4, high_watermark=40)

    (seen,) = looked(QuorumView(node="controller-1", node_id=1, ask=ask))
    assert seen == QuorumSeen(
        observer="controller-1", leader_id=leader_id, leader_epoch=4, high_watermark=high_watermark
    )


def test_a_node_that_says_nothing_of_the_quorum_does_not_answer():
    def ask(name: str) -> QuorumStatus:
        raise NotObservable(f"{name} is not the leader")

    with pytest.raises(OSError, match="controller-1 is not the leader"):
        looked(QuorumView(node="controller-1", node_id=1, ask=ask))


class Nodes:
    """The part of a system that `views_of` needs."""

    def __init__(self, name: str, *, witnesses: list[str]) -> None:
        self.name = name
        self._witnesses = witnesses

    def nodes(self) -> list[SystemNode]:
        return [
            SystemNode(
                name=name, node_id=node_id, is_controller=is_controller, pid=None, state="running",
                listener=f"127.0.0.1:{9000 + node_id}", log_file="",
            )
            for name, node_id, is_controller in (("c-1", 1, True), ("b-1", 101, False))
        ]  # fmt: skip

    def quorum_witnesses(self) -> list[str]:
        return self._witnesses

    def quorum_status(self, name: str) -> QuorumStatus:
        raise NotObservable(name)


@pytest.mark.parametrize(
    ("system", "witnesses", "expected"),
    [
        ("kvorum", ["c-1"], [("KvorumControllerView", "c-1"), ("MetadataView", "b-1")]),
        ("kafka", ["c-1"], [("QuorumView", "c-1"), ("MetadataView", "b-1")]),
        ("attached", ["b-1"], [("MetadataView", "b-1"), ("QuorumView", "b-1")]),
    ],
)
def test_every_node_is_asked_on_its_own(system, witnesses, expected):
    views = views_of(Nodes(system, witnesses=witnesses), topics=["t"])
    for view in views:
        view.close()
    assert [(type(view).__name__, view.node) for view in views] == expected


def seen(leader: int, epoch: int, observer: str = "broker-101", isr=(101, 102)) -> PartitionSeen:
    return PartitionSeen(
        observer=observer, topic="orders", partition=0, leader=leader, leader_epoch=epoch, isr=isr,
        replicas=(101, 102),
    )  # fmt: skip


def test_only_changes_are_written():
    changes = Changes("broker-101")
    assert changes.seen([seen(101, 1)], 0) == [seen(101, 1)]
    assert changes.seen([seen(101, 1)], 100) == []
    assert changes.seen([seen(102, 2)], 200) == [seen(102, 2)]


def test_silence_is_written_once_and_what_comes_after_it_is_news():
    changes = Changes("broker-101")
    changes.seen([seen(101, 1)], 0)
    assert changes.missing("timed out") == [Unanswered(observer="broker-101", error="timed out")]
    assert changes.missing("timed out") == []
    assert changes.seen([seen(101, 1)], 300) == [seen(101, 1)]
    assert len(changes.missing("refused")) == 1


def test_a_rising_high_watermark_is_written_once_a_second_and_a_falling_one_at_once():
    def at(high_watermark: int, epoch: int = 1) -> QuorumSeen:
        return QuorumSeen(
            observer="c", leader_id=1, leader_epoch=epoch, high_watermark=high_watermark
        )

    changes = Changes("c")
    assert changes.seen([at(5)], 0) == [at(5)]
    assert changes.seen([at(6)], 100) == []
    assert changes.seen([at(4)], 200) == [at(4)]
    assert changes.seen([at(9)], 300) == []
    assert changes.seen([at(9)], 200 + HIGH_WATERMARK_MS) == [at(9)]
    assert changes.seen([at(9, epoch=2)], 1_300) == [at(9, epoch=2)]


def test_the_observer_writes_a_history_that_reads_back(tmp_path):
    def answer(number: int) -> bytes | None:
        return None if number in (3, 4) else metadata([PARTITION])

    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history, Node(answer) as node:
        observer = Observer(views=[broker_view(node)], history=history, poll_interval_ms=1)
        observer.start()
        eventually(lambda: node.asked > 6, "the node was asked again after its silence")
        observer.stop(timeout_ms=5_000)
        assert observer.failure is None
    kinds = [type(read_observation(event)).__name__ for event in read_history(path)]
    assert kinds == ["PartitionSeen", "Unanswered", "PartitionSeen"]


def test_two_brokers_that_name_two_leaders_in_one_epoch_are_found():
    history = HistoryBuilder()
    for leader, observer in ((101, "broker-101"), (102, "broker-102")):
        history.observed(partition=0, **seen(leader, 5, observer).details())
    (found,) = (check for check in run_checks_of(history.events) if check.check == "two-leaders")
    assert found.count == 1
    assert "101 and 102 in epoch 5" in found.findings[0].message
