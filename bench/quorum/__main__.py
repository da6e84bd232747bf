"""`python -m bench.quorum`: Kvorum's quorum and etcd in alternating rounds, then the costs of many
partitions and brokers, and pauses of the controller's loop; to bench/quorum.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.machine import describe_machine
from bench.quorum import etcd, heartbeats, partitions
from bench.quorum.figures import ETCD, HEADINGS, KVORUM, SIZES, markdown, rows
from bench.quorum.partitions import Partitions
from bench.quorum.sides import (
    CONNECTIONS,
    FULL,
    QUICK,
    WRITERS,
    Load,
    Record,
    etcd_round,
    kvorum_round,
)
from bench.table import plain_table

PARTS = ("rounds", "partitions", "brokers", "pauses")
DEFAULT_PORT = 29_000
DEFAULT_ROUNDS = 3
KILLS = 5
_ETCD_PORTS, _PARTITION_PORTS = 100, 300
_PAUSES_TIMEOUT_S = 120
_HEARTBEATS_TIMEOUT_S = 180
_SETUP_TIMEOUT_S = 900
_OUTPUT = Path(__file__).parents[1] / "quorum.md"
_DATA = Path(".kvorum/bench")
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if every figure was taken."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    if options.with_etcd:
        setup = Path(__file__).parents[2] / "deploy" / "setup.sh"
        done = subprocess.run(["bash", setup, "etcd"], check=False, timeout=_SETUP_TIMEOUT_S)
        if done.returncode != 0:
            print("etcd cannot be had here: Kvorum's figures are taken alone")
    machine = {**describe_machine(), "etcd": etcd.version() or "not installed"}
    records = {ETCD: Record(), KVORUM: Record()}
    load = QUICK if options.quick else FULL
    _DATA.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="quorum-", dir=_DATA)).resolve()
    began = time.monotonic()
    is_interrupted = False
    try:
        asyncio.run(_run(options, directory, load, records))
    except KeyboardInterrupt:
        is_interrupted = True
        print("interrupted")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _report(options, machine, load, records)
    print(f"took {(time.monotonic() - began) / 60:.1f} min")
    if is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if any(record.failures for record in records.values()) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.quorum", description=__doc__)
    parser.add_argument(
        "--parts",
        type=lambda text: tuple(text.split(",")),
        default=PARTS,
        help=f"comma-separated, of: {', '.join(PARTS)}; default: all",
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=KILLS, help="a size; default: %(default)s")
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(map(int, text.split(","))),
        default=SIZES,
        help="partitions, of: %(default)s",
    )
    parser.add_argument("--quick", action="store_true", help="a look, not a measurement")
    parser.add_argument(
        "--with-etcd", action="store_true", help="fetch and build etcd into .tools first"
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument(
        "--output", type=Path, help="file to write; by default bench/quorum.md if the run is whole"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.parts} - {*PARTS}):
        parser.error(f"unknown parts {', '.join(unknown)}")
    if unknown_sizes := sorted({*options.sizes} - {*SIZES}):
        parser.error(f"unknown sizes {unknown_sizes}; there are {SIZES}")
    return options


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


async def _run(
    options: argparse.Namespace, directory: Path, load: Load, records: dict[str, Record]
) -> None:
    sides = [KVORUM] if etcd.version() is None else [ETCD, KVORUM]
    for number in range(options.rounds if "rounds" in options.parts else 0):
        # The sides take turns to go first, so that a drift of the machine favours neither.
        for side in sides if number % 2 == 0 else sides[::-1]:
            print(f"round {number + 1} of {options.rounds}: {side}", flush=True)
            record = records[side]
            if side == KVORUM:
                await kvorum_round(directory, options.port, load, record)
            else:
                with record.attempt("start", str):
                    await etcd_round(directory, options.port + _ETCD_PORTS, load, record)
    for size in options.sizes if "partitions" in options.parts else ():
        print(f"{size:,} partitions", flush=True)
        await _partitions(options, directory, load, size, records[KVORUM])
    for _ in range(options.rounds if "brokers" in options.parts else 0):
        print("brokers", flush=True)
        await _brokers(options, directory, records[KVORUM])
    for _ in range(options.rounds if "pauses" in options.parts else 0):
        print("pauses", flush=True)
        with records[KVORUM].attempt("pauses", str):
            await _pauses(directory, records[KVORUM])


async def _partitions(
    options: argparse.Namespace, directory: Path, load: Load, size: int, record: Record
) -> None:
    cluster = Partitions(directory=directory / "cluster", port=options.port + _PARTITION_PORTS)
    with record.attempt(f"partitions-{size}", cluster.last_words):
        costs = await cluster.run(partitions=size, kills=options.kills, idle_s=load.idle_s)
        for gap_s in costs.gaps_s:
            record.add(f"gap_{size}_s", gap_s)
        record.add(f"resident_{size}_mb", max(costs.resident_mb))
        record.add(f"idle_{size}_percent", max(costs.idle_percent))


async def _brokers(options: argparse.Namespace, directory: Path, record: Record) -> None:
    port = options.port + _PARTITION_PORTS
    with record.attempt("brokers", str):
        percent = await asyncio.to_thread(
            heartbeats.in_process, directory / "heartbeats", port, _HEARTBEATS_TIMEOUT_S
        )
        record.add("heartbeats_percent", percent)
    cluster = Partitions(directory=directory / "cluster", port=port)
    with record.attempt("brokers", cluster.last_words):
        record.add("fence_s", await cluster.fence_s())


async def _pauses(directory: Path, record: Record) -> None:
    command = [sys.executable, "-m", "bench.quorum.pauses", str(SIZES[-1])]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PAUSES_TIMEOUT_S,
    )
    for key, value in json.loads(done.stdout).items():
        record.add(key if key != "resident_mb" else "pauses_resident_mb", value)


def _report(
    options: argparse.Namespace,
    machine: dict[str, str],
    load: Load,
    records: dict[str, Record],
) -> None:
    samples = {side: record.samples for side, record in records.items()}
    failures = {
        (side, group): why
        for side, record in records.items()
        for group, why in record.failures.items()
    }
    table = rows(samples, failures)
    print(plain_table(table, HEADINGS))
    is_whole = (
        not options.quick
        and options.rounds >= DEFAULT_ROUNDS
        and {*options.parts} == {*PARTS}
        and {*options.sizes} == {*SIZES}
    )
    output = options.output or (_OUTPUT if is_whole else None)
    if output is None:
        print("not a whole run: nothing written (see --output)")
        return
    text = markdown(
        machine=machine,
        method=_method(options, load),
        table=table,
        failures=failures,
    )
    output.write_text(text, encoding="utf-8")
    print(f"wrote {output}")


def _method(options: argparse.Namespace, load: Load) -> list[str]:
    return [
        f"{options.rounds} rounds a side, sides alternating and never running together; a round is "
        "a fresh cluster of three members on loopback, warmed, data on the same disk.",
        "Kvorum: the RaftNode of the product (its log, fsync, elections and gRPC, default "
        "settings) under a counter of opaque values; one gRPC stream a client; each process in "
        "Python, the client too. etcd: its own binary and its own `benchmark put`, in Go, default "
        "settings, `--target-leader` for one writer.",
        f"Values of 200 bytes. One writer: {load.sequential:,} commits. {WRITERS} writers: "
        f"{load.concurrent:,} commits. On one stream a client sends what is ready in one message, "
        f"which etcd's tool has no like of; on {CONNECTIONS} connections (etcd: "
        f"`--clients {WRITERS} --conns {CONNECTIONS}`) only the {WRITERS // CONNECTIONS} writers "
        "of a connection share messages.",
        "After each load every member must have applied every acknowledged value; all agree.",
        "Gaps: a put every 5 ms whether or not answers come; the longest time between two "
        f"successes from the fault on; {load.kills} kills and {load.hangs} hangs a round. etcd is "
        "asked at its members in turn, any answer counts. Vanishing packets: a toxiproxy `timeout` "
        "of 0 on all ten streams of the leader, peers first, client last, once a round; not done "
        "for etcd, whose members name one address to all their peers.",
        f"Idle: {load.idle_s:g} s without load. Resident memory is VmRSS.",
        f"Partitions: `kvorum dev` with 3 controllers and 3 brokers, 3 replicas, 1,000 a topic, "
        f"created {partitions.PARTITIONS_AT_ONCE:,} at a time with a rest in between; "
        f"{options.kills} kills of the active controller, a topic asked for every 20 ms at the "
        "controllers themselves.",
        f"Heartbeats: {heartbeats.BROKERS:,} registrations, each with a connection and a stream of "
        f"its own, one heartbeat in {heartbeats.INTERVAL_S:g} s, over {heartbeats.WATCH_S:g} s.",
        f"Fencing: 3 brokers that lead {partitions.FENCED_LEADERS:,} partitions each, one is "
        "killed; until the Metadata of another shows all with a leader that lives.",
        "Pauses: the controller's code for snapshots and fencing in a process of its own, a timer "
        "of 1 ms beside it.",
        "A goal is judged on medians; a figure that failed in any round is missed.",
    ]


if __name__ == "__main__":
    sys.exit(main())
