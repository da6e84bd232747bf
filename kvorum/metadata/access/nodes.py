"""The principal of each node: a node may send in its own name alone. Pure.

CLUSTER_ACTION tells nodes from clients, but not one node from another: with it alone, a broker
could vote as a controller, or acknowledge records in the name of a replica that does not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

ID = "{id}"
"""Stands for the node's id in a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrincipals:
    """The users as which nodes connect: `broker-{id}` is that of every broker, with its id. Neither
    pattern is empty, and no name matches both."""

    controllers: str
    brokers: str

    def controller(self, node_id: int) -> str:
        """The user as which controller `node_id` connects."""
        return self.controllers.replace(ID, str(node_id))

    def broker(self, node_id: int) -> str:
        """The user as which broker `node_id` connects."""
        return self.brokers.replace(ID, str(node_id))

    def refusal(self, path: str, message: Any, user: str) -> str | None:
        """Why this user may not send this message, in a sentence; None if the user may.

        path: of the method. A message that names no sender is nobody's, and so everybody's.
        """
        sender = SENDER_OF.get(path)
        if sender is None:
            return None
        node_id = sender.id_in(message)
        # Below 0: a replica without an id, which can acknowledge nothing.
        if node_id < 0 and sender.may_be_nobody:
            return None
        is_own = (sender.may_be_controller and user == self.controller(node_id)) or (
            sender.may_be_broker and user == self.broker(node_id)
        )
        if is_own:
            return None
        return (
            f"{path} is refused to User:{user}, who is not node {node_id} by "
            "kvorum.controller.principals and kvorum.broker.principals"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The node that a message says it comes from. id_in: reads its id from the message."""

    id_in: Callable[[Any], int]
    may_be_controller: bool = False
    may_be_broker: bool = False
    may_be_nobody: bool = False


def _controller(name: str) -> Sender:
    return Sender(id_in=attrgetter(name), may_be_controller=True)


_REPLICA = Sender(
    id_in=attrgetter("replica_id"), may_be_controller=True, may_be_broker=True, may_be_nobody=True
)
"""Brokers fetch the metadata log as observers."""

_RAFT = {
    "Vote": _controller("candidate_id"),
    "BeginQuorumEpoch": _controller("leader_id"),
    "EndQuorumEpoch": _controller("leader_id"),
    "Fetch": _REPLICA,
    "FetchSnapshot": _REPLICA,
    "UpdateVoter": _controller("voter.node_id"),
}
_BROKER = Sender(id_in=attrgetter("broker_id"), may_be_broker=True)
_CONTROLLER = {
    "RegisterBroker": _BROKER,
    "Heartbeat": _BROKER,
    "AlterPartition": _BROKER,
    "AllocateProducerIds": _BROKER,
    "AssignReplicas": _BROKER,
    "RegisterController": _controller("controller_id"),
}

SENDER_OF: Mapping[str, Sender] = {
    f"/kvorum.rpc.{service}/{method}": sender
    for service, methods in (("Raft", _RAFT), ("Controller", _CONTROLLER))
    for method, sender in methods.items()
}
"""Path of a method -> the sender that its messages name."""
