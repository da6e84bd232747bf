"""A node's process as its parts use it (state machine, flusher, effects on log and snapshots), and
what the processes of a world share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.kernel.network import Network
from kvorum.chaos.sim.kernel.timeline import SimTimeline
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
from kvorum.chaos.sim.quorum.configs import configs_of, first_voters_of
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings, load_state
from kvorum.chaos.sim.quorum.model.state import keys_of_set
from kvorum.chaos.sim.quorum.transport import Transport

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.model.mirror import Mirror
    from kvorum.chaos.sim.quorum.model.recovery import LoadState
    from kvorum.chaos.sim.quorum.model.state import ListState
    from kvorum.chaos.sim.quorum.scenario import Scenario
    from kvorum.chaos.sim.quorum.snapshot_worker import SnapshotWorker
    from kvorum.raft.model.effects import LeaderChanged
    from kvorum.raft.model.events import Event
    from kvorum.raft.model.values import OffsetAndEpoch
    from kvorum.runtime.memory_disk import PowerCut


class NodeMachine(Protocol):
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


class ProcessWorld:
    """The state that the processes of a world share. The network, the disks, the ids, and each part
    above have random generators of their own: one more draw in one of them changes no other.

    tally: counts of events of snapshots and voter changes.
    clients: they have their replies parked at nodes.
    """

    clients: NodeListener

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.controller_ids = tuple(scenario.controller_ids)
        self.broker_ids = tuple(i for i in scenario.node_ids if i not in self.controller_ids)
        self.timeline = SimTimeline()
        rng = self.generator("network")
        self.network = Network(
            rng,
            delay_ms_max=scenario.delay_ms_max,
            spike=scenario.spike,
            loss=scenario.loss,
            duplication=scenario.duplication,
        )
        self.transport = Transport(self.timeline, self.network, rng, scenario)
        self.tally: Counter[str] = Counter()
        self.configs = configs_of(scenario, self.generator("ids"))
        self.first_voters = first_voters_of(scenario, self.configs)
        first_keys = keys_of_set(self.first_voters)
        self.disk_settings = DiskSettings(
            static_voters=frozenset() if scenario.is_dynamic else first_keys,
            retention_bytes=scenario.retention_bytes,
            load_state=self.load_state,
        )
        self.checks = QuorumChecks(self.disk_settings, first_keys)
        self.snapshot_checks, self.voter_checks = self.checks.snapshots, self.checks.voters
        self._disk_rng = self.generator("disks")

    @property
    def load_state(self) -> LoadState:
        """Reads the state in the nodes' snapshots."""
        return load_state

    def generator(self, name: str) -> random.Random:
        """The random generator of the part of that name."""
        return random.Random(f"{self.scenario.seed}-{name}")

    def fsync_ms(self) -> int:
        """The duration of the next fsync."""
        return self._disk_rng.randint(0, self.scenario.fsync_ms_max)

    def disk_call_ms(self, operation: str) -> int:
        """The duration of the next disk call on a snapshot."""
        if operation in ("sync", "sync_dir"):
            return self.fsync_ms()
        return self._disk_rng.randint(0, self.scenario.fsync_ms_max // 10)

    def note(self, node: CheckedNode, text: str) -> None:
        """Add a line to the trace."""
        self.timeline.note(f"node={node.node_id} {text}")


class SimProcess(CheckedNode, Protocol):
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
    def machine(self) -> NodeMachine: ...

    @property
    def worker(self) -> SnapshotWorker: ...

    def deliver(self, event: Event) -> None:
        """Handle an event now, or when the paused node is resumed."""

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call now, or when the paused node is resumed; never if the node stops before."""

    def die(self, error: OSError | PowerCut) -> None:
        """End the process, since its disk has failed or its machine has lost power."""
