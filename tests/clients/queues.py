"""The program of small stories of share groups, and what Apache Kafka 4.4 printed.

`python -m tests.clients.queues` runs it against Kafka's own jars and writes queues.txt anew, or
only the lines of the stories that it is given.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.cluster import bootstrap_of, wait_for_port
from bench.kafka_cluster import KafkaCluster
from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY
from tests.live.clients import Topics

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java_queues"
OUTCOMES = HERE / "queues.txt"
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Of both sides: some stories have members of a classic group."""
THREADS = 24
RUN_TIMEOUT_S = 540.0
_OPTIONS = (
    *("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    "-Dlog4j2.StatusLogger.level=OFF",
)


def outcomes() -> list[str]:
    """The lines that Kafka's client prints on Apache Kafka, `story: what was seen`."""
    return OUTCOMES.read_text(encoding="utf-8").splitlines()


def told(bootstrap: str, prefix: str, folder: Path, *stories: str) -> list[str]:
    """The lines of these stories, or of all. folder: for what must be compiled."""
    classes = folder / "classes"
    classes.mkdir()
    sources = sorted(map(str, SOURCES.glob("*.java")))
    subprocess.run(["javac", "-d", str(classes), "-cp", f"{OWN_LIBRARY}/*", *sources], check=True)
    done = subprocess.run(
        [
            *("java", *_OPTIONS, "-cp", f"{classes}:{OWN_LIBRARY}/*", "Queues"),
            *(bootstrap, prefix, str(THREADS), *stories),
        ],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    return done.stdout.splitlines()


def main() -> int:
    """With names of stories, only their lines are new."""
    stories = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="queues-")))
        cluster = KafkaCluster(
            directory=folder, port=28_900, library=OWN_LIBRARY, settings=SETTINGS
        )
        cluster.prepare()
        stack.callback(cluster.stop)
        cluster.launch()
        wait_for_port(cluster.brokers, 120.0)
        bootstrap = bootstrap_of(cluster)
        topics = Topics(bootstrap)
        topics.create("is-up", replicas=3)
        topics.wait_isr("is-up", {101, 102, 103})
        lines = told(bootstrap, "told", folder, *stories)
    if stories:
        kept = [line for line in outcomes() if line.partition(":")[0] not in stories]
        lines = sorted([*kept, *lines], key=lambda line: line.partition(":")[0])
    OUTCOMES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
