"""What a group's members subscribe to, and the target made of it. Pure.

The functions change the group and put what is to be written behind `out`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kvorum.broker.coordinator.model import CoordinatorRecord, Instant
from kvorum.broker.groups.consumer.assignors import ASSIGNORS, Subscriber
from kvorum.broker.groups.consumer.expressions import expression_refusal, matching_topics
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.records import ResolvedExpression
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.metadata.image.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the rules look at besides the group. out: the records of this step, in order.

    assignors: names that this broker offers, the first for members that ask for none.
    """

    image: ClusterImage
    now: Instant
    assignors: tuple[str, ...]
    out: list[CoordinatorRecord]

    def resolve(self, expression: str) -> ResolvedExpression:
        """Topics that the expression means now. Internal ones are only subscribed to by name."""
        names = (name for name in self.image.topic_ids if name not in INTERNAL_TOPICS)
        topics = matching_topics(expression, names)
        return ResolvedExpression(topics, self.image.end_offset, self.now.wall_ms)


def metadata_hash(group: ConsumerGroup, image: ClusterImage) -> int:
    """Of the topics subscribed to that are there: it differs when one is made, grown or gone."""
    digest = hashlib.blake2b(digest_size=8)
    found = 0
    for name in sorted(group.subscribed_topics()):
        topic = image.topic(name)
        if topic is not None:
            found += 1
            digest.update(f"{name}\0{topic.topic_id.hex()}\0{len(topic.partitions)}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def refresh(group: ConsumerGroup, setting: Setting) -> None:
    """Look the subscribed topics up anew, if they may have changed."""
    if not group.is_metadata_stale:
        return
    for expression, before in list(group.expressions.items()):
        if expression_refusal(expression) is not None:
            # From a log that Apache Kafka wrote: its topics stay those of then.
            continue
        found = setting.resolve(expression)
        if found.topics != before.topics:
            group.expressions[expression] = found
            setting.out.append(group.expression_record(expression))
    group.is_metadata_stale = False


def forget_unused_expressions(group: ConsumerGroup, setting: Setting) -> None:
    """Expressions by which nobody subscribes any more."""
    if not group.expressions:
        return
    used = {member.subscribed_topic_regex for member in group.members.values()}
    for expression in [name for name in group.expressions if name not in used]:
        del group.expressions[expression]
        setting.out.append(group.expression_record(expression))


def bump_epoch(group: ConsumerGroup, setting: Setting, *, has_changed: bool) -> None:
    """The next group epoch, if members or subscriptions have changed or the topics have."""
    found = metadata_hash(group, setting.image)
    if has_changed or found != group.metadata_hash:
        group.group_epoch += 1
        group.metadata_hash = found
        setting.out.append(group.epoch_record())


def update_target(group: ConsumerGroup, setting: Setting) -> None:
    """Make the target of this group epoch, if it is not there yet."""
    if group.assignment_epoch >= group.group_epoch:
        return
    names = {member_id: group.topics_of(m) for member_id, m in group.members.items()}
    topics = {name: setting.image.topic(name) for name in set().union(*names.values())}
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
    assignor = ASSIGNORS[chosen_assignor(group, setting.assignors)]
    for member_id, partitions in assignor(subscribers, counts).items():
        if group.targets.get(member_id) != partitions:
            group.targets[member_id] = partitions
            setting.out.append(group.target_record(member_id))
    # Behind the targets: with half of them read back, this epoch's target is made again.
    group.assignment_epoch = group.group_epoch
    setting.out.append(group.target_epoch_record())


def chosen_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor by its members' votes; members may be of before a change of the settings."""
    name = group.assignor_name(assignors[0])
    return name if name in ASSIGNORS else assignors[0]
