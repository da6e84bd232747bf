"""The scenario of one run of the controller's world: a quorum's scenario, with the parts above
it."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import ClassVar

from kvorum.chaos.sim.kernel.fault_draws import CONTROLLER_DRAWS, QUORUM_DRAWS, VOTER_DRAWS
from kvorum.chaos.sim.kernel.schedule import ScheduledFault, draw_schedule
from kvorum.chaos.sim.quorum.scenario import WHOLE_SNAPSHOT, Scenario

KINDS_OF_ALL = ("strike-operation", "strike-operation", "crash-broker")
"""Kinds of faults in every seed; a draw decides about each of the others: 0.6 for one of
CONTROLLER_DRAWS, 0.25 for one of QUORUM_DRAWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerScenario(Scenario):
    """observers are the brokers here; propose_interval_ms is the interval of administrators'
    requests.

    - racks: number of racks that brokers are spread over; 0: brokers have no rack.
    - heartbeat_interval_ms, isr_interval_ms: intervals of a broker's heartbeats, and of a leader's
      checks of its followers.
    - grace_ms, session_ms: the controllers' broker.stream.grace.ms and broker.session.timeout.ms.
    - rebalance_s: leader.imbalance.check.interval.seconds.
    - is_unclean: unclean.leader.election.enable of the controllers.
    - chunk_bytes: the size of a chunk of the log that is applied at once; small, so that nodes stop
      half-way.
    - turn_ms_max: the longest pause between two chunks, in which other events happen.
    """

    WORLD: ClassVar[str] = "controller"

    racks: int = 0
    heartbeat_interval_ms: int = 200
    isr_interval_ms: int = 150
    grace_ms: int = 100
    session_ms: int = 2_000
    rebalance_s: int = 2
    is_unclean: bool = False
    chunk_bytes: int = 600
    turn_ms_max: int = 0


def controller_scenario_of(seed: int) -> ControllerScenario:
    """The scenario that a seed determines."""
    rng = random.Random(f"controller-scenario-{seed}")
    scenario = ControllerScenario(
        seed=seed,
        voters=rng.choice((1, 3, 3, 3, 3, 5)),
        observers=rng.choice((2, 3, 3, 4, 5)),
        delay_ms_max=rng.choice((1, 5, 5, 30)),
        spike=rng.choice((0.0, 0.0, 0.01)),
        loss=rng.choice((0.0, 0.0, 0.02)),
        duplication=rng.choice((0.0, 0.05)),
        fsync_ms_max=rng.choice((0, 2, 20)),
        drift=rng.choice((0, 10, 50)),
        propose_interval_ms=rng.choice((60, 120, 250)),
        is_dynamic=rng.random() < 0.4,
        snapshot_every=rng.choice((0, 20, 60, 150)),
        snapshot_chunk_bytes=rng.choice((200, 1_000, WHOLE_SNAPSHOT)),
        chunk_damage=rng.choice((0.0, 0.0, 0.1)),
        retention_bytes=rng.choice((0, 4_000, 20_000)),
        racks=rng.choice((0, 0, 2, 3)),
        heartbeat_interval_ms=rng.choice((100, 200, 500)),
        isr_interval_ms=rng.choice((100, 200, 400)),
        rebalance_s=rng.choice((1, 3, 300)),
        is_unclean=rng.random() < 0.2,
        chunk_bytes=rng.choice((1, 600, 1 << 20)),
        turn_ms_max=rng.choice((0, 5, 40)),
    )
    kinds = [*KINDS_OF_ALL]
    kinds += [kind for kind in CONTROLLER_DRAWS if kind not in kinds and rng.random() < 0.6]
    kinds += [kind for kind in QUORUM_DRAWS if rng.random() < 0.25]
    if scenario.is_dynamic:
        scenario = dataclasses.replace(scenario, candidates=rng.choice((0, 1)))
    else:
        kinds = [kind for kind in kinds if kind not in VOTER_DRAWS]
    return dataclasses.replace(scenario, faults=_schedule(rng, scenario, kinds))


def _schedule(
    rng: random.Random, scenario: ControllerScenario, kinds: list[str]
) -> tuple[ScheduledFault, ...]:
    return draw_schedule(
        rng,
        node_ids=scenario.node_ids,
        kinds=kinds,
        duration_ms=scenario.duration_ms,
        interval_ms=rng.choice((400, 800, 1_500)),
    )
