"""A quorum in virtual time: nodes, network, faults, clients and checks, all from one seed.

Phase one carries out faults and checks safety after every event. Phase two ends all faults and
demands a leader, an acknowledged append and equal logs within bounded virtual time; then the
clients' history is checked. Facts and limits: docs/protocol/simulation.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kvorum.chaos.sim.kernel.checks import SeedFailed, check, failure_name
from kvorum.chaos.sim.quorum import scenario as scenarios
from kvorum.chaos.sim.quorum.changes import Operator
from kvorum.chaos.sim.quorum.checks.reply_checks import check_reply
from kvorum.chaos.sim.quorum.clients import Clients, Workload
from kvorum.chaos.sim.quorum.configs import stand_in
from kvorum.chaos.sim.quorum.machine import StateMachine
from kvorum.chaos.sim.quorum.model.recovery import (
    format_voters,
)
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.nemesis import QuorumNemesis
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.nodes import NodesWorld
from kvorum.chaos.sim.quorum.process import NodeMachine
from kvorum.chaos.sim.quorum.scenario import Scenario, scenario_of
from kvorum.raft.model.messages import Request, Response

HEAL_BOUND_MS = 20_000
"""Virtual time within which a healed quorum must have a leader, acknowledge an append and have
equal logs."""

HEALED_INTERVAL_MS = 500
"""Pause between the clients' requests after healing. It is longer than before, because the network
is still slow and pending messages must get through."""

HEAL_STEP_MS = 20
"""Interval of the checks for convergence."""

REPORT_LINES = 40
"""Number of trace lines, the last ones, in the report of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOutcome:
    """The results of a run; digest is equal for equal scenarios, in any process.

    virtual_ms: the duration in virtual time, with healed_ms of it after healing.
    operations: clients' operations by outcome.
    stale_reads: leader reads in which a deposed leader missed values that were acknowledged
        elsewhere.
    faults: by kind, those that hit a node.
    tally: counts of events of snapshots and voter changes.
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
    tally: dict[str, int]
    digest: int


def run_seed(seed: int) -> QuorumOutcome:
    """Run the scenario that a seed determines. Raises SeedFailed."""
    return run_scenario(scenario_of(seed))


def run_scenario(scenario: Scenario, world_type: type[QuorumWorld] | None = None) -> QuorumOutcome:
    """Run a scenario to its end, in the quorum's own world or in one on top of it.

    Raises SeedFailed if a check fails or any error is raised; its message has the command that runs
    it again, and ends with the trace.
    """
    world = (world_type or QuorumWorld)(scenario)
    try:
        return world.run()
    except Exception as error:  # any error in a run is the result of the run
        name = failure_name(error)
        raise SeedFailed(name, _report(world, name, error)) from error
    finally:
        for node in world.nodes.values():
            node.worker.drop()


def _report(world: QuorumWorld, name: str, error: Exception) -> str:
    scenario = world.scenario
    is_of_seed = scenario == world.scenario_of(scenario.seed)
    if is_of_seed:
        which = "" if scenario.WORLD == "quorum" else f"--world {scenario.WORLD} "
        again = f"kvorum chaos sim {which}--seed {scenario.seed}"
        shrink = f"{again} --shrink"
    else:
        again = "kvorum chaos sim --scenario FILE, in FILE this line:"
        shrink = scenarios.to_json(scenario)
    trace = "\n".join(list(world.timeline.trace)[-REPORT_LINES:])
    return (
        f"{error}\n"
        f"check {name!r} of seed {scenario.seed} fired at {world.timeline.now_ms} ms\n"
        f"rerun: {again}\n"
        f"{'shrink: ' if is_of_seed else ''}{shrink}\n"
        f"{trace}"
    )


class QuorumWorld(NodesWorld):
    """All parts of one run."""

    scenario_of: Callable[[int], Scenario] = staticmethod(scenario_of)
    clients: Workload

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.clients = self._make_clients()
        # Add it after the carriers that the clients' parts have added.
        self.network.on_break.append(self.transport.break_connections)
        self.operator = Operator(self, self.generator("operator"))
        self.nemesis = self._make_nemesis()
        self.nodes = {
            node_id: SimNode(
                self,
                config,
                self.generator(f"node-{node_id}"),
                machine_of=self.machine_of,
                on_stopped=self.on_stopped,
            )
            for node_id, config in self.configs.items()
        }
        if scenario.is_dynamic:
            for node_id in self.first_voters.ids:
                format_voters(self.nodes[node_id].disk, self.first_voters)
        self.transport.nodes = self.nodes
        self.transport.on_reply = self._check_reply
        self.transport.bootstrap_ids = {stand_in(i): i for i in scenario.controller_ids}
        self.checks.nodes = list(self.nodes.values())
        self._is_repaired = False

    def run(self) -> QuorumOutcome:
        """Both phases. Raises InvariantViolated, or any exception of a bug."""
        timeline = self.timeline
        for node in self.nodes.values():
            node.start()
        for scheduled in self.scenario.faults:
            strike = partial(self.nemesis.strike, scheduled.fault, scheduled.kind)
            timeline.after(scheduled.at_ms, strike)
        timeline.after(self.scenario.propose_interval_ms, self.clients.ask)
        timeline.run_until(self.scenario.duration_ms)
        self.nemesis.heal()
        self.on_healed()
        self.clients.interval_ms = max(self.clients.interval_ms, HEALED_INTERVAL_MS)
        self._converge()
        self.checks.converged()
        self.voter_checks.check_changes(self.operator.changes)
        self.clients.check_history()
        return QuorumOutcome(
            seed=self.scenario.seed,
            events=timeline.events,
            epochs=len(self.checks.leaders),
            committed=self.checks.committed.end_offset,
            acknowledged=self._served(),
            virtual_ms=timeline.now_ms,
            healed_ms=timeline.now_ms - self.scenario.duration_ms,
            operations=self.clients.outcome_counts(),
            stale_reads=self.clients.stale_count(),
            faults=dict(sorted(self.nemesis.struck.items())),
            tally=dict(sorted(self._tallies().items())),
            digest=timeline.digest,
        )

    # The parts above the quorum; another world has other parts.

    def machine_of(self, node: SimNode, state: ListState) -> NodeMachine:
        """The state machine of a new process, from the state of its newest snapshot."""
        return StateMachine(node, state)

    def on_healed(self) -> None:
        """Called when the faults have ended."""

    def _make_clients(self) -> Workload:
        return Clients(self, self.generator("clients"))

    def _make_nemesis(self) -> QuorumNemesis:
        return QuorumNemesis(self, self.operator)

    # The methods that the parts call.

    def on_stopped(self, node: SimNode) -> None:
        """Tell the peers that a process ended, if its machine is still up."""
        if not node.is_dark:
            self.network.break_connections(node.node_id)

    # Inside.

    def _tallies(self) -> dict[str, int]:
        return {**self.tally, **self.snapshot_checks.tally, **self.operator.outcome_counts()}

    def _check_reply(self, node_id: int, request: Request, response: Response) -> None:
        check_reply(self.checks, self.nodes[node_id], request, response)

    def _converge(self) -> None:
        timeline = self.timeline
        served = self._served()
        deadline_ms = timeline.now_ms + HEAL_BOUND_MS
        while not self._is_converged():
            check(
                timeline.now_ms < deadline_ms,
                "Convergence",
                f"no convergence {HEAL_BOUND_MS} ms after healing: {self._summary()}",
            )
            timeline.run_until(timeline.now_ms + HEAL_STEP_MS)
            if not self._is_repaired:
                self._is_repaired = not self.scenario.is_dynamic or self.operator.repair()
            elif self._served() > served:
                self.clients.is_busy = False

    def _served(self) -> int:
        """The number of requests that were carried out."""
        return len(self.checks.acknowledged)

    def _summary(self) -> str:
        return "; ".join(node.summary() for node in self.nodes.values())

    def _is_converged(self) -> bool:
        if self.clients.is_busy:
            return False
        nodes = [node for node in self.nodes.values() if not node.is_removed]
        leaders = [node for node in nodes if node.is_leader]
        if len(leaders) != 1:
            return False
        end_offset = leaders[0].mirror.end_offset
        return all(
            node.mirror.end_offset == end_offset and node.applied.end_offset == end_offset
            for node in nodes
        )
