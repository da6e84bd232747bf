"""Liveness of brokers, as the active controller sees it. Soft state: never in the log.

A broker's session ends after the session timeout without a heartbeat. It ends earlier if its
heartbeat stream broke and did not come back within a short grace, because then the process is
usually dead. A slow broker that still answers keeps its stream and its session.

The grace is short because a dead process is the usual cause of a broken stream. A flapping link
breaks streams as well, but then the same process comes back over it. Each such return doubles that
broker's own grace, up to the session timeout. Each FLAP_QUIET_MS without a return halves it again.
So a flapping link costs a few fencings and not one with every flap. A process that dies without
earlier flaps is detected after the configured grace.

Another process of the same broker id (another broker epoch) starts with the configured grace. So
does every broker at a new active controller.
"""

from __future__ import annotations

from dataclasses import dataclass

_NEVER_MS = 1 << 62

STALL_MS = 100
"""A session timer that fires this late shows that this process was stalled, and not the brokers."""

FLAP_QUIET_MS = 10_000
"""After this long without the return of a broken stream, the grace is halved once."""


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    deadline_ms: int
    stream_deadline_ms: int = _NEVER_MS
    metadata_offset: int = -1
    is_heard: bool = True


@dataclass(slots=True)
class _Streams:
    """The successive heartbeat streams of one broker epoch. They outlive sessions.

    newest: serial number of the last stream. is_broken: it ended, and no heartbeat has come since.
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
        """Start as a new active controller, with new deadlines for the brokers (id to epoch)."""
        deadline_ms = now_ms + self._session_timeout_ms
        self._sessions = {
            broker_id: _Session(broker_epoch, deadline_ms, is_heard=False)
            for broker_id, broker_epoch in brokers.items()
        }
        for streams in self._streams.values():
            streams.is_broken, streams.doublings = False, 0

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """Note a registration or heartbeat of this epoch."""
        self._sessions[broker_id] = _Session(
            broker_epoch,
            now_ms + self._session_timeout_ms,
            metadata_offset=metadata_offset,
        )
        streams = self._streams.get(broker_id)
        if streams is not None and streams.is_broken and streams.broker_epoch == broker_epoch:
            # The process was alive all the time.
            streams.is_broken = False
            streams.doublings = self._doublings(streams, now_ms) + 1
            streams.since_ms = now_ms

    def stream_began(self, broker_id: int, broker_epoch: int) -> int:
        """Note the first heartbeat of this epoch on a stream; return the stream's serial number.

        Only the end of the newest stream counts. Bad sequence otherwise:
        1. A link goes silent.
        2. The broker gives up its stream and returns over a new connection.
        3. The controller notices the end of the old connection, and would fence the broker.
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
        """Note that a heartbeat stream of this epoch has ended; older streams are ignored.

        serial: from `stream_began`; None for the newest stream.
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
        """How long a broken stream of this broker may stay away before the broker is fenced."""
        streams = self._streams.get(broker_id)
        doublings = 0 if streams is None else self._doublings(streams, now_ms)
        # If the session timeout is below the grace, it ends the session earlier in any case.
        most_ms = max(self._session_timeout_ms, self._stream_grace_ms)
        return min(self._stream_grace_ms << doublings, most_ms)

    def _doublings(self, streams: _Streams, now_ms: int) -> int:
        quiet = (now_ms - streams.since_ms) // FLAP_QUIET_MS
        # Count only doublings that have an effect. Otherwise, after many flaps, the grace would
        # take as long to fall as it took to rise.
        most = 0
        while self._stream_grace_ms << most < self._session_timeout_ms and self._stream_grace_ms:
            most += 1
        return max(min(streams.doublings, most) - quiet, 0)

    def on_timer(self, due_ms: int, now_ms: int) -> None:
        """Note that a timer due at due_ms fires now; call this before `expired`.

        A delay above STALL_MS shows that this process was stalled. Heartbeats may lie unread in its
        sockets, so silence proves nothing. All deadlines move by the delay, and to at least one
        grace from now: the stall may have begun long before due_ms.
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
        """Forget the session of a fenced broker until the next heartbeat."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """True if this controller itself hears from the process, and its stream is whole.

        A session that was only assumed at the claim does not count. Otherwise, after a crash of the
        whole cluster, the brokers' new processes would have to wait for the sessions of dead ones.
        """
        session = self._sessions.get(broker_id)
        if session is None or not session.is_heard or session.stream_deadline_ms != _NEVER_MS:
            return False
        return now_ms < session.deadline_ms

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Brokers whose session has ended, with the cause, ascending by id."""
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
