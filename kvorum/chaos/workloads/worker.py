"""A thread of a workload: a loop that runs until it is asked to stop, and its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvorum.runtime.errors import KvorumError


class LoadThread:
    """Runs `loop(stop)` in a thread; the loop returns soon after `stop` is set.

    failure: the error that ended the loop before; None if there was none. The runner reports it,
    since a run without its load proves nothing.
    """

    # It holds a Thread and does not extend it: a subclass could override a method of Thread by
    # accident.

    def __init__(self, name: str, loop: Callable[[threading.Event], None]) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._loop = loop
        self._stop_wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"chaos-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Return at once; the loop ends soon."""
        self._stop_wanted.set()

    def abandon(self) -> None:
        """As ask_to_stop, in a run that is broken off: what is left to do is left."""
        self.ask_to_stop()

    def stop(self, *, timeout_s: float) -> None:
        """Ask the loop to end, and wait. A loop that does not end in time is a failure."""
        self.ask_to_stop()
        if not self._thread.is_alive():
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self.failure is None:
            self.failure = KvorumError(f"{self.name} did not end within {timeout_s:g} s")

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._loop(self._stop_wanted)
        except (KvorumError, KafkaException, OSError, ValueError, RuntimeError) as error:
            self.failure = error
