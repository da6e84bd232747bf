"""Members of a share group, by Kafka's own client: the same program against both sides."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from bench.cluster import BenchFailed
from bench.java_client import FLAGS

SOURCE = Path(__file__).parent / "java" / "ShareLoad.java"
_TIMEOUT_S = 300.0


def drain_seconds(
    library: Path, bootstrap: str, topic: str, *, members: int, records: int
) -> float:
    """The seconds that the members need for all records of the topic, from the first one that a
    member gets to the last one. Raises BenchFailed."""
    return float(_run(library, "drain", bootstrap, topic, str(members), str(records))[0])


def delivery_ms(
    library: Path, bootstrap: str, topic: str, *, members: int, records: int
) -> list[float]:
    """The milliseconds from produce to delivery of each record, one at a time. Raises
    BenchFailed."""
    return [
        float(line)
        for line in _run(library, "latency", bootstrap, topic, str(members), str(records))
    ]


def _run(library: Path, *arguments: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="share-load-") as classes:
        jars = f"{library}/*"
        subprocess.run(["javac", "-d", classes, "-cp", jars, str(SOURCE)], check=True)
        command = ["java", *FLAGS, "-cp", f"{classes}:{jars}", "ShareLoad", *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise BenchFailed(f"the share group did not end in {_TIMEOUT_S:g} s") from error
    lines = done.stdout.split()
    if done.returncode != 0 or not lines:
        raise BenchFailed(f"the share group ended with {done.returncode}: {done.stderr[-500:]}")
    return lines
