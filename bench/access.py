"""`python -m bench.access`: ACL checks, and TLS handshakes beside acks=all produce, of Kvorum."""

from __future__ import annotations

import argparse
import gc
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench import encryption
from bench.client import latencies_ms
from bench.cluster import HOST, bootstrap_of, pids
from bench.figures import percentile
from bench.kvorum_cluster import KvorumCluster
from bench.processes import BROKER, cpu_seconds
from bench.topics import create, new_topic, open_admin, seconds_to_first_write, wait_in_sync
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.image.acl import (
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.runtime.errors import required

DEFAULT_PORT = 28_800
ACLS = 100_000
CHECKS = 200_000
HANDSHAKES_PER_S = 200
RECORDS = 3_000
_TOPIC = "beside"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures, and their goals."""
    parser = argparse.ArgumentParser(prog="python -m bench.access", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port to use")
    parser.add_argument("--shake", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.shake:
        host, port, authority = options.shake.split(",")
        _shake_for_ever((host, int(port)), authority)
    cached_us, new_us = checks_us()
    print(f"ACL check, cached, {ACLS:,} ACLs: {cached_us:.2f} us (goal: 2)")
    print(f"ACL check, new name, {ACLS:,} ACLs: {new_us:.2f} us")
    handshakes(options.port)
    return 0


def checks_us() -> tuple[float, float]:
    """Microseconds of a check that was made before, and of one that was not; medians of five."""
    authorizer = Authorizer(super_users=["User:admin"])
    authorizer.replace(
        Acl(
            resource_type=ResourceType.TOPIC,
            resource_name=f"topic-{number // 4}",
            pattern_type=PatternType.PREFIXED if number % 4 == 3 else PatternType.LITERAL,
            principal=f"User:user-{number % 1_000}",
            host="*",
            operation=AclOperation.READ,
            permission=Permission.ALLOW,
        )
        for number in range(ACLS)
    )
    names = [f"topic-{number}" for number in range(1_000)]
    cached: list[float] = []
    new: list[float] = []
    gc.disable()
    for attempt in range(5):
        for counts, users in ((new, f"new-{attempt}"), (cached, "user-7")):
            asked = names if counts is new else names * (CHECKS // len(names))
            if counts is cached:
                for name in names:
                    authorizer.is_allowed(users, HOST, AclOperation.READ, ResourceType.TOPIC, name)
            began = time.perf_counter()
            for name in asked:
                authorizer.is_allowed(users, HOST, AclOperation.READ, ResourceType.TOPIC, name)
            counts.append((time.perf_counter() - began) / len(asked) * 1e6)
    gc.enable()
    return statistics.median(cached), statistics.median(new)


def handshakes(port: int) -> None:
    """Print acks=all latencies over TLS without and with new clients on one broker."""
    with tempfile.TemporaryDirectory(prefix="kvorum-bench-") as folder:
        directory = Path(folder)
        encryption.begin(directory / "certificates")
        cluster = KvorumCluster(directory=directory / "kvorum", port=port)
        try:
            cluster.prepare()
            seconds_to_first_write(cluster)
            bootstrap = bootstrap_of(cluster)
            create(open_admin(bootstrap), [new_topic(_TOPIC, 3)])
            wait_in_sync(cluster, _TOPIC, 3)
            _latency(bootstrap, RECORDS // 3)
            print(f"acks=all alone: {_words(_latency(bootstrap, RECORDS))}")
            ca = encryption.client_settings()["ssl.ca.location"]
            address = cluster.brokers[0].replace(":", ",")
            command = [sys.executable, "-m", "bench.access", "--shake", f"{address},{ca}"]
            broker = pids(cluster, BROKER)[0]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shaking:
                told = required(shaking.stdout, "a pipe")
                told.readline()  # the first is through
                before, began = cpu_seconds([broker])[broker], time.monotonic()
                values = _latency(bootstrap, RECORDS)
                seconds = time.monotonic() - began
                spent = cpu_seconds([broker])[broker] - before
                shaking.terminate()
                made = int(told.read().split()[-1])
            print(
                f"acks=all beside handshakes: {_words(values)} (goal: p99 20 ms); "
                f"{made / seconds:.0f} handshakes/s (goal: {HANDSHAKES_PER_S}), "
                f"CPU of that broker {spent / seconds:.0%}"
            )
        finally:
            cluster.stop()


def _latency(bootstrap: str, records: int) -> list[float]:
    return latencies_ms(bootstrap, _TOPIC, partitions=3, records=records, record_bytes=100)


def _words(values: Sequence[float]) -> str:
    return f"p50 {percentile(values, 50):.2f} ms, p99 {percentile(values, 99):.2f} ms"


def _shake_for_ever(address: tuple[str, int], authority: str) -> None:
    """HANDSHAKES_PER_S new clients a second, in whole handshakes; prints a line for the first, and
    at SIGTERM their number."""
    import signal

    context = ssl.create_default_context(cafile=authority)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    began, made = time.monotonic(), 0
    while not stop.is_set():
        with (
            socket.create_connection(address, timeout=10) as sock,
            context.wrap_socket(sock, server_hostname=HOST),
        ):
            made += 1
        if made == 1:
            print("first", flush=True)
        stop.wait(max(0.0, began + made / HANDSHAKES_PER_S - time.monotonic()))
    print(made, flush=True)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
