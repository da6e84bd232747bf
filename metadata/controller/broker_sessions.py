"""Which brokers are alive, as the active controller sees it. Soft state: never in the log.

A broker's session ends by silence (session timeout) or, sooner, when its heartbeat stream broke
and did not come back within a short grace: the process is gone. A slow broker that still answers
keeps both.

The grace is short because a process that died leaves a broken stream behind, and mostly that is
what broke it. A link that flaps breaks streams as well: the same process comes back over it, fenced
or not, and was never dead. Each such return doubles the broker's own grace, up to the session
timeout, and each FLAP_QUIET_MS without one halves it again. So a flapping link costs a few fencings
and not one with every flap, while a process that dies without having flapped before is found out
after the configured grace. Another process of that id (another broker epoch) begins anew, and so
does another active controller, which has seen none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

_NEVER_MS = 1 << 62

STALL_MS = 100
"""A session timer that fires so late says that this process stood still, not the brokers."""

FLAP_QUIET_MS = 10_000
"""Without the return of a broken stream for so long, a doubling of the grace is taken back."""


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    deadline_ms: int
    stream_deadline_ms: int = _NEVER_MS
    metadata_offset: int = -1
    is_heard: bool = True


@dataclass(slots=True)
class _Streams:
    """Streams of one broker epoch, one after the other. They outlive sessions.

    newest: serial of the last that began. is_broken: it ended, and no heartbeat came since.
    doublings: of the grace, as of since_ms.
    """

    broker_epoch: int
    newest: int = 0
    is_broken: bool = False
    doublings: int = 0
    since_ms: int = 0


class BrokerSessions:
    """Sessions by broker id; all times in milliseconds of the driver's monotonic clock."""

    def __init__(self, *, session_timeout_ms: int, stream_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._stream_grace_ms = stream_grace_ms
        self._sessions: dict[int, _Session] = {}
        self._streams: dict[int, _Streams] = {}

    def reset(self, brokers: dict[int, int], now_ms: int) -> None:
        """A new active controller: each registered broker (id to epoch) gets a fresh deadline."""
        deadline_ms = now_ms + self._session_timeout_ms
        self._sessions = {
            broker_id: _Session(broker_epoch, deadline_ms, is_heard=False)
            for broker_id, broker_epoch in brokers.items()
        }
        for streams in self._streams.values():
            streams.is_broken, streams.doublings = False, 0

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """A registration or a heartbeat of this epoch arrived."""
        self._sessions[broker_id] = _Session(
            broker_epoch,
            now_ms + self._session_timeout_ms,
            metadata_offset=metadata_offset,
        )
        streams = self._streams.get(broker_id)
        if streams is not None and streams.is_broken and streams.broker_epoch == broker_epoch:
            # It was not dead.
            streams.is_broken = False
            streams.doublings = self._doublings(streams, now_ms) + 1
            streams.since_ms = now_ms

    def stream_began(self, broker_id: int, broker_epoch: int) -> int:
        """A heartbeat stream of this epoch brings its first heartbeat; the stream's serial.

        Only the end of the newest counts. 1. A link goes silent, 2. the broker gives its stream up
        and comes back over a new connection, 3. the end of the old connection is noticed here.
        """
        streams = self._streams.get(broker_id)
        if streams is None or streams.broker_epoch < broker_epoch:
            newest = 0 if streams is None else streams.newest
            streams = self._streams[broker_id] = _Streams(broker_epoch, newest)
        if streams.broker_epoch == broker_epoch:
            streams.newest += 1
        return streams.newest

    def stream_broke(
        self, broker_id: int, broker_epoch: int, now_ms: int, serial: int | None = None
    ) -> None:
        """The heartbeat stream of this epoch ended; a newer one is none of its business.

        serial: as `stream_began` gave it; None for the newest.
        """
        session, streams = self._sessions.get(broker_id), self._streams.get(broker_id)
        if streams is None or streams.broker_epoch < broker_epoch:
            streams = self._streams[broker_id] = _Streams(broker_epoch)
        if session is None or session.broker_epoch != broker_epoch:
            return
        if serial is not None and serial != streams.newest:
            return
        streams.is_broken = True
        session.stream_deadline_ms = now_ms + self.grace_ms(broker_id, now_ms)

    def grace_ms(self, broker_id: int, now_ms: int) -> int:
        """How long a broken stream of this broker may stay away."""
        streams = self._streams.get(broker_id)
        doublings = 0 if streams is None else self._doublings(streams, now_ms)
        # A session timeout below the grace has always ended a session sooner anyway.
        most_ms = max(self._session_timeout_ms, self._stream_grace_ms)
        return min(self._stream_grace_ms << doublings, most_ms)

    def _doublings(self, streams: _Streams, now_ms: int) -> int:
        quiet = (now_ms - streams.since_ms) // FLAP_QUIET_MS
        # No more than are of use, or the quiet after a long storm would take as long as the storm.
        most = 0
        while self._stream_grace_ms << most < self._session_timeout_ms and self._stream_grace_ms:
            most += 1
        return max(min(streams.doublings, most) - quiet, 0)

    def on_timer(self, due_ms: int, now_ms: int) -> None:
        """A timer that was due at due_ms fires now; call before `expired`.

        If it is late by more than STALL_MS this process itself stood still: heartbeats may lie
        unread in its sockets, and what it did not hear proves nothing. Every deadline moves, and
        none is nearer than a grace from now: the stall may have begun long before due_ms.
        """
        late_ms = now_ms - due_ms
        if late_ms > STALL_MS:
            self._postpone(late_ms, now_ms + self._stream_grace_ms)

    def _postpone(self, by_ms: int, least_ms: int) -> None:
        for session in self._sessions.values():
            session.deadline_ms = max(session.deadline_ms + by_ms, least_ms)
            if session.stream_deadline_ms != _NEVER_MS:
                session.stream_deadline_ms = max(session.stream_deadline_ms + by_ms, least_ms)

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
