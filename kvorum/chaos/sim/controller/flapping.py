"""The effect of a flapping link on leadership: one experiment, in virtual time, with figures."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.chaos.faults import FlapLink
from kvorum.chaos.sim.controller.scenario import ControllerScenario
from kvorum.chaos.sim.controller.world import ControllerWorld
from kvorum.chaos.sim.kernel.fault_draws import BROKERS as ALL_BROKERS
from kvorum.chaos.sim.kernel.fault_draws import brokers
from kvorum.chaos.sim.kernel.schedule import ScheduledFault
from kvorum.metadata.controller.core.controller import Request
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.requests.controller_requests import CreateTopics, ListReassignments, NewTopic

SETTLED_MS = 3_000
"""Time in which the cluster forms and gets its topics."""

FLAPPING_MS = 60_000
BROKERS, TOPICS, PARTITIONS = 3, 6, 3
NEVER_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrash:
    """Counts of one experiment.

    flaps: cuts of a link.
    fencings, leader_changes: during the flapping, of 18 partitions.
    """

    flaps: int
    fencings: int
    leader_changes: int

    def __str__(self) -> str:
        return (
            f"{self.flaps} flaps: {self.fencings} fencings, {self.leader_changes} changes of "
            f"leadership of {TOPICS * PARTITIONS} partitions"
        )


def flap(seed: int, *, is_for_all: bool) -> Thrash:
    """Let links to the controllers flap for a minute: one broker's link, or every broker's. Each is
    up for 80 to 300 ms, then down for 50 to 300 ms. Raises CheckFailed."""
    target = ALL_BROKERS if is_for_all else brokers(0)
    fault = FlapLink(target=target, duration_ms=FLAPPING_MS)
    world = ControllerWorld(
        ControllerScenario(
            seed=seed,
            observers=BROKERS,
            duration_ms=SETTLED_MS + FLAPPING_MS,
            propose_interval_ms=200,
            heartbeat_interval_ms=500,
            rebalance_s=NEVER_S,
            faults=(ScheduledFault(at_ms=SETTLED_MS, fault=fault),),
        )
    )
    administrators, checks = world.administrators, world.reference.checks
    before: list[int] = []

    def request(image: ClusterImage) -> Request:
        if not world.network.is_rough:
            return administrators.draws.create(image)
        if world.timeline.now_ms >= SETTLED_MS - 500:
            if not before:
                before.extend((checks.fencings, checks.leader_changes))
            return ListReassignments()
        return CreateTopics(
            topics=tuple(
                NewTopic(name=f"t{n}", num_partitions=PARTITIONS, replication_factor=BROKERS)
                for n in range(TOPICS)
            )
        )

    administrators.request_of = request
    world.run()
    return Thrash(
        flaps=world.tally["flaps of a link"],
        fencings=checks.fencings - before[0],
        leader_changes=checks.leader_changes - before[1],
    )
