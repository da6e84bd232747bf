"""The leader checks its own bytes when a follower asks again for records that it was just sent.

A follower that refuses a batch cannot say so; it fetches from the same offset again. A lost
connection looks the same, so the repeated fetch proves nothing, and the stored bytes are checked in
a thread. Recovery does not read below the recovery point, so damage to old records is found here
first. A replica with damaged bytes fails, as at a start, so that another replica can lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.log_dirs.log_directories import is_disk_fault
from kvorum.broker.partition.core.follower_state import FollowerState
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.tasks import TaskGroup, in_thread, report_failure
from kvorum.storage.log.log import OffsetOutOfRange
from kvorum.storage.recovery.batch_walk import first_damage
from kvorum.wire.fetch_codec import FetchPartition

CHECK_AGAIN_MS = 60_000
"""An offset that was found undamaged is not checked again for the same follower within this
time."""
WAITING_MAX = 64
"""Limit of waiting checks. Overflow is dropped; the next fetch of the same records reports it
again."""


class _Suspect(NamedTuple):
    replica: Replica
    leader_epoch: int
    offset: int
    bytes_max: int


class RereadVerification:
    """The checks for all partitions that a broker leads, one at a time."""

    def __init__(self, configs: CurrentConfigs, now_ms: Callable[[], int]) -> None:
        """now_ms: monotonic."""
        self._configs = configs
        self._now_ms = now_ms
        self._waiting: deque[_Suspect] = deque()
        self._is_running = False
        self._tasks = TaskGroup(report_failure)

    async def stop(self) -> None:
        self._waiting.clear()
        await self._tasks.stop()

    def suspect(self, replica: Replica, remote: FollowerState, asked: FetchPartition) -> None:
        """A follower fetches from an offset from which it was sent records."""
        now_ms = self._now_ms()
        offset, at_ms = remote.checked
        if offset == asked.fetch_offset and now_ms - at_ms < CHECK_AGAIN_MS:
            return
        if len(self._waiting) >= WAITING_MAX:
            return
        remote.checked = (asked.fetch_offset, now_ms)
        # At most this much was sent to the follower.
        bytes_max = min(asked.bytes_max, self._configs.broker.fetch_max_bytes)
        self._waiting.append(
            _Suspect(replica, replica.core.leader_epoch, asked.fetch_offset, bytes_max)
        )
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "check of what was served")

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._check(self._waiting.popleft())
        finally:
            self._is_running = False

    async def _check(self, suspect: _Suspect) -> None:
        replica = suspect.replica
        if not _is_current(suspect):
            return
        try:
            found = replica.log.read(
                suspect.offset,
                bytes_max=suspect.bytes_max,
                end_offset=replica.core.end_offset,
            )
        except OffsetOutOfRange:
            return  # retention has deleted the records meanwhile
        except (OSError, CorruptData) as failure:
            replica.fail(failure, "read")
            return
        try:
            damage = await in_thread(lambda: first_damage(found, found.read()))
        except OSError as failure:
            if is_disk_fault(failure) and _is_current(suspect):
                replica.fail(failure, "read")
            # Otherwise the log was closed or deleted meanwhile.
            return
        # If the replica no longer leads, its log may have been truncated during the read.
        if damage is not None and _is_current(suspect):
            replica.fail(damage, "check of what a follower asks for again")


def _is_current(suspect: _Suspect) -> bool:
    replica, core = suspect.replica, suspect.replica.core
    if replica.is_closed or replica.is_offline:
        return False
    return core.is_leader and core.leader_epoch == suspect.leader_epoch
