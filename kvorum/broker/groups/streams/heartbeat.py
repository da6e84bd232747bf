"""StreamsGroupHeartbeat: joining, staying, and the answer. Pure.

  checks -> the member's new values -> its topology and topics -> new group epoch? -> new target?
         -> reconcile -> statuses, endpoints

A refusal changes nothing. An accepted heartbeat changes the group and adds its records to
`StreamsStep.out`; the caller writes them before it answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.steps.timers import StreamsInitialDelayTimer
from kvorum.broker.groups.streams import settings
from kvorum.broker.groups.streams.checks import (
    offsets_refusal,
    owned_refusal,
    topology_of,
    unknown_state_refusal,
)
from kvorum.broker.groups.streams.configuring import GroupStatus, TopologyRefused
from kvorum.broker.groups.streams.describing import asks_for_description
from kvorum.broker.groups.streams.endpoints import all_endpoints
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import JOIN_EPOCH, NO_TIMEOUT, StreamsMember
from kvorum.broker.groups.streams.membership import (
    enter,
    extend_session,
    find,
    watch_revocation,
)
from kvorum.broker.groups.streams.reconciliation import reconcile
from kvorum.broker.groups.streams.requests import StreamsHeartbeat, StreamsHeartbeated
from kvorum.broker.groups.streams.states import Status
from kvorum.broker.groups.streams.targets import (
    Looked,
    StreamsStep,
    look_up,
    update_epoch,
    update_target,
)
from kvorum.broker.groups.streams.tasks import NO_ROLES
from kvorum.runtime.errors import ErrorCode, Rejected


def heartbeat(
    group: StreamsGroup, event: ShardRequest, step: StreamsStep
) -> StreamsHeartbeated | Rejected:
    """Handle a heartbeat of epoch 0 or above; leaving is in `membership`."""
    request: StreamsHeartbeat = event.body
    before = find(group, request, step.effects.config.group_streams_max_size)
    if isinstance(before, Rejected):
        return before
    looked = _looked(group, request, step)
    if isinstance(looked, Rejected):
        return looked
    told = _as_told(before, event)
    refused = (
        unknown_state_refusal(before, request)
        or owned_refusal(looked.configured, request.owned)
        or offsets_refusal(request)
        or _size_refusal(group, told, looked, step)
    )
    if refused is not None:
        return refused
    # From here on nothing is refused.
    if group.is_empty and settings.initial_rebalance_delay_ms(group.group_id, step.effects) > 0:
        _begin_delay(group, step)
    has_changed = enter(group, before, told, step)
    if looked.is_new:
        group.set_topology(looked.topology)
        step.out.append(group.topology_record(looked.topology))
    _keep_offsets(group, request)
    update_epoch(group, looked, step, has_changed=has_changed)
    delayed = update_target(group, step)
    after = reconcile(
        told,
        target=NO_ROLES if group.has_initial_delay else group.target(told.member_id),
        assignment_epoch=group.assignment_epoch,
        owned=request.owned,
        holders=group.holders,
    )
    if after != told:
        group.put(after)
        step.out.append(group.current_record(after))
    watch_revocation(group, told, after, step)
    extend_session(group, after.member_id, step.effects)
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = after.member_id
    return _answer(group, request, before, after, delayed, step)


def _begin_delay(group: StreamsGroup, step: StreamsStep) -> None:
    if not group.has_initial_delay:
        group.has_initial_delay = True
        delay_ms = settings.initial_rebalance_delay_ms(group.group_id, step.effects)
        step.effects.set_timer(StreamsInitialDelayTimer(group.group_id), delay_ms)


def on_initial_delay(group: StreamsGroup, step: StreamsStep) -> None:
    """The time for first members to join is over: make the first target."""
    group.has_initial_delay = False
    if not group.is_empty:
        update_target(group, step)


def _looked(group: StreamsGroup, request: StreamsHeartbeat, step: StreamsStep) -> Looked | Rejected:
    topology = topology_of(group, request)
    if isinstance(topology, Rejected):
        return topology
    try:
        return look_up(group, topology, step)
    except TopologyRefused as refused:
        return Rejected(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(refused))


def _as_told(before: StreamsMember, event: ShardRequest) -> StreamsMember:
    """The member with the values of this heartbeat."""
    request: StreamsHeartbeat = event.body
    is_joining = request.member_epoch == JOIN_EPOCH
    timeout_ms, tags = request.rebalance_timeout_ms, request.client_tags
    is_endpoint_told = is_joining or request.user_endpoint is not None
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=event.client.id,
        client_host=event.client.host,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms
        ),
        topology_epoch=(
            before.topology_epoch if request.topology is None else request.topology.epoch
        ),
        process_id=before.process_id if request.process_id is None else request.process_id,
        user_endpoint=request.user_endpoint if is_endpoint_told else before.user_endpoint,
        client_tags=before.client_tags if tags is None else tuple(sorted(dict(tags).items())),
    )


def _size_refusal(
    group: StreamsGroup, told: StreamsMember, looked: Looked, step: StreamsStep
) -> Rejected | None:
    effects = step.effects
    text = None
    if not effects.fits(group.metadata_record(told)):
        text = f"What member {told.member_id} says of itself does not fit into one record."
    elif looked.is_new and not effects.fits(group.topology_record(looked.topology)):
        text = "The topology does not fit into one record."
    return None if text is None else Rejected(ErrorCode.INVALID_REQUEST, text)


def _keep_offsets(group: StreamsGroup, request: StreamsHeartbeat) -> None:
    if request.task_offsets is not None:
        group.task_offsets[request.member_id] = dict(request.task_offsets)
    if request.task_end_offsets is not None:
        group.task_end_offsets[request.member_id] = dict(request.task_end_offsets)


# --- the answer ----------------------------------------------------------------------------------


def _answer(
    group: StreamsGroup,
    request: StreamsHeartbeat,
    before: StreamsMember,
    after: StreamsMember,
    delayed: GroupStatus | None,
    step: StreamsStep,
) -> StreamsHeartbeated:
    group_id, effects = group.group_id, step.effects
    has_new_tasks = after.assigned != before.assigned
    has_new_endpoint = after.user_endpoint != before.user_endpoint
    if has_new_endpoint or (has_new_tasks and after.user_endpoint is not None):
        group.endpoint_epoch += 1
    # A member that owns other tasks may have lost the answer with its own. (Kafka: told only when
    # they change, so that such a member waits for the next rebalance.)
    is_told = has_new_tasks or request.owned not in (None, after.assigned.tasks)
    knows_endpoints = request.endpoint_epoch == group.endpoint_epoch
    configured = group.configured
    now_ms = effects.now.monotonic_ms
    is_description_required = request.knows_description and asks_for_description(
        group, after, now_ms
    )
    if is_description_required:
        group.description_asked_ms = now_ms
    return StreamsHeartbeated(
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms(group_id, effects),
        task_offset_interval_ms=settings.task_offset_interval_ms(group_id, effects),
        acceptable_recovery_lag=settings.acceptable_recovery_lag(group_id, effects),
        statuses=tuple(_statuses(group, request, after, delayed, step)),
        assignment=after.assigned if is_told or request.member_epoch == JOIN_EPOCH else None,
        endpoint_epoch=group.endpoint_epoch,
        endpoints=None if knows_endpoints else all_endpoints(group, step.image, after.member_id),
        to_create=() if configured is None else configured.missing,
        is_description_required=is_description_required,
    )


def _statuses(
    group: StreamsGroup,
    request: StreamsHeartbeat,
    member: StreamsMember,
    delayed: GroupStatus | None,
    step: StreamsStep,
) -> Iterable[GroupStatus]:
    if member.topology_epoch < group.topology_epoch:
        yield GroupStatus(
            Status.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {group.topology_epoch}.",
        )
    if delayed is not None:
        yield delayed
    if group.configured is not None and group.configured.status is not None:
        yield group.configured.status
    if group.shutdown_requested_by is not None:
        yield GroupStatus(
            Status.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_requested_by} encountered a fatal error and "
            "requested a shutdown for the entire application.",
        )
    has = {key for key, _ in member.client_tags}
    tags = settings.rack_aware_tags(group.group_id, step.effects)
    missing = [tag for tag in tags if tag not in has]
    if missing and request.knows_description:
        yield GroupStatus(
            Status.MISSING_CLIENT_TAGS,
            "Missing required client tags for rack-aware standby assignment: "
            f"[{', '.join(missing)}]. Configure them via 'client.tag.<tagKey>' in your Streams "
            "config.",
        )
