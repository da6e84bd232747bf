"""The network between simulated machines: delay, reordering, loss, duplication, cuts.

It decides the delay and the fate of each message. The carriers of messages ask it: the quorum's
transport, calls and streams (`chaos.sim.kernel.wire`), sockets.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

SPIKE_MS_MAX = 1_000
"""The longest extra delay of a message that is hit by a spike."""

Link = tuple[int, int]
"""Sender and receiver."""


class Host(Protocol):
    """A machine with one process on the network.

    is_dark: the whole machine is down, so that connections to it are not even refused.
    incarnation: of its present or last process.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def is_up(self) -> bool: ...

    @property
    def is_dark(self) -> bool: ...

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call now, or when the paused process is resumed; never if it stops before."""


class Network:
    """is_rough: loss, duplication and spikes happen; cuts apply in any case.

    delay_ms_max: delays are drawn from [0, max].
    spike, loss, duplication: probabilities for each message.
    on_break: the carriers of messages; each is called for a node whose connections break.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        delay_ms_max: int,
        spike: float,
        loss: float,
        duplication: float,
    ) -> None:
        self.is_rough = True
        self.on_break: list[Callable[[int], None]] = []
        self._rng = rng
        self._delay_ms_max = delay_ms_max
        self._spike = spike
        self._loss = loss
        self._duplication = duplication
        self._blocked: Counter[Link] = Counter()

    # The methods that carriers of messages call.

    def delay_ms(self) -> int:
        """The delay of the next message."""
        delay_ms = self._rng.randint(0, self._delay_ms_max)
        if self.is_rough and self._spike and self._rng.random() < self._spike:
            delay_ms += self._rng.randint(0, SPIKE_MS_MAX)
        return delay_ms

    def copies(self, sender_id: int, receiver_id: int) -> int:
        """The number of times a message arrives: 0 if the link is cut or the message is lost."""
        if (sender_id, receiver_id) in self._blocked:
            return 0
        if self.is_rough:
            if self._loss and self._rng.random() < self._loss:
                return 0
            if self._duplication and self._rng.random() < self._duplication:
                return 2
        return 1

    def passes(self, sender_id: int, receiver_id: int) -> bool:
        """True if the link is open and this message is not lost."""
        return self.copies(sender_id, receiver_id) > 0

    def is_open(self, sender_id: int, receiver_id: int) -> bool:
        """True if the link is not cut."""
        return (sender_id, receiver_id) not in self._blocked

    # The methods that faults call.

    def block(self, links: Iterable[Link]) -> None:
        """Cut these one-way links; several cuts of one link add up."""
        self._blocked.update(links)

    def unblock(self, links: Iterable[Link]) -> None:
        """Undo one cut of each of these links."""
        self._blocked.subtract(links)
        self._blocked = +self._blocked

    def heal(self) -> None:
        """End all disturbances except delays."""
        self.is_rough = False
        self._blocked.clear()

    def break_connections(self, node_id: int) -> None:
        """Break every connection of the node."""
        for break_off in self.on_break:
            break_off(node_id)
