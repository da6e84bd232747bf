"""The subscribed topics of a group, and the target made for them. Pure.

The functions change the group and add the records to write to `out`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvorum.broker.coordinator.model import CoordinatorRecord, Instant
from kvorum.broker.groups.consumer.assignors import ASSIGNORS, Subscriber
from kvorum.broker.groups.consumer.expressions import expression_refusal, matching_topics
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.records import ResolvedExpression
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.metadata.image.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """Inputs of a step besides the group, and its records.

    out: the records of this step, in order.
    assignors: names that this broker offers, the default first.
    assignment_interval_ms: of a group, the least time between two targets (KIP-1263).
    may_describe: the rights of the client whose request it is, None for all.
    """

    image: ClusterImage
    now: Instant
    assignors: tuple[str, ...]
    assignment_interval_ms: Callable[[str], int]
    out: list[CoordinatorRecord]
    may_describe: Callable[[str], bool] | None = None

    def resolve(self, expression: str) -> ResolvedExpression:
        """The topics that the expression matches now. Internal topics are subscribed to by name
        only. As in Kafka, only topics count that the client of this request may describe."""
        names = (name for name in self.image.topic_ids if name not in INTERNAL_TOPICS)
        topics = matching_topics(expression, names)
        if self.may_describe is not None:
            topics = tuple(filter(self.may_describe, topics))
        return ResolvedExpression(topics, self.image.end_offset, self.now.wall_ms)


def topics_hash(names: Iterable[str], image: ClusterImage) -> int:
    """A hash of those of the topics that exist, 0 if none does; it changes when one is created,
    grown or deleted."""
    digest = hashlib.blake2b(digest_size=8)
    found = 0
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None:
            found += 1
            digest.update(f"{name}\0{topic.topic_id.hex()}\0{len(topic.partitions)}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def refresh(group: ConsumerGroup, inputs: StepInputs) -> None:
    """Look up the subscribed topics again, if they may have changed."""
    if not group.is_metadata_stale:
        return
    for expression, before in list(group.expressions.items()):
        if expression_refusal(expression) is not None:
            # Apache Kafka wrote this expression to the log: keep the topics that it had then.
            continue
        found = inputs.resolve(expression)
        if found.topics != before.topics:
            group.expressions[expression] = found
            inputs.out.append(group.expression_record(expression))
    group.is_metadata_stale = False


def forget_unused_expressions(group: ConsumerGroup, inputs: StepInputs) -> None:
    """Remove the expressions that no member subscribes by any more."""
    if not group.expressions:
        return
    used = {member.subscribed_topic_regex for member in group.members.values()}
    for expression in [name for name in group.expressions if name not in used]:
        del group.expressions[expression]
        inputs.out.append(group.expression_record(expression))


def bump_epoch(group: ConsumerGroup, inputs: StepInputs, *, has_changed: bool) -> None:
    """Raise the group epoch, if members or subscriptions (has_changed) or the topics have
    changed."""
    found = topics_hash(group.subscribed_topics(), inputs.image)
    if has_changed or found != group.metadata_hash:
        group.group_epoch += 1
        group.metadata_hash = found
        inputs.out.append(group.epoch_record())


def update_target(group: ConsumerGroup, inputs: StepInputs) -> None:
    """Make the target of this group epoch, unless it exists or the last one is too young. Then the
    first heartbeat after that makes it."""
    now_ms = inputs.now.monotonic_ms
    if group.assignment_epoch >= group.group_epoch or now_ms < group.target_due_ms:
        return
    names = {member_id: group.topics_of(m) for member_id, m in group.members.items()}
    topics = {name: inputs.image.topic(name) for name in set().union(*names.values())}
    there = {name: topic for name, topic in topics.items() if topic is not None}
    subscribers = {
        member_id: Subscriber(
            topics=frozenset(there[name].topic_id for name in names[member_id] if name in there),
            instance_id=member.instance_id,
            has=group.target(member_id),
        )
        for member_id, member in group.members.items()
    }
    counts = {topic.topic_id: len(topic.partitions) for topic in there.values()}
    assignor = ASSIGNORS[chosen_assignor(group, inputs.assignors)]
    for member_id, partitions in assignor(subscribers, counts).items():
        if group.targets.get(member_id) != partitions:
            group.targets[member_id] = partitions
            inputs.out.append(group.target_record(member_id))
    if any(group.targets.values()):
        group.target_due_ms = now_ms + inputs.assignment_interval_ms(group.group_id)
    # Written after the targets: a reader that sees only some of them makes the target again.
    group.assignment_epoch = group.group_epoch
    inputs.out.append(group.target_epoch_record())


def chosen_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor that the members vote for; the default, `assignors[0]`, if that one is not among
    `assignors`, which group.consumer.assignors names: it did once, or on another broker."""
    name = group.assignor_name(assignors[0])
    return name if name in assignors else assignors[0]
