"""`python -m tests.clients.vs_kafka`: the scenarios of every family against Apache Kafka.

What Kafka answers must be what scenarios.json says, as Kvorum's outcomes are compared with it in
test_families. The versions of its APIs are kept in kafka_api_versions.json, from which
docs/compat.md is made. Exit code 1 if an outcome differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.cluster import bootstrap_of, broker_process, strike, wait_for_port
from bench.kafka_cluster import KafkaCluster
from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY, VERSION
from tests.clients.families import (
    FAMILIES,
    HERE,
    Family,
    differences,
    names_for,
    run_family,
)
from tests.live.clients import Topics
from tests.test_broker.raw_client import RawClient

DEFAULT_PORT = 28_800
START_TIMEOUT_S = 120.0
KAFKA_VERSIONS = HERE / "kafka_api_versions.json"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
NOT_ENOUGH_REPLICAS = "not-enough-replicas"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.vs_kafka", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument("--family", action="append", help="only these; may be given several times")
    options = parser.parse_args()
    families = [f for f in FAMILIES if options.family is None or f.name in options.family]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-kafka-")))
        cluster = KafkaCluster(
            directory=folder, port=options.port, library=OWN_LIBRARY, settings=SETTINGS
        )
        cluster.prepare()
        stack.callback(cluster.stop)
        cluster.launch()
        wait_for_port(cluster.brokers, START_TIMEOUT_S)
        wrong = list(_compare(cluster, families, folder, options.port))
    print(f"{len(wrong)} outcomes of Apache Kafka {VERSION} differ from scenarios.json")
    return 1 if wrong else 0


def _compare(
    cluster: KafkaCluster, families: list[Family], folder: Path, port: int
) -> Iterator[str]:
    bootstrap = bootstrap_of(cluster)
    topics = Topics(bootstrap)
    topics.create("is-up", replicas=3)
    topics.wait_isr("is-up", {101, 102, 103})
    _write_versions(port)
    able = []
    for family in families:
        if reason := family.missing():
            print(f"{family.name}: skipped, {reason}", flush=True)
        else:
            able.append(family)
    for family in able:
        topics.create(f"{family.name}-{NOT_ENOUGH_REPLICAS}", replicas=3, min_insync_replicas=3)
        yield from _run(family, bootstrap, folder, needs_dead_broker=False)
    strike(broker_process(cluster, 103), signal.SIGKILL)
    for family in able:
        topics.wait_isr(f"{family.name}-{NOT_ENOUGH_REPLICAS}", {101, 102})
        yield from _run(family, bootstrap, folder, needs_dead_broker=True)


def _run(family: Family, bootstrap: str, folder: Path, *, needs_dead_broker: bool) -> Iterator[str]:
    names = names_for(family.name, needs_dead_broker=needs_dead_broker)
    lines = list(run_family(family, bootstrap, family.name, names, folder))
    wrong = differences(lines, names)
    taken_ms = sum(line["ms"] for line in lines)
    print(
        f"{family.name}: {len(names)} scenarios in {taken_ms} ms, {len(wrong)} differ", flush=True
    )
    for sentence in wrong:
        print(f"{family.name}: {sentence}", flush=True)
        yield sentence


def _write_versions(port: int) -> None:
    """Write the versions that a broker of Kafka's advertises on its client listener, by API key."""
    client = RawClient(port)
    try:
        answer = client.call(
            "api_versions",
            3,
            {"client_software_name": "kvorum", "client_software_version": "1"},
        )
    finally:
        client.close()
    rows = sorted((int(a.api_key), int(a.min_version), int(a.max_version)) for a in answer.api_keys)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = f'{{"version": "{VERSION}", "apis": [\n{lines}\n]}}\n'
    KAFKA_VERSIONS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
