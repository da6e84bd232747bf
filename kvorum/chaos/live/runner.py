"""One live run, from an experiment file to a verdict.

Order: toxiproxy, proxies, cluster, topics, load, steady state, method, heal, rollbacks, converge,
steady state again, stop the load, final read, export of the metadata, stop the cluster, report. No
process of the run is left when `run` returns or raises.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvorum.chaos.experiment_file.experiment import Experiment
from kvorum.chaos.experiment_file.steps import Step
from kvorum.chaos.history import HISTORY_FILE, HistoryWriter, has_events
from kvorum.chaos.live.endings import (
    BY_SIGNAL,
    OutputClosed,
    is_of_toxiproxy,
    orderly_termination,
    reason_of,
    while_open,
)
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.host.processes import NotReached, wait_until
from kvorum.chaos.live.host.toxiproxy_server import find_server
from kvorum.chaos.live.loads import Loads, prefixed
from kvorum.chaos.live.nemesis import Nemesis
from kvorum.chaos.live.new_record import load_text, new_record, versions_of
from kvorum.chaos.live.observation.nodes import views_of
from kvorum.chaos.live.observation.observer import Observer
from kvorum.chaos.live.observe import (
    TopicState,
    TopicWatch,
    view_of,
)
from kvorum.chaos.live.probes import Probes
from kvorum.chaos.live.systems.limits import load_for
from kvorum.chaos.live.systems.opening import (
    CLUSTER,
    LOGS,
    NO_ACCESS,
    Access,
    OpenedSystem,
    SystemChoice,
    WarmCluster,
    choose_system,
    configuration_for,
    open_system,
)
from kvorum.chaos.live.systems.protocol import (
    Capability,
    NotObservable,
    System,
    node_named,
)
from kvorum.chaos.live.users import bootstrap_of_load
from kvorum.chaos.report.report import RunResult, write_report
from kvorum.chaos.run_record import WARM, write_record
from kvorum.runtime.clock import monotonic_ms, wall_ms
from kvorum.runtime.errors import ConfigError, KvorumError
from kvorum.runtime.private_files import private_files

_EXPORT_TIMEOUT_S = 60.0
_THREAD_TIMEOUT_MS = 15_000
_FINAL_READ_TIMEOUT_MS = 120_000
_DEATH_WATCH_MS = 200
_WAIT_UNCONVERGED_MS = 15_000


#: The note in the report of a run on a warm cluster.
WARM_NOTE = (
    "the cluster was warm, other runs used it before: its replicas are not compared in this "
    "report, but once, when it stops"
)

#: How often the record of a run in progress is written again.
_RECORD_INTERVAL_MS = 1_000

#: Carries out the faults of a run; all of them are healed after it.
CarryOut = Callable[[Nemesis, Probes], None]


@private_files()
def run(
    experiment_path: str,
    *,
    output_dir: str,
    progress: Callable[[str], None] | None = None,
    seed: int | None = None,
    system: str = "kvorum",
    kafka_libs: str | None = None,
    is_owned: bool = False,
    carry_out: CarryOut | None = None,
    warm: WarmCluster | None = None,
    access: Access = NO_ACCESS,
) -> RunResult:
    """Run an experiment on a fresh cluster and write everything into output_dir, which its owner
        alone may read: a run holds ACLs and the metadata's records.

    seed: replaces the file's own seed.
    system, kafka_libs, is_owned: see `choose_system`.
    carry_out: takes the place of method and rollbacks, for a caller that decides the steps itself.
    warm: a running cluster to use in place of a fresh one; its topics get the prefix `FILE-SEED.`.
    access: a secure cluster, or the user on an attached one.
    Raises ConfigError for an invalid experiment, an experiment that the system cannot carry out, or
    an output_dir that already has a run, and KvorumError for a run that never began. A broken
    guarantee of the cluster is not an exception but a verdict, and so is an error in the middle.
    """
    choice = (
        choose_system(system, kafka_libs=kafka_libs, is_owned=is_owned, access=access)
        if warm is None
        else warm.choice
    )
    experiment = load_for(choice, experiment_path, seed=seed)
    experiment = replace(
        experiment,
        configuration=configuration_for(choice, experiment.configuration, access),
    )
    run_dir = Path(output_dir)
    # Checked before the folder is created: without a toxiproxy server the run cannot begin.
    if choice.has_own_toxiproxy and warm is None:
        find_server()
    _make_room(run_dir)
    (run_dir / LOGS).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(experiment_path, run_dir / f"experiment{Path(experiment_path).suffix}")
    chosen = experiment.configuration.seed
    rerun = f"kvorum chaos run {shlex.quote(experiment_path)} --seed {chosen}{choice.option}"
    if carry_out is not None:
        experiment = replace(experiment, rollbacks=())
    tell = _no_progress if progress is None else while_open(progress)
    session = _Session(experiment, choice, run_dir, tell, rerun, carry_out)
    if warm is not None:
        session.use(warm, prefix=f"{Path(experiment_path).stem}-{chosen}.")
    try:
        with orderly_termination():
            session.execute()
    except KvorumError:
        history = run_dir / HISTORY_FILE
        if history.exists() and has_events(str(history)):
            # If the files cannot be judged, the error that ended the run says more.
            with contextlib.suppress(KvorumError):
                return write_report(str(run_dir))
        raise
    return write_report(str(run_dir))


def _make_room(run_dir: Path) -> None:
    """Remove the files of an attempt that ended before its first event.

    Raises ConfigError for a folder that has a run.
    """
    history = run_dir / HISTORY_FILE
    if not history.exists():
        return
    if has_events(str(history)):
        raise ConfigError(f"{run_dir} already holds a run; name another folder")
    for name in (CLUSTER, LOGS):
        shutil.rmtree(run_dir / name, ignore_errors=True)
    history.unlink()


def _no_progress(_: str) -> None:
    return None


class _Session:
    """The state of one run in progress."""

    def __init__(
        self,
        experiment: Experiment,
        choice: SystemChoice,
        run_dir: Path,
        progress: Callable[[str], None],
        rerun: str,
        carry_out: CarryOut | None = None,
    ) -> None:
        self._experiment = experiment
        self._choice = choice
        self._configuration = experiment.configuration
        self._topic = experiment.configuration.topic
        #: The topic's name in the cluster, with the system's prefix; targets use the name in the
        #: experiment.
        self._topic_name = self._topic.name
        self._run_dir = run_dir
        self._progress = progress
        self._rng = random.Random(f"{experiment.configuration.seed}/targets")
        self._next_death_watch_ms = 0
        self._next_record_ms = 0
        self._carry_out = carry_out or _run_steps(experiment.method)
        self._warm: WarmCluster | None = None
        self._prefix = ""
        self._record = new_record(experiment, choice, rerun)

    def use(self, warm: WarmCluster, *, prefix: str) -> None:
        """Run on a cluster that runs already, with topics that begin with the prefix."""
        self._warm, self._prefix = warm, prefix
        self._record = replace(self._record, cluster=WARM)

    def execute(self) -> None:
        self._write_record()
        try:
            with ExitStack() as stack:
                self._run(stack)
            self._record = replace(self._record, error=None)
        except BaseException as error:
            self._record = replace(
                self._record, error=reason_of(error), is_lab_failure=is_of_toxiproxy(error)
            )
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):  # it ended before the history was begun
                size = (self._run_dir / HISTORY_FILE).stat().st_size
                self._record = replace(self._record, history_bytes=size)
            self._write_record()
            if self._record.error in BY_SIGNAL:
                # An OutputClosed from here would replace the signal's exception, and `run` would
                # judge the run as after an error.
                with contextlib.suppress(OutputClosed):
                    self._say_how_it_ended()

    def _say_how_it_ended(self) -> None:
        """Tell the user how the run ended. Called after the clean-up, when the cluster is healed or
        stopped as the text says."""
        is_left = self._leaves_its_cluster()
        left = "the cluster is healed and runs on" if is_left else "the cluster is stopped"
        self._progress(
            f"{self._record.error}; {left}; kvorum report {self._run_dir} judges the run"
        )

    def _write_record(self) -> None:
        """Write run.json. A run that is killed leaves the last one, from which it can be judged."""
        self._record = replace(self._record, ended_wall_ms=wall_ms())
        self._next_record_ms = monotonic_ms() + _RECORD_INTERVAL_MS
        write_record(self._record, self._run_dir)

    def _run(self, stack: ExitStack) -> None:
        history = stack.enter_context(self._open_history())
        opened = self._start_system(stack)
        if opened.server is not None:
            stack.enter_context(opened.server.explaining())
        system = opened.system
        bootstrap = system.bootstrap()
        self._topic_name = system.topic_prefix + self._topic.name
        configuration = prefixed(self._configuration, system.topic_prefix)
        own = bootstrap_of_load(system)
        loads = Loads(configuration, bootstrap=own, history=history, admin=bootstrap)
        self._record = replace(self._record, compacted_topics=tuple(loads.compacted_topics))
        if self._warm is not None:
            self._warm.note_compacted(loads.compacted_topics)
        loads.create_topics()
        watch = self._watch_topic(bootstrap, stack)
        stack.callback(loads.abandon)
        loads.start()
        self._progress(load_text(configuration))
        observer = Observer(views=views_of(system, topics=loads.topics), history=history)
        observer.start()
        stack.callback(observer.stop, timeout_ms=_THREAD_TIMEOUT_MS)

        def check() -> None:
            self._check(opened, loads, observer)

        def view() -> Any:
            return view_of(system, self._topic.name, _state_or_none(watch))

        probes = Probes(system=system, watch=watch, load=loads.produce)
        injector = Injector(
            system=system,
            toxiproxy=opened.toxiproxy,
            packets=opened.packets,
            history=history,
            view=view,
            rng=self._rng,
        )
        nemesis = Nemesis(
            injector=injector, probes=probes, progress=self._timed(history), check=check
        )
        if self._leaves_its_cluster():
            # A run that breaks off must leave none of its faults to those who use the cluster next.
            stack.callback(self._end_faults, injector)
        loads.await_flow(timeout_ms=self._configuration.start_timeout_ms)
        nemesis.wait(self._configuration.warm_up_ms)
        before = probes.measure_all(self._experiment.steady_state)
        self._record = replace(self._record, steady_state_before=tuple(before))
        if all(measurement.is_accepted for measurement in before):
            self._carry_out(nemesis, probes)
        else:
            self._note("the steady state did not hold before the method, which was not run")
        nemesis.heal()
        if self._experiment.rollbacks:
            nemesis.run(self._experiment.rollbacks)
            nemesis.heal()
        nemesis.wait(self._configuration.cool_down_ms)
        self._converge(watch, check)
        after = probes.measure_all(self._experiment.steady_state)
        self._record = replace(
            self._record,
            steady_state_after=tuple(after),
            probes=tuple(nemesis.measurements),
            steps=tuple(nemesis.outcomes),
        )
        loads.stop()
        check()
        self._read_to_the_end(loads)
        observer.stop(timeout_ms=_THREAD_TIMEOUT_MS)
        self._export_metadata(system)

    def _leaves_its_cluster(self) -> bool:
        """True if the cluster runs on after the run."""
        return self._choice.attached is not None or self._warm is not None

    def _end_faults(self, injector: Injector) -> None:
        """End what a run that broke off left in force; a failure must not hide why it broke off."""
        try:
            injector.end_all()
        except (KvorumError, OSError) as error:
            self._add_note(f"a fault may be in force still: {error}")

    def _check(self, opened: OpenedSystem, loads: Loads, observer: Observer) -> None:
        """Raise KvorumError if a part ended early without which the run proves nothing."""
        if opened.server is not None:
            opened.server.check()
        loads.check()
        if observer.failure is not None:
            raise KvorumError(f"the observer ended early: {observer.failure}")
        if not opened.system.is_running():
            raise KvorumError(f"the cluster ended: {opened.system.log_tail()}")
        self._note_deaths(opened.system)
        if monotonic_ms() >= self._next_record_ms:
            self._write_record()

    def _open_history(self) -> HistoryWriter:
        return HistoryWriter(
            str(self._run_dir / HISTORY_FILE),
            run_id=f"{self._record.started_wall_ms}-{self._record.seed}",
            system=self._choice.name,
        )

    def _start_system(self, stack: ExitStack) -> OpenedSystem:
        if self._warm is not None:
            opened = self._warm.open(self._configuration, prefix=self._prefix)
            self._note(WARM_NOTE)
        else:
            opened = open_system(
                stack,
                self._choice,
                shape=self._configuration,
                run_dir=self._run_dir,
                progress=self._progress,
            )
        versions = versions_of(self._choice, opened.toxiproxy_version)
        self._record = replace(self._record, versions=versions)
        return opened

    def _watch_topic(self, bootstrap: str, stack: ExitStack) -> TopicWatch:
        """Return when every partition of the topic is led and replicated."""
        watch = TopicWatch(bootstrap=bootstrap, topic=self._topic_name)
        stack.callback(watch.close)
        wait_until(
            lambda: _is_whole(_state_or_none(watch), self._topic.partitions),
            timeout_ms=self._configuration.start_timeout_ms,
            what=f"every partition of {self._topic_name} is led and replicated",
        )
        return watch

    def _converge(self, watch: TopicWatch, check: Callable[[], None]) -> None:
        def is_converged() -> bool:
            check()
            if self._record.died_unasked:
                raise NotReached("dead nodes stay dead: the ISRs cannot become full")
            return _is_whole(_state_or_none(watch), self._topic.partitions)

        timeout_ms = self._configuration.convergence_timeout_ms
        try:
            wait_until(is_converged, timeout_ms=timeout_ms, what="every ISR is full after healing")
        except NotReached as error:
            self._note(str(error))
            return
        self._record = replace(self._record, is_converged=True)
        self._progress("converged: every partition led, every ISR full")

    def _read_to_the_end(self, loads: Loads) -> None:
        timeout_ms = self._wait_limit_ms(self._configuration.convergence_timeout_ms)
        try:
            loads.catch_up(timeout_ms=timeout_ms)
        except NotReached as error:
            self._note(str(error))
        loads.stop_consumer()
        timeout_ms = self._wait_limit_ms(_FINAL_READ_TIMEOUT_MS)
        is_complete = loads.final_read(timeout_ms=timeout_ms)
        self._record = replace(self._record, is_final_read_complete=is_complete)
        self._progress("final read " + ("complete" if is_complete else "INCOMPLETE"))

    def _wait_limit_ms(self, timeout_ms: int) -> int:
        """The time limit of a wait; shorter if the cluster did not recover, since more time would
        not help then."""
        return timeout_ms if self._record.is_converged else min(timeout_ms, _WAIT_UNCONVERGED_MS)

    def _note_deaths(self, system: System) -> None:
        """A node that died although no fault killed it counts as a broken guarantee."""
        now_ms = monotonic_ms()
        if now_ms < self._next_death_watch_ms:
            return
        self._next_death_watch_ms = now_ms + _DEATH_WATCH_MS
        for name in system.died_unasked():
            if name not in self._record.died_unasked:
                died = (*self._record.died_unasked, name)
                self._record = replace(self._record, died_unasked=died)
                log_file = node_named(system, name).log_file
                self._note(f"{name} died though no fault killed it; its log: {log_file}")

    def _export_metadata(self, system: System) -> None:
        """Copy the metadata log into the run's folder. A failure is only noted and does not change
        the verdict."""
        if Capability.METADATA_EXPORT not in system.capabilities:
            return
        folder = str(self._run_dir / "metadata")
        try:
            copied = system.export_metadata(folder, timeout_s=_EXPORT_TIMEOUT_S)
        except (KvorumError, OSError, ImportError) as error:
            self._note(f"metadata export failed: {error}")
            return
        self._progress(f"exported: {copied}")

    def _note(self, text: str) -> None:
        self._add_note(text)
        self._progress(text)

    def _add_note(self, text: str) -> None:
        self._record = replace(self._record, notes=(*self._record.notes, text))

    def _timed(self, history: HistoryWriter) -> Callable[[str], None]:
        return lambda text: self._progress(f"{history.now_ms() / 1000:6.1f} s  {text}")


def _run_steps(steps: Sequence[Step]) -> CarryOut:
    return lambda nemesis, _: nemesis.run(steps)


def _state_or_none(watch: TopicWatch) -> TopicState | None:
    try:
        return watch.state()
    except NotObservable:
        return None


def _is_whole(state: TopicState | None, partitions: int) -> bool:
    return (
        state is not None
        and len(state.leaders) == partitions
        and state.offline_partitions == 0
        and state.under_replicated_partitions == 0
    )
