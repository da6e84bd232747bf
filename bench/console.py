"""`python -m bench.console`: how fast the console answers beside a cluster of 10,000 partitions.

A cluster of six nodes, a console, a page that watches, and requests one after another: at rest, and
while a broker that dies changes two thirds of all partitions or more.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster import wait_for
from bench.machine import describe_machine
from bench.table import plain_table
from bench.topics import REQUEST_TIMEOUT_S
from kvorum import Cluster
from kvorum.runtime.errors import KvorumError

REQUESTS = 300
LOADS = 20
"""Loads of the page in Chromium."""
BATCH = 100
"""Topics in one request for their creation."""
SETTLE_TIMEOUT_S = 300.0
SHRINK_TIMEOUT_S = 120.0
HEADINGS = ("what", "median ms", "p99 ms", "max ms", "bytes")
PATHS = {
    "quorum page": "/",
    "quorum view": "/api/view/quorum",
    "brokers view": "/api/view/brokers",
    "topics view, 50 rows": "/api/view/topics",
    "topics with problems, 50 rows": "/api/view/topics?only=problems&sort=problems",
    "topic view, 50 partitions": "/api/view/topic?name=bench-0",
    "metadata at its end": "/api/metadata?path=/topics",
}
SLOW_PATHS = {
    "metadata at one offset after another": "/api/metadata?path=/topics&at={}",
    "difference of two offsets": "/api/metadata/diff?from={}&to=9000",
}
"""Offsets that were not looked at before take the place of the braces."""
SLOW_REQUESTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Times of one kind of request, in ms, and the size of its last answer."""

    what: str
    times_ms: Sequence[float]
    size_bytes: int

    def row(self) -> tuple[str, ...]:
        times = sorted(self.times_ms)
        p99 = times[min(len(times) * 99 // 100, len(times) - 1)]
        shown = (times[len(times) // 2], p99, times[-1])
        return (self.what, *(f"{value:.1f}" for value in shown), f"{self.size_bytes:,}")


class Page:
    """Requests to a console over one connection, as a browser sends them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str) -> bytes:
        """The body of an answer. Raises KvorumError for another status than 200."""
        self._connection.request("GET", path)
        with self._connection.getresponse() as answer:
            body = answer.read()
        if answer.status != 200:
            raise KvorumError(f"{path}: HTTP status {answer.status}: {body[:200]!r}")
        return body

    def document(self, path: str) -> Any:
        return json.loads(self.get(path))

    def measure(self, what: str, path: str, count: int) -> Figures:
        times, size = [], 0
        for number in range(count):
            begun = time.perf_counter()
            size = len(self.get(path.format(2_000 + 97 * number)))
            times.append((time.perf_counter() - begun) * 1000)
        return Figures(what=what, times_ms=times, size_bytes=size)


class Watcher(threading.Thread):
    """A page that watches the topics; counts what it is sent."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.received_bytes = 0
        self.patches = 0

    def run(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._connection.request("GET", "/api/events/topics")
            answer = self._connection.getresponse()
            while line := answer.readline():
                self.received_bytes += len(line)
                self.patches += line.startswith(b"event: patch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement and print its table."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args(arguments)
    for name, value in describe_machine().items():
        print(f"{name}: {value}")
    with tempfile.TemporaryDirectory(prefix="kvorum-console-") as folder:
        directory = Path(folder) / "cluster"
        with Cluster(directory=directory, proxies=False, metrics=False) as cluster:
            _create(cluster, options.topics, options.partitions)
            with _console(cluster.bootstrap_servers, Path(folder)) as (page, process):
                _measure(cluster, page, process, options)
    return 0


def _measure(cluster: Cluster, page: Page, process: subprocess.Popen[str], options: Any) -> None:
    total = options.topics * options.partitions
    begun = time.perf_counter()
    wait_for(
        lambda: True if _partitions(page) >= total else None,
        timeout_s=SETTLE_TIMEOUT_S,
        what="the console has all partitions",
    )
    print(f"first whole answer: {(time.perf_counter() - begun) * 1000:.0f} ms")
    totals = page.document("/api/view/quorum")["totals"]
    print(f"{totals['topics']:,} topics, {totals['partitions']:,} partitions, replication factor 3")
    watcher = Watcher(page.port)
    watcher.start()
    figures = [page.measure(what, path, options.requests) for what, path in PATHS.items()]
    figures += [page.measure(what, path, SLOW_REQUESTS) for what, path in SLOW_PATHS.items()]
    print(plain_table([each.row() for each in figures], HEADINGS))
    sent, seconds = watcher.received_bytes, 5.0
    time.sleep(seconds)
    rate = (watcher.received_bytes - sent) / seconds
    print(f"a page that watches topics at rest gets {rate:.0f} bytes a second")
    _measure_in_chromium(page.port)
    print("a broker dies:")
    cluster.kill("broker-101")
    print(plain_table([_until_shrunk(page, total).row()], HEADINGS))
    peak_kib = _peak_kib(process.pid)
    print(f"peak memory of the console: {peak_kib / 1024:.0f} MiB")


def _partitions(page: Page) -> int:
    """The partitions that the console knows."""
    totals = page.document("/api/view/quorum").get("totals", {})
    return int(totals.get("partitions", 0))


def _until_shrunk(page: Page, total: int) -> Figures:
    """Requests of the quorum view until every partition has lost the dead broker from its ISR."""
    times, size = [], 0
    begun = time.perf_counter()
    while True:
        asked = time.perf_counter()
        body = page.get("/api/view/quorum")
        times.append((time.perf_counter() - asked) * 1000)
        size = len(body)
        if json.loads(body)["totals"]["under_replicated"] >= total:
            what = f"quorum view, {time.perf_counter() - begun:.1f} s until all ISRs shrank"
            return Figures(what=what, times_ms=times, size_bytes=size)
        if time.perf_counter() - begun > SHRINK_TIMEOUT_S:
            raise KvorumError("the ISRs did not shrink after the death of a broker")
        time.sleep(0.005)


def _measure_in_chromium(port: int) -> None:
    """From the begin of the navigation to the first voter on the page."""
    path = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        path = None
    if path is None:
        print("no Chromium with playwright: the page in a browser is not measured")
        return
    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.add_init_script(_NOTE_FIRST_CARD)
        for _ in range(LOADS + 1):
            tab.goto(f"http://127.0.0.1:{port}/")
            tab.locator(".card").first.wait_for()
            times.append(float(tab.evaluate("window.firstCardMs")))
        browser.close()
    first, *later = times
    later.sort()
    print(
        f"in Chromium, from the navigation to the first voter: {first:.0f} ms at first, then "
        f"median {later[LOADS // 2]:.0f} ms, max {later[-1]:.0f} ms of {LOADS} loads"
    )


_NOTE_FIRST_CARD = """
new MutationObserver((_, observer) => {
  if (document.querySelector(".card")) {
    window.firstCardMs = performance.now();
    observer.disconnect();
  }
}).observe(document, {subtree: true, childList: true});
"""


def _create(cluster: Cluster, topics: int, partitions: int) -> None:
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    begun = time.perf_counter()
    for first in range(0, topics, BATCH):
        wanted = [
            NewTopic(f"bench-{number}", partitions, 3)
            for number in range(first, min(first + BATCH, topics))
        ]
        for answer in (
            cluster.admin().create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S).values()
        ):
            answer.result()
    print(f"topics made in {time.perf_counter() - begun:.1f} s")


@contextlib.contextmanager
def _console(bootstrap: str, folder: Path) -> Iterator[tuple[Page, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "kvorum", "console", "--port", "0", "-o", "json"]
    with open(folder / "console.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*command, "-b", bootstrap], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise KvorumError(f"the console did not start: {(folder / 'console.log').read_text()}")
        port = int(json.loads(line)["address"].rstrip("/").rpartition(":")[2])
        yield Page(port), process
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def _peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) if found else 0


if __name__ == "__main__":
    sys.exit(main())
