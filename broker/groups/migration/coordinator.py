"""What classic members ask of a group of the consumer protocol, to its rules and the log. Pure.

The group is one of the consumer protocol as long as it has such members; see `consumer.coordinator`
for how it becomes one, and a classic one again.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.coordinator.model import Request
from kvorum.broker.groups.classic import joining as classic_joining
from kvorum.broker.groups.config import GroupConfig
from kvorum.broker.groups.consumer.coordinator import ConsumerGroups
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.targets import Setting
from kvorum.broker.groups.migration import downgrade, joining, membership
from kvorum.broker.groups.migration.joining import Joiner
from kvorum.broker.groups.requests import Heartbeat, Joined, LeaveGroup, Left, Synced, SyncGroup
from kvorum.broker.groups.turn import Turn
from kvorum.runtime.errors import ErrorCode


class MixedGroups:
    """Groups that may have members of both protocols."""

    __slots__ = ("_config", "_consumer")

    def __init__(self, consumer: ConsumerGroups, config: GroupConfig) -> None:
        self._consumer = consumer
        self._config = config

    def join(self, group: ConsumerGroup, event: Request, turn: Turn) -> None:
        """Answered once it is replicated, as what the member does next rests on its epoch."""
        if self._consumer.image is None:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            turn.answer(event.token, Joined(error=error, member_id=event.body.member_id))
            return
        setting = self._consumer.setting(turn)
        joiner = joining.admitted(group, event, setting, turn)
        if isinstance(joiner, Joined):
            turn.answer(event.token, joiner)
        elif not self._join_as_classic(group, joiner, event, setting, turn):
            joined = joining.join(group, joiner, setting, turn)
            turn.append_all(setting.out)
            turn.answer_durably(event.token, joined)

    def _join_as_classic(
        self, group: ConsumerGroup, joiner: Joiner, event: Request, setting: Setting, turn: Turn
    ) -> bool:
        """True if it takes the place of the last member of the consumer protocol: then the group
        becomes a classic one first, and it joins that."""
        before = joiner.before
        if before.member_id not in group.members or before.classic is not None:
            return False
        group.put(replace(joiner.told, member_id=before.member_id))
        if downgrade.is_due(group, self._config):
            epoch, image = group.group_epoch, setting.image
            classic = downgrade.downgraded(group, epoch, setting.out, image, turn)
            if classic is not None:
                self._consumer.groups[group.group_id] = classic
                classic_joining.join(classic, event, turn)
                return True
        group.put(before)
        return False

    def sync(self, group: ConsumerGroup, event: Request, body: SyncGroup, turn: Turn) -> None:
        """Rests on records as a heartbeat of the consumer protocol does."""
        image = self._consumer.image
        if image is None:
            turn.answer(event.token, Synced(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            turn.answer_durably(event.token, membership.sync(group, body, image, turn))

    def heartbeat(self, group: ConsumerGroup, body: Heartbeat, turn: Turn) -> ErrorCode:
        image = self._consumer.image
        if image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return membership.heartbeat(group, body, image, turn)

    def leave(self, group: ConsumerGroup, event: Request, body: LeaveGroup, turn: Turn) -> None:
        if self._consumer.image is None:
            turn.answer(event.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        setting, epoch = self._consumer.setting(turn), group.group_epoch
        rows = membership.leave(group, body, setting, turn)
        self._consumer.finish(group, epoch, setting, turn)
        turn.answer(event.token, Left(members=rows))
