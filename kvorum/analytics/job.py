"""The Spark job: `python -m kvorum.analytics.job --lake URI --output URI [--master local[2]]`.

A lake is what `kvorum lake add` makes (see schemas.py for its tables). Tables go to OUTPUT/tables
as Parquet and CSV, plots to OUTPUT/plots, a page over all runs to OUTPUT/index.html, a summary to
OUTPUT/summary.json. A table without input, and a run that does not count, are left out and named in
the summary. Lake and output may be on any file system that Hadoop's client knows.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

try:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    sys.exit("the Spark job needs pyspark: pip install 'kvorum[spark]'")

from kvorum.analytics.catalogue import CATALOGUE
from kvorum.analytics.command_line import (
    DRIVER_MEMORY,
    EXIT_FAILED,
    EXIT_USAGE,
    MASTER,
    NoScratch,
    add_session_options,
    java_refusal,
    master_of,
    refuse,
    session_with_scratch,
)
from kvorum.analytics.files import Files
from kvorum.analytics.lake import Lake, UnreadableLake, open_lake
from kvorum.analytics.output import Tables
from kvorum.analytics.page import page
from kvorum.analytics.plots import draw_all
from kvorum.analytics.session import first_line, is_small
from kvorum.analytics.tables import failover, history, metadata, quorum, shares
from kvorum.analytics.tables.compare import (
    Side,
    duels,
    latest_sides,
    regressions,
    side,
)
from kvorum.analytics.tables.starts import without_starts

SUMMARY_VERSION = 2
EXIT_REGRESSION = 6

_REGRESSION_TYPES = {
    "experiment": "string", "system": "string", "figure": "string", "baseline": "string",
    "candidate": "string", "baseline_samples": "int64", "candidate_samples": "int64",
    "baseline_p50": "double", "candidate_p50": "double", "ratio": "double", "ratio_low": "double",
    "ratio_high": "double", "is_regression": "bool",
}  # fmt: skip
_DUEL_TYPES = {
    "system": "string", "version": "string", "run_id": "string", "verdict": "string",
    "acknowledged": "int64",
    "p50_ms": "double", "p99_ms": "double", "longest_silence_ms": "double",
    "unavailable_ms": "double",
}  # fmt: skip

#: Tables of the lake that are read once or twice, and may be larger than memory.
_LARGE = ("history", "metadata_records", "voters")

Say = Callable[[str], None]


def run_job(
    lake_uri: str,
    output_uri: str,
    *,
    master: str | None = MASTER,
    driver_memory: str = DRIVER_MEMORY,
    run_ids: Sequence[str] = (),
    sides: tuple[Side, Side] | None = None,
    ratio_max: float = 1.2,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Compute every table that the lake allows. Returns the content of summary.json.

    master: None leaves the choice to spark-submit.
    run_ids: only these runs.
    sides: the two that the table regressions compares; None for the newest two.
    Raises UnreadableLake, NoScratch.
    """
    is_short = is_small(lake_uri)
    with session_with_scratch(master, driver_memory, is_short=is_short) as spark:
        lake = open_lake(spark, lake_uri, run_ids=run_ids)
        say(f"{len(lake.runs)} runs; left out: {len(lake.left_out)}")
        return analyse(lake, Files(spark, output_uri), sides=sides, ratio_max=ratio_max, say=say)


def analyse(
    lake: Lake,
    output: Files,
    *,
    sides: tuple[Side, Side] | None = None,
    ratio_max: float = 1.2,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """`run_job` in a session that is open."""
    for chosen in sides or ():
        if not any(chosen.has(run) for run in lake.runs):
            raise UnreadableLake(
                f"no run of the lake has {chosen.text()}; kvorum lake list --lake LAKE shows them"
            )
    tables = Tables(output, say)
    faults = _compute(lake, tables)
    _compare(lake, tables, sides or latest_sides(lake.runs), ratio_max)
    return _finish(lake, tables, output, faults)


def _compute(lake: Lake, tables: Tables) -> list[Mapping[str, Any]]:
    """Write the tables that Spark computes; returns the rows of `faults`, for the plots."""
    data = _kept(lake.tables)

    def wanted(*names: str) -> bool:
        is_whole = True
        for name in names:
            missing = [need for need in CATALOGUE[name].needs if need not in data]
            if missing:
                tables.skip(name, f"no input: {', '.join(missing)}")
                is_whole = False
        return is_whole

    has_faults = wanted("latency_by_fault"), wanted("recoveries", "failover_by_fault")
    if wanted("outcomes", "silences", "unavailability"):
        _compute_history(data, tables, *has_faults)
    if wanted("share_deliveries"):
        deliveries = shares.share_deliveries(data["history"], data["faults"])
        tables.write("share_deliveries", deliveries)
    if wanted("isr_churn"):
        tables.write("isr_churn", metadata.isr_churn(data["milestones"]))
    if wanted("broker_skew", "rack_skew", "what_if"):
        skewed = metadata.broker_skew(data["partitions"], data["brokers"])
        tables.write("broker_skew", skewed)
        if any(row["rack"] is not None for row in tables.rows["broker_skew"]):
            tables.write("rack_skew", metadata.rack_skew(skewed))
        else:
            tables.skip("rack_skew", "no broker has a rack")
        losses = metadata.what_if(
            data["partitions"], data["brokers"], data.get("controllers"), data.get("configs")
        )
        tables.write("what_if", losses)
    if wanted("record_mix", "metadata_growth"):
        tables.write("record_mix", metadata.record_mix(data["metadata_records"]))
        tables.write("metadata_growth", metadata.metadata_growth(data["metadata_records"]))
    if wanted("fencing_causes"):
        tables.write("fencing_causes", quorum.fencing_causes(data["milestones"], data["faults"]))
    if wanted("voter_lag"):
        tables.write("voter_lag", quorum.voter_lag(data["voters"]))
    if "faults" not in data:
        return []
    return [row.asDict() for row in data["faults"].orderBy("run_id", "fault_id").collect()]


def _kept(tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The tables, the small ones in memory: several tables are made of each, and a lake has a file
    for each run."""
    kept = {}
    for name, table in tables.items():
        if name not in _LARGE:
            cores = table.sparkSession.sparkContext.defaultParallelism
            table = table.coalesce(cores).persist()
        kept[name] = table
    return kept


def _compute_history(
    data: Mapping[str, DataFrame], tables: Tables, has_faults: bool, has_milestones: bool
) -> None:
    sent = history.operations(data["history"])
    # Two small reductions, from which the other tables are made: they are kept, not made again.
    sliced = history.slices(sent).persist()
    counted = history.latencies(sent).persist()
    tables.write("outcomes", history.outcomes(sliced, counted, data["runs"]))
    gaps = history.gaps(sliced).persist()
    counting = without_starts(gaps, data.get("faults")).persist()
    kept = [sliced, counted, gaps, counting]
    silences = history.silences(counting)
    tables.write(
        "silences",
        silences.orderBy("run_id", F.desc("length_ms"), "topic", "partition", "begin_ms"),
    )
    tables.write("unavailability", history.unavailability(sliced, counting))
    if has_faults:
        blamed = failover.blame(data["faults"], history.silences(gaps))
        kept += [blamed.struck.persist(), blamed.met.persist()]
        spells = failover.spells(blamed)
        latency = history.latency_by_fault(counted, spells, data["runs"])
        tables.write("latency_by_fault", latency)
        if has_milestones:
            recovered = failover.recoveries(blamed, data["milestones"], data["runs"]).persist()
            tables.write("recoveries", recovered)
            tables.write("failover_by_fault", failover.failover_by_fault(recovered))
            recovered.unpersist()
    for table in reversed(kept):
        table.unpersist()


def _compare(lake: Lake, tables: Tables, sides: tuple[Side, Side] | None, ratio_max: float) -> None:
    if "outcomes" not in tables.rows:
        tables.skip("regressions", "no input: history")
        tables.skip("duels", "no input: history")
        return
    found = duels(lake.runs, tables.rows["outcomes"], tables.rows["unavailability"])
    pairs = {
        f"{prefix}_{name}": kind
        for prefix in ("first", "second")
        for name, kind in _DUEL_TYPES.items()
    }
    if found:
        tables.write_rows("duels", found, {"experiment": "string", "seed": "int64"} | pairs)
    else:
        tables.skip("duels", "no experiment and seed was run on two systems")
    if sides is None:
        tables.skip("regressions", "no two runs or versions to compare")
        return
    rows = regressions(
        lake.runs,
        tables.rows["outcomes"],
        tables.rows.get("recoveries", ()),
        sides,
        ratio_max=ratio_max,
    )
    if rows:
        tables.write_rows("regressions", rows, _REGRESSION_TYPES)
    else:
        tables.skip(
            "regressions", f"{sides[0].text()} and {sides[1].text()} share no experiment to compare"
        )


def _finish(
    lake: Lake, tables: Tables, files: Files, faults: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    plots = draw_all(tables.rows, faults)
    # Plots of an earlier job may have no successor.
    files.remove("plots")
    for name, content in plots.items():
        files.write(f"plots/{name}", content)
    worst = max(
        (row for row in tables.rows.get("unavailability", ()) if row["longest_ms"] is not None),
        key=lambda row: float(row["longest_ms"]),
        default=None,
    )
    summary = {
        "version": SUMMARY_VERSION,
        "runs": [str(run["run_id"]) for run in lake.runs],
        "tables": tables.counts,
        "skipped": tables.skipped | dict(lake.left_out),
        "plots": sorted(plots),
        "failover": tables.rows.get("failover_by_fault", []),
        "longest_unavailability": worst,
        "regressions": [row for row in tables.rows.get("regressions", ()) if row["is_regression"]],
        "duels": tables.rows.get("duels", []),
    }
    files.write("summary.json", json.dumps(summary, indent=1).encode())
    files.write("index.html", page(lake.runs, tables.rows, summary, plots).encode())
    return summary


def _ratio(text: str) -> float:
    """A limit for --regression-ratio. Raises ArgumentTypeError."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return ratio


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kvorum.analytics.job",
        description="Analyse a lake of chaos runs and exported metadata.",
    )
    parser.add_argument("--lake", required=True, metavar="URI", help="made by kvorum lake add")
    parser.add_argument("--output", required=True, metavar="URI", help="folder of the results")
    parser.add_argument("--run", action="append", default=[], metavar="ID", help="only this run")
    add_session_options(parser)
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("BASELINE", "CANDIDATE"),
        help="two sides, as in version=0.1.0 version=0.2.0 (default: the newest two)",
    )
    parser.add_argument(
        "--regression-ratio",
        type=_ratio,
        default=1.2,
        help="limit of a ratio, above 0 (default: 1.2)",
    )
    parser.add_argument(
        "--fail-on-regression",
        action="store_true",
        help=f"exit with {EXIT_REGRESSION} if a figure got worse",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 done, 1 failed, 2 unreadable, 6 regression."""
    options = _parser().parse_args(arguments)
    begun = time.monotonic()

    def say(text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - begun:6.1f} s] {text}\n")
        sys.stdout.flush()

    if (refusal := java_refusal("the Spark job")) is not None:
        return refusal
    try:
        sides = tuple(side(text) for text in options.compare) if options.compare else None
    except ValueError as error:
        return refuse(str(error), EXIT_USAGE)
    try:
        summary = run_job(
            options.lake,
            options.output,
            master=master_of(options),
            driver_memory=options.driver_memory,
            run_ids=options.run,
            sides=None if sides is None else (sides[0], sides[1]),
            ratio_max=options.regression_ratio,
            say=say,
        )
    except UnreadableLake as error:
        return refuse(str(error), EXIT_USAGE)
    except NoScratch as error:
        return refuse(str(error), EXIT_FAILED)
    except OSError as error:
        return refuse(f"{options.output} cannot be written: {error}", EXIT_FAILED)
    except (PySparkException, Py4JError) as error:
        return refuse(f"Spark failed: {first_line(error)}", EXIT_FAILED)
    for name, reason in summary["skipped"].items():
        say(f"{name}: left out, {reason}")
    for row in summary["regressions"]:
        say(
            f"regression: {row['experiment']}, {row['system']}, {row['figure']}: "
            f"{row['baseline_p50']:.1f} > {row['candidate_p50']:.1f}, at least "
            f"{row['ratio_low']:.2f} times"
        )
    say(f"written to {options.output}")
    if options.fail_on_regression and "regressions" in summary["skipped"]:
        return refuse(f"nothing was compared: {summary['skipped']['regressions']}", EXIT_USAGE)
    return EXIT_REGRESSION if summary["regressions"] and options.fail_on_regression else 0


if __name__ == "__main__":
    sys.exit(main())
