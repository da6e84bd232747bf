"""`python -m bench.run`: both sides in alternating rounds, a table, and bench/results.md."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench import client, coordinators, encryption, gaps, topics
from bench.cluster import BenchCluster
from bench.figures import (
    FIGURES,
    GROUPS,
    KAFKA,
    KVORUM,
    OPTIONAL_GROUPS,
    TLS_FIGURES,
    TLS_GROUPS,
)
from bench.kafka_cluster import HEAP, KafkaCluster
from bench.kvorum_cluster import KvorumCluster
from bench.machine import describe_machine
from bench.rounds import FULL, QUICK, SETTLE_S, Load, Record, Round, figure_errors
from bench.table import Samples, plain_table, results_markdown, table_rows
from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY, VERSION

DEFAULT_PORT = 28_400
DEFAULT_ROUNDS = 3
_SIDE_PORTS = 100
_OUTPUT = Path(__file__).parent
_DATA = Path(".kvorum/bench")
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if every figure was taken on every requested side."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    machine = describe_machine()
    load = QUICK if options.quick else FULL
    sides = (KAFKA, KVORUM) if options.only is None else (options.only,)
    records = {side: Record() for side in sides}
    _DATA.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=_DATA)).resolve()
    is_interrupted = False
    try:
        if options.tls:
            encryption.begin(directory / "certificates")
        clusters = {side: _cluster(side, directory, options.port) for side in sides}
        for number in range(options.rounds):
            # The sides take turns to go first, so that a drift of the machine favours neither.
            for side in sides if number % 2 == 0 else sides[::-1]:
                _say(f"round {number + 1} of {options.rounds}: {side}")
                _run_round(clusters[side], number + 1, options.figures, load, records[side])
    except KeyboardInterrupt:
        is_interrupted = True
        _say("interrupted")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _report(options, machine, load, records, time.monotonic() - began)
    if is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if any(record.failures for record in records.values()) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument(
        "--figures",
        type=_groups,
        default=None,
        help=f"comma-separated, of: {', '.join(GROUPS)}; by default all but "
        f"{', '.join(sorted(OPTIONAL_GROUPS))}",
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="default: %(default)s")
    parser.add_argument("--only", choices=(KVORUM, KAFKA), help="one side alone")
    parser.add_argument(
        "--quick", action="store_true", help="small loads: a look, not a measurement"
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help=f"all over TLS, with other goals; figures: {', '.join(TLS_GROUPS)}",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder for results.md and results.json; by default bench/, and for runs that are "
        "partial, quick or shorter than three rounds nowhere",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    usual = tuple(group for group in GROUPS if group not in OPTIONAL_GROUPS)
    options.figures = options.figures or (TLS_GROUPS if options.tls else usual)
    if options.tls and not set(options.figures) <= set(TLS_GROUPS):
        parser.error(f"--tls has the figures {', '.join(TLS_GROUPS)}")
    return options


def _groups(text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(","))
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {GROUPS}")
    return groups


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _cluster(side: str, directory: Path, port: int) -> BenchCluster:
    if side == KAFKA:
        return KafkaCluster(directory=directory / side, port=port, library=OWN_LIBRARY)
    return KvorumCluster(directory=directory / side, port=port + _SIDE_PORTS)


def _run_round(
    cluster: BenchCluster, number: int, groups: Sequence[str], load: Load, record: Record
) -> None:
    failed_before = dict(record.failures)
    try:
        Round(
            cluster=cluster,
            number=number,
            groups=groups,
            load=load,
            record=record,
            say=_say,
            library=OWN_LIBRARY,
        ).run()
    except figure_errors() as error:
        record.failures.setdefault("start", f"round {number}: {error}")
        _say(f"  round FAILED: {error}")
    if record.failures != failed_before:
        print(cluster.last_words(), file=sys.stderr)


def _report(
    options: argparse.Namespace,
    machine: dict[str, str],
    load: Load,
    records: dict[str, Record],
    seconds: float,
) -> None:
    samples: Samples = {side: record.samples for side, record in records.items()}
    failures = {
        (side, group): reason
        for side, record in records.items()
        for group, reason in record.failures.items()
    }
    rows = table_rows(samples, failures, TLS_FIGURES if options.tls else FIGURES)
    print(plain_table(rows))
    _say(f"took {seconds / 60:.1f} min")
    output = options.output
    if output is None:
        counts = {len(values) for record in records.values() for values in record.samples.values()}
        is_whole = (
            len(records) == 2
            and not options.quick
            and not options.tls
            and set(options.figures) >= set(GROUPS) - OPTIONAL_GROUPS
            and min(counts, default=0) >= DEFAULT_ROUNDS
        )
        if not is_whole:
            _say("not a whole run: nothing written (see --output)")
            return
        output = _OUTPUT
    output.mkdir(parents=True, exist_ok=True)
    text = results_markdown(
        machine=machine,
        method=method(load, options.rounds),
        rows=rows,
        processes=[row for side, record in records.items() for row in record.process_rows(side)],
        failures=failures,
        notes=[note for record in records.values() for note in record.notes],
    )
    (output / "results.md").write_text(text, encoding="utf-8")
    document = {
        "machine": machine,
        "rounds": options.rounds,
        "samples": samples,
        "failures": {f"{side} {group}": why for (side, group), why in failures.items()},
        "notes": {side: record.notes for side, record in records.items()},
        "processes": {
            side: {"resident_mb": record.resident_mb, "idle_cpu_percent": record.idle_percent}
            for side, record in records.items()
        },
    }
    (output / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _say(f"wrote {output / 'results.md'}")


def method(load: Load, rounds: int) -> list[str]:
    """The method of the measurement, for results.md."""
    return [
        f"{rounds} rounds a side, sides alternating and never running together; a round is a fresh "
        "cluster of 3 controllers and 3 brokers, warmed, each figure once, then discarded.",
        f"Apache Kafka {VERSION}: its own jars, formatted with StorageTool before the clock "
        f"starts, java {HEAP}, G1 and the flags of its start script, log level WARN. Kvorum: "
        "`kvorum dev`. Both with default settings, which are not the same: Kvorum's time-outs "
        "are shorter.",
        "Neither side fsyncs data partitions before it acknowledges (the default of both).",
        f"Warm-up: {load.warm_records:,} x 1,000 B at acks=1 and again at acks=all, "
        f"{load.warm_small_records:,} x 100 B, both large topics consumed, "
        f"{load.warm_latency_records:,} latencies, {load.warm_topics * 5 // 4} topics.",
        f"Topics: {topics.REPLICAS} replicas, min.insync.replicas="
        f"{topics.MIN_INSYNC_REPLICAS}. Throughput: {load.large_records:,} x 1,000 B or "
        f"{load.small_records:,} x 100 B over 3 partitions, no compression, linger.ms="
        f"{client.LINGER_MS}, batch.size={client.BATCH_BYTES:,}, no idempotence; dirty pages are "
        "synced before, the log's record count and the ISR are checked after.",
        "Both throughput clients are one Python process over librdkafka (produce_batch, "
        "consume): at 100 B and when consuming the client may be the limit, which understates "
        "the ratio.",
        f"Consume: fetch.queue.backoff.ms={client.FETCH_QUEUE_BACKOFF_MS}, assigned partitions, "
        f"{client.CONSUME_RECORDS} messages a call, the client's garbage collector off, page cache "
        "warm.",
        f"Java: kafka-producer-perf-test and kafka-consumer-perf-test of Apache Kafka {VERSION} on "
        f"both sides; {load.java_records:,} x 1,000 B times a share a case, behind half as many to "
        "warm the JVM up; consume is without the time that the group takes.",
        f"Latency: {load.latency_records:,} x 100 B, acks=all, linger 0, one record in flight.",
        f"Groups: {coordinators.JOIN_MEMBERS} members on a connection each; "
        f"{coordinators.COMMIT_GROUPS} groups of one coordinator on "
        f"{coordinators.COMMIT_CONNECTIONS} connections, commits prepared before; heartbeats every "
        f"{coordinators.HEARTBEAT_INTERVAL_S:g} s, CPU is what they add. Transactions: "
        f"{load.transactions} one after the other, begin to commit, librdkafka, after "
        f"{load.transactions // 3} to warm up.",
        "Leaders: shown when each broker's Metadata names a leader of every partition, served "
        "when ListOffsets is answered for every partition by a broker that holds itself for its "
        "leader; asked every 10 ms.",
        f"Controller gap: a topic asked for every {gaps.TOPIC_EVERY_S * 1000:g} ms whether or not "
        "answers come; the longest time between two successes from the kill on.",
        f"Broker gap: idempotent acks=all producer, a record every "
        f"{gaps.RECORD_EVERY_S * 1000:g} ms to each of {gaps.GAP_PARTITIONS} partitions; the "
        "worst partition's longest time between two acknowledgements; the log is read back and "
        "compared.",
        f"Resident memory is VmRSS: pages that forked processes share count in each. Idle CPU: "
        f"{load.idle_s:g} s, beginning {SETTLE_S:g} s after load.",
        "A goal is judged on medians; a figure that failed in any round is missed.",
    ]


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
