"""New nodes on disk: a configuration file each, and prepared directories for controllers.

With dynamic voters each controller's directory gets its identity and, for a new cluster, the
bootstrap checkpoint that names the first voters with their directory ids (kraft.md section 3). A
controller added later gets its identity only: it joins as an observer until it is made a voter.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.carried_over import reject_unheard_of
from launch.identity import claim_directory
from launch.metadata_log import metadata_directory
from launch.plan import (
    BROKER_ID_BASE,
    CONTROLLER_PORT_SHIFT,
    GIVEN_BY_THE_PLAN,
    NODES_MAX,
    PORT_MAX,
    internal_topic_factors,
)
from launch.properties import (
    BROKER_NAMES,
    CONTROLLER,
    CONTROLLER_NAMES,
    broker_config,
    controller_config,
    settings_for,
)
from raft.snapshot_files import header_voters
from raft.voters import Voter, VoterSet
from runtime.async_disk import OsAsyncDisk
from runtime.config import dump_properties, load_properties
from runtime.disk import OsDisk
from runtime.errors import ConfigError
from runtime.ids import new_uuid, uuid_text
from snapshots.format import BOOTSTRAP_ID, SnapshotHeader
from snapshots.store import SnapshotStore

ENDING = ".toml"
DATA_FOLDER = "data"
_QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node to be. role: controller or broker."""

    role: str
    node_id: int
    host: str
    port: int
    file: str
    directory: str

    @property
    def name(self) -> str:
        return f"{self.role}-{self.node_id}"


def init_cluster(
    folder: str,
    *,
    controllers: int,
    brokers: int,
    host: str,
    port: int,
    controller_port: int | None,
    is_static: bool,
    settings: Mapping[str, str],
    rng: random.Random,
) -> list[NewNode]:
    """Write the configuration of every node of a new cluster, and prepare its controllers.

    folder: made if missing, must be empty. Raises ConfigError before anything is written for
    whatever cannot work.
    """
    folder = os.path.abspath(folder)
    for name, count, least in (("controllers", controllers, 1), ("brokers", brokers, 0)):
        if not least <= count <= NODES_MAX:
            raise ConfigError(f"--{name}={count} must lie between {least} and {NODES_MAX}")
    if os.path.exists(folder) and os.listdir(folder):
        raise ConfigError(f"{folder} is not empty; choose another folder, or --add to it")
    first_controller_port = controller_port or port + CONTROLLER_PORT_SHIFT
    nodes = [
        _node(folder, "controller", i + 1, host, first_controller_port + i)
        for i in range(controllers)
    ]
    nodes += [
        _node(folder, "broker", BROKER_ID_BASE + 1 + i, host, port + i) for i in range(brokers)
    ]
    _check_host(host)
    _check_ports(nodes)
    voters = [node for node in nodes if node.role == "controller"]
    if is_static:
        quorum = {_QUORUM[0]: ",".join(f"{n.node_id}@{n.host}:{n.port}" for n in voters)}
    else:
        quorum = {_QUORUM[1]: ",".join(f"{n.host}:{n.port}" for n in voters)}
    for name in settings:
        if name in GIVEN_BY_THE_PLAN:
            raise ConfigError(f"{name!r} is decided by kvorum init and cannot be set")
    reject_unheard_of(settings, CONTROLLER_NAMES | BROKER_NAMES)
    common = {
        "cluster.id": uuid_text(new_uuid(rng)),
        **quorum,
        **(internal_topic_factors(brokers) if brokers else {}),
        **settings,
    }
    texts = {node.file: _properties(node, common) for node in nodes}
    os.makedirs(folder, exist_ok=True)
    if not is_static:
        asyncio.run(_format_voters(voters, common["cluster.id"], rng))
    for file, properties in texts.items():
        _write(file, properties)
    return nodes


def add_node(
    folder: str, *, role: str, host: str | None, port: int | None, rng: random.Random
) -> NewNode:
    """One more node for the cluster whose configuration files lie in `folder`.

    Id and port follow those of the last node of that role. Raises ConfigError.
    """
    folder = os.path.abspath(folder)
    known = _known(folder)
    alike = [properties for properties in known if _role(properties) == role]
    pattern = alike[-1] if alike else known[-1]
    last_host, last_port = _listener(pattern)
    base_id = 0 if role == "controller" else BROKER_ID_BASE
    node_id = max((int(p["node.id"]) for p in alike), default=base_id) + 1
    ports = {_listener(properties)[1] for properties in known}
    new_port = port or last_port + 1
    while port is None and new_port in ports:
        new_port += 1
    _check_host(host or last_host)
    node = _node(folder, role, node_id, host or last_host, new_port)
    _check_ports([node])
    if port in ports:
        raise ConfigError(f"port {port} is another node's in {folder}")
    if role == "controller" and _QUORUM[0] in pattern:
        raise ConfigError(
            f"the cluster in {folder} has a static voter set ({_QUORUM[0]}="
            f"{pattern[_QUORUM[0]]}): a controller cannot be added to it"
        )
    own = ("node.id", "listeners", "advertised.listeners", "log.dirs", "broker.rack")
    settings = {name: value for name, value in pattern.items() if name not in own}
    if alike == []:
        settings = {k: v for k, v in settings.items() if k in ("cluster.id", *_QUORUM)}
    properties = _properties(node, settings)
    if role == "controller":
        _claim(node, settings["cluster.id"], rng)
    _write(node.file, properties)
    return node


def prepare_again(folder: str, *, node_id: int, rng: random.Random) -> NewNode:
    """A new identity for a controller that has lost its disk; its id and configuration stay.

    The empty directory gets another directory id, so it has no vote until it is made a voter
    again. Raises ConfigError, also if the directory still holds something.
    """
    folder = os.path.abspath(folder)
    for properties in _known(folder):
        if int(properties["node.id"]) != node_id:
            continue
        if _role(properties) != "controller" or _QUORUM[1] not in properties:
            raise ConfigError(f"node {node_id} is no controller with dynamic voters")
        host, port = _listener(properties)
        node = _node(folder, "controller", node_id, host, port)
        directory = str(properties.get("metadata.log.dir") or properties["log.dirs"])
        if os.path.exists(directory) and os.listdir(directory):
            raise ConfigError(
                f"{directory} still holds data: keep it if you can; if not, remove it first"
            )
        claim_directory(
            OsDisk(),
            directory,
            node_id=node_id,
            cluster_id=str(properties["cluster.id"]),
            rng=rng,
        )
        return dataclasses.replace(node, directory=directory)
    raise ConfigError(f"{folder} has no node {node_id}")


async def _format_voters(nodes: list[NewNode], cluster_id: str, rng: random.Random) -> None:
    directory_ids = {node.node_id: _claim(node, cluster_id, rng) for node in nodes}
    voters = VoterSet.of(
        Voter(node.node_id, directory_ids[node.node_id], node.host, node.port) for node in nodes
    )
    header = SnapshotHeader(
        end_offset=BOOTSTRAP_ID.end_offset,
        epoch=BOOTSTRAP_ID.epoch,
        timestamp_ms=0,
        kraft_version=1,
        voters=header_voters(voters),
    )
    for node in nodes:
        path = metadata_directory(node.directory)
        await SnapshotStore(OsAsyncDisk(), path).write(header, [])


def _claim(node: NewNode, cluster_id: str, rng: random.Random) -> bytes:
    return claim_directory(
        OsDisk(), node.directory, node_id=node.node_id, cluster_id=cluster_id, rng=rng
    )


def _node(folder: str, role: str, node_id: int, host: str, port: int) -> NewNode:
    name = f"{role}-{node_id}"
    return NewNode(
        role=role,
        node_id=node_id,
        host=host,
        port=port,
        file=os.path.join(folder, name + ENDING),
        directory=os.path.join(folder, DATA_FOLDER, name),
    )


def _properties(node: NewNode, common: Mapping[str, Any]) -> dict[str, Any]:
    """The node's properties, checked as the node itself will check them."""
    is_controller = node.role == "controller"
    listener = CONTROLLER if is_controller else "PLAINTEXT"
    properties = {
        **settings_for(node.role, common),
        "node.id": node.node_id,
        "listeners": f"{listener}://{node.host}:{node.port}",
        "log.dirs": node.directory,
    }
    check = controller_config if is_controller else broker_config
    check(properties)
    return properties


def _check_host(host: str) -> None:
    """It is what the others, and clients, connect to. Raises ConfigError."""
    if not host or any(c.isspace() for c in host) or ":" in host:
        raise ConfigError(f"--host={host!r} must be a name or an IPv4 address")
    if host == "0.0.0.0":
        raise ConfigError(f"--host={host} says where nobody can connect; give a name or address")


def _check_ports(nodes: list[NewNode]) -> None:
    users: dict[int, str] = {}
    for node in nodes:
        if not 0 < node.port <= PORT_MAX:
            raise ConfigError(f"{node.name} would get port {node.port}, not in 1 to {PORT_MAX}")
        other = users.setdefault(node.port, node.name)
        if other != node.name:
            raise ConfigError(f"{other} and {node.name} would both get port {node.port}")


def _known(folder: str) -> list[dict[str, Any]]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ENDING))
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error
    if not names:
        raise ConfigError(f"{folder} holds no node configuration; make one with kvorum init")
    known = [load_properties(os.path.join(folder, name)) for name in names]
    return sorted(known, key=lambda properties: int(properties["node.id"]))


def _role(properties: Mapping[str, Any]) -> str:
    name = str(properties["listeners"]).partition("://")[0]
    return "controller" if name == CONTROLLER else "broker"


def _listener(properties: Mapping[str, Any]) -> tuple[str, int]:
    host, _, port = str(properties["listeners"]).partition("://")[2].rpartition(":")
    return host, int(port)


def _write(path: str, properties: Mapping[str, Any]) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(dump_properties(properties))
