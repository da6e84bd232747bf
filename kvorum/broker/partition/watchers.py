"""The fetches that watch a replica, as the replica sees them; `broker.fetch.fetch_sessions` has the
rest of them."""

from __future__ import annotations

from typing import Any

from kvorum.broker.purgatory.loop_turn import LoopTurn


class WatchingFetch:
    """A fetch session, or a single fetch.

    replica_id: the follower's, -1 for a consumer.
    dirty: the watched partitions that have news.
    parked: the fetch that waits, if any.
    """

    __slots__ = ("dirty", "parked", "replica_id")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.dirty: dict[Any, None] = {}
        self.parked: Any = None

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0


class Watcher:
    """A partition that a fetch watches. replica: None while this broker has none."""

    __slots__ = ("replica", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.replica: Any = None

    def note_news(self, turn: LoopTurn) -> None:
        """Check the partition again, in the fetch that waits or the next one."""
        self.state.dirty[self] = None
        if self.state.parked is not None:
            turn.wake(self.state.parked)
