"""`python -m bench.metrics_cost`: acks=all throughput with and without metrics, in pairs."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.client import produce
from bench.cluster import BROKERS, CONTROLLERS, HOST, bootstrap_of
from bench.kvorum_cluster import KvorumCluster
from bench.machine import describe_machine
from bench.rounds import LARGE_RECORD_BYTES, PARTITIONS
from bench.topics import create, new_topic, open_admin, seconds_to_first_write, wait_in_sync

DEFAULT_PORT = 28_900
PAIRS = 6
RUNS = 5
"""Measured runs of a cluster, after one that warms it up; their median counts."""
RECORDS = 300_000
GOAL = 0.02
RESULTS = Path(__file__).parent / "metrics_cost.md"
_SCRAPE_FOR_EVER = """
import sys, time, urllib.request
while True:
    for address in sys.argv[1:]:
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            answer.read()
    time.sleep(1)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write bench/metrics_cost.md. 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.metrics_cost", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    pairs: list[tuple[float, float]] = []
    for number in range(options.pairs):
        # The sides take turns to go first, so that a drift of the machine favours neither.
        found = {is_on: megabytes(options.port, is_on) for is_on in _order(number)}
        pairs.append((found[False], found[True]))
        print(f"without {pairs[-1][0]:.0f} MB/s, with {pairs[-1][1]:.0f} MB/s", flush=True)
    text = results(pairs)
    print(text)
    if options.pairs >= PAIRS:
        rows = "".join(f"| {name} | {value} |\n" for name, value in machine.items())
        RESULTS.write_text(f"{text}\n| machine | |\n| --- | --- |\n{rows}", encoding="utf-8")
    return 0 if cost_of(pairs) <= GOAL else 1


def _order(number: int) -> tuple[bool, bool]:
    return (True, False) if number % 2 else (False, True)


def cost_of(pairs: Sequence[tuple[float, float]]) -> float:
    """The share of the throughput that metrics cost: 0.01 is one per cent. The median of pairs."""
    return 1 - statistics.median(with_them / without for without, with_them in pairs)


def results(pairs: Sequence[tuple[float, float]]) -> str:
    """The table of the pairs, in MB/s."""
    verdict = "met" if cost_of(pairs) <= GOAL else "missed"
    if len(pairs) < PAIRS:
        verdict = f"fewer than {PAIRS} pairs prove nothing"
    lines = [
        "# The cost of metrics\n",
        f"`python -m bench.metrics_cost`: acks=all, {LARGE_RECORD_BYTES:,} B, into {PARTITIONS} "
        f"partitions of three replicas; each figure is the median of {RUNS} runs on a fresh "
        "cluster. With metrics\nevery node has a `metrics.listener`, and another process reads all "
        "pages once a second.\n",
        "| pair | without, MB/s | with, MB/s | ratio |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {number} | {without:.0f} | {with_them:.0f} | {with_them / without:.3f} |"
        for number, (without, with_them) in enumerate(pairs, 1)
    ]
    cost = f"{cost_of(pairs):+.1%} (goal: at most {GOAL:.0%}; {verdict})"
    lines.append(f"\nCost, by the median of the ratios: {cost}.")
    return "\n".join(lines) + "\n"


def megabytes(port: int, is_on: bool) -> float:
    """MB/s of a fresh cluster, with or without metrics."""
    names = [f"controller-{i + 1}" for i in range(CONTROLLERS)]
    names += [f"broker-{i + 101}" for i in range(BROKERS)]
    pages = {name: f"{HOST}:{port + 50 + i}" for i, name in enumerate(names)} if is_on else {}
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="kvorum-bench-")))
        cluster = KvorumCluster(directory=folder, port=port, metrics=pages)
        held.callback(cluster.stop)
        cluster.prepare()
        seconds_to_first_write(cluster)
        if pages:
            scraper = subprocess.Popen([sys.executable, "-c", _SCRAPE_FOR_EVER, *pages.values()])
            held.callback(scraper.wait)
            held.callback(scraper.terminate)
        found = [_run(cluster, f"run-{number}") for number in range(RUNS + 1)]
    return statistics.median(found[1:])


def _run(cluster: KvorumCluster, topic: str) -> float:
    bootstrap = bootstrap_of(cluster)
    create(open_admin(bootstrap), [new_topic(topic, PARTITIONS)])
    wait_in_sync(cluster, topic, PARTITIONS)
    done = produce(
        bootstrap,
        topic,
        partitions=PARTITIONS,
        records=RECORDS,
        record_bytes=LARGE_RECORD_BYTES,
        acks="all",
    )
    return done.mb_per_s


if __name__ == "__main__":
    sys.exit(main())
