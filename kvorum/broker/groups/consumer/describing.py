"""The answer of ConsumerGroupDescribe. Pure."""

from __future__ import annotations

from kvorum.broker.groups.consumer.group import PROTOCOL_TYPE, TYPE_NAME, ConsumerGroup
from kvorum.broker.groups.consumer.requests import ConsumerGroupDescription, DescribedMember
from kvorum.broker.groups.consumer.targets import chosen_assignor
from kvorum.broker.groups.steps.requests import GroupListing


def describe(group: ConsumerGroup, assignors: tuple[str, ...]) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=chosen_assignor(group, assignors),
        members=tuple(
            DescribedMember(member, group.target(member_id))
            for member_id, member in group.members.items()
        ),
    )


def listing(group: ConsumerGroup) -> GroupListing:
    return GroupListing(group.group_id, PROTOCOL_TYPE, group.state.value, TYPE_NAME)
