"""Which brokers are alive, as the active controller sees it. Soft state: never in the log.

A broker's session ends by silence (session timeout) or, sooner, when its heartbeat stream broke
and did not come back within a short grace: the process is gone. A slow broker that still answers
keeps both.
"""

from __future__ import annotations

from dataclasses import dataclass

_NEVER_MS = 1 << 62

STALL_MS = 100
"""A session timer that fires so late says that this process stood still, not the brokers."""


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    deadline_ms: int
    stream_deadline_ms: int = _NEVER_MS
    metadata_offset: int = -1
    is_heard: bool = True


class BrokerSessions:
    """Sessions by broker id; all times in milliseconds of the driver's monotonic clock."""

    def __init__(self, *, session_timeout_ms: int, stream_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._stream_grace_ms = stream_grace_ms
        self._sessions: dict[int, _Session] = {}

    def reset(self, brokers: dict[int, int], now_ms: int) -> None:
        """A new active controller: each registered broker (id to epoch) gets a fresh deadline."""
        deadline_ms = now_ms + self._session_timeout_ms
        self._sessions = {
            broker_id: _Session(broker_epoch, deadline_ms, is_heard=False)
            for broker_id, broker_epoch in brokers.items()
        }

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """A registration or a heartbeat of this epoch arrived."""
        self._sessions[broker_id] = _Session(
            broker_epoch,
            now_ms + self._session_timeout_ms,
            metadata_offset=metadata_offset,
        )

    def stream_broke(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """The heartbeat stream of this epoch ended; a newer one is none of its business."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.stream_deadline_ms = now_ms + self._stream_grace_ms

    def on_timer(self, due_ms: int, now_ms: int) -> None:
        """A timer that was due at due_ms fires now; call before `expired`.

        If it is late by more than STALL_MS this process itself stood still: heartbeats may lie
        unread in its sockets, and what it did not hear proves nothing. Every deadline moves.
        """
        late_ms = now_ms - due_ms
        if late_ms > STALL_MS:
            self._postpone(late_ms)

    def _postpone(self, by_ms: int) -> None:
        for session in self._sessions.values():
            session.deadline_ms += by_ms
            if session.stream_deadline_ms != _NEVER_MS:
                session.stream_deadline_ms += by_ms

    def drop(self, broker_id: int) -> None:
        """The broker was fenced: nothing to watch until it is heard of again."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """This controller itself has heard from the process lately, and its stream is whole.

        A session that was only presumed at the claim keeps nobody out: after a crash of the
        whole cluster the brokers' new processes would wait for sessions of dead ones to end.
        """
        session = self._sessions.get(broker_id)
        if session is None or not session.is_heard or session.stream_deadline_ms != _NEVER_MS:
            return False
        return now_ms < session.deadline_ms

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Brokers whose session is over, with the cause, ascending by id."""
        gone = []
        for broker_id in sorted(self._sessions):
            session = self._sessions[broker_id]
            if now_ms >= session.stream_deadline_ms:
                gone.append((broker_id, "its heartbeat stream broke and did not come back"))
            elif now_ms >= session.deadline_ms:
                gone.append((broker_id, "its session timed out"))
        return gone

    def next_deadline_ms(self) -> int | None:
        """When `expired` has to be asked next, None for never."""
        deadline_ms = min(
            (min(s.deadline_ms, s.stream_deadline_ms) for s in self._sessions.values()),
            default=_NEVER_MS,
        )
        return None if deadline_ms == _NEVER_MS else deadline_ms
