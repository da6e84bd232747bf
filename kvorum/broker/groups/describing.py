"""The answers of DescribeGroups and ListGroups for classic groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kvorum.broker.groups.book import AnyGroup
from kvorum.broker.groups.classic.group import TYPE_NAME, ClassicGroup
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.consumer import describing as consumer_describing
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.steps.requests import (
    GroupDescription,
    GroupListing,
    ListGroups,
    MemberDescription,
)
from kvorum.broker.groups.streams import describing as streams_describing
from kvorum.broker.groups.streams.group import StreamsGroup


def describe(group: ClassicGroup) -> GroupDescription:
    """The group for DescribeGroups. Metadata and protocol are filled in in state Stable only, since
    no protocol is chosen during a rebalance."""
    is_stable = group.state == ClassicGroupState.STABLE
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol_name) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    return GroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=members,
    )


def listings(
    groups: Iterable[AnyGroup],
    others: Iterable[GroupListing],
    request: ListGroups,
) -> tuple[GroupListing, ...]:
    """One row for each group that passes the filters. others: rows of other types of groups."""
    states = {state.strip().lower() for state in request.states}
    types = {name.lower() for name in request.types}
    return tuple(
        row
        for row in chain(map(_listing, groups), others)
        if (not states or row.state.lower() in states)
        and (not types or row.group_type.lower() in types)
    )


def _listing(group: AnyGroup) -> GroupListing:
    if isinstance(group, ConsumerGroup):
        return consumer_describing.listing(group)
    if isinstance(group, StreamsGroup):
        return streams_describing.listing(group)
    return GroupListing(group.group_id, group.protocol_type or "", group.state.value, TYPE_NAME)
