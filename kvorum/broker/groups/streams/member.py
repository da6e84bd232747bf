"""One member of a Streams group, as its records describe it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import NOTHING_ASSIGNED, AssignedTasks
from kvorum.broker.groups.streams.topology import NO_TOPOLOGY_EPOCH

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that is away and keeps its place until its session ends."""
NO_TIMEOUT = -1


class Endpoint(NamedTuple):
    """Where an instance of the application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """One member: a thread of an instance of the application.

    process_id: of the instance, whose members share their state directory.
    client_tags: sorted by key.
    member_epoch: epoch of its assignment, 0 before the first.
    previous_member_epoch: a member that lost the answer with its current epoch may still send this
        one.
    assigned: the tasks that it may work on now.
    pending_revocation: tasks that it was told to give up and may still work on.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has exactly its target of that epoch."""
        is_stable = self.state == StreamsMemberState.STABLE
        return is_stable and self.member_epoch == assignment_epoch

    @property
    def metadata(self) -> tuple[object, ...]:
        """The fields of the record of a member's metadata."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            self.user_endpoint,
            self.client_tags,
        )

    @property
    def placement(self) -> tuple[object, ...]:
        """The fields that decide which tasks a static member gets: others change without a new
        assignment, so that a restart under the same instance id moves nothing."""
        return (self.topology_epoch, self.rack_id, self.client_tags, self.process_id)
