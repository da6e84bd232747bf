"""ShareGroupHeartbeat: joining, staying, leaving, and the answer. Pure.

  checks -> the member's new values -> states for new partitions -> new group epoch? -> new target?
         -> the member takes over its target

A refusal changes nothing. An accepted heartbeat changes the group and adds its records to `Step`;
the caller writes them before it answers. Only share-partitions that the share coordinator knows are
assigned. So the first heartbeats of a group get none, and are told to come back soon.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from kvorum.broker.coordinator.model import CoordinatorRecord, ShardRequest
from kvorum.broker.groups.share.assignor import Sharer, assign_simple
from kvorum.broker.groups.share.group import ShareGroup
from kvorum.broker.groups.share.records import ShareMember
from kvorum.broker.groups.share.requests import (
    InitializeStates,
    ShareHeartbeat,
    ShareHeartbeated,
    StateToInitialize,
)
from kvorum.broker.groups.steps.config import STRING_BYTES_MAX
from kvorum.broker.groups.steps.refusals import fenced_epoch, is_blank, unknown_member
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
NO_OFFSET = -1

EARLY_HEARTBEAT_INTERVAL_MS = 500
"""Interval that a member is told while states of its partitions are being made. (Kafka: the usual
one, so that a new group gets its first records after 5 s.)"""


@dataclass(slots=True)
class Step:
    """One step of a share group: its inputs, and what it leads to, in order.

    out: the records to write. questions: to the driver, after them.
    """

    image: ClusterImage
    effects: StepEffects
    out: list[CoordinatorRecord] = field(default_factory=list)
    questions: list[InitializeStates] = field(default_factory=list)

    @property
    def now_ms(self) -> int:
        return self.effects.now.monotonic_ms


def request_refusal(request: ShareHeartbeat) -> Rejected | None:
    """The error of a request that no group would accept (with Kafka's messages)."""
    reason = None
    if is_blank(request.member_id):
        reason = "MemberId can't be empty."
    elif is_blank(request.rack_id):
        reason = "RackId can't be empty."
    elif request.member_epoch < LEAVE_EPOCH:
        reason = "MemberEpoch is invalid."
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        reason = "SubscribedTopicNames must be set in first request."
    elif len(request.member_id.encode()) > STRING_BYTES_MAX:
        reason = f"MemberId has at most {STRING_BYTES_MAX} bytes."
    return None if reason is None else Rejected(ErrorCode.INVALID_REQUEST, reason)


def heartbeat(group: ShareGroup, event: ShardRequest, step: Step) -> ShareHeartbeated | Rejected:
    """Handle a heartbeat of epoch 0 or above."""
    request: ShareHeartbeat = event.body
    before = _find(group, request, step.effects.config.group_share_max_size)
    if isinstance(before, Rejected):
        return before
    names = request.subscribed_topic_names
    told = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=event.client.id,
        client_host=event.client.host,
        subscribed_topic_names=(
            before.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
    )
    is_new = told.member_id not in group.members
    if (is_new or told != before) and not step.effects.fits(group.member_record(told)):
        text = f"What member {told.member_id} subscribes to does not fit into one record."
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    # From here on nothing is refused.
    if is_new or told != before:
        group.members[told.member_id] = told
        step.out.append(group.member_record(told))
    has_changed = is_new or told.subscribed_topic_names != before.subscribed_topic_names
    is_awaiting = update_states(group, step, has_changed=has_changed)
    if has_changed or group.is_metadata_stale:
        bump_epoch(group, step, has_changed=has_changed)
    update_target(group, step)
    after = _with_target(group, told)
    if after != told:
        group.members[after.member_id] = after
        step.out.append(group.assignment_record(after))
    extend_session(group, after.member_id, step.effects)
    is_told_all = request.member_epoch == JOIN_EPOCH or names is not None
    is_told_all = is_told_all or request.member_epoch != told.member_epoch
    interval_ms = step.effects.share_heartbeat_interval_ms(group.group_id)
    # Only for one interval: states that cannot be made would be asked about in vain for ever.
    is_awaiting = is_awaiting and step.now_ms < group.initialize_asked_ms + interval_ms
    if is_awaiting or group.assignment_epoch < group.group_epoch:
        interval_ms = min(interval_ms, EARLY_HEARTBEAT_INTERVAL_MS)
    return ShareHeartbeated(
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=after.assigned if is_told_all or after.assigned != told.assigned else None,
    )


def _find(group: ShareGroup, request: ShareHeartbeat, size_max: int) -> ShareMember | Rejected:
    member = group.members.get(request.member_id)
    if member is not None:
        return _epoch_refusal(request.member_epoch, member) or member
    if request.member_epoch != JOIN_EPOCH:
        return unknown_member(group.group_id, request.member_id)
    if len(group.members) >= size_max:
        text = f"The share group has reached its maximum capacity of {size_max} members."
        return Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    return ShareMember(member_id=request.member_id)


def _epoch_refusal(epoch: int, member: ShareMember) -> Rejected | None:
    """The error of a heartbeat in another epoch than the member's. The previous one is accepted:
    the answer with the present one may be lost."""
    if epoch in (member.member_epoch, member.previous_member_epoch):
        return None
    return fenced_epoch("share", epoch, member.member_epoch)


def leave(group: ShareGroup, request: ShareHeartbeat, step: Step) -> ShareHeartbeated | Rejected:
    """Handle a heartbeat of epoch -1."""
    if request.member_id not in group.members:
        return unknown_member(group.group_id, request.member_id)
    remove(group, request.member_id, step)
    return ShareHeartbeated(
        member_id=request.member_id, member_epoch=LEAVE_EPOCH, heartbeat_interval_ms=0
    )


def remove(group: ShareGroup, member_id: str, step: Step) -> None:
    """Remove a member. The next heartbeat makes the target."""
    step.out.extend(group.member_tombstones(member_id))
    group.remove(member_id)
    group.sessions.forget(member_id, step.effects)
    bump_epoch(group, step, has_changed=True)


# --- epochs and target ---------------------------------------------------------------------------


def update_states(group: ShareGroup, step: Step, *, has_changed: bool) -> bool:
    """Ask for the states of partitions that members subscribe to and that have none. True while
    some are missing. has_changed: members or subscriptions have."""
    states = group.states
    retry_ms = step.effects.config.group_share_initialize_retry_interval_ms
    is_due = step.now_ms >= group.initialize_asked_ms + retry_ms
    if not (has_changed or group.is_metadata_stale or states.initializing):
        return False
    wanted: set[tuple[bytes, int]] = set()
    for name in group.subscribed_topics():
        topic = step.image.topic(name)
        if topic is not None and topic.topic_id not in states.deleting:
            wanted.update((topic.topic_id, partition) for partition in topic.partitions)
            states.names[topic.topic_id] = name
    fresh = wanted - states.initialized - states.initializing
    asked = fresh | (states.initializing & wanted if is_due else set())
    if fresh:
        states.initializing |= fresh
        step.out.append(group.states_record())
    if asked:
        group.initialize_asked_ms = step.now_ms
        rows = tuple(StateToInitialize(*row, NO_OFFSET) for row in sorted(asked))
        # The epoch that this step reaches: each initialisation has one of its own.
        step.questions.append(
            InitializeStates(group_id=group.group_id, state_epoch=group.group_epoch + 1, rows=rows)
        )
    return bool(states.initializing & wanted)


def bump_epoch(group: ShareGroup, step: Step, *, has_changed: bool) -> None:
    """Raise the group epoch, if members or subscriptions (has_changed) or the topics have
    changed."""
    found = _metadata_hash(group, step.image)
    group.is_metadata_stale = False
    if has_changed or found != group.metadata_hash:
        group.group_epoch += 1
        group.metadata_hash = found
        step.out.append(group.epoch_record())


def _metadata_hash(group: ShareGroup, image: ClusterImage) -> int:
    """A hash of the subscribed topics that exist and of their share-partitions with a state."""
    digest = hashlib.blake2b(digest_size=8)
    counts: dict[bytes, int] = {}
    for topic_id, _ in group.states.initialized:
        counts[topic_id] = counts.get(topic_id, 0) + 1
    found = 0
    for name in sorted(group.subscribed_topics()):
        topic = image.topic(name)
        if topic is not None:
            found += 1
            sizes = f"{len(topic.partitions)}\0{counts.get(topic.topic_id, 0)}"
            digest.update(f"{name}\0{topic.topic_id.hex()}\0{sizes}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def update_target(group: ShareGroup, step: Step) -> None:
    """Make the target of this group epoch, unless it exists or the last one is too young."""
    if group.assignment_epoch >= group.group_epoch or step.now_ms < group.target_due_ms:
        return
    ids = {name: step.image.topic(name) for name in group.subscribed_topics()}
    sharers = {
        member_id: Sharer(
            topics=frozenset(
                topic.topic_id
                for name in member.subscribed_topic_names
                if (topic := ids[name]) is not None
            ),
            has=group.target(member_id),
        )
        for member_id, member in group.members.items()
    }
    targets = assign_simple(sharers, group.states.initialized)
    for member_id, partitions in targets.items():
        if group.targets.get(member_id) != partitions:
            group.targets[member_id] = partitions
            step.out.append(group.target_record(member_id))
    if any(targets.values()):
        interval_ms = step.effects.share_assignment_interval_ms(group.group_id)
        group.target_due_ms = step.now_ms + interval_ms
    # Written after the targets: a reader that sees only some of them makes the target again.
    group.assignment_epoch = group.group_epoch
    step.out.append(group.target_epoch_record())


def _with_target(group: ShareGroup, member: ShareMember) -> ShareMember:
    if member.member_epoch == group.assignment_epoch:
        return member
    return replace(
        member,
        member_epoch=group.assignment_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=group.target(member.member_id),
    )


# --- sessions ------------------------------------------------------------------------------------


def extend_session(group: ShareGroup, member_id: str, effects: StepEffects) -> None:
    group.sessions.extend(member_id, effects.share_session_timeout_ms(group.group_id), effects)


def on_session_timer(group: ShareGroup, member_id: str, step: Step) -> None:
    """Remove the member, unless it has sent a heartbeat meanwhile."""
    if member_id in group.members and group.sessions.is_over(member_id, step.effects):
        remove(group, member_id, step)
