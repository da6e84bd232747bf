"""A live run whose steps Chaos Toolkit decides.

The run has a thread of its own, as its processes end with the thread that started them. Its method
is a loop that carries out one request after the other; faults end on time meanwhile.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from kvorum.chaos.experiment_file.experiment import Experiment, load_experiment, possible_targets_of
from kvorum.chaos.experiment_file.possible_targets import PossibleTargets
from kvorum.chaos.experiment_file.steps import Action, Probe, method_rng
from kvorum.chaos.faults import duration_of
from kvorum.chaos.live.nemesis import Nemesis
from kvorum.chaos.live.probes import Probes
from kvorum.chaos.live.runner import run
from kvorum.chaos.report.report import RunResult
from kvorum.chaos.run_record import StepOutcome
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import KvorumError, required

_TICK_MS = 20
_SETTLE_MS = 500
_LOOK_MS = 200
"""Between two looks at a fault that may be over by itself."""

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class _Request:
    """A call to be made by the run's thread, and the future of its answer."""

    call: Callable[[Nemesis, Probes], object]
    answer: Future[object]


class ToolkitRun:
    """One run. `start` returns when the load runs; `finish` ends it and returns the verdict."""

    def __init__(
        self, experiment_file: str, *, output_dir: str, progress: Callable[[str], None]
    ) -> None:
        """Raises ConfigError for an experiment that is not valid."""
        self._file = experiment_file
        self._output_dir = output_dir
        self._progress = progress
        self.experiment: Experiment = load_experiment(experiment_file)
        self.possible: PossibleTargets = possible_targets_of(self.experiment.configuration)
        self.rng: random.Random = method_rng(self.experiment.configuration.seed)
        self._requests: queue.Queue[_Request] = queue.Queue()
        self._has_begun = threading.Event()
        self._is_ended = threading.Event()
        self._broken_off = ""
        self._outcome: Future[RunResult] | None = None

    def start(self) -> None:
        """Raises KvorumError if the cluster does not start or is not in its steady state."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvorum-chaos")
        self._outcome = thread.submit(
            run,
            self._file,
            output_dir=self._output_dir,
            progress=self._progress,
            carry_out=self._serve,
        )
        thread.shutdown(wait=False)
        while not self._has_begun.wait(_TICK_MS / 1000):
            if self._outcome.done():
                raise self._why_ended()

    def carry_out(self, action: Action) -> StepOutcome:
        """Carry out a fault; returns when it is over, or at once for one without a duration.

        Raises KvorumError if nothing could be hit, or if the run has ended.
        """
        outcome, injected = self._ask(lambda nemesis, _: nemesis.begin(action))
        if not outcome.is_done:
            raise KvorumError(f"{action.name}: {outcome.reason}")
        duration_ms = duration_of(action.fault)
        if injected is None or duration_ms is None:
            return outcome
        until_ms = monotonic_ms() + duration_ms
        # A reassignment is over by itself, often long before its time.
        while self._ask(lambda nemesis, _: nemesis.is_in_force(injected)):
            self.wait(min(_LOOK_MS, max(0, until_ms - monotonic_ms())))
        return outcome

    def measure(self, probe: Probe) -> float:
        """Measure a probe now. Raises KvorumError if the cluster does not answer."""
        measurement = self._ask(lambda nemesis, _: nemesis.measure(probe))
        if measurement.value is None:
            raise KvorumError(f"{probe.name}: {measurement.reason}")
        return measurement.value

    def wait(self, duration_ms: int) -> None:
        """Return after this time, once the faults whose time is over are undone. Raises KvorumError
        if the run ends earlier."""
        futures.wait([self._running()], timeout=duration_ms / 1000)
        self._ask(lambda nemesis, _: nemesis.wait(0))

    def settle(self) -> None:
        """Heal all faults, and wait until the steady state holds again or the time limit of the
        experiment is over."""
        configuration = self.experiment.configuration
        self._ask(lambda nemesis, _: nemesis.heal())
        self.wait(configuration.cool_down_ms)
        steady_state = self.experiment.steady_state
        deadline_ms = monotonic_ms() + configuration.convergence_timeout_ms
        while monotonic_ms() < deadline_ms:
            if self._ask(lambda _, probes: _all_accepted(probes, steady_state)):
                return
            self.wait(_SETTLE_MS)

    def finish(self) -> RunResult:
        """Heal, read every record, stop the cluster, write the report; of a run that broke off, the
        report says so. Raises KvorumError for a run that never began."""
        self._is_ended.set()
        return self._running().result()

    def interrupt(self, reason: str) -> None:
        """End a run at once. Whatever waits for it raises KvorumError; `break_off` judges it."""
        self._broken_off = self._broken_off or reason
        self._is_ended.set()

    def break_off(self, reason: str) -> RunResult:
        """End a run whose method is incomplete: the report says so, and is never `passed`.

        The reason of an earlier `interrupt` stands. Raises KvorumError for a run that never began.
        """
        self.interrupt(reason)
        return self._running().result()

    def _serve(self, nemesis: Nemesis, probes: Probes) -> None:
        self._has_begun.set()
        # If Chaos Toolkit ends without calling its control, its main thread ends, and so does the
        # run.
        while not self._is_ended.is_set() and threading.main_thread().is_alive():
            nemesis.wait(_TICK_MS)
            while not self._requests.empty():
                request = self._requests.get()
                try:
                    request.answer.set_result(request.call(nemesis, probes))
                except BaseException as error:
                    request.answer.set_exception(error)
                    raise

        if not self._is_ended.is_set():
            raise KvorumError("Chaos Toolkit ended in the middle of the experiment")
        if self._broken_off:
            raise KvorumError(self._broken_off)

    def _ask(self, call: Callable[[Nemesis, Probes], AnswerT]) -> AnswerT:
        answer: Future[AnswerT] = Future()
        self._requests.put(_Request(call, answer))  # type: ignore[arg-type]
        while True:
            try:
                return answer.result(timeout=_TICK_MS / 1000)
            except TimeoutError:
                if self._running().done() and not answer.done():
                    raise self._why_ended() from None

    def _running(self) -> Future[RunResult]:
        return required(self._outcome, "a run is used after its start")

    def _why_ended(self) -> KvorumError:
        outcome = self._running()
        failure = outcome.exception()
        if failure is None:
            result = outcome.result()
            reason = "; ".join(result.reasons) or result.verdict
        else:
            reason = f"{type(failure).__name__}: {failure}"
        return KvorumError(f"the run in {self._output_dir} has ended: {reason}")


def _all_accepted(probes: Probes, steady_state: Sequence[Probe]) -> bool:
    return all(measurement.is_accepted for measurement in probes.measure_all(steady_state))


class _Current(threading.local):
    """The activity that Chaos Toolkit runs in this thread."""

    name = ""


_current = _Current()
_runs: list[ToolkitRun] = []


def open_run(run: ToolkitRun) -> None:
    """Make a run the one that actions and probes act on. Raises KvorumError if there is one."""
    if _runs:
        raise KvorumError("an experiment runs already in this process; run them one after another")
    _runs.append(run)


def close_run() -> None:
    """No run is open any more."""
    _runs.clear()


def current_run() -> ToolkitRun:
    """The run that the control opened. Raises KvorumError if there is none."""
    if not _runs:
        raise KvorumError(
            "no cluster: add the control of `kvorum chaos validate --canonical FILE` to the "
            "experiment (controls: module kvorum.chaos.toolkit.control)"
        )
    return _runs[0]


def name_activity(name: str) -> None:
    """Note the name of the activity that this thread is about to run."""
    _current.name = name


def activity_name(func: str) -> str:
    """The activity's own name, or `func` if the control did not see it."""
    return _current.name or func
