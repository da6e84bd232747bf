"""The description of the machine that is printed with the figures."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Name to value; taken before the load begins."""
    memory_kb = int(_found(r"^MemTotal:\s+(\d+) kB", "/proc/meminfo", default="0"))
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _found(r"^model name\s*: (.+)$", "/proc/cpuinfo", default="unknown"),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kb / 2**20:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
        "librdkafka": _librdkafka_version(),
        "confluent-kafka": version("confluent-kafka"),
        "load average at the start (1, 5, 15 min)": load,
    }


def _found(pattern: str, path: str, *, default: str) -> str:
    found = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    return default if found is None else found[1]


def _java_version() -> str:
    try:
        done = subprocess.run(
            ["java", "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except FileNotFoundError:
        return "none"
    return done.stderr.splitlines()[0] if done.stderr else "unknown"


def _librdkafka_version() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])
