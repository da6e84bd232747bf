"""The worlds that a seed can be run in, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvorum.chaos.sim.controller.scenario import ControllerScenario, controller_scenario_of
from kvorum.chaos.sim.controller.world import ControllerWorld
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.partitions.world import PartitionWorld
from kvorum.chaos.sim.quorum import scenario as scenarios
from kvorum.chaos.sim.quorum import world as quorum
from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.chaos.sim.quorum.world import QuorumOutcome, QuorumWorld

QUORUM = Scenario.WORLD
CONTROLLER = ControllerScenario.WORLD
PARTITIONS = PartitionScenario.WORLD


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    scenario_of: Callable[[int], Scenario]
    world_type: type[QuorumWorld]


_WORLDS = {
    QUORUM: _World(scenario_of=scenarios.scenario_of, world_type=QuorumWorld),
    CONTROLLER: _World(scenario_of=controller_scenario_of, world_type=ControllerWorld),
    PARTITIONS: _World(scenario_of=partition_scenario_of, world_type=PartitionWorld),
}

NAMES = tuple(_WORLDS)


def scenario_of(seed: int, world: str = QUORUM) -> Scenario:
    """The scenario that a seed determines in this world."""
    return _WORLDS[world].scenario_of(seed)


def run_seed(seed: int, world: str = QUORUM) -> QuorumOutcome:
    """Run the scenario that a seed determines. Raises SeedFailed."""
    return run_scenario(scenario_of(seed, world))


def run_scenario(scenario: Scenario) -> QuorumOutcome:
    """Run a scenario in its own world. Raises SeedFailed."""
    return quorum.run_scenario(scenario, _WORLDS[scenario.WORLD].world_type)


def from_json(text: str) -> Scenario:
    """A scenario of any world. Raises ConfigError, which names the problem."""
    return scenarios.from_json(
        text, {CONTROLLER: ControllerScenario, PARTITIONS: PartitionScenario}
    )
