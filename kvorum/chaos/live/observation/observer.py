"""Writes to the history what each node says of the cluster, one thread per node.

A node that hangs holds up nobody else's view. Every node is asked each poll_interval_ms, and only
changes are written (`changes`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing

from kvorum.chaos.history import INFO, OBSERVE, OBSERVER, OK, HistoryWriter
from kvorum.chaos.live.observation.changes import Changes
from kvorum.chaos.live.observation.views import ObservedNode
from kvorum.chaos.outages.observations import Observation, PartitionSeen, Unanswered
from kvorum.runtime.errors import KvorumError, WireError

POLL_INTERVAL_MS = 100
#: A node that takes longer does not answer; a paused one is seen after this time.
ANSWER_TIMEOUT_MS = 1_000


class Observer:
    """Observes the cluster until it is stopped."""

    def __init__(
        self,
        *,
        views: Sequence[ObservedNode],
        history: HistoryWriter,
        poll_interval_ms: int = POLL_INTERVAL_MS,
    ) -> None:
        self._history = history
        self._poll_interval_ms = poll_interval_ms
        self._stop_wanted = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=(view,), name=f"chaos-observe-{view.node}", daemon=True
            )
            for view in views
        ]
        self.failure: BaseException | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, *, timeout_ms: int) -> None:
        """Ask the threads to end and wait for them."""
        self._stop_wanted.set()
        for thread in self._threads:
            thread.join(timeout_ms / 1000)

    def _run(self, view: ObservedNode) -> None:
        try:
            with closing(view):
                self._watch(view)
        except (KvorumError, ValueError, KeyError, AttributeError) as error:
            # The runner reports it: after this error there are no more observations of the node.
            self.failure = error

    def _watch(self, view: ObservedNode) -> None:
        changes = Changes(view.node)
        while not self._stop_wanted.wait(self._poll_interval_ms / 1000):
            try:
                seen = view.observe()
            except (OSError, WireError) as error:
                news = changes.missing(str(error) or type(error).__name__)
            else:
                news = changes.seen(seen, self._history.now_ms())
            for item in news:
                self._write(item)

    def _write(self, item: Observation) -> None:
        partition = item if isinstance(item, PartitionSeen) else None
        self._history.append(
            process=OBSERVER,
            type=INFO if isinstance(item, Unanswered) else OK,
            f=OBSERVE,
            topic=partition.topic if partition else None,
            partition=partition.partition if partition else None,
            details=item.details(),
            error=item.error if isinstance(item, Unanswered) else None,
        )
