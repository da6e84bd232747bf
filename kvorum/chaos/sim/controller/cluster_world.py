"""The state that the parts of a cluster share: controllers, brokers, administrators, faults."""

from __future__ import annotations

import random

from kvorum.chaos.sim.controller.history import Attempt, History
from kvorum.chaos.sim.controller.reference import Reference
from kvorum.chaos.sim.controller.scenario import ControllerScenario
from kvorum.chaos.sim.controller.strikes import Strikes
from kvorum.chaos.sim.kernel.wire import Wire
from kvorum.chaos.sim.quorum.world import QuorumWorld


class ClusterWorld(QuorumWorld):
    """The quorum's world with requests to its controllers.

    history: of all requests.
    reference: the image that all nodes must have.
    """

    scenario: ControllerScenario
    history: History
    reference: Reference
    wire: Wire
    strikes: Strikes
    _turn_rng: random.Random

    def turn_ms(self) -> int:
        """Pause of a process between two chunks of the log, in which other events happen."""
        return self._turn_rng.randint(0, self.scenario.turn_ms_max)

    def _make_shared(self) -> None:
        """Make what this class has. The network and the checks exist, the nodes do not yet."""
        self._turn_rng = self.generator("turns")
        self.history = History()
        self.reference = Reference(self.checks.committed, self._cause_at)
        self.reference.checks.is_unclean_default = self.scenario.is_unclean
        self.wire = Wire(self.timeline, self.network)
        self.strikes = Strikes(self)

    def _cause_at(self, epoch: int, offset: int) -> Attempt | None:
        return self.history.by_place.get((epoch, offset))
