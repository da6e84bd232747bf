"""`python -m bench.metrics`: the pause of the event loop at a scrape of a broker with many
partitions, to bench/metrics.md.

The broker is in memory (`bench.observed`), the HTTP server is a node's, and another process scrapes
it. A task of the same event loop reads the clock in each turn: the longest time between two
readings is the pause.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.machine import describe_machine
from bench.observed import Observed
from kvorum.launch.metrics.page import lines, send_slices
from kvorum.launch.metrics.row import KAFKA, OWN
from kvorum.launch.metrics.rows import ROWS
from kvorum.launch.metrics.server import MetricsServer, Send
from kvorum.runtime.memory import limit_collections

PARTITIONS = 100_000
GOAL_MS = 5.0
ROUNDS = 5
IDLE_S = 3.0
RESULTS = Path(__file__).parent / "metrics.md"
_SCRAPE = """
import sys, urllib.request
with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics") as answer:
    size = 0
    while part := answer.read(1 << 20):
        size += len(part)
print(size)
"""


class Pauses:
    """Times between two turns of the event loop, in ms: by the clock, and of the thread's own CPU.

    On a machine with other work the clock also has the time for which the thread had no core.
    """

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []
        self._is_over = False

    async def run(self) -> None:
        last, last_cpu = time.perf_counter(), time.thread_time()
        while not self._is_over:
            await asyncio.sleep(0)
            now, now_cpu = time.perf_counter(), time.thread_time()
            self.clock.append((now - last) * 1000)
            self.cpu.append((now_cpu - last_cpu) * 1000)
            last, last_cpu = now, now_cpu

    def stop(self) -> None:
        self._is_over = True


class Scrape(NamedTuple):
    """One scrape, times in ms: the longest pause by the thread's CPU and by the clock, the 99th
    percentile of the pauses by the clock, the whole scrape; and its bytes."""

    longest_cpu_ms: float
    longest_ms: float
    usual_ms: float
    took_ms: float
    size: float


async def measure(observed: Observed, names: Sequence[str]) -> Scrape:
    """Scrape once."""

    def steps() -> Iterator[str | None]:
        return lines(ROWS["broker"], observed.view(), names)

    async def stream(send: Send) -> None:
        await send_slices(steps(), send)

    server = MetricsServer({}, {"/metrics": stream})
    port = await server.start("127.0.0.1", 0)
    scraper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SCRAPE, str(port), stdout=asyncio.subprocess.PIPE
    )
    pauses = Pauses()
    watching = asyncio.create_task(pauses.run())
    began = time.perf_counter()
    output, _ = await scraper.communicate()
    took_ms = (time.perf_counter() - began) * 1000
    pauses.stop()
    await watching
    await server.stop()
    usual_ms = sorted(pauses.clock)[int(len(pauses.clock) * 0.99)]
    return Scrape(max(pauses.cpu), max(pauses.clock), usual_ms, took_ms, int(output))


async def idle(duration_s: float) -> Pauses:
    """The pauses without a scrape: what the machine alone does."""
    pauses = Pauses()
    watching = asyncio.create_task(pauses.run())
    await asyncio.sleep(duration_s)
    pauses.stop()
    await watching
    return pauses


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write bench/metrics.md. 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    observed, machine = Observed(options.partitions), describe_machine()
    limit_collections()
    rows, is_met = [], True
    for names in ((OWN,), (KAFKA,), (OWN, KAFKA)):
        taken = [asyncio.run(measure(observed, names)) for _ in range(options.rounds)]
        found = Scrape(*(statistics.median(column) for column in zip(*taken, strict=True)))
        is_met = is_met and found.longest_cpu_ms <= GOAL_MS
        verdict = "met" if found.longest_cpu_ms <= GOAL_MS else "missed"
        rows.append(
            f"| {','.join(names)} | {found.longest_cpu_ms:.1f} | ≤ {GOAL_MS:g} | {verdict} | "
            f"{found.longest_ms:.1f} | {found.usual_ms:.1f} | {found.took_ms / 1000:.1f} | "
            f"{found.size / 1e6:.0f} |"
        )
        print(rows[-1], flush=True)
    alone = asyncio.run(idle(IDLE_S))
    print(f"without a scrape: cpu {max(alone.cpu):.1f} ms, clock {max(alone.clock):.1f} ms")
    if options.partitions == PARTITIONS and options.rounds >= ROUNDS:
        _write(rows, alone, machine, options.rounds)
    return 0 if is_met else 1


def _write(rows: Sequence[str], alone: Pauses, machine: Mapping[str, str], rounds: int) -> None:
    text = (
        f"# A scrape of {PARTITIONS:,} partitions\n\n`python -m bench.metrics`: a broker in memory "
        f"with {PARTITIONS:,} replicas, a node's HTTP server, scraped by another process; medians "
        f"of {rounds} scrapes.\nA pause is the time between two turns of the event loop. By the "
        "clock it has the time in which the thread had no core, too:\n"
        f"without a scrape the longest of {IDLE_S:g} s was {max(alone.clock):.1f} ms by the clock "
        f"and {max(alone.cpu):.1f} ms of CPU.\n\n"
        "| metrics.names | longest pause, ms of CPU | goal | | longest by the clock, ms | 99 % by "
        "the clock, ms | whole scrape, s | MB |\n| --- | --- | --- | --- | --- | --- | --- | --- "
        "|\n" + "\n".join(rows) + "\n\n| machine | |\n| --- | --- |\n"
    )
    text += "".join(f"| {name} | {value} |\n" for name, value in machine.items())
    RESULTS.write_text(text, encoding="utf-8")
    print(f"wrote {RESULTS}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
