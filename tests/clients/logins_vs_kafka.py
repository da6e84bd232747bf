"""`python -m tests.clients.logins_vs_kafka`: every family's logins against Apache Kafka.

Writes tests/clients/logins/kafka.json, with which test_logins compares what the same programs see
of Kvorum, and from which a table of docs/security.md is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from bench.cluster import wait_for_port
from bench.kafka_cluster import fetch_jars
from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    OWN_LIBRARY,
    SERVER,
    VERSION,
    format_storage,
    java_command,
    properties_text,
)
from tests.clients.logins.cases import (
    CLIENTS,
    LISTENERS,
    RECORDED,
    SCRAM_LOGIN,
    TOKEN_LOGIN,
    Papers,
    outcomes,
    recorded,
)
from tests.clients.logins.prepare import prepare

DEFAULT_PORT = 28_950
START_TIMEOUT_S = 120.0
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.logins_vs_kafka")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument("--family", action="append", help="only these; may be given several times")
    options = parser.parse_args()
    ports = [options.port + at for at in range(len(LISTENERS))]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logins-vs-kafka-")))
        fetch_jars(OWN_LIBRARY)
        papers = Papers(folder)
        file = folder / "server.properties"
        file.write_text(properties_text(properties(folder, papers, ports)), encoding="utf-8")
        format_storage(OWN_LIBRARY, "Yk3vR2p1S9ORbV1xWqLz0g", str(file))
        url = f"file://{papers.keys}"
        flags = ("-Xmx512m", f"{ALLOWED}.urls={url}", f"{ALLOWED}.files={papers.keys}")
        command = java_command(OWN_LIBRARY, SERVER, str(file), flags=flags)
        process = start_process(command, log_file=str(folder / "server.log"))
        stack.callback(lambda: stop_process(process, timeout_ms=5_000))
        stack.callback(process.kill)
        wait_for_port((f"127.0.0.1:{ports[0]}",), START_TIMEOUT_S)
        prepare(f"127.0.0.1:{ports[0]}")
        found = recorded() if RECORDED.exists() else {}
        for family in CLIENTS:
            if options.family and family.name not in options.family:
                continue
            if reason := family.missing():
                raise SystemExit(f"{family.name}: {reason}")
            found[family.name] = outcomes(family, papers, ports, folder)
            print(f"{family.name}: {len(found[family.name])} cases", flush=True)
    text = json.dumps({"version": VERSION, "outcomes": found}, indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    return 0


def properties(folder: Path, papers: Papers, ports: list[int]) -> dict[str, str]:
    """One node that is broker and controller."""
    own = papers.broker_properties(ports)
    controller = f"127.0.0.1:{ports[-1] + 1}"
    return own | {
        "listeners": f"{own['listeners']},CONTROLLER://{controller}",
        "listener.security.protocol.map": (
            f"{own['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
        ),
        "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.both.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.login.oauthbearer.sasl.jaas.config": TOKEN_LOGIN,
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


if __name__ == "__main__":
    sys.exit(main())
