"""`kvorum` with bytes in and out, against the cluster of a test."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S


@contextlib.contextmanager
def started(cluster: Cluster, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on, with pipes on all sides; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kvorum", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(cluster),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def piped(
    cluster: Cluster, *arguments: object, stdin: bytes = b"", timeout_s: float = 2 * DEADLINE_S
) -> subprocess.CompletedProcess[bytes]:
    """One run to its end, whatever its exit code is."""
    return subprocess.run(
        [sys.executable, "-m", "kvorum", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        env=_environment(cluster),
        check=False,
    )


def sent(cluster: Cluster, *arguments: object, stdin: bytes = b"") -> list[dict[str, Any]]:
    """The rows of a `kvorum produce` that must succeed."""
    done = piped(cluster, "produce", *arguments, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def printed(cluster: Cluster, *arguments: object) -> list[bytes]:
    """The lines of a `kvorum consume` that must succeed."""
    done = piped(cluster, "consume", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def read_json(cluster: Cluster, *arguments: object) -> list[dict[str, Any]]:
    """The records of a `kvorum consume`, as JSON lines have them."""
    return [json.loads(line) for line in printed(cluster, *arguments, "-f", "json")]


def _environment(cluster: Cluster) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
    return {
        **kept,
        "KVORUM_BOOTSTRAP_SERVER": cluster.bootstrap,
        "KVORUM_PROFILES": os.devnull,
    }
