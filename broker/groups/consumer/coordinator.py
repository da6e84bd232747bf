"""The groups of the consumer protocol of one shard: requests, timers, records to their rules. Pure.

Shares `groups` with the shard: a group is of one kind at a time, and may change it only while it
is empty. An online change (members of both kinds in one group, KIP-848's migration) is refused:
the cluster behaves as with Kafka's group.consumer.migration.policy=disabled.
"""

from __future__ import annotations

from broker.coordinator.model import CoordinatorRecord, Request, TopicsChanged
from broker.groups.classic.group import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.consumer import describing, heartbeat, loading, membership
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import ConsumerKey
from broker.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
)
from broker.groups.consumer.targets import Setting
from broker.groups.records import group_key
from broker.groups.timers import ConsumerRebalanceTimer, ConsumerSessionTimer, PendingMemberTimer
from broker.groups.turn import Turn
from metadata.image import ClusterImage
from runtime.errors import ErrorCode, Rejected, required

Groups = dict[str, ClassicGroup | ConsumerGroup]


class ConsumerGroups:
    """image: None until the host has told it, right after the load."""

    __slots__ = ("_config", "groups", "image")

    def __init__(self, groups: Groups, config: GroupConfig) -> None:
        self.groups = groups
        self.image: ClusterImage | None = None
        self._config = config

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # --- the log -----------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: bytes | None) -> None:
        """One record of such a group. Raises CorruptData."""
        group = self.find(key.group_id)
        if value is not None:
            if group is None:
                group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
            loading.replay(group, key, value)
        elif group is not None and not loading.replay_tombstone(group, key):
            del self.groups[key.group_id]

    def on_loaded(self, turn: Turn) -> None:
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                membership.on_loaded(group, turn)

    # --- events ------------------------------------------------------------------------------

    def on_topics(self, event: TopicsChanged) -> None:
        """Groups look at the new metadata with their next heartbeat."""
        self.image = event.image
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and (
                group.expressions or not event.changed.isdisjoint(group.subscribed_topics())
            ):
                group.is_metadata_stale = True

    def heartbeat(self, event: Request, turn: Turn) -> None:
        """Answered once all that it rests on is replicated, also what earlier steps wrote."""
        request: ConsumerHeartbeat = event.body
        turn.answer_durably(event.token, self._answer(event, request, turn))

    def _answer(self, event: Request, request: ConsumerHeartbeat, turn: Turn) -> object:
        if self.image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = heartbeat.request_refusal(request, self._config.group_consumer_assignors)
        if refused is not None:
            return refused
        present = self.groups.get(request.group_id)
        is_joining = request.member_epoch == 0
        if isinstance(present, ConsumerGroup):
            group = present
        elif not is_joining or not (present is None or present.is_empty):
            return _not_a_consumer_group(request.group_id, is_there=present is not None)
        else:
            group = ConsumerGroup(request.group_id)
        setting = self._setting(turn)
        if request.member_epoch in heartbeat.LEAVING:
            answer = membership.leave(group, request, setting, turn)
        else:
            answer = heartbeat.heartbeat(group, event, setting, turn)
        if not isinstance(answer, Rejected):
            if isinstance(present, ClassicGroup):
                turn.append(CoordinatorRecord(group_key(request.group_id), None))
                for member_id in present.pending_members:
                    turn.cancel_timer(PendingMemberTimer(request.group_id, member_id))
            self.groups[request.group_id] = group
            turn.append_all(setting.out)
        return answer

    def describe(self, request: DescribeConsumerGroup) -> ConsumerGroupDescription | Rejected:
        group = self.find(request.group_id)
        if group is None:
            is_there = request.group_id in self.groups
            what = "is not a consumer group" if is_there else "not found"
            return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
        return describing.describe(group, self._config.group_consumer_assignors)

    def on_timer(self, name: ConsumerSessionTimer | ConsumerRebalanceTimer, turn: Turn) -> None:
        group = self.find(name.group_id)
        if group is None:
            return
        setting = self._setting(turn)
        if isinstance(name, ConsumerSessionTimer):
            membership.on_session_timer(group, name.member_id, setting, turn)
        else:
            membership.on_rebalance_timer(group, name.member_id, setting, turn)
        turn.append_all(setting.out)

    def end(self, group: ConsumerGroup, turn: Turn) -> None:
        """An empty group is no more: deleted, expired, or of another kind from now on."""
        turn.append_all(group.tombstones())
        del self.groups[group.group_id]

    def _setting(self, turn: Turn) -> Setting:
        return Setting(
            image=required(self.image, "a group is asked before the metadata was told"),
            now=turn.now,
            assignors=self._config.group_consumer_assignors,
            out=[],
        )


def _not_a_consumer_group(group_id: str, *, is_there: bool) -> Rejected:
    if is_there:
        text = (
            f"Group {group_id} is not a consumer group: it has members of the classic protocol. "
            "They must leave first; a change while members are there is not supported."
        )
    else:
        text = f"Group {group_id} not found."
    return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, text)
