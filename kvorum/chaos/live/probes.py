"""The probes an experiment may name, measured on a live cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kvorum.chaos.experiment_file.steps import Probe
from kvorum.chaos.live.observe import TopicWatch
from kvorum.chaos.live.systems.protocol import NotObservable, System
from kvorum.chaos.run_record import Measurement
from kvorum.chaos.workloads.produce import ProduceLoad
from kvorum.runtime.errors import invariant

_RATE_WINDOW_S = 1.0


class Probes:
    """Measures what `chaos.experiment_file.steps.PROBES` lists."""

    def __init__(self, *, system: System, watch: TopicWatch, load: ProduceLoad) -> None:
        self._system = system
        self._watch = watch
        self._load = load
        self._functions: dict[str, Callable[[], float]] = {
            "active_controllers": self._active_controllers,
            "offline_partitions": lambda: watch.state().offline_partitions,
            "under_replicated_partitions": lambda: watch.state().under_replicated_partitions,
            "live_brokers": lambda: len(watch.state().live_brokers),
            "acknowledged_per_second": self._acknowledged_per_second,
        }

    def measure(self, probe: Probe) -> Measurement:
        """Measure one probe; without a tolerance every answer is accepted."""
        function = self._functions.get(probe.func)
        invariant(function is not None, f"probe {probe.func} was checked when it was read")
        tolerance = probe.tolerance
        text = tolerance.text() if tolerance is not None else ""
        value: float | None = None
        reason = ""
        try:
            value = float(self._functions[probe.func]())
        except NotObservable as error:
            reason = str(error)
        is_accepted = value is not None and (tolerance is None or tolerance.accepts(value))
        return Measurement(
            name=probe.name,
            func=probe.func,
            value=value,
            tolerance=text,
            is_accepted=is_accepted,
            reason=reason,
        )

    def measure_all(self, probes: Sequence[Probe]) -> list[Measurement]:
        return [self.measure(probe) for probe in probes]

    def _active_controllers(self) -> float:
        """The number of distinct leaders that nodes name in the highest epoch; 0 if none is
        named."""
        statuses = []
        for name in self._system.quorum_witnesses():
            try:
                statuses.append(self._system.quorum_status(name))
            except NotObservable:
                # A node without an answer names no leader.
                continue
        newest = max((status.leader_epoch for status in statuses), default=-1)
        named = {status.leader_id for status in statuses if status.leader_epoch == newest}
        return len(named - {-1})

    def _acknowledged_per_second(self) -> float:
        before = self._load.acknowledged
        time.sleep(_RATE_WINDOW_S)
        return (self._load.acknowledged - before) / _RATE_WINDOW_S
