"""A node's fsyncs of its log: one at a time, each with a duration, as in the driver's worker."""

from __future__ import annotations

from kvorum.chaos.sim.quorum.process import SimProcess
from kvorum.raft.model.effects import FlushLog
from kvorum.raft.model.events import LogFlushed
from kvorum.runtime.memory_disk import PowerCut
from kvorum.storage.log.flush import FlushTicket


class Flusher:
    """The flusher of one process. The newest FlushLog covers those that came during a flush."""

    def __init__(self, node: SimProcess) -> None:
        self._node = node
        self._incarnation = node.incarnation
        self._wanted: FlushLog | None = None
        self._is_flushing = False

    def flush(self, effect: FlushLog) -> None:
        """Fsync now, or after the flush that is under way."""
        self._wanted = effect
        self._begin()

    def _begin(self) -> None:
        if self._is_flushing or self._wanted is None:
            return
        self._is_flushing = True
        wanted, self._wanted = self._wanted, None
        ticket = self._node.replica_log.log.begin_flush()
        world = self._node.world
        world.timeline.after(world.fsync_ms(), lambda: self._end(ticket, wanted))

    def _end(self, ticket: FlushTicket, wanted: FlushLog) -> None:
        node = self._node
        if not self._is_alive():
            return
        try:
            ticket.run()
        except (OSError, PowerCut) as error:
            node.die(error)
            return
        # Counted at once, even while the process is paused: the bytes are on the disk.
        if wanted.generation == node.core.log.generation:
            node.durable_end_offset = max(node.durable_end_offset, ticket.end_offset)
        node.submit(lambda: self._tell(ticket, wanted))

    def _tell(self, ticket: FlushTicket, wanted: FlushLog) -> None:
        self._is_flushing = False
        self._node.replica_log.log.complete_flush(ticket)
        self._node.deliver(LogFlushed(ticket.end_offset, wanted.generation))
        if self._is_alive():
            self._begin()

    def _is_alive(self) -> bool:
        return self._node.is_up and self._node.incarnation == self._incarnation
