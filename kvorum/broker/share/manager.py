"""The share sessions of members with this broker, and their requests.

Walk: `broker.api.share_fetch` -> `SharePartitionManager.fetch` -> `PendingShareRequest` ->
`LedSharePartition` -> `core.share_partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kvorum.broker.share.core.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from kvorum.broker.share.core.share_partition import Acquire
from kvorum.broker.share.core.states import AcknowledgementBatch
from kvorum.broker.share.led_share_partitions import LedSharePartitions
from kvorum.broker.share.share_fetch import PendingShareRequest, Rows, ShareRow
from kvorum.runtime.errors import ErrorCode, Rejected

Acknowledgements = Mapping[SharePartitionId, list[AcknowledgementBatch]]


class ShareFetchWish(NamedTuple):
    """A ShareFetch. partitions: those that join the session; forgotten: those that leave it."""

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[SharePartitionId, ...]
    forgotten: tuple[SharePartitionId, ...]
    acknowledgements: Acknowledgements
    wish: Acquire
    bytes_min: int
    bytes_max: int
    max_wait_ms: int
    is_renewing: bool


class SharePartitionManager:
    """See the docstring of this module."""

    def __init__(self, led: LedSharePartitions, sessions_max: int) -> None:
        self._led = led
        self._sessions = ShareSessions(sessions_max)

    @property
    def sessions(self) -> ShareSessions:
        """The share sessions of all members with this broker."""
        return self._sessions

    @property
    def led(self) -> LedSharePartitions:
        """The share-partitions that these members fetch."""
        return self._led

    def fetch(
        self,
        asked: ShareFetchWish,
        connection: Any,
        refusal: Callable[[SharePartitionId], ErrorCode],
        respond: Callable[[Rows], None],
    ) -> PendingShareRequest | ErrorCode | Rejected | None:
        """Handle a ShareFetch. refusal: the error of a partition that the client may not read.

        Returns the error of the whole request, the request that waits, or None: it was answered.
        """
        session = self._session(asked, connection)
        if not isinstance(session, ShareSession):
            return session
        _unpark(session)
        session.partitions.update(dict.fromkeys(asked.partitions))
        for where in asked.forgotten:
            session.partitions.pop(where, None)
        rows = _refused({**session.partitions, **asked.acknowledgements}, refusal)
        pending = PendingShareRequest(self._led, asked.group_id, respond, rows)
        for where, batches in asked.acknowledgements.items():
            pending.acknowledge(where, asked.member_id, batches)
        if asked.session_epoch == FINAL_EPOCH:
            self._close(session)
        elif not asked.is_renewing:
            pending.fetch(
                session.rotated(),
                asked.wish,
                bytes_min=asked.bytes_min,
                bytes_max=asked.bytes_max,
                max_wait_ms=asked.max_wait_ms,
            )
        waiting = session.parked = pending.begin()
        return waiting

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        session_epoch: int,
        acknowledgements: Acknowledgements,
        connection: Any,
        refusal: Callable[[SharePartitionId], ErrorCode],
        respond: Callable[[Rows], None],
    ) -> PendingShareRequest | ErrorCode | Rejected | None:
        """Handle a ShareAcknowledge, as `fetch` does."""
        session = self._sessions.next(group_id, member_id, session_epoch, connection)
        if isinstance(session, ErrorCode):
            return session
        rows = _refused(acknowledgements, refusal)
        pending = PendingShareRequest(self._led, group_id, respond, rows)
        for where, batches in acknowledgements.items():
            pending.acknowledge(where, member_id, batches)
        if session_epoch == FINAL_EPOCH:
            self._close(session)
        return pending.begin()

    def _session(
        self, asked: ShareFetchWish, connection: Any
    ) -> ShareSession | ErrorCode | Rejected:
        if asked.session_epoch != INITIAL_EPOCH:
            return self._sessions.next(
                asked.group_id, asked.member_id, asked.session_epoch, connection
            )
        if any(asked.acknowledgements.values()):
            text = "a request that opens a share session acknowledges nothing"
            return Rejected(ErrorCode.INVALID_REQUEST, text)
        old = self._sessions.remove(asked.group_id, asked.member_id)
        if old is not None:
            _unpark(old)
        return self._sessions.open(asked.group_id, asked.member_id, connection)

    def _close(self, session: ShareSession) -> None:
        """End a session: its member gives up what it holds here, and it counts as a delivery."""
        self._sessions.remove(session.group_id, session.member_id)
        _unpark(session)
        for where in session.partitions:
            self._led.release(session.group_id, where, session.member_id)
        if not self._sessions.has_group(session.group_id):
            self._led.retire_group(session.group_id)

    def on_connection_closed(self, connection: Any) -> None:
        for session in self._sessions.of_connection(connection):
            self._close(session)


def _refused(
    partitions: Iterable[SharePartitionId], refusal: Callable[[SharePartitionId], ErrorCode]
) -> Rows:
    """The rows of the partitions that are refused."""
    errors = ((where, refusal(where)) for where in partitions)
    return {where: ShareRow(error=error) for where, error in errors if error != ErrorCode.NONE}


def _unpark(session: ShareSession) -> None:
    """Answer the fetch that waits: nothing may be acquired in it any more."""
    parked, session.parked = session.parked, None
    if parked is not None:
        parked.stop_fetching()
