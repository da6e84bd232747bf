"""The state machine of a node: applies committed records, writes and loads snapshots.

It stands in for `metadata.controller.loop` and `metadata.image.snapshotter`: one snapshot is
written at a time, no record is applied while a snapshot is loaded, and of several snapshots to load
the latest wins.
"""

from __future__ import annotations

import errno

from kvorum.chaos.sim.kernel.async_disk import SimAsyncDisk, SimTask
from kvorum.chaos.sim.quorum.model.mirror import log_entries
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.process import SimProcess
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.events import SnapshotsExpired, SnapshotTaken
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node.snapshot_files import header_voters
from kvorum.runtime.errors import required
from kvorum.snapshots.format import SnapshotHeader


class StateMachine:
    """The state machine of one process. state: after the applied records."""

    def __init__(self, node: SimProcess, state: ListState) -> None:
        self.state = state
        self._node = node
        self._wanted: OffsetAndEpoch | None = None
        self._is_loading = False
        self._is_writing = False
        self._due_offset = 0
        self._plan_snapshot()

    def apply(self, high_watermark: int) -> None:
        """Apply the committed records, read back from the log's bytes."""
        if self._wanted is not None or high_watermark <= self.state.end_offset:
            return
        log = self._node.replica_log.log
        self.state = self.state.after(log_entries(log, self.state.end_offset, high_watermark))
        self._node.world.checks.on_applied(self._node)
        if 0 < self._due_offset <= self.state.end_offset:
            self.snapshot()

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """No effect on a list."""

    def before_voter_change(self) -> None:
        """No effect: a list has no pending appends."""

    def after_event(self) -> None:
        """No effect."""

    def on_clock_changed(self) -> None:
        """No effect: a list has no timers."""

    def stop(self) -> None:
        """No effect: no part of a list outlives the process."""

    # The node's own snapshots.

    def snapshot(self) -> bool:
        """Write the state as a snapshot, in the background; False if there are no new records."""
        node, state = self._node, self.state
        newest = max((s.offset for s in node.core.log.snapshots), default=0)
        if self._is_writing or self._wanted is not None or state.end_offset <= newest:
            return False
        voters = node.core.log.voters.at(state.end_offset)
        is_dynamic = node.config.is_dynamic
        header = SnapshotHeader(
            end_offset=state.end_offset,
            epoch=state.epoch,
            timestamp_ms=node.replica_log.timestamp_before(state.end_offset),
            kraft_version=int(is_dynamic),
            voters=header_voters(voters) if is_dynamic else (),
        )
        self._is_writing = True
        node.worker.queue(node.files.take(header, state.payloads()), self._on_taken)
        return True

    def _on_taken(self, task: SimTask[SnapshotTaken]) -> None:
        node = self._node
        self._is_writing = False
        self._plan_snapshot()
        if isinstance(task.error, OSError):
            # As in `RaftNode`: nothing depends on a snapshot that was not written.
            node.world.note(node, f"cannot write a snapshot: {task.error}")
            node.world.tally["snapshots not written"] += 1
            return
        if task.error is not None:
            raise task.error
        taken = required(task.result, "a snapshot was taken")
        node.world.snapshot_checks.on_snapshot(node, taken.snapshot)
        node.world.tally["snapshots taken"] += 1
        incarnation = node.incarnation
        node.deliver(taken)
        if node.is_up and node.incarnation == incarnation:
            count = node.files.expired(
                node.core.log.snapshots,
                log_bytes=node.replica_log.log.size_bytes,
                now_ms=node.local_ms,
            )
            if count:
                node.deliver(SnapshotsExpired(count))

    def _plan_snapshot(self) -> None:
        every = self._node.world.scenario.snapshot_every
        if every:
            # The distance is random, so that nodes snapshot at different offsets.
            self._due_offset = self.state.end_offset + self._node.rng.randint(1, 2 * every)

    # Snapshots from the leader.

    def load(self, snapshot: OffsetAndEpoch) -> None:
        """Load this snapshot, which is on disk; the log now starts at its end."""
        self._wanted = snapshot
        if not self._is_loading:
            self._load()

    def _load(self) -> None:
        snapshot = self._wanted
        if snapshot is None:
            return
        self._is_loading = True
        node = self._node
        path = node.files.path(snapshot)

        def loaded(task: SimTask[ListState]) -> None:
            self._is_loading = False
            if self._wanted != snapshot:
                # after any result: a newer snapshot is wanted, and this one may be removed
                self._load()
            elif isinstance(task.error, OSError) and task.error.errno != errno.ENOENT:
                node.die(task.error)
            elif task.error is not None:
                raise task.error
            else:
                self._wanted = None
                node.world.tally["snapshots loaded"] += 1
                self._on_loaded(required(task.result, "a snapshot was loaded"))

        load_state = node.world.disk_settings.load_state
        node.worker.beside(load_state(SimAsyncDisk(node.disk), path), loaded)

    def _on_loaded(self, state: ListState) -> None:
        node = self._node
        self.state = state
        node.world.checks.on_applied(node)
        self._plan_snapshot()
        self.apply(node.core.high_watermark)
        node.world.clients.on_committed(node, node.core.high_watermark)
