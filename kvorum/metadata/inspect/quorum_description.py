"""A node's description of the quorum, as a message for operators."""

from __future__ import annotations

from kvorum.raft.core.states import Leader
from kvorum.raft.model.progress import ReplicaProgress
from kvorum.raft.node.raft_node import RaftNode
from kvorum.raft.node.transport import Address
from kvorum.rpc import admin_pb2 as pb
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.text import address_text

EPOCHS_MAX = 20
"""Leader epochs of the log that a description names."""


def fill(message: pb.DescribeQuorumReply, node: RaftNode, configured: dict[int, Address]) -> None:
    """Add the log, nodes and replicas to the message; only the leader knows the replicas' progress.

    configured: the controllers in the configuration. Dynamic voters, and controllers that follow
        without a vote, are added to them.
    """
    core = node.core
    role = core.role
    message.log_start_offset, message.log_end_offset = core.log.start_offset, core.log.end_offset
    for epoch, start_offset in core.log.epochs[-EPOCHS_MAX:]:
        message.epochs.add(epoch=epoch, start_offset=start_offset)
    addresses = dict(configured)
    for voter in core.voter_set.voters:
        if voter.host:
            addresses[voter.node_id] = (voter.host, voter.port)
    leader_address = node.address_of(core.leader_id)
    if core.leader_id >= 0 and leader_address is not None:
        addresses.setdefault(core.leader_id, leader_address)
    if isinstance(role, Leader):
        for progress in role.observers.values():
            if progress.address is not None:
                addresses.setdefault(progress.node_id, progress.address)
    for node_id, (host, port) in sorted(addresses.items()):
        message.nodes.add(node_id=node_id, host=host, port=port)
    if isinstance(role, Leader):
        _add_leader_view(message, node, role)
        return
    for voter in core.voter_set.voters:
        progress = ReplicaProgress(voter.node_id, voter.directory_id)
        message.voters.append(_replica(progress, node.clock.wall_ms(), None))


def _add_leader_view(message: pb.DescribeQuorumReply, node: RaftNode, role: Leader) -> None:
    now_wall_ms = node.clock.wall_ms()
    own = pb.QuorumReplica(
        node_id=node.config.node_id,
        log_end_offset=node.core.log.end_offset,
        last_fetch_timestamp_ms=now_wall_ms,
        last_caught_up_timestamp_ms=now_wall_ms,
        directory_id=node.config.directory_id,
        address=_text(node.config.address),
        clock_ahead_ms=0,
    )
    ahead_ms = node.servicer.clocks.ahead_ms
    # A leader that was removed leads without a vote until its removal is committed.
    (message.voters if node.core.is_voter else message.observers).append(own)
    for replicas, seen in ((message.voters, role.voters), (message.observers, role.observers)):
        replicas.extend(_replica(p, now_wall_ms, ahead_ms.get(p.node_id)) for p in seen.values())


def _replica(
    progress: ReplicaProgress, now_wall_ms: int, clock_ahead_ms: int | None
) -> pb.QuorumReplica:
    # Progress has times of the monotonic clock; people and tools read the wall clock.
    shift_ms = now_wall_ms - monotonic_ms()
    return pb.QuorumReplica(
        node_id=progress.node_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp_ms=_wall(progress.last_fetch_ms, shift_ms),
        last_caught_up_timestamp_ms=_wall(progress.last_caught_up_ms, shift_ms),
        directory_id=progress.directory_id,
        address=_text(progress.address),
        clock_ahead_ms=clock_ahead_ms,
    )


def _text(address: Address | None) -> str:
    return "" if address is None else address_text(*address)


def _wall(at_ms: int, shift_ms: int) -> int:
    return -1 if at_ms < 0 else at_ms + shift_ms
