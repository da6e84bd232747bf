"""`kvorum chaos diff`, `duel` and `export`: what is done with whole runs."""

from __future__ import annotations

import os
import time

import click

from kvorum.cli.common import EXIT_VERDICT_FAILED, refused
from kvorum.cli.lake import add_made, check_lake, lake_option
from kvorum.client.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed


@click.command()
@click.argument("first", type=click.Path(exists=True, file_okay=False))
@click.argument("second", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    default="diff.html",
    show_default=True,
    help="The page to write.",
)
@click.option("--any", "is_any", is_flag=True, help="Also compare runs of different experiments.")
def diff(first: str, second: str, out: str, is_any: bool) -> None:
    """Compare the runs in the folders FIRST and SECOND on one page."""
    from kvorum.chaos.report.diff import diff_runs
    from kvorum.runtime.errors import ConfigError, CorruptData

    try:
        difference = diff_runs(first, second, out, is_any_experiment=is_any)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    width = max(len(figure.words) for figure in difference.figures)
    click.echo(" " * width + f"  {difference.names[0]:>16}  {difference.names[1]:>16}")
    for figure in difference.figures:
        one, other = figure.texts()
        mark = {True: "  worse", False: "  better", None: ""}[figure.is_worse]
        click.echo(f"{figure.words:<{width}}  {one:>16}  {other:>16}{mark}")
    click.echo(f"page: {out}")


@click.command()
@click.argument("file")
@click.option(
    "--systems",
    default="kvorum,kafka",
    show_default=True,
    help="Two systems, as for --system of `run`, with a comma between them.",
)
@click.option("--out", type=click.Path(file_okay=False), default=None, help="Folder of the duel.")
@click.option("--seed", type=int, default=None, help="In place of the file's own seed.")
@click.option("--kafka-libs", type=click.Path(file_okay=False), default=None, help="As for `run`.")
@click.option("--i-own-this-cluster", "is_owned", is_flag=True, help="As for `run`.")
@lake_option
def duel(
    file: str,
    systems: str,
    out: str | None,
    seed: int | None,
    kafka_libs: str | None,
    is_owned: bool,
    lake: str | None,
) -> None:
    """Run the experiment FILE with one seed against two systems; one page has both.

    Fails with exit code 6 unless both verdicts are passed.
    """
    from kvorum.chaos.experiment_file.shipped import find_experiment
    from kvorum.chaos.live.duel import duel as run_duel
    from kvorum.runtime.errors import ConfigError, KvorumError

    if out is None:
        name = os.path.splitext(os.path.basename(file))[0]
        out = f"chaos-runs/duel-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    check_lake(lake)
    try:
        outcome = run_duel(
            find_experiment(file),
            systems=systems.split(","),
            output_dir=out,
            progress=lambda line: click.echo(line, err=True),
            seed=seed,
            kafka_libs=kafka_libs,
            is_owned=is_owned,
        )
    except ConfigError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    except KvorumError as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
    for system, result in zip(outcome.systems, outcome.results, strict=True):
        click.echo(f"{system}: {result.verdict} - {result.summary}")
    click.echo(f"page: {outcome.page}")
    add_made(lake, [result.run_dir for result in outcome.results])
    failed = [
        f"{system} is {result.verdict}: {result.reasons[0]}"
        for system, result in zip(outcome.systems, outcome.results, strict=True)
        if result.verdict != "passed"
    ]
    if failed:
        text = f"not every verdict is passed: {'; '.join(failed)}"
        raise CommandFailed(text, EXIT_VERDICT_FAILED)


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(("edn",)),
    default="edn",
    show_default=True,
    help="edn: history.edn, for Jepsen's checkers. For Parquet, see kvorum lake add.",
)
def export(run_dir: str, form: str) -> None:
    """Write the history of the run in RUN_DIR for other programs."""
    from kvorum.chaos.history import HISTORY_FILE
    from kvorum.chaos.report.edn import write_edn
    from kvorum.runtime.errors import ConfigError, CorruptData

    try:
        history = os.path.join(run_dir, HISTORY_FILE)
        if not os.path.exists(history):
            raise ConfigError(f"{run_dir} holds no run: {HISTORY_FILE} is needed")
        path = os.path.join(run_dir, "history.edn")
        count = write_edn(history, path)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    click.echo(f"{path}: {count} operations")
