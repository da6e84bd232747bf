"""The leader's side of replication throttling: who is held back, and until when. A driver.

The rate is `throttle.ReplicationQuota`'s; here are the fetches that wait for it, and their timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvorum.broker.network.purgatory import LoopTurn, Wakeable
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import UNLIMITED, ReplicationQuota

WAIT_MAX_MS = 1_000
"""The rate may be raised meanwhile: held fetches look again after so long."""


class LeaderThrottle:
    """Of one broker, for all partitions that it leads."""

    def __init__(self, loop_turn: LoopTurn, now_ms: Callable[[], int]) -> None:
        self.quota = ReplicationQuota(now_ms())
        self._loop_turn = loop_turn
        self._now_ms = now_ms
        self._held: dict[Wakeable, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def room(self, replica: Replica, follower_id: int) -> int:
        """Bytes that this follower may be sent of the replica now; UNLIMITED for most.

        A member of the ISR is never held back: acknowledgements wait for it.
        """
        if not self._is_throttled(replica, follower_id):
            return UNLIMITED
        return self.quota.room(self._now_ms())

    def record(self, replica: Replica, follower_id: int, size: int) -> None:
        """So many bytes of the replica have been sent to the follower."""
        if self._is_throttled(replica, follower_id):
            self.quota.record(size, self._now_ms())

    def hold(self, fetch: Wakeable) -> None:
        """Wake the fetch once something may be sent again."""
        self._held[fetch] = None
        if self._timer is None:
            delay_ms = self.quota.wait_ms(self._now_ms(), WAIT_MAX_MS)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._on_timer)

    def close(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()

    def _is_throttled(self, replica: Replica, follower_id: int) -> bool:
        throttled = replica.config.leader_throttled
        if not throttled or not self.quota.is_limited:
            return False
        core = replica.core
        return (
            core.partition_id,
            core.broker_id,
        ) in throttled and follower_id not in core.isr_state.isr

    def _on_timer(self) -> None:
        self._timer = None
        held, self._held = self._held, {}
        for fetch in held:
            self._loop_turn.wake(fetch)
