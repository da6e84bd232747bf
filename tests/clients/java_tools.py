"""Apache Kafka's own command-line tools, run from the jars that set-up puts into .tools."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY
from tests.polling import DEADLINE_S

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or not any(OWN_LIBRARY.glob("kafka-clients-*.jar")),
    reason=f"needs Java and Apache Kafka's jars in {OWN_LIBRARY}",
)


def java(main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
    """The command that runs a class of Kafka's jars. It uses the C1 compiler alone: a tool ends
    before C2's slower compilation would pay off.
    """
    options = (f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return ["java", *options, "-cp", f"{OWN_LIBRARY}/*", main_class, *arguments]


def run_tool(main_class: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One run of a tool to its end, whatever its exit code is."""
    return subprocess.run(
        java(main_class, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )


def tool(main_class: str, *arguments: str, stdin: str = "") -> str:
    """The standard output of a tool that must exit with 0."""
    done = run_tool(main_class, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def groups(cluster, *arguments):
    return tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, *arguments),
    )


def console_consumer(cluster, *arguments, silence_ms=60_000):
    """The records that it prints until it has as many as asked for, or none came for that long."""
    return tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--timeout-ms", str(silence_ms), *arguments),
    )


def rows(text):
    """A table of the tools as dictionaries; a header begins with GROUP."""
    table, header = [], []
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] == ["GROUP"]:
            header = cells
        elif header and len(cells) >= len(header):
            table.append(dict(zip(header, cells, strict=False)))
    return table
