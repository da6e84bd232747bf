"""`kvorum report`: check a run's folder again and write its report."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from kvorum.cli.common import EXIT_VERDICT_FAILED, is_structured, output_option, refused, show
from kvorum.client.failures import CommandFailed


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False))
@output_option
def report(run_dir: str, output: str) -> None:
    """Check the history in RUN_DIR again and write report.html and report.json."""
    from kvorum.chaos.report.report import write_report
    from kvorum.runtime.errors import ConfigError, CorruptData

    try:
        result = write_report(run_dir)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    show_result(result, output)


def show_result(result: Any, output: str) -> None:
    """Print a run's result. Raises CommandFailed unless the verdict is `passed`."""
    if is_structured(output):
        show(output, dataclasses.asdict(result))
    else:
        click.echo(f"verdict: {result.verdict} - {result.summary}")
        click.echo(f"report: {result.report_html}")
        click.echo(f"rerun: {result.rerun}")
    if result.verdict != "passed":
        raise no_pass(result)


def no_pass(result: Any) -> CommandFailed:
    """The failure, with the reason, for a run whose verdict is not `passed`."""
    first, *more = result.reasons or ("no reason is known",)
    rest = f" (and {len(more)} more; see the report)" if more else ""
    return CommandFailed(f"the verdict is {result.verdict}: {first}{rest}", EXIT_VERDICT_FAILED)
