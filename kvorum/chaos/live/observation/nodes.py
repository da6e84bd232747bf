"""The views of a system's nodes: which question goes to which node."""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.chaos.live.observation.kvorum_controller import KvorumControllerView
from kvorum.chaos.live.observation.observer import ANSWER_TIMEOUT_MS
from kvorum.chaos.live.observation.views import MetadataView, ObservedNode, QuorumView
from kvorum.chaos.live.systems.protocol import System

_KVORUM = "kvorum"


def views_of(
    system: System, *, topics: Sequence[str], timeout_ms: int = ANSWER_TIMEOUT_MS
) -> list[ObservedNode]:
    """A view of every node: each broker's own metadata of the topics, and the quorum as each node
    that can be asked about it answers. A Kvorum controller is asked over one channel that stays
    open, any other node as the system asks it."""
    witnesses = set(system.quorum_witnesses())
    views: list[ObservedNode] = []
    for node in system.nodes():
        if not node.is_controller:
            views.append(
                MetadataView(
                    node=node.name, address=node.listener, topics=topics, timeout_ms=timeout_ms
                )
            )
        if node.name not in witnesses:
            continue
        if system.name == _KVORUM and node.is_controller:
            views.append(
                KvorumControllerView(
                    node=node.name,
                    node_id=node.node_id,
                    address=node.listener,
                    timeout_ms=timeout_ms,
                )
            )
        else:
            views.append(QuorumView(node=node.name, node_id=node.node_id, ask=system.quorum_status))
    return views
