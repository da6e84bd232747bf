"""Another client's small requests to a broker, in a process of its own.

`python -m bench.scale.pings HOST:PORT` asks until its standard input ends, and prints the longest
answer in ms.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from bench.observe import BrokerView

EVERY_S = 0.002
WARM_S = 1.0


@contextlib.contextmanager
def pinging(address: str) -> Iterator[list[float]]:
    """Requests go on within this block; the longest answer in ms is in the list behind it."""
    longest: list[float] = []
    command = [sys.executable, "-m", "bench.scale.pings", address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        time.sleep(2 * WARM_S)
        yield longest
        told, _ = process.communicate()
        longest.append(float(told))


def _ping(address: str, is_over: threading.Event) -> float:
    longest_s, warm_s = 0.0, time.perf_counter() + WARM_S
    with BrokerView(address) as view:
        while not is_over.wait(EVERY_S):
            began_s = time.perf_counter()
            view.topics([])
            if began_s > warm_s:
                longest_s = max(longest_s, time.perf_counter() - began_s)
    return 1_000 * longest_s


def main(address: str) -> None:
    is_over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait, daemon=True).start()
    print(_ping(address, is_over))


if __name__ == "__main__":
    main(sys.argv[1])
