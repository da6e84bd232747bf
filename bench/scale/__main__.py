"""`python -m bench.scale`: figures of a growing cluster, to bench/scale.md."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import summarize
from bench.machine import describe_machine
from bench.scale import connections, observers, rack
from bench.table import markdown_table, number, range_text

OBSERVERS = (3, 1_000)
BROKERS, PARTITIONS = 1_000, 1_000_000
CONNECTIONS = 10_000
PORT = 21_000
"""Below the ports that the kernel gives to clients: 1,000 of them come and go here."""
_OUTPUT = Path(__file__).parents[1] / "scale.md"

ROWS: tuple[tuple[str, str, str, float | None], ...] = (
    ("observers_ratio", "commit, p50: 1,000 observers to 3", "x", 2.0),
    ("observers_3_p50_ms", "commit, p50, 3 observers", "ms", None),
    ("observers_1000_p50_ms", "commit, p50, 1,000 observers", "ms", None),
    ("observers_1000_p99_ms", "commit, p99, 1,000 observers", "ms", None),
    ("observers_1000_idle_percent", "the leader at rest, 1,000 observers", "% of a core", None),
    ("controller_bytes_a_replica", "memory of a replica in a controller", "B", 300),
    ("broker_bytes_a_replica", "memory of a replica in a broker's image", "B", 300),
    ("failover_s", "fail-over of the controller", "s", 0.3),
    ("metadata_s", "a broker's answer with all topics", "s", None),
    ("metadata_pause_ms", "longest answer to another client meanwhile", "ms", 20),
    ("rack_s", "a rack of 100 brokers dies: all partitions led elsewhere", "s", 3),
    ("connections_mb", f"{CONNECTIONS:,} idle connections on one broker: memory", "MB", 100),
    ("connections_percent", "their CPU", "% of a core", 3),
)
"""key, title, unit, and the most that is wanted."""


async def measure(folder: Path) -> dict[str, float]:
    """One round of all figures. Raises BenchFailed."""
    found: dict[str, float] = {}
    for count in OBSERVERS:
        figures = await observers.measure(folder / "observers", PORT, count)
        found |= {f"observers_{count}_{key}": value for key, value in figures.items()}
    few, many = (found[f"observers_{count}_p50_ms"] for count in OBSERVERS)
    found["observers_ratio"] = many / few
    cluster = rack.cluster_of(folder / "rack", PORT + 200)
    found |= await cluster.measure(brokers=BROKERS, partitions=PARTITIONS)
    found |= await connections.measure(folder / "connections", PORT + 400, CONNECTIONS)
    return found


def page(rounds: Sequence[Mapping[str, float]], machine: Mapping[str, object]) -> str:
    """bench/scale.md."""
    rows = []
    for key, title, unit, most in ROWS:
        summary = summarize([each[key] for each in rounds])
        median = statistics.median(each[key] for each in rounds)
        verdict = "" if most is None else "met" if median <= most else "missed"
        wanted = "" if most is None else f"≤ {number(most)}"
        rows.append((title, unit, range_text(summary), wanted, verdict))
    table = markdown_table(rows, ("figure", "unit", "Kvorum", "goal", ""))
    facts = markdown_table([(k, str(v)) for k, v in machine.items()], ("what", "value"))
    return f"""# As a cluster grows

Written by `python -m bench.scale`; do not edit. Cells are median (least-most) of {len(rounds)}
rounds.

{table}

## Machine

{facts}

## Method

- Observers: three members of the quorum's bench (the product's RaftNode), one writer, and
  observers that fetch as brokers do, in one process.
- {BROKERS:,} brokers with {PARTITIONS:,} partitions of 3 replicas: three controllers and one broker
  of `kvorum dev`; the others are registrations with heartbeats, in racks of 100. They keep no log.
- Memory is the growth of VmRSS by the partitions, of the largest controller and of the broker,
  which hosts 0.1 % of the replicas.
- Fail-over is the gap in the creation of topics after kill -9 of the active controller. The rack is
  killed at its processes; the clock stops when a broker's Metadata shows no partition that has no
  leader or is led by it. All processes share the machine's cores.
- Idle connections have sent ApiVersions; their memory and CPU are the broker's, less those before.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    machine = describe_machine()
    rounds = []
    for number_of_round in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="kvorum-scale-") as folder:
            rounds.append(asyncio.run(measure(Path(folder))))
        print(f"round {number_of_round + 1}: {rounds[-1]}", flush=True)
        _OUTPUT.write_text(page(rounds, machine), encoding="utf-8")


if __name__ == "__main__":
    main()
