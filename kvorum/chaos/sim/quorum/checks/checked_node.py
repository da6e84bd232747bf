"""A node in the form that checks use: facts to compare, and no method that changes the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.model.mirror import Mirror
    from kvorum.chaos.sim.quorum.model.state import ListState
    from kvorum.raft.core.raft_core import RaftCore
    from kvorum.raft.model.values import RaftConfig, VoteState
    from kvorum.raft.node.replica_log import ReplicaLog
    from kvorum.raft.node.snapshot_files import SnapshotFiles
    from kvorum.runtime.memory_disk import MemoryDisk


class CheckedNode(Protocol):
    """A simulated node (`chaos.sim.quorum.node.SimNode`).

    mirror: its log.
    durable_end_offset: records below it must survive a power cut.
    saved_vote: the vote state last saved.
    saving_vote: one whose save was under way when the node stopped.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def config(self) -> RaftConfig: ...

    @property
    def core(self) -> RaftCore: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def is_removed(self) -> bool: ...

    @property
    def has_decayed(self) -> bool: ...

    # The disk and its contents.

    @property
    def disk(self) -> MemoryDisk: ...

    @property
    def replica_log(self) -> ReplicaLog: ...

    @property
    def files(self) -> SnapshotFiles: ...

    @property
    def mirror(self) -> Mirror: ...

    @property
    def durable_end_offset(self) -> int: ...

    @property
    def saved_vote(self) -> VoteState: ...

    @property
    def saving_vote(self) -> VoteState | None: ...

    @property
    def applied(self) -> ListState:
        """State of the state machine."""

    def summary(self) -> str: ...
