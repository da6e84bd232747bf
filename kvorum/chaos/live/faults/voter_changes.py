"""Voters added and removed, as kafka-metadata-quorum does it (KIP-853)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.faults import AddVoter, RemoveVoter
from kvorum.chaos.live.faults.operator_calls import ask_any_broker, error_text
from kvorum.chaos.live.host.node_requests import Call
from kvorum.chaos.live.systems.protocol import NotObservable, System, node_named
from kvorum.chaos.live.systems.quorum_requests import METADATA_QUORUM
from kvorum.chaos.targets import UnresolvableTarget
from kvorum.launch.config.property_classes import CONTROLLER
from kvorum.runtime.clock import monotonic_ms
from kvorum.wire.kio_codec import uuid_bytes

_DESCRIBE_QUORUM = Call(key=55, name="describe_quorum", version=2)
_ADD = Call(key=80, name="add_raft_voter", version=0)
_REMOVE = Call(key=81, name="remove_raft_voter", version=0)

#: Time for the new voter to catch up: the request's timeout. It is shorter than the time that
#: `ask_any_broker` waits for the answer.
_CATCH_UP_MS = 4_000
#: Time in which a change whose answer was lost may still show in the voter set.
_SHOWS_MS = 2_000
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMembers:
    """The quorum by its leader.

    voters: node id -> directory id.
    observers: node id -> directory id of the disk that fetches now, brokers included.
    """

    voters: dict[int, bytes]
    observers: dict[int, bytes]


def members_of(system: System) -> QuorumMembers:
    """Voters and observers. Raises NotObservable."""
    answer = ask_any_broker(system, _DESCRIBE_QUORUM, METADATA_QUORUM)
    if not answer.topics:
        code = int(answer.error_code)
        raise NotObservable(f"the quorum was not described: {error_text(code, answer)}")
    found = answer.topics[0].partitions[0]
    if int(found.error_code) != 0:
        code = int(found.error_code)
        raise NotObservable(f"the quorum was not described: {error_text(code, found)}")
    # A node may be listed twice: with a lost disk, and with the present one, which fetched later.
    fetching = sorted(found.observers, key=lambda replica: int(replica.last_fetch_timestamp))
    return QuorumMembers(
        voters={int(replica.replica_id): _directory(replica) for replica in found.current_voters},
        observers={int(replica.replica_id): _directory(replica) for replica in fetching},
    )


def change_voters(system: System, fault: AddVoter | RemoveVoter, name: str) -> None:
    """Add or remove one voter; returns when the quorum has the voter set that was asked for.

    Raises UnresolvableTarget if the quorum refuses, or if it cannot be asked: after an election or
    a restart the same request may succeed.
    """
    node_id = node_named(system, name).node_id
    try:
        members = members_of(system)
        if isinstance(fault, AddVoter):
            call, values = _ADD, _addition(system, members, name, node_id)
        else:
            call, values = _REMOVE, _removal(members, name, node_id)
        refusal = _refusal(system, call, values)
        wanted = values["voter_directory_id"] if isinstance(fault, AddVoter) else None
        if _is_made(system, node_id, wanted, within_ms=_SHOWS_MS if refusal else 0):
            return
    except NotObservable as error:
        raise UnresolvableTarget(f"the voters were not changed: {error}") from error
    reason = refusal or "the quorum's leader does not show the change"
    raise UnresolvableTarget(f"{call.name} of {name} was refused: {reason}")


def _addition(system: System, members: QuorumMembers, name: str, node_id: int) -> dict[str, Any]:
    directory = members.observers.get(node_id)
    if members.voters.get(node_id) is not None:
        other = "" if directory in (None, members.voters[node_id]) else ", with its former disk"
        raise UnresolvableTarget(f"{name} is a voter already{other}; remove it first")
    if directory is None:
        raise UnresolvableTarget(f"{name} does not follow the quorum yet, so it cannot be added")
    host, port = system.controller_listener(name)
    return {
        "cluster_id": None,
        "timeout": _CATCH_UP_MS,
        "voter_id": node_id,
        "voter_directory_id": directory,
        "listeners": [{"name": CONTROLLER, "host": host, "port": port}],
    }


def _removal(members: QuorumMembers, name: str, node_id: int) -> dict[str, Any]:
    directory = members.voters.get(node_id)
    if directory is None:
        voters = ", ".join(map(str, sorted(members.voters)))
        raise UnresolvableTarget(f"{name} is not among the voters ({voters})")
    return {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory}


def _refusal(system: System, call: Call, values: dict[str, Any]) -> str:
    """The reason why the change was refused, or why its outcome is unknown; empty if it is made."""
    try:
        answer = ask_any_broker(system, call, values)
    except NotObservable as error:
        return str(error)
    code = int(answer.error_code)
    return error_text(code, answer) if code else ""


def _is_made(system: System, node_id: int, directory: bytes | None, *, within_ms: int) -> bool:
    """True if the voter set has the node with that directory; without one, if it lacks the node."""
    deadline_ms = monotonic_ms() + within_ms
    while True:
        if members_of(system).voters.get(node_id) == directory:
            return True
        if monotonic_ms() >= deadline_ms:
            return False
        time.sleep(_LOOK_AGAIN_S)


def _directory(replica: Any) -> bytes:
    return uuid_bytes(replica.replica_directory_id)
