"""A Streams group: its topology, members, epochs and target. Pure.

It has three epochs (KIP-1071), which never decrease:

  group epoch       rises when members, the topology's topics or the group's configs change
  assignment epoch  the group epoch that the target was made for
  member epoch      the assignment epoch that the member has reached

This module has the group's state and its records; the rules are in `heartbeat`, `membership` and
`targets`. Only `put` and `remove` change members; they keep the derived state (static_members,
holders) up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.steps.member_sessions import MemberSessions
from kvorum.broker.groups.steps.timers import StreamsSessionTimer
from kvorum.broker.groups.streams import records
from kvorum.broker.groups.streams.configuring import ConfiguredTopology
from kvorum.broker.groups.streams.description import TopologyDescription, encode_description
from kvorum.broker.groups.streams.member import StreamsMember
from kvorum.broker.groups.streams.reconciliation import Holders
from kvorum.broker.groups.streams.records import StreamsEpoch, StreamsKey, TargetEpoch
from kvorum.broker.groups.streams.states import StreamsGroupState
from kvorum.broker.groups.streams.tasks import NO_ROLES, Task, Tasks
from kvorum.broker.groups.streams.topology import NO_TOPOLOGY_EPOCH, Topology

TYPE_NAME = "streams"
PROTOCOL_TYPE = "streams"

FIRST_EPOCH = 1
"""Both epochs of a group that has none yet, as in Kafka."""


class StreamsGroup:
    """members: by id.
    static_members: member ids by instance id.
    topology: as the first member brought it; None until its record is there.
    readers, required_topics: of the topology: the subtopology that reads each input; all topics.
    configured: the topology beside the topics of the image; None if it was never looked up.
    targets: of each member.
    holders: by task and role, the ids of the processes that were told of it and have not given it
        up. (With each role's member ids: a process may have several.)
    is_metadata_stale: topics may have changed since metadata_hash was computed.
    has_initial_delay: the target waits until the time for first members to join is over.
    task_offsets, task_end_offsets: as members last reported them; not in the log.
    shutdown_requested_by: the member that asked all to stop; forgotten with the last member.
    endpoint_epoch: rises when what an endpoint serves changes; not in the log.
    description: of the topology, as a member pushed it.
    description_asked_ms: when a member was last asked for it; None if none was since the load.
    """

    __slots__ = (
        "_active",
        "_standby",
        "_warmup",
        "configured",
        "description",
        "description_asked_ms",
        "endpoint_epoch",
        "epoch",
        "group_id",
        "has_initial_delay",
        "is_metadata_stale",
        "members",
        "readers",
        "required_topics",
        "sessions",
        "shutdown_requested_by",
        "static_members",
        "target_epoch",
        "targets",
        "task_end_offsets",
        "task_offsets",
        "topology",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = StreamsEpoch(FIRST_EPOCH)
        self.target_epoch = TargetEpoch(FIRST_EPOCH)
        self.topology: Topology | None = None
        self.readers: dict[str, str] = {}
        self.required_topics: set[str] = set()
        self.configured: ConfiguredTopology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Tasks] = {}
        self.is_metadata_stale = True
        self.has_initial_delay = False
        self.task_offsets: dict[str, dict[Task, int]] = {}
        self.task_end_offsets: dict[str, dict[Task, int]] = {}
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0
        self.description: TopologyDescription | None = None
        self.description_asked_ms: int | None = None
        self.sessions = MemberSessions(lambda member_id: StreamsSessionTimer(group_id, member_id))
        self._active: dict[Task, dict[str, str]] = {}
        self._standby: dict[Task, dict[str, str]] = {}
        self._warmup: dict[Task, dict[str, str]] = {}

    # --- state -------------------------------------------------------------------------------

    @property
    def group_epoch(self) -> int:
        return self.epoch.epoch

    @property
    def assignment_epoch(self) -> int:
        return self.target_epoch.epoch

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.epoch.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def topology_epoch(self) -> int:
        return NO_TOPOLOGY_EPOCH if self.topology is None else self.topology.epoch

    def target(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_ROLES)

    def is_subscribed_to(self, topic: str) -> bool:
        """True if members read the topic."""
        return bool(self.members) and topic in self.readers

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self.readers = {} if topology is None else topology.readers()
        self.required_topics = set() if topology is None else topology.required_topics()

    @property
    def holders(self) -> Holders:
        return Holders(
            active=lambda task: next(iter(self._active.get(task, {}).values()), None),
            standby=lambda task: frozenset(self._standby.get(task, {}).values()),
            warmup=lambda task: frozenset(self._warmup.get(task, {}).values()),
        )

    # --- members -----------------------------------------------------------------------------

    def put(self, member: StreamsMember) -> None:
        """Set the member."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._let_go(before)
            self._forget_instance(before)
        self.members[member.member_id] = member
        for book, tasks in self._held(member):
            for task in tasks:
                book.setdefault(task, {})[member.member_id] = member.process_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove the member and its target; its tasks are free."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        self.task_offsets.pop(member_id, None)
        self.task_end_offsets.pop(member_id, None)
        if member is not None:
            self._let_go(member)
            self._forget_instance(member)
        if not self.members:
            self.shutdown_requested_by = None

    def _held(
        self, member: StreamsMember
    ) -> Iterator[tuple[dict[Task, dict[str, str]], Iterable[Task]]]:
        for tasks in (member.assigned, member.pending_revocation):
            yield self._active, tasks.active
            yield self._standby, tasks.standby
            yield self._warmup, tasks.warmup

    def _let_go(self, member: StreamsMember) -> None:
        for book, tasks in self._held(member):
            for task in tasks:
                holders = book.get(task)
                if holders is not None:
                    holders.pop(member.member_id, None)
                    if not holders:
                        del book[task]

    def _forget_instance(self, member: StreamsMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    # --- the log -----------------------------------------------------------------------------

    def epoch_record(self) -> CoordinatorRecord:
        return self._record(records.GROUP_EPOCH, records.encode_epoch(self.epoch))

    def topology_record(self, topology: Topology) -> CoordinatorRecord:
        return self._record(records.TOPOLOGY, records.encode_topology_value(topology))

    def description_record(self, description: TopologyDescription) -> CoordinatorRecord:
        value = encode_description(description)
        return self._record(records.TOPOLOGY_DESCRIPTION, value)

    def metadata_record(self, member: StreamsMember) -> CoordinatorRecord:
        value = records.encode_member(member)
        return self._record(records.MEMBER_METADATA, value, member.member_id)

    def current_record(self, member: StreamsMember) -> CoordinatorRecord:
        value = records.encode_current_assignment(member)
        return self._record(records.CURRENT_ASSIGNMENT, value, member.member_id)

    def target_record(self, member_id: str) -> CoordinatorRecord:
        value = records.encode_target(self.target(member_id))
        return self._record(records.MEMBER_TARGET, value, member_id)

    def target_epoch_record(self) -> CoordinatorRecord:
        return self._record(records.TARGET_EPOCH, records.encode_target_epoch(self.target_epoch))

    def member_tombstones(self, member_id: str) -> Iterator[CoordinatorRecord]:
        """The tombstones of a member, in Kafka's order: a reader that sees only some of them finds
        a member without tasks."""
        for record_type in (
            records.CURRENT_ASSIGNMENT,
            records.MEMBER_TARGET,
            records.MEMBER_METADATA,
        ):
            yield self._record(record_type, None, member_id)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The tombstones of the whole group."""
        for member_id in self.members:
            yield from self.member_tombstones(member_id)
        types = [records.TARGET_EPOCH, records.GROUP_EPOCH, records.TOPOLOGY]
        if self.description is not None:
            types.insert(0, records.TOPOLOGY_DESCRIPTION)
        for record_type in types:
            yield self._record(record_type, None)

    def _record(
        self, record_type: int, value: bytes | None, member_id: str = ""
    ) -> CoordinatorRecord:
        key = records.encode_key(StreamsKey(record_type, self.group_id, member_id))
        return CoordinatorRecord(key, value)

    def summary(self) -> str:
        """One line for logs and tests."""
        members = ",".join(
            f"{m.member_id}@{m.member_epoch}/{m.state.name.lower()}" for m in self.members.values()
        )
        return (
            f"{self.group_id} {self.state.value} epoch={self.group_epoch} "
            f"assignment={self.assignment_epoch} members={members or '-'}"
        )
