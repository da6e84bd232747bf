"""A node's process as its parts use it: state machine, flusher, effects on log and snapshots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode

if TYPE_CHECKING:
    from kvorum.chaos.sim.kernel.network import Network
    from kvorum.chaos.sim.kernel.timeline import Timeline
    from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
    from kvorum.chaos.sim.quorum.checks.snapshot_checks import SnapshotChecks
    from kvorum.chaos.sim.quorum.mirror import Mirror
    from kvorum.chaos.sim.quorum.recovery import DiskSettings
    from kvorum.chaos.sim.quorum.scenario import Scenario
    from kvorum.chaos.sim.quorum.snapshot_worker import SnapshotWorker
    from kvorum.chaos.sim.quorum.state import ListState
    from kvorum.chaos.sim.quorum.transport import Transport
    from kvorum.raft.effects import LeaderChanged
    from kvorum.raft.events import Event
    from kvorum.raft.model import OffsetAndEpoch
    from kvorum.runtime.memory_disk import PowerCut


class Machine(Protocol):
    """The state machine of one process of a node. `StateMachine` is the plain one; the controller's
    world uses others (`chaos.sim.controller.machine`)."""

    @property
    def state(self) -> ListState:
        """The state after the applied records."""

    def apply(self, high_watermark: int) -> None:
        """Apply the committed records, which are those below the high watermark."""

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Handle a change of the leader or of the epoch."""

    def before_voter_change(self) -> None:
        """Called before an event in which the quorum may append a record of its own."""

    def after_event(self) -> None:
        """Called after the core has handled an event and the event's effects are carried out."""

    def on_clock_changed(self) -> None:
        """Handle a jump of the node's clock, or a change of its rate."""

    def snapshot(self) -> bool:
        """Write the state as a snapshot, in the background; False if there are no new records."""

    def load(self, snapshot: OffsetAndEpoch) -> None:
        """Load this snapshot, which is on disk; the log now starts at its end."""

    def stop(self) -> None:
        """Called when the process has ended."""


class NodeListener(Protocol):
    """Clients whose replies are parked at nodes."""

    def on_committed(self, node: CheckedNode, high_watermark: int) -> None:
        """Called when the node has learned that all records below the high watermark are
        committed."""

    def on_leader_changed(self, node: CheckedNode) -> None:
        """Called when the node has learned of another leader or epoch."""


class ProcessWorld(Protocol):
    """The part of a world that a process and its parts use."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def network(self) -> Network: ...

    @property
    def transport(self) -> Transport: ...

    @property
    def checks(self) -> QuorumChecks: ...

    @property
    def snapshot_checks(self) -> SnapshotChecks: ...

    @property
    def clients(self) -> NodeListener: ...

    @property
    def disk_settings(self) -> DiskSettings: ...

    @property
    def tally(self) -> Counter[str]: ...

    def note(self, node: CheckedNode, text: str) -> None:
        """Add a line to the trace."""

    def fsync_ms(self) -> int:
        """The duration of the next fsync."""

    def disk_call_ms(self, operation: str) -> int:
        """The duration of the next disk call on a snapshot."""


class NodeProcess(CheckedNode, Protocol):
    """A process of a node (`chaos.sim.quorum.node.SimNode`)."""

    mirror: Mirror
    durable_end_offset: int

    @property
    def world(self) -> ProcessWorld: ...

    @property
    def rng(self) -> random.Random: ...

    @property
    def is_up(self) -> bool: ...

    @property
    def local_ms(self) -> int: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def worker(self) -> SnapshotWorker: ...

    def deliver(self, event: Event) -> None:
        """Handle an event now, or when the paused node is resumed."""

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call now, or when the paused node is resumed; never if the node stops before."""

    def die(self, error: OSError | PowerCut) -> None:
        """End the process, since its disk has failed or its machine has lost power."""
