"""A quorum in virtual time: nodes, network, faults, clients and checks, all from one seed.

Phase one lets faults happen and checks safety after every event. Phase two heals and demands a
leader, an acknowledged append and equal logs within bounded virtual time; then the clients' history
is judged. Facts and limits: ../../docs/protocol/simulation.md.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from chaos.sim import scenario as scenarios
from chaos.sim.checks import SeedFailed, check, failure_name
from chaos.sim.clients import Clients
from chaos.sim.nemesis import Nemesis
from chaos.sim.network import Network
from chaos.sim.node import SimNode
from chaos.sim.quorum_checks import QuorumChecks
from chaos.sim.scenario import Scenario, scenario_of
from chaos.sim.timeline import Timeline
from raft.model import RaftConfig
from runtime.ids import new_uuid, uuid_text

HEAL_BOUND_MS = 20_000
"""Virtual time in which a healed quorum must have a leader, serve a client and have equal logs."""

HEALED_INTERVAL_MS = 500
"""Clients ask less often then: what waits must get through a network that is as slow as before."""

HEAL_STEP_MS = 20
"""How often it is asked whether it has."""

REPORT_LINES = 40
"""Lines of the trace's end in the report of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOutcome:
    """What a run showed; digest is equal for equal scenarios, whatever the process.

    virtual_ms: how long it took in virtual time, healed_ms of which after healing. operations:
    clients' operations by outcome. stale_reads: leader reads that a deposed leader answered with
    less than was acknowledged elsewhere. faults: by kind, those that hit something.
    """

    seed: int
    events: int
    epochs: int
    committed: int
    acknowledged: int
    virtual_ms: int
    healed_ms: int
    operations: dict[str, int]
    stale_reads: int
    faults: dict[str, int]
    digest: int


def run_seed(seed: int) -> QuorumOutcome:
    """Run the scenario that a seed stands for. Raises SeedFailed."""
    return run_scenario(scenario_of(seed))


def run_scenario(scenario: Scenario) -> QuorumOutcome:
    """Run a scenario to its end.

    Raises SeedFailed if a check fires or anything breaks; its message says how to run it again and
    ends with the trace.
    """
    world = QuorumWorld(scenario)
    try:
        return world.run()
    except Exception as error:  # whatever breaks in a run is what the run found
        name = failure_name(error)
        raise SeedFailed(name, _report(world, name, error)) from error


def _report(world: QuorumWorld, name: str, error: Exception) -> str:
    scenario = world.scenario
    if scenario == scenario_of(scenario.seed):
        again = f"kvorum chaos sim --seed {scenario.seed}"
        shrink = f"{again} --shrink"
    else:
        again = "kvorum chaos sim --scenario FILE, in FILE this line:"
        shrink = scenarios.to_json(scenario)
    trace = "\n".join(list(world.timeline.trace)[-REPORT_LINES:])
    return (
        f"{error}\n"
        f"check {name!r} of seed {scenario.seed} fired at {world.timeline.now_ms} ms\n"
        f"rerun: {again}\n"
        f"{'shrink: ' if scenario == scenario_of(scenario.seed) else ''}{shrink}\n"
        f"{trace}"
    )


class QuorumWorld:
    """Everything there is in one run. Each part draws from a generator of its own."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        self.network = Network(self.timeline, self._generator("network"), scenario)
        self.checks = QuorumChecks(self.voters_in_force)
        self.clients = Clients(self, self._generator("clients"))
        self.nemesis = Nemesis(self)
        self._disk_rng = self._generator("disks")
        self._voters = tuple(range(1, scenario.voters + 1))
        cluster_id = uuid_text(new_uuid(self._generator("ids")))
        self.nodes = {
            node_id: SimNode(
                self,
                RaftConfig(node_id=node_id, cluster_id=cluster_id, voters=self._voters),
                self._generator(f"node-{node_id}"),
            )
            for node_id in scenario.node_ids
        }
        self.network.nodes = self.nodes
        self.checks.nodes = list(self.nodes.values())

    def run(self) -> QuorumOutcome:
        """Both phases. Raises InvariantViolated, or whatever a bug raises."""
        timeline = self.timeline
        for node in self.nodes.values():
            node.start()
        for scheduled in self.scenario.faults:
            timeline.after(scheduled.at_ms, partial(self.nemesis.strike, scheduled.fault))
        timeline.after(self.scenario.propose_interval_ms, self.clients.ask)
        timeline.run_until(self.scenario.duration_ms)
        self.nemesis.heal()
        self.clients.interval_ms = max(self.clients.interval_ms, HEALED_INTERVAL_MS)
        self._converge()
        self.checks.converged()
        self.clients.check_history()
        return QuorumOutcome(
            seed=self.scenario.seed,
            events=timeline.events,
            epochs=len(self.checks.leaders),
            committed=self.checks.committed.end_offset,
            acknowledged=len(self.checks.acknowledged),
            virtual_ms=timeline.now_ms,
            healed_ms=timeline.now_ms - self.scenario.duration_ms,
            operations=self.clients.outcome_counts(),
            stale_reads=self.clients.stale_count(),
            faults=dict(sorted(self.nemesis.struck.items())),
            digest=timeline.digest,
        )

    # What the parts use.

    def voters_in_force(self, node: SimNode) -> Collection[int]:
        """Ids of the voters in force at a node: whom it needs a majority of to commit."""
        return node.core.voter_set.ids

    def is_voter(self, node: SimNode) -> bool:
        """Whether the node vouches for what it holds."""
        return node.node_id in self._voters

    def fsync_ms(self) -> int:
        """How long the next fsync takes."""
        return self._disk_rng.randint(0, self.scenario.fsync_ms_max)

    def note(self, node: SimNode, text: str) -> None:
        """A line of the trace."""
        self.timeline.note(f"node={node.node_id} {text}")

    def on_stopped(self, node: SimNode) -> None:
        """A process ended. If its machine lives on, its peers hear of it."""
        if not node.is_dark:
            self.network.break_connections(node.node_id)

    def start_later(self, node: SimNode, delay_ms: int) -> None:
        """Start a node that is down, unless somebody else has by then."""
        incarnation = node.incarnation

        def start() -> None:
            if node.incarnation == incarnation:
                node.start()

        self.timeline.after(delay_ms, start)

    # Inside.

    def _generator(self, name: str) -> random.Random:
        return random.Random(f"{self.scenario.seed}-{name}")

    def _converge(self) -> None:
        timeline = self.timeline
        acknowledged = len(self.checks.acknowledged)
        deadline_ms = timeline.now_ms + HEAL_BOUND_MS
        while not self._is_converged():
            check(
                timeline.now_ms < deadline_ms,
                "Convergence",
                f"no convergence {HEAL_BOUND_MS} ms after healing: "
                + "; ".join(node.summary() for node in self.nodes.values()),
            )
            timeline.run_until(timeline.now_ms + HEAL_STEP_MS)
            if len(self.checks.acknowledged) > acknowledged:
                self.clients.is_busy = False

    def _is_converged(self) -> bool:
        if self.clients.is_busy:
            return False
        nodes = [node for node in self.nodes.values() if not node.is_removed]
        leaders = [node for node in nodes if node.is_leader]
        if len(leaders) != 1:
            return False
        end_offset = leaders[0].mirror.end_offset
        return all(
            node.mirror.end_offset == end_offset and node.applied_end_offset == end_offset
            for node in nodes
        )
