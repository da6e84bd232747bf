"""Runs a method: steps in order, faults that end by themselves, pauses between them.

One thread runs everything. During a foreground fault or a pause, it undoes background faults when
their time is over.
"""

from __future__ import annotations

import dataclasses
import heapq
import time
from collections.abc import Callable, Sequence

from kvorum.chaos.experiment_file.steps import Action, Probe, Step
from kvorum.chaos.faults import duration_of
from kvorum.chaos.live.faults.injector import Injected, Injector
from kvorum.chaos.live.probes import Probes
from kvorum.chaos.run_record import Measurement, StepOutcome
from kvorum.chaos.targets import UnresolvableTarget
from kvorum.runtime.clock import monotonic_ms

#: How long a step waits until a node matches its target (for example until a leader is elected).
_TARGET_TIMEOUT_MS = 10_000
_TICK_MS = 20
#: Interval of the looks at faults that end by themselves; each look is a request to the cluster.
_LOOK_MS = 200

#: The monotonic time in ms at which a fault is undone at the latest, its id, and the fault.
Due = tuple[int, int, Injected]


class Nemesis:
    """Carries out the steps of one run. `check` is called often and raises to end the run."""

    def __init__(
        self,
        *,
        injector: Injector,
        probes: Probes,
        progress: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self._injector = injector
        self._probes = probes
        self._progress = progress
        self._check = check
        self._due: list[Due] = []
        self._next_look_ms = 0
        self.outcomes: list[StepOutcome] = []
        self.measurements: list[Measurement] = []

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps, then wait for the faults that still have to end by themselves."""
        for step in steps:
            self.wait(step.pause_before_ms)
            if isinstance(step, Probe):
                self.measure(step)
            else:
                self._act(step)
            self.wait(step.pause_after_ms)
        if self._due:
            last_ms = max(due_ms for due_ms, _, _ in self._due) - monotonic_ms()
            self.wait(last_ms, unless=lambda: not any(map(self._is_active, self._due)))

    def begin(self, action: Action) -> tuple[StepOutcome, Injected | None]:
        """Carry out one fault without its pauses. It goes on until its time is over in `wait`.

        Returns the outcome, and the fault for `is_in_force`: None if the step was skipped, or if
        its fault only ends others.
        """
        injected = self._act(dataclasses.replace(action, background=True))
        return self.outcomes[-1], injected

    def is_in_force(self, injected: Injected) -> bool:
        """False once a fault is undone, or over by itself."""
        return injected.fault_id in {one.fault_id for one in self._injector.active()}

    def heal(self) -> None:
        """Undo every fault that is in force."""
        self._due.clear()
        self._injector.end_all()
        self._progress("all faults healed")

    def wait(self, duration_ms: int, *, unless: Callable[[], bool] | None = None) -> None:
        """Wait, and undo the faults whose time is over. unless: ends the wait before."""
        until_ms = monotonic_ms() + duration_ms
        while True:
            self._check()
            self._end_what_is_due()
            self._end_what_is_over()
            now_ms = monotonic_ms()
            if now_ms >= until_ms or (unless is not None and unless()):
                return
            next_ms = min([until_ms, *(due_ms for due_ms, _, _ in self._due[:1])])
            time.sleep(max(0, min(_TICK_MS, next_ms - now_ms)) / 1000)

    def _act(self, action: Action) -> Injected | None:
        injected = self._inject(action)
        duration_ms = duration_of(action.fault)
        if injected is None or duration_ms is None:
            return injected
        due: Due = (monotonic_ms() + duration_ms, injected.fault_id, injected)
        heapq.heappush(self._due, due)
        if not action.background:
            self.wait(duration_ms, unless=lambda: not self._is_active(due))
        return injected

    def _is_active(self, due: Due) -> bool:
        return self.is_in_force(due[2])

    def _end_what_is_due(self) -> None:
        while self._due and self._due[0][0] <= monotonic_ms():
            due = heapq.heappop(self._due)
            if self._is_active(due):
                self._injector.end(due[2])
                self._progress(f"undone: {due[2].name}")

    def _end_what_is_over(self) -> None:
        """End the faults that are over by themselves, such as a completed reassignment."""
        now_ms = monotonic_ms()
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + _LOOK_MS
        for injected in self._injector.active():
            if injected.is_over is not None and injected.is_over():
                self._injector.end(injected)
                self._progress(f"completed: {injected.name}")

    def _inject(self, action: Action) -> Injected | None:
        deadline_ms = monotonic_ms() + _TARGET_TIMEOUT_MS
        description = action.fault.text()
        while True:
            try:
                injected = self._injector.inject(action.name, action.fault)
            except UnresolvableTarget as error:
                if monotonic_ms() < deadline_ms:
                    self.wait(_TICK_MS * 10)
                    continue
                self.outcomes.append(
                    StepOutcome(
                        name=action.name, description=description, is_done=False, reason=str(error)
                    )
                )
                self._progress(f"skipped: {action.name}: {error}")
                return None
            self.outcomes.append(
                StepOutcome(name=action.name, description=description, is_done=True)
            )
            struck = f" [{', '.join(injected.nodes)}]" if injected else ""
            self._progress(f"fault: {description}{struck}")
            return injected

    def measure(self, probe: Probe) -> Measurement:
        """Measure a probe and add the result to `measurements`. The probe's tolerance is not
        applied: within a method, a probe only measures."""
        measurement = self._probes.measure(dataclasses.replace(probe, tolerance=None))
        self.measurements.append(measurement)
        value = "no answer" if measurement.value is None else f"{measurement.value:g}"
        self._progress(f"probe: {probe.name} = {value}")
        return measurement
