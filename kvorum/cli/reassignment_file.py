"""The files of kafka-reassign-partitions: read, checked, written. Pure.

There are two formats, both of version 1: `{"topics": [{"topic": "t"}]}` names topics to move, and
`{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}` gives the target replicas. A
list "log_dirs" beside "replicas" names the data directory of each, or "any".
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from kvorum.cli.common import INT32_MAX
from kvorum.client.failures import CommandFailed
from kvorum.metadata.controller.decide.placement import UsableBroker, place
from kvorum.runtime.errors import Rejected

Assignment = dict[tuple[str, int], tuple[int, ...]]
"""Replicas by (topic, partition)."""

LogDirs = Mapping[tuple[str, int, int], str]
"""Paths of data directories by (topic, partition, broker id); replicas with "any" have none."""

ANY = "any"

_FORMS = {
    "topics": 'write {"topics": [{"topic": NAME}], "version": 1}',
    "partitions": "--generate with --out FILE writes such a file",
}


class BadFile(CommandFailed):
    """A file that will not do; the message does not name it."""


def read_topics(text: str) -> list[str]:
    """The topics to move. Raises BadFile if the file is invalid."""
    rows = _rows(text, "topics")
    names = [row.get("topic") if isinstance(row, Mapping) else None for row in rows]
    for name in names:
        if not isinstance(name, str) or not name:
            raise BadFile('each of "topics" must be {"topic": NAME}')
        if names.count(name) > 1:
            raise BadFile(f"topic {name!r} stands twice in the file")
    return [str(name) for name in names]


def read_assignment(text: str) -> Assignment:
    """The target replicas of the partitions. Raises BadFile if the file is invalid.

    The answer of `--generate -o json` counts too: the plan is its member "proposed".
    """
    found: Assignment = {}
    for row in _rows(text, "partitions", inside="proposed"):
        key, replicas = _partition(row)
        name = f"{key[0]}-{key[1]}"
        if key in found:
            raise BadFile(f"partition {name} stands twice in the file")
        if not replicas or len(set(replicas)) != len(replicas):
            raise BadFile(f"the replicas {list(replicas)} of {name} are none or repeat")
        _check_log_dirs(row.get("log_dirs"), name, replicas)
        found[key] = replicas
    return found


def read_log_dirs(text: str) -> dict[tuple[str, int, int], str]:
    """The data directories that the file names. Raises BadFile if the file is invalid."""
    read_assignment(text)
    return {
        (row["topic"], row["partition"], broker_id): path
        for row in _rows(text, "partitions", inside="proposed")
        for broker_id, path in zip(row["replicas"], row.get("log_dirs") or (), strict=False)
        if path != ANY
    }


def write_assignment(assignment: Assignment, log_dirs: LogDirs | None = None) -> str:
    """The assignment as kafka-reassign-partitions prints it, on one line. log_dirs: the directories
    to name."""
    known = log_dirs or {}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": [known.get((topic, partition, replica), ANY) for replica in replicas],
        }
        for (topic, partition), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def usable_brokers(
    chosen: Sequence[int], known: Mapping[int, Mapping[str, Any]], *, with_racks: bool
) -> list[UsableBroker]:
    """The chosen brokers, in the form that `generate` needs.

    Raises CommandFailed for ids that are not registered. With racks it also raises, as Kafka's tool
    does, if only some of the brokers have a rack.
    """
    unknown = [broker_id for broker_id in chosen if broker_id not in known]
    if unknown:
        raise CommandFailed(f"brokers {unknown} of --broker-list are not registered")
    rackless = [broker_id for broker_id in chosen if not known[broker_id]["rack"]]
    if with_racks and 0 < len(rackless) < len(chosen):
        raise CommandFailed(
            f"brokers {rackless} of --broker-list have no rack, the others have: give them one "
            "(broker.rack), or place without racks (--disable-rack-aware)"
        )
    return [
        UsableBroker(
            i,
            known[i]["rack"] if with_racks else None,
            not known[i]["is_fenced"],
            known[i].get("host"),
        )
        for i in chosen
    ]


def generate(
    current: Assignment, brokers: Sequence[UsableBroker], rng: random.Random
) -> Assignment:
    """A new placement of all partitions on these brokers; each topic keeps its replication factor.

    Raises CommandFailed when the brokers are too few.
    """
    proposed: Assignment = {}
    for topic in dict.fromkeys(name for name, _ in sorted(current)):
        ids = sorted(partition for name, partition in current if name == topic)
        factor = len(current[topic, ids[0]])
        placed = place(brokers, partition_count=len(ids), replication_factor=factor, rng=rng)
        if isinstance(placed, Rejected):
            raise CommandFailed(f"topic {topic}: {placed.message}")
        proposed.update(
            ((topic, partition), replicas) for partition, replicas in zip(ids, placed, strict=True)
        )
    return proposed


def _rows(text: str, key: str, *, inside: str | None = None) -> list[Any]:
    """The list of that key. inside: the member that may hold the document."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadFile(f"the file is not JSON: {error}") from error
    except RecursionError as error:
        raise BadFile("the file is JSON of too many levels") from error
    if isinstance(document, Mapping) and inside in document and key not in document:
        document = document[inside]
    rows = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(rows, list) or not rows:
        raise BadFile(f'the file needs a list "{key}" that is not empty; {_FORMS[key]}')
    if document.get("version", 1) != 1:
        shown = json.dumps(document["version"])
        raise BadFile(f"the file has version {shown}; only the number 1 is known")
    return rows


def _partition(row: Any) -> tuple[tuple[str, int], tuple[int, ...]]:
    if isinstance(row, Mapping):
        topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
        if (
            isinstance(topic, str)
            and _is_int(partition)
            and isinstance(replicas, list)
            and all(_is_int(replica) for replica in replicas)
        ):
            return (topic, int(str(partition))), tuple(replicas)
    raise BadFile(
        f"{json.dumps(row)} is not "
        '{"topic": NAME, "partition": NUMBER, "replicas": [BROKER ID, ...]}'
    )


def _check_log_dirs(log_dirs: Any, name: str, replicas: Sequence[int]) -> None:
    """Raise BadFile for a list of directories that does not fit the replicas of the partition."""
    if not log_dirs:
        return
    if not isinstance(log_dirs, list) or len(log_dirs) != len(replicas):
        raise BadFile(f"log_dirs of {name} must be as many as its replicas")
    for path in log_dirs:
        if path != ANY and not (isinstance(path, str) and path.startswith("/")):
            raise BadFile(
                f"log_dirs of {name}: {json.dumps(path)} is neither {ANY!r} nor an absolute path; "
                "`kvorum brokers log-dirs` shows the paths"
            )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX
