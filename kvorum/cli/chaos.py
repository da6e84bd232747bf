"""`kvorum chaos`: experiments on real processes, and the simulator."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kvorum.cli.chaos_runs import diff, duel, export
from kvorum.cli.common import EXIT_VERDICT_FAILED, output_option
from kvorum.cli.experiments import list_experiments, replay, schema, validate
from kvorum.cli.lake import add_made, check_lake, lake_option
from kvorum.cli.report import show_result
from kvorum.client.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.scenario import Scenario
    from kvorum.chaos.sim.quorum.world import QuorumOutcome

PROGRESS_S = 5.0
"""Seconds between two lines of progress when many seeds run."""


@click.group()
def chaos() -> None:
    """Run an experiment against a real cluster, or seeds through the simulator."""


chaos.add_command(diff)
chaos.add_command(duel)
chaos.add_command(export)
chaos.add_command(list_experiments)
chaos.add_command(replay)
chaos.add_command(schema)
chaos.add_command(validate)


@chaos.command()
@click.argument("file")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=None,
    help="Folder of the run.  [default: ./chaos-runs/NAME-TIME]",
)
@click.option("--seed", type=int, default=None, help="In place of the file's own seed.")
@click.option(
    "--system",
    default="kvorum",
    show_default=True,
    help="The system under test: kvorum, kafka, or FILE.toml of a cluster that runs already.",
)
@click.option(
    "--kafka-libs",
    type=click.Path(file_okay=False),
    default=None,
    help="Folder of Apache Kafka's jars.  [default: KAFKA_HOME/libs]",
)
@click.option(
    "--i-own-this-cluster",
    "is_owned",
    is_flag=True,
    help="The cluster in FILE.toml may be broken.",
)
@click.option("--secure", "is_secure", is_flag=True, help="A cluster with TLS, users and ACLs.")
@click.option(
    "--command-config",
    metavar="FILE",
    default=None,
    help="Kafka's client properties for the cluster in FILE.toml.",
)
@lake_option
@output_option
def run(
    file: str,
    out: str | None,
    seed: int | None,
    system: str,
    kafka_libs: str | None,
    is_owned: bool,
    is_secure: bool,
    command_config: str | None,
    lake: str | None,
    output: str,
) -> None:
    """Run an experiment on a cluster behind toxiproxy; ends in a verdict.

    FILE is a file, or the name of a shipped experiment (kvorum chaos list).
    """
    if out is None:
        name = os.path.splitext(os.path.basename(file))[0]
        out = f"chaos-runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    check_lake(lake)
    from kvorum.chaos.experiment_file.shipped import find_experiment
    from kvorum.chaos.live.endings import Terminated
    from kvorum.chaos.live.runner import run as run_experiment
    from kvorum.chaos.live.systems.opening import Access
    from kvorum.runtime.errors import ConfigError, KvorumError

    try:
        result = run_experiment(
            find_experiment(file),
            output_dir=out,
            progress=lambda line: click.echo(line, err=True),
            seed=seed,
            system=system,
            kafka_libs=kafka_libs,
            is_owned=is_owned,
            access=Access(is_secure=is_secure, command_config=command_config),
        )
    except ConfigError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    except KvorumError as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
    except (KeyboardInterrupt, Terminated):
        if lake is not None:
            warn(f"the run is not in the lake: kvorum lake add {out} --lake {lake} adds it")
        raise
    add_made(lake, [result.run_dir])
    show_result(result, output)


@chaos.command()
@click.option("--seed", type=int, default=None, help="First seed.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="How many seeds in a row.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    help="Processes to use.  [default: one for each processor]",
)
@click.option(
    "--world",
    type=click.Choice(("quorum", "controller", "partitions")),
    default="quorum",
    show_default=True,
    help="The quorum alone; with controller and brokers; with partitions, logs and clients too.",
)
@click.option("--shrink", is_flag=True, help="Shrink the failing scenario; print it.")
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="Run the scenario in this file, one line as --shrink prints it, in place of a seed.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first seed that fails.")
@click.option("-v", "--verbose", is_flag=True, help="One line for each seed.")
def sim(
    seed: int | None,
    count: int,
    jobs: int | None,
    world: str,
    shrink: bool,
    scenario: str | None,
    fail_fast: bool,
    verbose: bool,
) -> None:
    """Run seeds of a cluster under faults in virtual time; every check after every event."""
    if (seed is None) == (scenario is None):
        raise click.UsageError("give --seed or --scenario, one of them")
    if count > 1 and (shrink or scenario is not None):
        raise click.UsageError("--count goes with neither --shrink nor --scenario")
    if shrink:
        _shrink(seed, scenario, world)
    elif scenario is not None:
        _replay(scenario)
    elif seed is not None:
        seeds = range(seed, seed + count)
        run = _Run(world=world, jobs=jobs or os.cpu_count() or 1, fail_fast=fail_fast)
        _run_seeds(seeds, run, is_verbose=verbose)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    world: str
    jobs: int
    fail_fast: bool


def _run_seeds(seeds: range, run: _Run, *, is_verbose: bool) -> None:
    if len(seeds) == 1:
        # A single seed runs in this process, so that a debugger can be attached.
        from kvorum.chaos.sim.worlds import run_seed

        click.echo(_seed_line(_run_one(lambda: run_seed(seeds[0], run.world))))
        return
    from kvorum.chaos.sim.many import SeedResult, run_many

    started_s = shown_s = time.monotonic()
    done = failed = 0

    def on_result(result: SeedResult) -> None:
        nonlocal done, failed, shown_s
        done += 1
        failed += result.failure is not None
        if result.failure is not None:
            click.echo(str(result.failure), err=True)
        elif result.outcome is not None and is_verbose:
            click.echo(_seed_line(result.outcome))
        if time.monotonic() - shown_s >= PROGRESS_S:
            shown_s = time.monotonic()
            click.echo(f"{done} of {len(seeds)} seeds, {failed} failed", err=True)

    summary = run_many(
        seeds,
        jobs=run.jobs,
        on_result=on_result,
        world=run.world,
        stops_at_failure=run.fail_fast,
    )
    for line in summary.lines(time.monotonic() - started_s):
        click.echo(line)
    if summary.failures:
        failing = ", ".join(map(str, sorted(summary.failures)))
        raise CommandFailed(f"seeds that failed: {failing}", EXIT_VERDICT_FAILED)


def _replay(path: str) -> None:
    from kvorum.chaos.sim.worlds import run_scenario

    scenario = _read_scenario(path)
    click.echo(_seed_line(_run_one(lambda: run_scenario(scenario))))


def _shrink(seed: int | None, path: str | None, world: str) -> None:
    from kvorum.chaos.sim.quorum.scenario import to_json
    from kvorum.chaos.sim.shrink import shrink
    from kvorum.chaos.sim.worlds import scenario_of

    scenario = _read_scenario(path) if path is not None else scenario_of(seed or 0, world)
    shrunk = shrink(scenario, lambda line: click.echo(line, err=True))
    if shrunk is None:
        click.echo(f"seed {scenario.seed} does not fail", err=True)
        return
    click.echo(str(shrunk.failure), err=True)
    click.echo(to_json(shrunk.scenario))
    raise CommandFailed(
        f"{shrunk.failure.name!r} after {shrunk.runs} runs with {len(shrunk.scenario.faults)} "
        "faults left; write the line above into a file and rerun it with --scenario",
        EXIT_VERDICT_FAILED,
    )


def _read_scenario(path: str) -> Scenario:
    from kvorum.chaos.sim.worlds import from_json
    from kvorum.runtime.errors import ConfigError

    try:
        with open(path, encoding="utf-8") as file:
            return from_json(file.read())
    except (ConfigError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: {error}", EXIT_USAGE) from error


def _run_one(run: Callable[[], QuorumOutcome]) -> QuorumOutcome:
    from kvorum.runtime.errors import InvariantViolated

    try:
        return run()
    except InvariantViolated as error:
        raise CommandFailed(str(error), EXIT_VERDICT_FAILED) from error


def _seed_line(outcome: QuorumOutcome) -> str:
    return (
        f"seed {outcome.seed}: {outcome.events} events, {outcome.epochs} epochs, "
        f"{outcome.committed} committed, {outcome.acknowledged} acknowledged, "
        f"healed in {outcome.healed_ms} ms, digest {outcome.digest:x}"
    )
