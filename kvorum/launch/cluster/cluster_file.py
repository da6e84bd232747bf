"""cluster.json: the processes of a data directory, for people, tools and experiments.

Only the launcher writes it, atomically and at every change; anyone may read it at any time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

from kvorum.runtime.errors import ConfigError

FILE_NAME = "cluster.json"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """One node.

    pid: None unless it runs.
    metrics: host:port of its page of metrics; empty for none.
    state: running, stopped, or dead (it ended without a stop).

    is_ready: the node served when this file was written.
    reason: why the node died, if possible the node's last message.
    starts: how often this launcher has started it.
    """

    name: str
    id: int
    roles: tuple[str, ...]
    pid: int | None
    state: str
    listener: str
    advertised: str
    directory: str
    log_file: str
    is_ready: bool = False
    reason: str = ""
    starts: int = 0
    metrics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """The whole cluster.

    bootstrap: comma-separated host:port of the brokers' listeners.
    voters, is_secure: as in `ClusterPlan`.
    """

    cluster_id: str
    bootstrap: str
    launcher_pid: int | None
    nodes: tuple[NodeEntry, ...]
    version: int = VERSION
    voters: int = 0
    is_secure: bool = False

    def node(self, name: str) -> NodeEntry | None:
        """The node of this name, or of this id written as text."""
        for entry in self.nodes:
            if name in (entry.name, str(entry.id)):
                return entry
        return None

    def count(self, role: str) -> int:
        """The number of nodes with a role, controller or broker."""
        return sum(role in entry.roles for entry in self.nodes)


def read_cluster_file(data_dir: str) -> ClusterFile | None:
    """The cluster in a data directory, None if there is none.

    Raises ConfigError for a file that is not a valid cluster file.
    """
    path = os.path.join(data_dir, FILE_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            fields: dict[str, Any] = json.load(file)
        if fields["version"] != VERSION:
            raise ConfigError(
                f"{path} has version {fields['version']}, this build reads version {VERSION}"
            )
        nodes = tuple(
            NodeEntry(**{**node, "roles": tuple(node["roles"])}) for node in fields.pop("nodes")
        )
        return ClusterFile(nodes=nodes, **fields)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a cluster file: {error}") from error


def cluster_in(data_dir: str) -> ClusterFile:
    """The cluster in a data directory. Raises ConfigError if there is none."""
    cluster = read_cluster_file(data_dir)
    if cluster is None:
        raise ConfigError(f"there is no cluster in {data_dir}; make one with kvorum dev")
    return cluster


def write_cluster_file(data_dir: str, cluster: ClusterFile) -> None:
    """Replace the file atomically, so that no reader sees a part of it."""
    path = os.path.join(data_dir, FILE_NAME)
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(cluster), file, indent=2)
        file.write("\n")
    os.replace(temporary, path)
