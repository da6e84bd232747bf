"""A client that stays with a partition's leader: it looks for the next one when it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.lookup import KnownLeader, LeaderConnection

RETRY_MS = 100
_NOTHING = -1


class LeaderSearch:
    """Looks for a leader after a while when a connection is lost or does not open in time, or when
    an answer does not come in time.

    look: finds a leader and calls `connect`, or `look_again`.
    on_end: called at each `look_again`, before the connection is closed.
    timeout_ms: for opening a connection, and for an answer.
    """

    def __init__(
        self,
        world: DataWorld,
        *,
        look: Callable[[], None],
        on_open: Callable[[], None],
        on_frame: Callable[[bytes, int], None],
        timeout_ms: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._look = look
        self._on_end = on_end
        self._timeout_ms = timeout_ms
        self._serial = 0
        self._awaited_id = _NOTHING
        self._connection = LeaderConnection(
            world, on_open=on_open, on_frame=on_frame, on_lost=self.look_again
        )

    @property
    def leader(self) -> KnownLeader | None:
        """The leader of the last connection, if it is open; otherwise None."""
        return self._connection.leader if self._connection.is_open else None

    def connect(self, leader: KnownLeader) -> None:
        """Drop the present connection, and open one to this leader."""
        self._connection.connect(leader)
        self._serial += 1
        self._world.timeline.after(self._timeout_ms, partial(self._check_open, self._serial))

    def look_again(self) -> None:
        """Close the connection; the next leader is looked for after a while."""
        self._on_end()
        self._connection.close()
        self._serial += 1
        self.after(RETRY_MS, self._look)

    def ask(self, request_of: Callable[[int], bytes]) -> None:
        """Send the request with a correlation id; only its answer is waited for."""
        asked_id = self._awaited_id = self._connection.next_id()
        self._connection.send(request_of(asked_id))
        self._world.timeline.after(self._timeout_ms, partial(self._give_up, asked_id))

    def is_awaited(self, correlation_id: int) -> bool:
        """True for the answer to the last request, once."""
        if correlation_id != self._awaited_id:
            return False
        self._awaited_id = _NOTHING
        return True

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Act after this time, unless another leader is looked for until then."""
        serial = self._serial

        def act_if_same() -> None:
            if serial == self._serial:
                act()

        self._world.timeline.after(delay_ms, act_if_same)

    def _check_open(self, serial: int) -> None:
        if serial == self._serial and not self._connection.is_open:
            self.look_again()

    def _give_up(self, asked_id: int) -> None:
        if asked_id == self._awaited_id:
            self.look_again()
