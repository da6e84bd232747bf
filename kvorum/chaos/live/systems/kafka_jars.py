"""Apache Kafka's jars: where they are, their version, and the Java programs in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvorum.chaos.live.host.processes import ProcessFailed
from kvorum.runtime.errors import ConfigError

VERSION = "4.4.0"
"""The Apache Kafka that Kvorum is compared with; bench/pom.xml has it too."""

OWN_LIBRARY = Path(__file__).resolve().parents[4] / ".tools" / f"kafka-{VERSION}" / "lib"
"""The jars that set-up puts into the checkout. A folder for each version: a checkout that goes back
to an earlier commit finds its own."""

#: Apache Kafka's own variable for the folder of an unpacked distribution.
HOME_VARIABLE = "KAFKA_HOME"
STORAGE_TOOL = "kafka.tools.StorageTool"
SERVER = "kafka.Kafka"

#: Flags of a short program: C1 alone, since it ends before C2 would pay.
TOOL_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_TOOL_TIMEOUT_S = 60.0
_MAJOR = 4
_JAR = re.compile(r"kafka_2\.[0-9]+-([0-9][0-9A-Za-z.-]*)\.jar")
_CONFIG_NAME = re.compile(r'id="brokerconfigs_([^"]+)"')


def find_library(named: str | None = None) -> Path:
    """The folder with the jars: the one that is named, KAFKA_HOME/libs, or the checkout's.

    Raises ConfigError, which says how to get them.
    """
    if named is not None:
        return _with_jars(Path(named), f"--kafka-libs {named}")
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return _with_jars(Path(home) / "libs", f"{HOME_VARIABLE}={home}")
    if _versions_in(OWN_LIBRARY):
        return OWN_LIBRARY
    raise ConfigError(
        f"no jars of Apache Kafka: unpack a distribution of Kafka {_MAJOR} and name its folder in "
        f"{HOME_VARIABLE}, or name the folder of its jars with --kafka-libs"
    )


def library_version(library: Path) -> str:
    """The version of Apache Kafka, from the name of its jar. Raises ConfigError."""
    versions = _versions_in(library)
    if len(versions) != 1:
        found = ", ".join(versions) or "none"
        raise ConfigError(f"{library} needs the jars of one Kafka, kafka_2.13-*.jar; found {found}")
    version = versions[0]
    if int(version.partition(".")[0]) != _MAJOR:
        raise ConfigError(f"{library} has Kafka {version}; versions {_MAJOR}.x can be tested")
    return version


def find_java() -> str:
    """The java program of JAVA_HOME, or on PATH. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on PATH"
        raise ConfigError(f"{where}: Apache Kafka {_MAJOR} needs Java 17 or later")
    return found


def java_command(
    library: Path, main_class: str, *arguments: str, flags: Sequence[str] = TOOL_FLAGS
) -> list[str]:
    """The command line that runs a class of the jars. Raises ConfigError without a java."""
    return [find_java(), *flags, "-cp", f"{library}/*", main_class, *arguments]


def properties_text(properties: Mapping[str, str]) -> str:
    """The content of a server.properties file."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def format_storage(
    library: Path, cluster_id: str, properties_file: str, *, voters: str = ""
) -> None:
    """Run `kafka-storage format` for one node. Raises ProcessFailed.

    voters: the first voter set as `--initial-controllers` has it, for a quorum that can change.
    """
    options = ["--initial-controllers", voters] if voters else []
    _run(library, STORAGE_TOOL, "format", "-t", cluster_id, "-c", properties_file, *options)


def broker_config_names(library: Path) -> frozenset[str]:
    """The names that server.properties may have, from Kafka's own documentation of them."""
    names = frozenset(_CONFIG_NAME.findall(_run(library, "kafka.server.KafkaConfig")))
    if not names:
        raise ProcessFailed(f"the jars in {library} name no broker configs")
    return names


def _run(library: Path, main_class: str, *arguments: str) -> str:
    command = java_command(library, main_class, *arguments)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TOOL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessFailed(f"{main_class} did not end within {_TOOL_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1_000:]
        raise ProcessFailed(f"{main_class} ended with {done.returncode}: {said}")
    return done.stdout


def _with_jars(library: Path, source: str) -> Path:
    if not _versions_in(library):
        raise ConfigError(f"{source}: {library} has no jar of Apache Kafka (kafka_2.13-*.jar)")
    return library


def _versions_in(library: Path) -> list[str]:
    if not library.is_dir():
        return []
    matches = (_JAR.fullmatch(path.name) for path in library.iterdir())
    return sorted(match[1] for match in matches if match is not None)
