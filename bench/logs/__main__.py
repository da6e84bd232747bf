"""`python -m bench.logs`: the cost of logs for an idle broker and for its starts, to
bench/logs.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench.logs.figures import HEADINGS, IDLE, STARTS, markdown, rows
from bench.logs.measure import FULL, QUICK, Load, Round
from bench.machine import describe_machine
from bench.table import plain_table
from kvorum.runtime.errors import KvorumError

DEFAULT_PORT = 29_600
DEFAULT_ROUNDS = 3
_OUTPUT = Path(__file__).parents[1] / "logs.md"
_DATA = Path(".kvorum/bench")
EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if every figure was taken."""
    options = _parse(arguments)
    load = QUICK if options.quick else FULL
    machine = describe_machine()
    samples: dict[str, list[float]] = defaultdict(list)
    failures: dict[str, str] = {}
    began = time.monotonic()
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        _run_round(options.port, load, samples, failures)
    table = rows(samples, failures)
    print(plain_table(table, HEADINGS))
    print(f"took {(time.monotonic() - began) / 60:.1f} min")
    is_whole = not options.quick and options.rounds >= DEFAULT_ROUNDS
    output = options.output or (_OUTPUT if is_whole else None)
    if output is None:
        print("not a whole run: nothing written (see --output)")
    else:
        text = markdown(
            machine=machine, method=_method(load, options.rounds), table=table, failures=failures
        )
        output.write_text(text, encoding="utf-8")
        print(f"wrote {output}")
    return EXIT_FAILED if failures else 0


def _run_round(
    port: int, load: Load, samples: dict[str, list[float]], failures: dict[str, str]
) -> None:
    """Use a separate cluster for each group. With thousands of partitions, each restart adds
    records to the metadata log, which a start reads too, and which would count as reads of the
    logs."""

    def note(key: str, value: float) -> None:
        print(f"    {key} = {value:.4g}", flush=True)
        samples[key].append(value)

    _DATA.mkdir(parents=True, exist_ok=True)
    for group, measure in ((IDLE, Round.idle), (STARTS, Round.starts)):
        directory = Path(tempfile.mkdtemp(prefix="logs-", dir=_DATA)).resolve()
        current = Round(directory=directory, port=port, load=load, note=note)
        try:
            current.start()
            measure(current)
        except (KvorumError, OSError, ValueError) as error:
            print(f"    {group} failed: {error}\n{current.last_words()}", flush=True)
            failures.setdefault(group, str(error))
        finally:
            current.stop()
            shutil.rmtree(directory, ignore_errors=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.logs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="a look, not a measurement")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument(
        "--output", type=Path, help="file to write; by default bench/logs.md if the run is whole"
    )
    return parser.parse_args(arguments)


def _method(load: Load, rounds: int) -> list[str]:
    return [
        f"{rounds} rounds, each a fresh `kvorum dev` of 3 controllers and 3 brokers, default "
        "settings, for the idle partitions, and another for the starts.",
        f"Idle: {load.partitions:,} partitions with 3 replicas, so that each broker holds all; "
        f"{load.settle_s:g} s to settle, CPU over {load.idle_s:g} s. Files are counted in the "
        "folders of these partitions and among the broker's open ones.",
        f"Starts: {load.log_bytes / 1e9:g} GB in two partitions of one broker, records of 1,000 "
        f"bytes; then, before the kill, {load.tail_bytes / 1e6:g} MB in another. Read is what "
        "/proc/PID/io says of the new process when it is ready (page cache or not, sockets not "
        "counted), less what the same start read before there were logs.",
        "Times are from the request to restart on; ready is what the launcher is told.",
    ]


if __name__ == "__main__":
    sys.exit(main())
