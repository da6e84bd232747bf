"""Creates nodes on disk: a configuration file for each, and prepared directories for controllers.

With dynamic voters each controller's directory is prepared, and gets its id at the first start on
its host. For a new cluster it also gets the bootstrap checkpoint, which names the first voters
(KIP-853). A controller added later joins as an observer until it is made a voter.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.launch.cluster.first_voters import ControllerPlace, prepare, prepare_voters
from kvorum.launch.cluster.places import NodePlace, check_places, parse_host, with_ports
from kvorum.launch.cluster.plan import (
    BROKER_ID_BASE,
    CONTROLLER_PORT_SHIFT,
    GIVEN_BY_THE_PLAN,
    internal_topic_factors,
)
from kvorum.launch.cluster.secure_plan import (
    CA_FILE,
    CLIENTS,
    FOLDER,
    NODES,
    NODES_PORT_SHIFT,
    check_listeners,
    first_credential,
    make_node_certificates,
    prepare_secrets,
    security_properties,
    with_security,
)
from kvorum.launch.config.kafka_properties import reject_unknown
from kvorum.launch.config.listeners import PREFIX as LISTENER_PREFIX
from kvorum.launch.config.listeners import is_unspecified, of_listeners, parse_address
from kvorum.launch.config.node_file import load_node_file
from kvorum.launch.config.node_links import controller_listener_name
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.config.property_classes import (
    BROKER_NAMES,
    CONTROLLER,
    CONTROLLER_NAMES,
    settings_for,
)
from kvorum.launch.directories.bootstrap_records import check_level
from kvorum.launch.directories.identity import prepare_directory
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.config import dump_properties
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.ids import new_uuid, uuid_text
from kvorum.runtime.text import address_text

ENDING = ".toml"
DATA_FOLDER = "data"
_QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
_MECHANISMS = "sasl.enabled.mechanisms"
_KEYSTORE = "ssl.keystore.location"
_FILES = (_KEYSTORE, "ssl.truststore.location")
_OF_ONE_NODE = (
    "advertised.listeners",
    "broker.rack",
    "log.dir",
    "metadata.log.dir",
    "metrics.listener",
)
"""Further properties that one node has and another must not copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node to create.

    secrets: its files of a secure cluster.
    warnings: properties that were not copied, or changes needed elsewhere.
    """

    place: NodePlace
    file: str
    directory: str
    secrets: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def needs(self) -> tuple[str, ...]:
        """The files and folders that the node's host must have, and no more."""
        of_controller = (self.directory,) if self.place.role == "controller" else ()
        return (self.file, *of_controller, *self.secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """The shape of a cluster for `init_cluster`.

    port, controller_port: first port for brokers and controllers that have none.
    racks: one for each broker in order, or none.
    settings: properties for every node.
    bind: the address on which every node listens, such as 0.0.0.0; its own host by default.
    credentials: of the first users (KIP-900), for dynamic voters.
    is_secure: with certificates, users and ACLs (`secure_plan`), in a folder of their own.
    metrics_port: first port for the pages of metrics on each host; None for none.
    """

    controllers: Sequence[NodePlace]
    brokers: Sequence[NodePlace]
    port: int
    controller_port: int | None = None
    is_static: bool = False
    racks: Sequence[str] = ()
    bind: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    credentials: Sequence[ScramCredential] = ()
    is_secure: bool = False
    metrics_port: int | None = None


def init_cluster(folder: str, wanted: NewCluster, rng: random.Random) -> list[NewNode]:
    """Write the configuration of every node of a new cluster, and prepare its controllers.

    folder: created if missing; must be empty. Raises ConfigError for invalid input, before anything
        is written.
    """
    folder = os.path.abspath(folder)
    if os.path.exists(folder) and os.listdir(folder):
        raise ConfigError(f"{folder} is not empty; choose another folder, or --add to it")
    if not wanted.controllers:
        raise ConfigError("a cluster needs at least one controller; give --controller ID@HOST")
    first_controller_port = wanted.controller_port or wanted.port + CONTROLLER_PORT_SHIFT
    voters = with_ports(wanted.controllers, first_controller_port)
    taken = [(place.host, place.port) for place in voters]
    brokers = with_ports(wanted.brokers, wanted.port, taken)
    check_places([*voters, *brokers])
    if wanted.is_secure:
        check_listeners((each.name, each.host, each.port) for each in (*voters, *brokers))
    if wanted.racks and len(wanted.racks) != len(brokers):
        raise ConfigError(f"{len(wanted.racks)} --rack for {len(brokers)} brokers; give each one")
    _check_settings(wanted.settings, [*voters, *brokers])
    if wanted.is_secure:
        _check_mechanisms(wanted.settings.get(_MECHANISMS, ""))
    _check_credentials(wanted)
    if wanted.is_static:
        quorum = {_QUORUM[0]: ",".join(f"{place.node_id}@{place.address}" for place in voters)}
    else:
        quorum = {_QUORUM[1]: ",".join(place.address for place in voters)}
    common = {
        "cluster.id": uuid_text(new_uuid(rng)),
        **quorum,
        **(internal_topic_factors(len(brokers)) if brokers else {}),
        # As in `kvorum dev`: a topic that a client creates should survive the loss of a broker.
        **({"default.replication.factor": str(min(len(brokers), 3))} if brokers else {}),
        **wanted.settings,
    }
    racks = dict(zip((place.node_id for place in brokers), wanted.racks, strict=False))
    nodes = [_node(folder, place) for place in (*voters, *brokers)]
    security: dict[str, dict[str, str]] = {}
    if wanted.is_secure:
        nodes = [_with_secrets(folder, node) for node in nodes]
        names = [node.name for node in nodes]
        security = {name: security_properties(FOLDER, name, names) for name in names}
    pages = _pages_of_metrics(wanted, [node.place for node in nodes])
    texts = {
        node.file: _properties(node, common, racks, wanted.bind, security.get(node.name))
        | pages.get(node.name, {})
        for node in nodes
    }
    os.makedirs(folder, exist_ok=True)
    credentials = list(wanted.credentials)
    if wanted.is_secure:
        prepare_secrets(folder, {node.name: (node.place.host,) for node in nodes})
        credentials.append(first_credential(folder, rng))
    if not wanted.is_static:
        first = [_controller(node) for node in nodes[: len(voters)]]
        prepare_voters(first, cluster_id=common["cluster.id"], records=credentials)
    for file, properties in texts.items():
        _write(file, properties)
    return nodes


def add_node(
    folder: str,
    *,
    role: str,
    host: str | None,
    port: int | None,
    rack: str | None = None,
    rng: random.Random,
) -> NewNode:
    """Add a node to the cluster whose configuration files are in `folder`.

    Its id and port follow those of the last node of the same role. Raises ConfigError.
    """
    folder = os.path.abspath(folder)
    known = _known(folder)
    alike = [properties for properties in known if _role(properties) == role]
    pattern = alike[-1] if alike else known[-1]
    if role == "controller" and _QUORUM[0] in pattern:
        raise ConfigError(
            f"the cluster in {folder} has a static voter set ({_QUORUM[0]}="
            f"{pattern[_QUORUM[0]]}): a controller cannot be added to it"
        )
    if role == "controller" and rack is not None:
        raise ConfigError("--rack is for a broker; a controller has none")
    node = _node(folder, _next_place(known, alike, role=role, host=host, port=port))
    is_secure = any(_KEYSTORE in properties for properties in known)
    bind = _bind_of(pattern)
    own = ["node.id", "listeners", "log.dirs"]
    own += ["advertised.listeners"] if bind is not None else []
    settings = {name: value for name, value in pattern.items() if name not in own}
    if not alike:
        settings = {k: v for k, v in settings.items() if k in ("cluster.id", *_QUORUM)}
        settings |= internal_topic_factors(1) if role == "broker" else {}
    warnings = _factors_to_raise(alike) if role == "broker" else []
    for name in _OF_ONE_NODE:
        value = settings.pop(name, None)
        if value is not None and not (name == "broker.rack" and rack is not None):
            warnings.append(
                f"{name}={value} is of node {pattern['node.id']} alone and is not in {node.file}; "
                "give the new node its own there if it needs one"
            )
    racks = {} if rack is None else {node.place.node_id: rack}
    security = None
    if is_secure:
        node = _with_secrets(folder, node)
        security = _security_of_added(folder, node, known, settings if alike else {})
        settings = {name: value for name, value in settings.items() if name not in security}
        warnings.append(_way_in(node))
    properties = _properties(node, settings, racks, bind, security)
    if is_secure:
        make_node_certificates(folder, {node.name: (node.place.host,)})
    if role == "controller":
        prepare(_controller(node), cluster_id=settings["cluster.id"])
    _write(node.file, properties)
    return dataclasses.replace(node, warnings=tuple(warnings))


def _way_in(node: NewNode) -> str:
    """How the nodes of a secure cluster learn that one more is a node."""
    if node.place.role == "broker":
        return (
            f"let {node.name} in before it starts: kvorum acls create --allow-principal "
            f"User:{node.name} --operation cluster-action --cluster"
        )
    # An ACL would not do: without a leader the controllers do not know yet which ACLs hold, and
    # would refuse this one's votes.
    return (
        f"let {node.name} in before it starts: put User:{node.name} into super.users of every "
        "other node's file, and restart these nodes one after the other"
    )


def _security_of_added(
    folder: str,
    node: NewNode,
    known: Sequence[Mapping[str, Any]],
    pattern: Mapping[str, Any],
) -> dict[str, str]:
    """The security properties of a node that is added to a secure cluster. pattern: the settings of
    the last node of its role, if there is one, which count but for the files of its own. Raises
    ConfigError for a cluster whose nodes no longer have the certificates of `kvorum init`."""
    own_folder = os.path.join(folder, FOLDER)
    for properties in known:
        keystore = str(properties.get(_KEYSTORE, ""))
        if not keystore or os.path.dirname(keystore) != own_folder:
            raise ConfigError(
                f"node {properties['node.id']} in {folder} has {_KEYSTORE}={keystore or 'no file'},"
                f" which is not in {own_folder}: copy the file of another node for {node.name}, "
                f"have its certificate (CN={node.name}) signed by the CA of the others, and add "
                f"User:{node.name} to super.users"
            )
    places = [(_name_of(each), *_listener(each)) for each in known]
    check_listeners([*places, (node.name, node.place.host, node.place.port)])
    names = [*(_name_of(each) for each in known), node.name]
    security = security_properties(FOLDER, node.name, names)
    of_pattern = {k: str(v) for k, v in pattern.items() if k in security and k not in _FILES}
    users = with_security(of_pattern, {"super.users": security["super.users"]})["super.users"]
    return {**security, **of_pattern, "super.users": users}


def _next_place(
    known: Sequence[Mapping[str, Any]],
    alike: Sequence[Mapping[str, Any]],
    *,
    role: str,
    host: str | None,
    port: int | None,
) -> NodePlace:
    """Id and address of an additional node. alike: the known nodes of its role."""
    base_id = 0 if role == "controller" else BROKER_ID_BASE
    taken_ids = {int(properties["node.id"]) for properties in known}
    node_id = max((int(properties["node.id"]) for properties in alike), default=base_id) + 1
    while node_id in taken_ids:
        node_id += 1
    last_host, last_port = _listener(alike[-1] if alike else known[-1])
    host = parse_host("--host", host or last_host)
    taken = {_listener(properties) for properties in known}
    if port is not None and (host, port) in taken:
        raise ConfigError(f"port {port} is another node's on {host}")
    place = NodePlace(role=role, node_id=node_id, host=host, port=port or 0)
    return with_ports([place], last_port, taken)[0]


def _factors_to_raise(brokers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning if an additional broker allows more replicas of internal topics than configured.

    The new file keeps the old values. Otherwise the result would depend on which broker creates
    such a topic.
    """
    last = brokers[-1] if brokers else {}
    low = {
        name: fitting
        for name, fitting in internal_topic_factors(len(brokers) + 1).items()
        if int(last.get(name, fitting)) < int(fitting)
    }
    if not low:
        return []
    changes = ", ".join(f"{name} from {last[name]} to {value}" for name, value in low.items())
    return [
        f"{len(brokers) + 1} brokers can keep more replicas of internal topics: raise {changes} in "
        "every broker's file and restart them; an internal topic that exists keeps its replicas "
        "(kvorum partitions reassign)"
    ]


def _check_settings(settings: Mapping[str, str], places: Sequence[NodePlace]) -> None:
    """Raise ConfigError for a property that not all of these nodes can have."""
    reject_unknown(settings, CONTROLLER_NAMES | BROKER_NAMES | of_listeners(settings))
    for name in settings:
        # kvorum init formats the directories of its plan; a node would find no other directory
        # formatted.
        if name in (*GIVEN_BY_THE_PLAN, "log.dir", "metadata.log.dir"):
            raise ConfigError(f"{name!r} is decided by kvorum init and cannot be set")
    hosts = [place.host for place in places]
    shared = next((host for host in hosts if hosts.count(host) > 1), None)
    if "metrics.listener" in settings and shared is not None:
        raise ConfigError(
            f"metrics.listener={settings['metrics.listener']} cannot be that of every node on "
            f"{shared}; give --metrics-port PORT, and each gets a port of its own"
        )


def _pages_of_metrics(wanted: NewCluster, places: Sequence[NodePlace]) -> dict[str, dict[str, str]]:
    """metrics.listener of each node, by its name: the first free port on its host. Raises
    ConfigError."""
    name, first_port = "metrics.listener", wanted.metrics_port
    if first_port is None:
        return {}
    if name in wanted.settings:
        raise ConfigError(f"give --metrics-port or --set {name}, not both")
    taken = [(place.host, place.port) for place in places]
    if wanted.is_secure:
        taken += [(host, port + NODES_PORT_SHIFT) for host, port in taken]
    pages = with_ports([dataclasses.replace(p, port=0) for p in places], first_port, taken)
    return {
        page.name: {name: f"HTTP://{address_text(wanted.bind or page.host, page.port)}"}
        for page in pages
    }


def _check_mechanisms(mechanisms: str) -> None:
    """Raise ConfigError for PLAIN: its users' passwords would have to be on the command line."""
    if "PLAIN" in (text.strip().upper() for text in mechanisms.split(",")):
        raise ConfigError(
            f"{_MECHANISMS}={mechanisms}: the users of PLAIN have passwords, which must not be on "
            f"a command line; leave it out here, then add {_MECHANISMS} and "
            f"{LISTENER_PREFIX}{CLIENTS.lower()}.plain.sasl.jaas.config to each broker's file"
        )


def _check_credentials(wanted: NewCluster) -> None:
    if not wanted.credentials and not wanted.is_secure:
        return
    if wanted.is_static:
        raise ConfigError(
            f"{'--secure' if wanted.is_secure else '--add-scram'} does not go with --static: the "
            "first metadata is in the bootstrap checkpoint, which static voters have not"
        )
    highest = wanted.settings.get("metadata.version.max")
    if highest is not None and highest.isdigit():
        check_level(int(highest))


def prepare_again(folder: str, *, node_id: int) -> NewNode:
    """Prepare a directory for a controller that lost its disk; its id and configuration stay.

    Its first start gives the directory a new id, so the controller has no vote until it is made a
    voter again. Raises ConfigError, also if the directory is not empty.
    """
    folder = os.path.abspath(folder)
    for properties in _known(folder):
        if int(properties["node.id"]) != node_id:
            continue
        if _role(properties) != "controller" or _QUORUM[1] not in properties:
            raise ConfigError(f"node {node_id} is no controller with dynamic voters")
        host, port = _listener(properties)
        place = NodePlace(role="controller", node_id=node_id, host=host, port=port)
        directory = str(properties.get("metadata.log.dir") or properties["log.dirs"])
        if os.path.exists(directory) and os.listdir(directory):
            raise ConfigError(
                f"{directory} still holds data: keep it if you can; if not, remove it first"
            )
        prepare_directory(
            OsDisk(), directory, node_id=node_id, cluster_id=str(properties["cluster.id"])
        )
        return dataclasses.replace(_node(folder, place), directory=directory)
    raise ConfigError(f"{folder} has no node {node_id}")


def _controller(node: NewNode) -> ControllerPlace:
    return ControllerPlace(
        node_id=node.place.node_id,
        host=node.place.host,
        port=node.place.port,
        directory=node.directory,
    )


def _node(folder: str, place: NodePlace) -> NewNode:
    return NewNode(
        place=place,
        file=os.path.join(folder, place.name + ENDING),
        directory=os.path.join(folder, DATA_FOLDER, place.name),
    )


def _with_secrets(folder: str, node: NewNode) -> NewNode:
    """The node of a secure cluster: it has its own certificate, and the CA's."""
    files = (f"{node.name}.pem", CA_FILE)
    return dataclasses.replace(
        node, secrets=tuple(os.path.join(folder, FOLDER, file) for file in files)
    )


def _properties(
    node: NewNode,
    common: Mapping[str, Any],
    racks: Mapping[int, str],
    bind: str | None,
    security: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The node's properties, checked with the node's own checks.

    bind: where it listens, if that is not its own host.
    security: its properties in a secure cluster.
    """
    is_controller = node.place.role == "controller"
    is_secure = security is not None
    properties = {
        **with_security(settings_for(node.place.role, common), security or {}),
        "node.id": node.place.node_id,
        "listeners": _listeners(node.place, node.place.host, is_secure=is_secure),
        # Below the file's folder, so that the node can be moved as a whole.
        "log.dirs": os.path.relpath(node.directory, os.path.dirname(node.file)),
    }
    if bind is not None:
        properties["advertised.listeners"] = properties["listeners"]
        properties["listeners"] = _listeners(node.place, bind, is_secure=is_secure)
    if node.place.node_id in racks:
        properties["broker.rack"] = racks[node.place.node_id]
    check = controller_config if is_controller else broker_config
    check(properties)
    return properties


def _listeners(place: NodePlace, host: str, *, is_secure: bool) -> str:
    """All listeners of a node, on this host."""
    address = address_text(host, place.port)
    if place.role == "controller":
        return f"{CONTROLLER}://{address}"
    if not is_secure:
        return f"PLAINTEXT://{address}"
    nodes = address_text(host, place.port + NODES_PORT_SHIFT)
    return f"{CLIENTS}://{address},{NODES}://{nodes}"


def _known(folder: str) -> list[dict[str, Any]]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ENDING))
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error
    if not names:
        raise ConfigError(f"{folder} holds no node configuration; make one with kvorum init")
    known = [load_node_file(os.path.join(folder, name)) for name in names]
    return sorted(known, key=lambda properties: int(properties["node.id"]))


def _role(properties: Mapping[str, Any]) -> str:
    name = str(properties["listeners"]).partition("://")[0]
    return "controller" if name == controller_listener_name(properties) else "broker"


def _name_of(properties: Mapping[str, Any]) -> str:
    return f"{_role(properties)}-{properties['node.id']}"


def _listener(properties: Mapping[str, Any]) -> tuple[str, int]:
    """The address that others use, if the node listens on all interfaces, else where it listens."""
    name = "listeners" if _bind_of(properties) is None else "advertised.listeners"
    return _first_address(name, properties)


def _bind_of(properties: Mapping[str, Any]) -> str | None:
    """0.0.0.0 or :: if the node listens on all interfaces, else None. A node that is added with
    this one as its pattern listens in the same way."""
    host, _ = _first_address("listeners", properties)
    return host if is_unspecified(host) else None


def _first_address(name: str, properties: Mapping[str, Any]) -> tuple[str, int]:
    first = str(properties[name]).partition(",")[0]
    return parse_address(name, first.partition("://")[2])


def _write(path: str, properties: Mapping[str, Any]) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(dump_properties(properties))
