"""The group epoch of a Streams group, its topics, and the target made for them. Pure.

The functions change the group and add the records to write to `StreamsStep.out`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.consumer.targets import topics_hash
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.streams import settings
from kvorum.broker.groups.streams.assignor import Worker, assign_sticky
from kvorum.broker.groups.streams.configuring import ConfiguredTopology, GroupStatus, configure
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.records import TargetEpoch
from kvorum.broker.groups.streams.states import Status
from kvorum.broker.groups.streams.tasks import NO_ROLES, Tasks
from kvorum.broker.groups.streams.topology import NO_TOPOLOGY_EPOCH, Topology
from kvorum.metadata.image.image import ClusterImage

_BY_DELAY = GroupStatus(
    Status.ASSIGNMENT_DELAYED,
    "Assignment delayed due to the configured initial rebalance delay.",
)
_BY_INTERVAL = GroupStatus(
    Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
)


@dataclass(slots=True)
class StreamsStep:
    """One step of a Streams group: its inputs, and the records to write, in order."""

    image: ClusterImage
    effects: StepEffects
    out: list[CoordinatorRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The topology and its topics, as a heartbeat finds them.

    is_new: the topology has no record yet.
    metadata_hash: of the topics that it requires.
    """

    topology: Topology
    is_new: bool
    configured: ConfiguredTopology
    metadata_hash: int

    @property
    def validated_epoch(self) -> int:
        return self.topology.epoch if self.configured.is_ready else NO_TOPOLOGY_EPOCH


def look_up(group: StreamsGroup, topology: Topology, step: StreamsStep) -> Looked:
    """Look the topics up, if they may have changed. Raises TopologyRefused; changes nothing."""
    is_new = group.topology is None
    found, metadata_hash = group.configured, group.epoch.metadata_hash
    if is_new or found is None or group.is_metadata_stale:
        metadata_hash = topics_hash(topology.required_topics(), step.image)
        if is_new or found is None or metadata_hash != group.epoch.metadata_hash:
            found = configure(topology, step.image)
    return Looked(topology=topology, is_new=is_new, configured=found, metadata_hash=metadata_hash)


def update_epoch(
    group: StreamsGroup, looked: Looked, step: StreamsStep, *, has_changed: bool
) -> None:
    """Start a new group epoch, if members (has_changed), topics or configs have changed."""
    configs = settings.assignment_configs(group.group_id, step.effects)
    before = group.epoch
    after = before._replace(
        metadata_hash=looked.metadata_hash,
        validated_topology_epoch=looked.validated_epoch,
        assignment_configs=configs,
    )
    group.configured, group.is_metadata_stale = looked.configured, False
    if has_changed or after != before:
        group.epoch = after._replace(epoch=before.epoch + 1)
        step.out.append(group.epoch_record())


def update_target(group: StreamsGroup, step: StreamsStep) -> GroupStatus | None:
    """Make the target of this group epoch, unless it exists. The reason, if it must wait."""
    if group.has_initial_delay:
        return _BY_DELAY
    if group.assignment_epoch >= group.group_epoch:
        return None
    interval_ms = settings.assignment_interval_ms(group.group_id, step.effects)
    now_ms = step.effects.now.wall_ms
    # A clock that was set back must not stop the group.
    if 0 <= now_ms - group.target_epoch.timestamp_ms < interval_ms:
        return _BY_INTERVAL
    for member_id, tasks in _target_of(group, step).items():
        if group.targets.get(member_id) != tasks:
            group.targets[member_id] = tasks
            step.out.append(group.target_record(member_id))
    # Written after the targets: a reader that sees only some of them makes the target again.
    group.target_epoch = TargetEpoch(group.group_epoch, now_ms)
    step.out.append(group.target_epoch_record())
    return None


def _target_of(group: StreamsGroup, step: StreamsStep) -> dict[str, Tasks]:
    configured = group.configured
    if configured is None or not configured.is_ready:
        return dict.fromkeys(group.members, NO_ROLES)
    workers = {
        member_id: Worker(
            process_id=member.process_id,
            has=member.assigned.tasks,
            offsets=group.task_offsets.get(member_id, {}),
        )
        for member_id, member in group.members.items()
    }
    replicas = settings.num_standby_replicas(group.group_id, step.effects)
    return assign_sticky(workers, configured.subtopologies, replicas)
