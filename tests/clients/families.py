"""Client families, and the program with which each of them runs the scenarios of scenarios.json.

A program is called with a bootstrap address, a prefix for all names and the scenarios' names. It
prints a JSON line for each: {"scenario", "outcome", "ms"}, or "failure" in place of the outcome.
So the same programs run against Kvorum and against Apache Kafka.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".tools"
RUN_TIMEOUT_S = 240.0
COMPILE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """name, what happens in it, the outcome that every family must have, and the families that
    cannot run it.

    absent: family to reason. needs_dead_broker: run last, when one of three brokers is dead.
    """

    name: str
    what: str
    outcome: dict[str, Any]
    absent: dict[str, str]
    needs_dead_broker: bool


def scenarios() -> list[Scenario]:
    rows = json.loads((HERE / "scenarios.json").read_text(encoding="utf-8"))
    return [
        Scenario(
            name=row["scenario"],
            what=row["what"],
            outcome=row["outcome"],
            absent=row.get("absent", {}),
            needs_dead_broker=row.get("needs_dead_broker", False),
        )
        for row in rows
    ]


def names_for(family: str, *, needs_dead_broker: bool) -> list[str]:
    return [
        scenario.name
        for scenario in scenarios()
        if family not in scenario.absent and scenario.needs_dead_broker == needs_dead_broker
    ]


def files_stamp(folder: Path) -> str:
    """A checksum of a program's sources, as deploy/setup.sh leaves it beside what it built."""
    names = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()


def _stamp_missing(folder: Path, built: Path) -> str:
    stamp = built / "stamp"
    if not stamp.exists():
        return f"needs what `make setup` puts into {built.relative_to(ROOT)}"
    if stamp.read_text(encoding="utf-8").strip() != files_stamp(folder):
        return f"{built.relative_to(ROOT)} is older than {folder.name}: run `make setup`"
    return ""


class Family:
    """One client. name: of the family; missing: the reason why it cannot run here, empty if it
    can.
    """

    name = ""

    def missing(self) -> str:
        raise NotImplementedError

    def command(self, folder: Path) -> list[str]:
        """The program, without its arguments. folder: for what must be compiled."""
        raise NotImplementedError

    def logins_command(self, folder: Path) -> list[str]:
        """The program of tests.clients.logins, without its arguments."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}


class Java(Family):
    name = "java"

    def missing(self) -> str:
        if shutil.which("javac") is None:
            return "needs a JDK (javac)"
        if not any(OWN_LIBRARY.glob("kafka-clients-*.jar")):
            return f"needs Apache Kafka's jars in {OWN_LIBRARY}"
        return ""

    def command(self, folder: Path) -> list[str]:
        return [*self._machine(folder), "Scenarios"]

    def logins_command(self, folder: Path) -> list[str]:
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        files = ",".join(str(path) for path in folder.glob("**/*.jwt"))
        urls = ",".join(f"file://{path}" for path in folder.glob("**/*.jwt"))
        java, *others = self._machine(folder)
        return [java, f"{allowed}.files={files}", f"{allowed}.urls={urls}", *others, "Logins"]

    def _machine(self, folder: Path) -> list[str]:
        classes = folder / "classes"
        sources = [str(path) for path in sorted((HERE / "java").glob("*.java"))]
        if not classes.exists():
            subprocess.run(
                ["javac", "-d", str(classes), "-cp", f"{OWN_LIBRARY}/*", *sources],
                check=True,
                timeout=COMPILE_TIMEOUT_S,
            )
        quick = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        return ["java", *quick, quiet, "-cp", f"{classes}:{OWN_LIBRARY}/*"]


class FranzGo(Family):
    name = "franz-go"
    built = TOOLS / "franz-go"

    def missing(self) -> str:
        return _stamp_missing(HERE / "franz_go", self.built)

    def command(self, folder: Path) -> list[str]:
        return [str(self.built / "scenarios")]

    def logins_command(self, folder: Path) -> list[str]:
        return [str(self.built / "scenarios"), "logins"]


class KafkaJs(Family):
    name = "kafkajs"
    built = TOOLS / "kafkajs"

    def missing(self) -> str:
        if shutil.which("node") is None:
            return "needs Node"
        if not (self.built / "node_modules" / "kafkajs").is_dir():
            return "needs kafkajs, which `make setup` puts into .tools/kafkajs where npm is"
        return ""

    def command(self, folder: Path) -> list[str]:
        return ["node", "--no-warnings", str(HERE / "kafkajs" / "scenarios.js")]

    def logins_command(self, folder: Path) -> list[str]:
        return ["node", "--no-warnings", str(HERE / "kafkajs" / "logins.js")]

    def environment(self) -> dict[str, str]:
        return {"NODE_PATH": str(self.built / "node_modules")}


class Python(Family):
    """A client of Python's; script: the module that runs the scenarios with it."""

    def __init__(self, name: str, package: str, script: str) -> None:
        self.name = name
        self._package = package
        self._script = script

    def missing(self) -> str:
        if importlib.util.find_spec(self._package) is None:
            return f"needs the Python package {self._package}"
        return ""

    def command(self, folder: Path) -> list[str]:
        return [sys.executable, "-m", f"tests.clients.{self._script}"]

    def logins_command(self, folder: Path) -> list[str]:
        name = self._script.removeprefix("script_")
        return [sys.executable, "-m", f"tests.clients.logins.by_{name}"]


FAMILIES: Sequence[Family] = (
    Java(),
    FranzGo(),
    KafkaJs(),
    Python("librdkafka", "confluent_kafka", "script_librdkafka"),
    Python("kafka-python", "kafka", "script_kafka_python"),
    Python("aiokafka", "aiokafka", "script_aiokafka"),
)


def run_family(
    family: Family, bootstrap: str, prefix: str, names: Sequence[str], folder: Path
) -> Iterator[dict[str, Any]]:
    """The program's lines, after its end. Raises AssertionError if it did not end well."""
    done = subprocess.run(
        [*family.command(folder), bootstrap, prefix, *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, **family.environment()},
        check=False,
    )
    assert done.returncode == 0, f"{family.name}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def differences(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Differences from scenarios.json, a sentence each."""
    expected = {scenario.name: scenario.outcome for scenario in scenarios()}
    found = {line["scenario"]: line for line in lines}
    wrong = [f"{name}: no line was printed" for name in names if name not in found]
    for name in names:
        line = found.get(name)
        if line is not None and line.get("outcome") != expected[name]:
            got = line.get("outcome", line.get("failure"))
            wrong.append(f"{name}: expected {expected[name]}, got {got}")
    return wrong
