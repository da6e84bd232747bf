"""`kvorum chaos`: experiments on real processes, and the simulator."""

from __future__ import annotations

import time

import click

from kvorum.cli.common import (
    EXIT_FAILED,
    EXIT_USAGE,
    EXIT_VERDICT_FAILED,
    CommandFailed,
    output_option,
)
from kvorum.cli.report import show_result


@click.group()
def chaos() -> None:
    """Run an experiment against a real cluster, or seeds through the simulator."""


@chaos.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=None,
    help="Folder of the run.  [default: ./chaos-runs/NAME-TIME]",
)
@click.option("--seed", type=int, default=None, help="In place of the file's own seed.")
@output_option
def run(file: str, out: str | None, seed: int | None, output: str) -> None:
    """Run the experiment in FILE on a fresh cluster behind toxiproxy; ends in a verdict."""
    import os

    if out is None:
        name = os.path.splitext(os.path.basename(file))[0]
        out = f"chaos-runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    from chaos.live.runner import run as run_experiment
    from runtime.errors import ConfigError, KvorumError

    try:
        result = run_experiment(
            file, output_dir=out, progress=lambda line: click.echo(line, err=True), seed=seed
        )
    except ConfigError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    except KvorumError as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
    show_result(result, output)


@chaos.command()
@click.option("--seed", type=int, required=True, help="First seed.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="How many seeds in a row.")
def sim(seed: int, count: int) -> None:
    """Run seeds of a quorum under faults in virtual time; every check after every event."""
    from chaos.sim.quorum import run_seed
    from runtime.errors import InvariantViolated

    for number in range(seed, seed + count):
        try:
            outcome = run_seed(number)
        except InvariantViolated as error:
            raise CommandFailed(str(error), EXIT_VERDICT_FAILED) from error
        click.echo(
            f"seed {number}: {outcome.events} events, {outcome.epochs} epochs, "
            f"{outcome.committed} committed, {outcome.acknowledged} acknowledged, "
            f"digest {outcome.digest:x}"
        )
