"""The configs of a Streams group: its own, or the broker's. Pure."""

from __future__ import annotations

from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.metadata.configs.group_keys import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_DELAY,
    STREAMS_RACK_TAGS,
    STREAMS_RECOVERY_LAG,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBY_REPLICAS,
    STREAMS_TASK_OFFSET_INTERVAL,
)


def session_timeout_ms(group_id: str, step: StepEffects) -> int:
    default = step.config.group_streams_session_timeout_ms
    return step.group_number(group_id, STREAMS_SESSION_TIMEOUT, default)


def heartbeat_interval_ms(group_id: str, step: StepEffects) -> int:
    default = step.config.group_streams_heartbeat_interval_ms
    return step.group_number(group_id, STREAMS_HEARTBEAT_INTERVAL, default)


def initial_rebalance_delay_ms(group_id: str, step: StepEffects) -> int:
    """The time that an empty group waits for more members."""
    default = step.config.group_streams_initial_rebalance_delay_ms
    return step.group_number(group_id, STREAMS_INITIAL_DELAY, default)


def assignment_interval_ms(group_id: str, step: StepEffects) -> int:
    """The least time between two targets."""
    default = step.config.group_streams_assignment_interval_ms
    return step.group_number(group_id, STREAMS_ASSIGNMENT_INTERVAL, default)


def num_standby_replicas(group_id: str, step: StepEffects) -> int:
    default = step.config.group_streams_num_standby_replicas
    return step.group_number(group_id, STREAMS_STANDBY_REPLICAS, default)


def task_offset_interval_ms(group_id: str, step: StepEffects) -> int:
    default = step.config.group_streams_task_offset_interval_ms
    return step.group_number(group_id, STREAMS_TASK_OFFSET_INTERVAL, default)


def acceptable_recovery_lag(group_id: str, step: StepEffects) -> int:
    default = step.config.group_streams_acceptable_recovery_lag
    return step.group_number(group_id, STREAMS_RECOVERY_LAG, default)


def rack_aware_tags(group_id: str, step: StepEffects) -> tuple[str, ...]:
    """The keys of client tags that each member must have."""
    default = step.config.group_streams_rack_aware_assignment_tags
    text = step.group_text(group_id, STREAMS_RACK_TAGS, default)
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


def assignment_configs(group_id: str, step: StepEffects) -> tuple[tuple[str, str], ...]:
    """The configs that a new assignment depends on, as the group's record has them."""
    configs = [("num.standby.replicas", str(num_standby_replicas(group_id, step)))]
    tags = rack_aware_tags(group_id, step)
    if tags:
        configs.append(("rack.aware.assignment.tags", ",".join(tags)))
    return tuple(configs)
