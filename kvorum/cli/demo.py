"""`kvorum demo`: an experiment on a real cluster, its report and the Spark job, with a verdict
(`make demo`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import click

from kvorum.cli.lake import add_to_lake, check_lake
from kvorum.cli.report import no_pass
from kvorum.client.failures import EXIT_FAILED, CommandFailed
from kvorum.runtime.python_module import module_command

EXPERIMENT = Path(__file__).parents[1] / "chaos" / "experiments" / "first-light.yaml"
RUNS_KEPT = 5


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="demo-data",
    show_default=True,
    help="Folder of the runs; old runs are removed.",
)
@click.option("--seed", type=int, default=None, help="In place of the experiment's own seed.")
def demo(out: str, seed: int | None) -> None:
    """Break a cluster under load through toxiproxy, prove that nothing was lost, analyse it."""
    begun = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - begun:6.1f} s] {line}")

    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        # Checked before the run and not after it.
        raise CommandFailed("the demo ends in a Spark job: pip install 'kvorum[chaos,spark]'")
    from kvorum.chaos.live.runner import run
    from kvorum.runtime.errors import KvorumError

    lake = Path(out) / "lake"
    check_lake(str(lake))
    run_dir = Path(out) / f"run-{time.strftime('%Y%m%d-%H%M%S')}"
    say(f"experiment {EXPERIMENT.name}; everything of this run goes to {run_dir}")
    try:
        result = run(str(EXPERIMENT), output_dir=str(run_dir), progress=say, seed=seed)
    except KvorumError as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
    spark_dir = run_dir / "spark"
    add_to_lake(str(lake), str(run_dir))
    _forget_old_runs(Path(out), lake)
    say("PySpark analyses the runs of the lake")
    _run_spark(lake, run_dir, spark_dir)
    _summarise(result, run_dir, spark_dir)
    if result.verdict != "passed":
        raise no_pass(result)


def _run_spark(lake: Path, run_dir: Path, spark_dir: Path) -> None:
    log = run_dir / "logs" / "spark.log"
    command = module_command("kvorum.analytics.job", "--lake", str(lake))
    command += ["--output", str(spark_dir)]
    with open(log, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"the Spark job failed with code {done.returncode}; see {log}")


def _summarise(result: Any, run_dir: Path, spark_dir: Path) -> None:
    report = json.loads(Path(result.report_json).read_text(encoding="utf-8"))
    click.echo("")
    click.echo("unavailable by fault: records waited and none was acknowledged, worst partition")
    for fault in report["faults"]:
        click.echo(f"  {fault['description']:<58} {_unavailable(fault)}")
    click.echo("longest silence of acknowledged writes, by partition")
    for partition in report["partitions"]:
        click.echo(
            f"  partition {partition['partition']}: {partition['longest_silence_ms']:.0f} ms, "
            f"{partition['leader_changes']} leader changes"
        )
    click.echo("checks of the history")
    for check in report["checks"]:
        click.echo(f"  {check['check']:<24} {check['count']} wrong of {check['examined']}")
    click.echo(f"report:  {result.report_html}")
    plots = sorted((spark_dir / "plots").glob("*.png"))
    click.echo(f"plots:   {' '.join(os.fspath(plot) for plot in plots) or 'none'}")
    click.echo(f"spark:   {spark_dir / 'index.html'}")
    click.echo(f"lake:    {run_dir.parent / 'lake'}")
    click.echo(f"rerun:   {result.rerun}")
    click.echo(f"verdict: {result.verdict} - {result.summary}")


def _unavailable(fault: dict[str, Any]) -> str:
    times = [item["unavailable_ms"] for item in fault["recoveries"]]
    text = f"{max(times):.0f} ms" if any(times) else "no partition"
    controller_ms = fault["controller_unavailable_ms"]
    if controller_ms is not None:
        text += f", topic creation {controller_ms:.0f} ms"
    return text


def _forget_old_runs(out: Path, lake: Path) -> None:
    """Remove the folders of old runs, and the runs from the lake: their pages would be gone."""
    from kvorum.chaos.lake.run_rows import is_run, run_id_of
    from kvorum.chaos.lake.store import Lake
    from kvorum.runtime.errors import ConfigError, CorruptData

    runs = sorted(path for path in out.glob("run-*") if path.is_dir())
    for old in runs[:-RUNS_KEPT]:
        # A run that was killed at its start, or is of an older release, is in no lake.
        with contextlib.suppress(ConfigError, CorruptData):
            if is_run(old):
                Lake(str(lake)).remove(run_id_of(old))
        shutil.rmtree(old)
