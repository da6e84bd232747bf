"""The views of a cluster's nodes: which question goes to which node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kvorum.chaos.live.observation.kvorum_controller import KvorumControllerView
from kvorum.chaos.live.observation.observer import ANSWER_TIMEOUT_MS
from kvorum.chaos.live.observation.views import BrokerView, QuorumView, View


class ObservedNode(Protocol):
    """What is to be known of a node. listener: its own host:port, past every proxy."""

    @property
    def name(self) -> str: ...

    @property
    def node_id(self) -> int: ...

    @property
    def is_controller(self) -> bool: ...

    @property
    def listener(self) -> str: ...


def views_of(
    nodes: Iterable[ObservedNode],
    *,
    topic: str,
    is_kvorum: bool,
    timeout_ms: int = ANSWER_TIMEOUT_MS,
) -> list[View]:
    """A view of every node.

    A broker is asked for the topic. A controller is asked for the quorum: Kvorum's by gRPC,
    Apache Kafka's by DescribeQuorum on its own listener, where only the leader answers. If no node
    is a controller that can be asked, every broker is asked for the quorum too.
    """
    known = list(nodes)
    views: list[View] = []
    for node in known:
        if not node.is_controller:
            views.append(
                BrokerView(
                    node=node.name, address=node.listener, topic=topic, timeout_ms=timeout_ms
                )
            )
    asked = [node for node in known if node.is_controller] or known
    for node in asked:
        if is_kvorum and node.is_controller:
            views.append(
                KvorumControllerView(
                    node=node.name,
                    node_id=node.node_id,
                    address=node.listener,
                    timeout_ms=timeout_ms,
                )
            )
        else:
            views.append(
                QuorumView(
                    node=node.name,
                    node_id=node.node_id,
                    address=node.listener,
                    timeout_ms=timeout_ms,
                )
            )
    return views
