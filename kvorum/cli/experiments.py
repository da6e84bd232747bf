"""`kvorum chaos validate|list|schema|replay`: checks experiment files, or repeats a run."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import click

from kvorum.cli.common import is_structured, output_option, show
from kvorum.cli.report import show_result
from kvorum.client.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--canonical", is_flag=True, help="Print FILE as Chaos Toolkit runs it.")
@click.option(
    "--system",
    type=click.Choice(("kvorum", "kafka")),
    default="kvorum",
    show_default=True,
    help="The system of the settings; those of kafka are checked when a run begins.",
)
def validate(files: tuple[str, ...], canonical: bool, system: str) -> None:
    """Check experiments: every problem with its file and line; exit code 2 if there is one."""
    from kvorum.chaos.experiment_file.canonical import to_toolkit
    from kvorum.chaos.experiment_file.experiment import parse_experiment
    from kvorum.chaos.experiment_file.shipped import find_experiment
    from kvorum.chaos.experiment_file.steps import PROBES
    from kvorum.chaos.live.systems.limits import SettingsOfKvorum
    from kvorum.runtime.errors import ConfigError

    if canonical and len(files) > 1:
        raise click.UsageError("--canonical goes with one FILE")
    limits = SettingsOfKvorum() if system == "kvorum" else None
    problems: list[str] = []
    for file in files:
        try:
            path = find_experiment(file)
            text = _read(path)
            experiment = parse_experiment(path, text, limits=limits)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if canonical:
            click.echo(to_toolkit(path, text, PROBES), nl=False)
        else:
            click.echo(f"{path}: valid, {len(experiment.method)} steps")
    if problems:
        raise CommandFailed("\n".join(problems), EXIT_USAGE)


@click.command("list")
@output_option
def list_experiments(output: str) -> None:
    """List the shipped experiments. Run one with kvorum chaos run NAME."""
    from kvorum.chaos.experiment_file.shipped import shipped

    rows: list[dict[str, Any]] = [dataclasses.asdict(experiment) for experiment in shipped()]
    if is_structured(output):
        show(output, rows)
        return
    for row in rows:
        click.echo(f"{row['name']:<20} {row['seconds']:>4} s  {row['title']}")
        indent = " " * 28
        click.echo(f"{indent}[{', '.join(row['tags'])}]")
        click.echo(click.wrap_text(row["proves"], 98, indent, indent))


@click.command()
def schema() -> None:
    """Print the JSON Schema of experiments, for editors."""
    from kvorum.chaos.experiment_file.schema import schema_text

    click.echo(schema_text(), nl=False)


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=None,
    help="Folder of the new run.  [default: RUN_DIR-replay-TIME]",
)
@click.option(
    "--system",
    default=None,
    help="The system under test.  [default: the one of the run]",
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
@click.option("--command-config", metavar="FILE", default=None, help="As for `run`.")
@output_option
def replay(
    run_dir: str,
    out: str | None,
    system: str | None,
    kafka_libs: str | None,
    is_owned: bool,
    command_config: str | None,
    output: str,
) -> None:
    """Run the experiment of RUN_DIR again, with its seed, and compare the nodes that were hit.

    The seed decides the faults, their order, and what random targets pick from. Who leads is the
    cluster's own affair, so a target such as leader:orders/0 may be another node.
    """
    from kvorum.chaos.live.runner import run
    from kvorum.chaos.live.systems.opening import Access
    from kvorum.chaos.report.replay import compare_targets, read_earlier_run
    from kvorum.runtime.errors import ConfigError, CorruptData, KvorumError

    name = os.path.normpath(run_dir)
    try:
        earlier = read_earlier_run(run_dir)
        result = run(
            earlier.experiment_file,
            output_dir=out or f"{name}-replay-{time.strftime('%Y%m%d-%H%M%S')}",
            progress=lambda line: click.echo(line, err=True),
            seed=earlier.seed,
            system=system or earlier.system_to_replay(),
            kafka_libs=kafka_libs,
            is_owned=is_owned,
            access=Access(
                is_secure=earlier.is_secure and system in (None, "kvorum"),
                command_config=command_config,
            ),
        )
        picks = compare_targets(run_dir, result.run_dir)
    except (ConfigError, CorruptData) as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    except KvorumError as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
    if not is_structured(output):
        show(output, [pick.row() for pick in picks], ("fault", "last_time", "now"))
        same = sum(pick.is_same for pick in picks)
        click.echo(f"{same} of {len(picks)} faults hit the same nodes as in {name}")
    show_result(result, output)


def _read(path: str) -> str:
    from kvorum.runtime.errors import ConfigError

    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
