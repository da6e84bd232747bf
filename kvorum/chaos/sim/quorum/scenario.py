"""The settings of one simulated run: the quorum, its network and disks, and the faults.

A seed determines a scenario (`scenario_of`), so that seeds differ in kind (swarm testing). A
scenario is data: it can be written as one JSON line, shrunk and run again.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvorum.chaos.sim.kernel import schedule as schedules
from kvorum.chaos.sim.kernel.fault_draws import QUORUM_DRAWS, VOTER_DRAWS
from kvorum.chaos.sim.kernel.schedule import ScheduledFault, draw_schedule
from kvorum.runtime.errors import ConfigError

DURATION_MS = 20_000
VOTERS_MAX = 9
CANDIDATES_MAX = 9
OBSERVERS_MAX = 9

WHOLE_SNAPSHOT = 1 << 20
"""Size of a chunk that holds any simulated snapshot whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. Probabilities are per message, and apply while faults last.

    - seed: of all random values in the run itself: delays, losses, timers, the bytes that survive a
      crash, ids. The other fields do not depend on it once they are written down.
    - delay_ms_max, fsync_ms_max: delays are drawn from [0, max], so messages overtake each other.
    - spike: a message takes up to a second longer.
    - drift: the greatest error of a clock's rate, in thousandths.
    - propose_interval_ms: the interval of the clients' requests.
    - quiet_ms: clients append for this time, then only read for this time, in turn; 0: no quiet
      times.
    - is_dynamic: kraft.version 1: the voters come from the log, and may change.
    - candidates: controllers that do not vote at first.
    - snapshot_every: a node snapshots after about this many records; 0: never.
    - snapshot_chunk_bytes: the greatest chunk of one FetchSnapshot.
    - chunk_damage: a chunk arrives damaged, or truncated where the file seems to end.
    - retention_bytes: while log and snapshots are larger, the oldest snapshots are removed, all but
      two.
    """

    WORLD: ClassVar[str] = "quorum"

    seed: int
    voters: int = 3
    candidates: int = 0
    observers: int = 1
    duration_ms: int = DURATION_MS
    delay_ms_max: int = 5
    spike: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    fsync_ms_max: int = 5
    drift: int = 0
    propose_interval_ms: int = 40
    quiet_ms: int = 0
    is_dynamic: bool = False
    snapshot_every: int = 0
    snapshot_chunk_bytes: int = WHOLE_SNAPSHOT
    chunk_damage: float = 0.0
    retention_bytes: int = 0
    faults: tuple[ScheduledFault, ...] = ()

    @property
    def node_ids(self) -> range:
        """Voters first, then candidates, then observers."""
        return range(1, self.voters + self.candidates + self.observers + 1)

    @property
    def controller_ids(self) -> range:
        """The voters, and the controllers that may become voters."""
        return range(1, self.voters + self.candidates + 1)


def scenario_of(seed: int) -> Scenario:
    """The scenario that a seed determines."""
    rng = random.Random(f"scenario-{seed}")
    scenario = Scenario(
        seed=seed,
        voters=rng.choice((1, 3, 3, 3, 3, 5, 5)),
        observers=rng.choice((0, 1)),
        delay_ms_max=rng.choice((1, 5, 30, 100)),
        spike=rng.choice((0.0, 0.0, 0.01)),
        loss=rng.choice((0.0, 0.0, 0.02, 0.1)),
        duplication=rng.choice((0.0, 0.05)),
        fsync_ms_max=rng.choice((0, 2, 20, 200)),
        drift=rng.choice((0, 10, 50)),
        propose_interval_ms=rng.choice((20, 40, 100)),
        quiet_ms=rng.choice((0, 0, 1_100)),
        is_dynamic=rng.random() < 0.5,
        snapshot_every=rng.choice((0, 10, 30, 100)),
        snapshot_chunk_bytes=rng.choice((16, 60, WHOLE_SNAPSHOT)),
        chunk_damage=rng.choice((0.0, 0.05, 0.25)),
        retention_bytes=rng.choice((0, 0, 2_000, 10_000)),
    )
    kinds = [kind for kind in QUORUM_DRAWS if rng.random() < 0.5]
    if scenario.is_dynamic:
        scenario = dataclasses.replace(scenario, candidates=rng.choice((0, 1, 2)))
    else:
        kinds = [kind for kind in kinds if kind not in VOTER_DRAWS]
    schedule = draw_schedule(
        rng,
        node_ids=scenario.node_ids,
        kinds=kinds,
        duration_ms=scenario.duration_ms,
        interval_ms=rng.choice((200, 500, 1_500)),
    )
    return dataclasses.replace(scenario, faults=schedule)


def to_json(scenario: Scenario) -> str:
    """One line that `from_json` reads."""
    fields = {
        field.name: getattr(scenario, field.name)
        for field in dataclasses.fields(scenario)
        if field.name != "faults"
    }
    if scenario.WORLD != Scenario.WORLD:
        fields = {"world": scenario.WORLD, **fields}
    schedule = [schedules.to_json(scheduled) for scheduled in scenario.faults]
    return json.dumps({**fields, "faults": schedule})


def from_json(text: str, kinds: Mapping[str, type[Scenario]] | None = None) -> Scenario:
    """The scenario in a JSON object, which may name one of these worlds.

    Raises ConfigError, which names the problem.
    """
    try:
        fields: dict[str, Any] = dict(json.loads(text))
        world = fields.pop("world", Scenario.WORLD)
        scenario_types: dict[str, type[Scenario]] = {Scenario.WORLD: Scenario, **(kinds or {})}
        scenario_type = scenario_types.get(world)
        if scenario_type is None:
            raise ConfigError(f"not a scenario of the simulator: there is no world {world!r}")
        schedule = tuple(schedules.from_json(item) for item in fields.pop("faults", ()))
        scenario = scenario_type(**fields, faults=schedule)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"not a scenario of the simulator: {error}") from error
    if not (
        1 <= scenario.voters <= VOTERS_MAX
        and 0 <= scenario.candidates <= CANDIDATES_MAX
        and 0 <= scenario.observers <= OBSERVERS_MAX
    ):
        raise ConfigError(
            f"a scenario has 1 to {VOTERS_MAX} voters, up to {CANDIDATES_MAX} candidates and up to "
            f"{OBSERVERS_MAX} observers"
        )
    if scenario.candidates and not scenario.is_dynamic:
        raise ConfigError("candidates need dynamic voters (is_dynamic)")
    return scenario
