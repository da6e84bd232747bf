"""Replication throttling on the leader: which fetches are held back, and until when. A driver.

`replication_quota.ReplicationQuota` has the rate; this module has the waiting fetches and their
timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.loop_turn import LoopTurn, Wakeable
from kvorum.broker.quotas.replication_quota import UNLIMITED, ReplicationQuota

WAIT_MAX_MS = 1_000
"""Held fetches are checked again after this time: the rate may have been raised."""


class LeaderThrottle:
    """The throttle of one broker, for all partitions that it leads."""

    def __init__(self, loop_turn: LoopTurn, now_ms: Callable[[], int]) -> None:
        self.quota = ReplicationQuota(now_ms())
        self._loop_turn = loop_turn
        self._now_ms = now_ms
        self._held: dict[Wakeable, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def room(self, replica: Replica, follower_id: int) -> int:
        """Bytes of the replica that may be sent to this follower now; UNLIMITED if it is not
        throttled.

        A member of the ISR is never throttled: acknowledgements wait for it.
        """
        if not self._is_throttled(replica, follower_id):
            return UNLIMITED
        return self.quota.room(self._now_ms())

    def record(self, replica: Replica, follower_id: int, size: int) -> None:
        """Count `size` bytes of the replica as sent to the follower."""
        if self._is_throttled(replica, follower_id):
            self.quota.record(size, self._now_ms())

    def hold(self, fetch: Wakeable) -> None:
        """Wake the fetch once bytes may be sent again."""
        self._held[fetch] = None
        if self._timer is None:
            delay_ms = self.quota.wait_ms(self._now_ms(), WAIT_MAX_MS)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._on_timer)

    def close(self) -> None:
        """Stop: wake no fetch any more."""
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
