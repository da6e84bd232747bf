"""Share sessions: which partitions a member fetches from this broker, and in which epoch. Pure.

A member numbers its requests: epoch 0 opens its session, -1 ends it, and every other request has
the next number, so that a request that was lost or sent twice is noticed (KIP-932).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvorum.runtime.errors import ErrorCode

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

SharePartitionId = tuple[bytes, int]
"""(topic id, partition)."""


class ShareSession:
    """partitions: those that the member fetches, in the order in which they were added.

    connection: on which it was opened; its end is the session's.
    parked: the fetch that waits, None if none does.
    """

    __slots__ = ("connection", "epoch", "group_id", "member_id", "parked", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: Any) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = 1
        self.parked: Any = None
        self.partitions: dict[SharePartitionId, None] = {}

    def rotated(self) -> list[SharePartitionId]:
        """The partitions, beginning with another one at each request, so that none starves."""
        rows = list(self.partitions)
        first = self.epoch % len(rows) if rows else 0
        return rows[first:] + rows[:first]


class ShareSessions:
    """The share sessions of one broker."""

    __slots__ = ("_of_connection", "_of_group", "_sessions", "sessions_max")

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connection: dict[Any, set[tuple[str, str]]] = {}
        self._of_group: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of sessions."""
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Number of partitions that members fetch, in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(self, group_id: str, member_id: str, connection: Any) -> ShareSession | ErrorCode:
        """A new session of a member that has none. SHARE_SESSION_LIMIT_REACHED if there are too
        many."""
        if len(self._sessions) >= self.sessions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        key = group_id, member_id
        session = self._sessions[key] = ShareSession(group_id, member_id, connection)
        self._of_connection.setdefault(connection, set()).add(key)
        self._of_group[group_id] += 1
        return session

    def next(
        self, group_id: str, member_id: str, epoch: int, connection: Any
    ) -> ShareSession | ErrorCode:
        """The member's session for its next request, or for its last one (epoch -1).

        SHARE_SESSION_NOT_FOUND, or INVALID_SHARE_SESSION_EPOCH for another epoch than the next, and
        for 0. A session belongs to its connection: a client that reconnects opens a new one.
        """
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get((group_id, member_id))
        if session is None or session.connection is not connection:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            keys = self._of_connection[session.connection]
            keys.discard((group_id, member_id))
            if not keys:
                del self._of_connection[session.connection]
            self._of_group[group_id] -= 1
            if not self._of_group[group_id]:
                del self._of_group[group_id]
        return session

    def has_group(self, group_id: str) -> bool:
        """True if a member of the group has a session here."""
        return group_id in self._of_group

    def of_connection(self, connection: Any) -> list[ShareSession]:
        """The sessions that end with this connection."""
        keys = sorted(self._of_connection.get(connection, ()))
        return [self._sessions[key] for key in keys]
