"""Fetch sessions (KIP-227), and the partitions that one fetch watches.

A session remembers what its client asks for, so that a follower of thousands of idle partitions
sends and receives only changes. Kvorum adds one step to Kafka's: a partition that changes puts
itself on the `dirty` list of its sessions. So the cost of an answer, too, depends on the partitions
that changed and not on all that are watched. A sessionless fetch uses the same state for one
request.

Invariant: a partition that is not in `dirty` has nothing to report. At the offset that its client
asked from last there was no data and no error, and the high watermark and log start are as last
sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Protocol

from kvorum.broker.partition.replica import Replica
from kvorum.broker.partition.watchers import Watcher, WatchingFetch
from kvorum.broker.purgatory.loop_turn import Wakeable
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.fetch_codec import FetchPartition, FetchRequest

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1

EVICTION_IDLE_MS = 120_000
"""A session unused for this long may be evicted by a new one (Kafka's constant)."""

PartitionKey = tuple[str | bytes, int]


class Parked(Wakeable, Protocol):
    """A fetch that waits (`broker.fetch.leader_fetch.PendingFetch`)."""

    def cancel(self) -> None: ...


class Watched(Watcher):
    """One partition of one session (or sessionless fetch): what the client asks, and what was last
    sent to it."""

    state: FetchState
    replica: Replica | None

    __slots__ = (
        "asked",
        "name",
        "sent_high_watermark",
        "sent_last_stable_offset",
        "sent_log_start_offset",
        "topic_id",
    )

    def __init__(
        self, state: FetchState, name: str, topic_id: bytes, asked: FetchPartition
    ) -> None:
        super().__init__(state)
        self.name = name
        self.topic_id = topic_id
        self.asked = asked
        self.sent_high_watermark = -1
        self.sent_last_stable_offset = -1
        self.sent_log_start_offset = -1

    def forget_sent(self) -> None:
        """Forget the offsets last sent to the follower, unless its log is empty.

        An empty follower needs no high watermark. Without that exception, each of many new
        partitions would stay dirty until another partition has records, and would be checked in
        every fetch until then.
        """
        known = 0 if self.asked.fetch_offset == 0 else -1
        self.sent_high_watermark = self.sent_log_start_offset = known
        self.sent_last_stable_offset = -1


MayRead = Callable[[Watched], bool]


class FetchState(WatchingFetch):
    """The partitions that one client watches.

    session_id: SESSIONLESS for a single request.
    epoch: the one expected in the next request.
    replica_epoch: the follower's broker epoch, -1 for a consumer.
    rack_id: as in the last request.
    may_read: the rights of the client that sent the last request; None if every client may read
        everything.
    owner: the user who opened the session.
    """

    dirty: dict[Watched, None]
    parked: Parked | None

    __slots__ = (
        "epoch",
        "is_by_id",
        "is_read_committed",
        "last_used_ms",
        "may_read",
        "owner",
        "partitions",
        "rack_id",
        "replica_epoch",
        "session_id",
    )

    def __init__(
        self, request: FetchRequest, *, is_by_id: bool, now_ms: int, owner: str = ""
    ) -> None:
        super().__init__(request.replica_id)
        self.owner = owner
        self.session_id = SESSIONLESS
        self.epoch = 1
        self.replica_epoch = request.replica_epoch
        self.is_by_id = is_by_id
        self.is_read_committed = request.is_read_committed
        self.rack_id = request.rack_id
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, Watched] = {}
        self.may_read: MayRead | None = None

    def update(self, request: FetchRequest) -> Iterator[Watched]:
        """Apply the partitions that a request lists; yields each of them, now dirty."""
        by_id = self.is_by_id
        self.is_read_committed = request.is_read_committed
        self.rack_id = request.rack_id
        for topic in request.topics:
            topic_key: str | bytes = topic.topic_id if by_id else topic.name
            for asked in topic.partitions:
                key = (topic_key, asked.partition_id)
                watched = self.partitions.get(key)
                if watched is None:
                    watched = Watched(self, topic.name, topic.topic_id, asked)
                    self.partitions[key] = watched
                    if self.is_replica:
                        watched.forget_sent()
                else:
                    before, watched.asked = watched.asked, asked
                    if self.is_replica and not _goes_on(before, asked):
                        # The follower may have dropped the last answer and the offsets in it: the
                        # partition got a new leader epoch meanwhile, or was moved away and back.
                        watched.forget_sent()
                self.dirty[watched] = None
                yield watched

    def forget(self, request: FetchRequest) -> None:
        """Drop the partitions that the request lists as forgotten."""
        for name, topic_id, partition_ids in request.forgotten:
            for partition_id in partition_ids:
                key = (topic_id if self.is_by_id else name, partition_id)
                watched = self.partitions.pop(key, None)
                if watched is not None:
                    self.dirty.pop(watched, None)
                    unwatch(watched)

    def close(self) -> None:
        """Stop watching everything."""
        for watched in self.partitions.values():
            unwatch(watched)
        self.partitions.clear()
        self.dirty.clear()


def _goes_on(before: FetchPartition, asked: FetchPartition) -> bool:
    """True if a follower lists a partition again only because it appended the records that it was
    sent, or because its log start rose."""
    return asked.current_leader_epoch == before.current_leader_epoch and (
        asked.fetch_offset > before.fetch_offset or asked.log_start_offset > before.log_start_offset
    )


def unwatch(watched: Watched) -> None:
    """Remove the partition from its replica's watchers."""
    if watched.replica is not None:
        watched.replica.watchers.pop(watched, None)
        watched.replica = None


class SessionCache:
    """Fetch sessions by id, at most `slots`, in the order of their last use.

    A new session may evict an idle one; a follower's may evict any consumer's. A session with a
    parked fetch is never evicted. A client that gets no session sends full fetches.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchState] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self, request: FetchRequest, *, is_by_id: bool, now_ms: int, owner: str = ""
    ) -> FetchState | ErrorCode:
        """The session of an incremental request, with its epoch advanced; or an error, for example
        if this user has no session of that id."""
        state = self._sessions.get(request.session_id)
        if state is None or state.owner != owner:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if state.is_by_id != is_by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if state.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if state.replica_epoch != request.replica_epoch:
            # The follower was fenced and has registered again over the same connection. The
            # follower must list its positions again under the new broker epoch: otherwise idle
            # partitions would count as fetched under the old one. And a consumer that has guessed
            # the id of a follower's session must not read as a broker.
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        state.epoch = 1 if state.epoch == EPOCH_MAX else state.epoch + 1
        state.last_used_ms = now_ms
        del self._sessions[state.session_id]  # inserted again at the end: most recently used
        self._sessions[state.session_id] = state
        return state

    def add(self, state: FetchState, now_ms: int) -> bool:
        """Make `state` a session if there is room, and set its session_id."""
        if len(self._sessions) >= self._slots and not self._evict_for(state, now_ms):
            return False
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        state.session_id = session_id
        self._sessions[session_id] = state
        return True

    def is_owned(self, session_id: int, owner: str) -> bool:
        """True if the session exists and is this user's: nobody else, who may have guessed its id,
        may use it or end it."""
        state = self._sessions.get(session_id)
        return state is not None and state.owner == owner

    def remove(self, session_id: int) -> FetchState | None:
        """Close and return a session, if it exists. The caller must cancel its parked fetch."""
        state = self._sessions.pop(session_id, None)
        if state is not None:
            state.close()
        return state

    def _evict_for(self, newcomer: FetchState, now_ms: int) -> bool:
        for session_id, state in self._sessions.items():
            if state.parked is not None:
                continue  # evicting it would lose its answer, and what wakes it
            is_idle = now_ms - state.last_used_ms > EVICTION_IDLE_MS
            if is_idle or (newcomer.is_replica and not state.is_replica):
                self.remove(session_id)
                return True
        return False
