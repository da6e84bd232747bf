"""Broker sessions of the active controller. Soft state: never in the log.

A broker's session ends after a session timeout without a heartbeat. The session ends sooner if the
broker's heartbeat stream breaks and does not come back within a short grace: the process is gone. A
slow broker that still answers keeps its session.

The grace is short because a dead process is the usual cause of a broken stream. A link that flaps
breaks streams too: the same process comes back over it, fenced or not, and was never dead. Each
such return doubles the broker's own grace, up to the session timeout. Each FLAP_QUIET_MS without
one halves it again. So a flapping link costs a few fencings, not one with every flap. A process
that dies without earlier flaps is still found out after the configured grace. A new process of that
id (a new broker epoch), and a new active controller, start with the configured grace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_NEVER_MS = 1 << 62

STALL_MS = 100
"""A session timer that fires this late shows that this process stood still, not the brokers."""

FLAP_QUIET_MS = 10_000
"""Time without the return of a broken stream after which one doubling of the grace is undone."""


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    deadline_ms: int
    stream_deadline_ms: int = _NEVER_MS
    metadata_offset: int = -1
    is_heard: bool = True


@dataclass(slots=True)
class _Streams:
    """The heartbeat streams of one broker epoch, one after another. They outlive sessions.

    newest: serial number of the latest stream.
    is_broken: that stream ended, and no heartbeat has arrived since.
    doublings: of the grace, as of since_ms.
    """

    broker_epoch: int
    newest: int = 0
    is_broken: bool = False
    doublings: int = 0
    since_ms: int = 0


class BrokerSessions:
    """Sessions by broker id. All times are ms of the driver's monotonic clock."""

    def __init__(self, *, session_timeout_ms: int, stream_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._stream_grace_ms = stream_grace_ms
        self._sessions: dict[int, _Session] = {}
        self._streams: dict[int, _Streams] = {}
        self._signs_ms: dict[int, int] = {}
        """When each broker last gave a sign of life, also of brokers that were fenced since."""

    def reset(self, brokers: dict[int, int], now_ms: int, fenced: Iterable[int] = ()) -> None:
        """Start as a new active controller: each broker that is not fenced (id -> broker epoch)
        gets a new deadline. fenced: ids of the others; their processes may be alive, too."""
        deadline_ms = now_ms + self._session_timeout_ms
        self._sessions = {
            broker_id: _Session(broker_epoch, deadline_ms, is_heard=False)
            for broker_id, broker_epoch in brokers.items()
        }
        # This controller does not know when the earlier one last heard from each broker.
        self._signs_ms = dict.fromkeys((*brokers, *fenced), now_ms)
        for streams in self._streams.values():
            streams.is_broken, streams.doublings = False, 0

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """Extend the session: a registration or a heartbeat of this broker epoch arrived."""
        self._sessions[broker_id] = _Session(
            broker_epoch,
            now_ms + self._session_timeout_ms,
            metadata_offset=metadata_offset,
        )
        self._signs_ms[broker_id] = now_ms
        streams = self._streams.get(broker_id)
        if streams is not None and streams.is_broken and streams.broker_epoch == broker_epoch:
            # The process was not dead.
            streams.is_broken = False
            streams.doublings = self._doublings(streams, now_ms) + 1
            streams.since_ms = now_ms

    def stream_began(self, broker_id: int, broker_epoch: int) -> int:
        """A new heartbeat stream of this broker epoch has its first heartbeat; returns the stream's
        serial number.

        Only the end of the newest stream counts. Bad sequence otherwise: 1. A link goes silent. 2.
        The broker closes its stream, and opens another over a new connection. 3. The controller
        notices the end of the old connection, and fences the broker.
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
        """A heartbeat stream of this broker epoch ended; the end of an old stream is ignored.

        serial: as returned by `stream_began`; None for the newest.
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
        """The grace of this broker: time for a broken stream to come back."""
        streams = self._streams.get(broker_id)
        doublings = 0 if streams is None else self._doublings(streams, now_ms)
        # If the configured grace is longer than the session timeout, the session timeout ends
        # sessions anyway.
        most_ms = max(self._session_timeout_ms, self._stream_grace_ms)
        return min(self._stream_grace_ms << doublings, most_ms)

    def _doublings(self, streams: _Streams, now_ms: int) -> int:
        quiet = (now_ms - streams.since_ms) // FLAP_QUIET_MS
        # No more doublings than reach the session timeout: otherwise, after a long series of flaps,
        # undoing them would take as long as the series.
        most = 0
        while self._stream_grace_ms << most < self._session_timeout_ms and self._stream_grace_ms:
            most += 1
        return max(min(streams.doublings, most) - quiet, 0)

    def on_timer(self, due_ms: int, now_ms: int) -> None:
        """A timer that was due at due_ms fires now. Call before `expired`.

        If it is late by more than STALL_MS, this process itself stood still. Heartbeats may be
        unread in its sockets, so missing ones prove nothing. Every deadline is postponed, to a
        grace from now at least, since the stall may have begun long before due_ms.
        """
        late_ms = now_ms - due_ms
        if late_ms > STALL_MS:
            self._postpone(late_ms, now_ms + self._stream_grace_ms)

    def _postpone(self, by_ms: int, least_ms: int) -> None:
        for broker_id in self._signs_ms:
            self._signs_ms[broker_id] += by_ms
        for session in self._sessions.values():
            session.deadline_ms = max(session.deadline_ms + by_ms, least_ms)
            if session.stream_deadline_ms != _NEVER_MS:
                session.stream_deadline_ms = max(session.stream_deadline_ms + by_ms, least_ms)

    def drop(self, broker_id: int) -> None:
        """End the session of a broker that was fenced; its next heartbeat starts another."""
        self._sessions.pop(broker_id, None)

    def forget(self, broker_id: int) -> None:
        """Forget a broker that was unregistered."""
        self.drop(broker_id)
        self._signs_ms.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """True if this controller itself has heard from the process recently, and its stream is not
        broken.

        A session that was only assumed at the claim is not enough. Otherwise, after a crash of the
        whole cluster, the brokers' new processes would wait until the sessions of dead ones end.
        """
        session = self._sessions.get(broker_id)
        if session is None or not session.is_heard or session.stream_deadline_ms != _NEVER_MS:
            return False
        return now_ms < session.deadline_ms

    def may_be_alive(self, broker_id: int, now_ms: int) -> bool:
        """False once the process has given no sign of life for a session timeout, which begins anew
        with each active controller. True says little: a stream breaks, and a controller dies,
        while the broker's process lives on.
        """
        sign_ms = self._signs_ms.get(broker_id)
        return sign_ms is not None and now_ms < sign_ms + self._session_timeout_ms

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Brokers whose sessions have ended, with the cause, by ascending id."""
        gone = []
        for broker_id in sorted(self._sessions):
            session = self._sessions[broker_id]
            if now_ms >= session.stream_deadline_ms:
                gone.append((broker_id, "its heartbeat stream broke and did not come back"))
            elif now_ms >= session.deadline_ms:
                gone.append((broker_id, "its session timed out"))
        return gone

    def next_deadline_ms(self) -> int | None:
        """When `expired` must be called next, None for never."""
        deadline_ms = min(
            (min(s.deadline_ms, s.stream_deadline_ms) for s in self._sessions.values()),
            default=_NEVER_MS,
        )
        return None if deadline_ms == _NEVER_MS else deadline_ms
