"""The requests to a shard about Streams groups, and their answers. Pure data.

A refusal with a message is a `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvorum.broker.groups.streams.configuring import ConfiguredTopology, GroupStatus
from kvorum.broker.groups.streams.description import TopologyDescription
from kvorum.broker.groups.streams.member import NO_TIMEOUT, Endpoint, StreamsMember
from kvorum.broker.groups.streams.tasks import AssignedTasks, Task, Tasks
from kvorum.broker.groups.streams.topology import InternalTopic, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """-> StreamsHeartbeated or Rejected. None (-1 for the time-out): unchanged since it was last
        sent.

    endpoint_epoch: of the endpoints that the member knows.
    topology: only when joining.
    owned: the tasks that the member has now.
    task_offsets, task_end_offsets: of the states on its disk, by task; pairs, as a task may be
        named twice.
    has_some_roles: it names its tasks of one role at least; `owned` has all three, or is None.
    knows_description: the client understands MISSING_CLIENT_TAGS, and describes its topology if
        asked (v1).
    """

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    task_offsets: tuple[tuple[Task, int], ...] | None = None
    task_end_offsets: tuple[tuple[Task, int], ...] | None = None
    shutdown_application: bool = False
    has_some_roles: bool = False
    knows_description: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPartitions:
    """The partitions that a member serves at its endpoint: (topic, partitions), by topic."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeated:
    """assignment: the tasks of the member; None if unchanged.
    endpoints: of all members; None if the member knows them.
    to_create: internal topics that are to be made in the member's name.
    is_description_required: the member is to push its topology's description.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    statuses: tuple[GroupStatus, ...] = ()
    assignment: AssignedTasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    to_create: tuple[InternalTopic, ...] = ()
    is_description_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeStreamsGroup:
    """-> StreamsGroupDescription; Rejected if there is no such group or it is of another type."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStreamsMember:
    member: StreamsMember
    target: Tasks
    task_offsets: tuple[tuple[Task, int], ...]
    task_end_offsets: tuple[tuple[Task, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescription:
    """configured: None unless the topology is ready. description: None if no member has told it for
    this epoch of the topology."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    topology: Topology | None
    configured: ConfiguredTopology | None
    description: TopologyDescription | None
    members: tuple[DescribedStreamsMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTopologyDescription:
    """-> ErrorCode or Rejected."""

    group_id: str
    member_id: str
    topology_epoch: int
    description: TopologyDescription
