"""The share-partitions that members fetch from this broker, by group and partition."""

from __future__ import annotations

from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.share.core.sessions import SharePartitionId
from kvorum.broker.share.dead_letters import DeadLetterWriter
from kvorum.broker.share.group_configs import ShareGroupConfigs
from kvorum.broker.share.led_share_partition import LedSharePartition, ShareParts
from kvorum.broker.share_state.client import ShareStateClient
from kvorum.broker.share_state.records import ShareKey
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.tasks import TaskGroup, report_failure


class LedSharePartitions:
    """Makes share-partitions, finds them, and ends them.

    parts: those of the broker that each share-partition uses.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        states: ShareStateClient,
        configs: ShareGroupConfigs,
        dead_letters: DeadLetterWriter,
    ) -> None:
        self._registry = replicas.registry
        self._isolation = replicas.isolation
        self._led: dict[ShareKey, LedSharePartition] = {}
        self._tasks = TaskGroup(report_failure)
        self.parts = ShareParts(
            configs=configs,
            states=states,
            dead_letters=dead_letters,
            deadlines=replicas.deadlines,
            turn=replicas.loop_turn,
            clock=replicas.clock,
            tasks=self._tasks,
            metrics=replicas.metrics.share,
            on_ended=self._forget,
        )

    async def stop(self) -> None:
        for led in list(self._led.values()):
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._tasks.stop()

    def active(self) -> list[LedSharePartition]:
        """Those whose state is read, as they are now."""
        return [led for led in self._led.values() if led.core is not None]

    def find(self, group_id: str, where: SharePartitionId) -> LedSharePartition | ErrorCode:
        """The share-partition, if a member has fetched it from this broker: otherwise no record of
        it is acquired."""
        self._isolation.check_if_due()
        led = self._led.get(ShareKey(group_id, *where))
        if led is not None and led.is_led:
            return led
        error = self._lead_error(where)
        return ErrorCode.INVALID_RECORD_STATE if error == ErrorCode.NONE else error

    def lead(self, group_id: str, where: SharePartitionId) -> LedSharePartition | ErrorCode:
        """The share-partition; it begins to load if this broker has not got it yet."""
        self._isolation.check_if_due()
        key = ShareKey(group_id, *where)
        led = self._led.get(key)
        if led is not None and not led.is_led:
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            led = None
        if led is not None:
            led.is_retiring = False
            return led
        error = self._lead_error(where)
        if error != ErrorCode.NONE:
            return error
        replica = self._registry.find(*where)
        if replica is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        led = self._led[key] = LedSharePartition(self.parts, key, replica)
        return led

    def release(self, group_id: str, where: SharePartitionId, member_id: str) -> None:
        """The member's session has ended: it holds nothing of this share-partition any more."""
        led = self._led.get(ShareKey(group_id, *where))
        if led is not None:
            led.release(member_id)

    def retire_group(self, group_id: str) -> None:
        """No member of the group has a session here any more. An administrator may change its
        states now, and what is not kept costs no memory."""
        for led in self.of_group(group_id):
            led.retire()

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        """The group's share-partitions here."""
        return [led for led in self._led.values() if led.key.group_id == group_id]

    def _lead_error(self, where: SharePartitionId) -> ErrorCode:
        replica = self._registry.find(*where)
        if replica is None:
            return self._registry.missing_error(None, *where)
        if replica.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not replica.core.is_leader or replica.core.is_abandoned or replica.is_closed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _forget(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
