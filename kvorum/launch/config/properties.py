"""The properties of a node's configuration file that brokers and controllers share."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import text_of
from kvorum.broker.groups.steps.migration_policy import parse_policy
from kvorum.broker.network.connection_limits import parse_overrides
from kvorum.broker.network.peer_security import NO_SECURITY, PeerSecurity
from kvorum.launch.config.access import AccessSettings, access_settings
from kvorum.launch.config.kafka_properties import BROKER_ID, NODE_ID, unbound, with_bound_names
from kvorum.launch.config.listeners import (
    Address,
    Listener,
    OwnProperties,
    broker_listeners,
    check_reachable,
    controller_addresses,
    of_listeners,
    parse_address,
    tls_settings,
    tool_listeners,
)
from kvorum.launch.config.node_links import (
    ControllerListener,
    TlsProperties,
    controller_listener,
    controller_listener_name,
    controller_listener_names,
    inter_broker_name,
    of_controllers,
    open_controllers,
    peer_security,
)
from kvorum.launch.config.presets import with_preset
from kvorum.launch.config.property_classes import (
    BROKER,
    BROKER_CLASSES,
    BROKER_NAMES,
    CONTROLLER,
    CONTROLLER_CLASSES,
    CONTROLLER_NAMES,
    NodeProperties,
    PatienceProperties,
    QuorumProperties,
)
from kvorum.launch.config.quorum_addresses import bootstrap_servers, peer_overrides, static_voters
from kvorum.launch.config.secret_properties import weak_secrets
from kvorum.launch.daemon.logs import log_settings
from kvorum.launch.metrics.row import KAFKA, NAME_SETS, OWN
from kvorum.metadata.configs.broker_keys import BROKER_CONFIGS
from kvorum.metadata.configs.cordons import cordoned_paths, cordons_problem
from kvorum.metadata.configs.effective import StaticValue
from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.metadata.configs.group_keys import broker_defaults_problem
from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.controller.decide import RECORDS_PER_BATCH_MAX
from kvorum.metadata.image.features import RELEASES
from kvorum.raft.model.values import RaftConfig
from kvorum.raft.node.snapshot_files import SnapshotPolicy
from kvorum.runtime.config import Properties, bind, check_types
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.ids import uuid_from_text
from kvorum.runtime.tls import TlsSettings
from kvorum.snapshots.store import CHUNK_BYTES_MAX

SEGMENT_BYTES_MIN = 8 << 20
"""Minimum of metadata.log.segment.bytes, as in Kafka: a batch of metadata must fit into a
segment."""


HTTPS = "HTTPS"
"""Scheme of `metrics.listener` for a page over TLS, with the node's `ssl.*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node's configuration, checked.

    controllers: address of each controller for this node, with overrides.
    voter_addresses: the same without overrides, for other nodes. Both are empty if the voters are
        dynamic.
    bootstrap_servers: the first addresses to ask if the voters are dynamic.
    given: the properties as in the file.
    notes: a line for the log for each one without an effect, and for a weak secret.
    directory: of the metadata log.
    data_directories: of partitions; a controller has only `directory`.
    metrics: address of the metrics server, None for none.
    metrics_tls: its TLS, None in clear text.
    metrics_names: the sets of names there.
    listen, advertised: of the controller's listener, or of the one that brokers use among
        themselves.
    listeners: all of a broker's, that one first; none of a controller.
    tool_listeners: of a controller, those on which it serves Kafka's tools.
    controller_listener: of the controllers, on every node.
    peer_security: of a broker's connections to other brokers.
    access: None if everybody may do everything.
    """

    node_id: int
    cluster_id: str
    directory: str
    data_directories: tuple[str, ...]
    listen: Address
    advertised: Address
    rack: str | None
    controllers: dict[int, Address]
    voter_addresses: dict[int, Address]
    overrides: dict[int, Address]
    bootstrap_servers: tuple[Address, ...]
    raft: RaftConfig
    snapshots: SnapshotPolicy
    node: NodeProperties
    waits: PatienceProperties
    metrics: Address | None
    metrics_names: tuple[str, ...]
    metrics_tls: TlsSettings | None
    given: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] = ()
    tool_listeners: tuple[Listener, ...] = ()
    controller_listener: ControllerListener = dataclasses.field(default_factory=ControllerListener)
    peer_security: PeerSecurity = NO_SECURITY
    access: AccessSettings | None = None

    def address_of(self, node_id: int) -> Address | None:
        """The configured address of a controller or bootstrap server; None if there is none.

        node_id: a controller's id, or a bootstrap server's stand-in (`RaftConfig.bootstrap_ids`).
        """
        if node_id in self.raft.bootstrap_ids:
            return self.bootstrap_servers[self.raft.bootstrap_ids.index(node_id)]
        if node_id in self.overrides:
            return self.overrides[node_id]
        return self.controllers.get(node_id)


RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only accepted value of replica.selector.class."""


def controller_config(properties: Mapping[str, Any]) -> tuple[NodeConfig, ControllerConfig]:
    """Check a controller's properties. Raises ConfigError if one is invalid."""
    config, properties = _of_both_roles(properties, "controller")
    if len(config.data_directories) > 1 and not config.node.metadata_log_dir:
        raise ConfigError(
            f"log.dirs={config.node.log_dirs}: a controller keeps the metadata log alone, in one "
            "directory; give that one, or name it with metadata.log.dir"
        )
    if not config.raft.is_dynamic and config.node_id not in config.controllers:
        raise ConfigError(
            f"node.id={config.node_id} is not in controller.quorum.voters "
            f"({config.node.controller_quorum_voters}); a controller must be one of them"
        )
    _check_callers(config)
    controller = bind(ControllerConfig, properties)
    _check_token_times(controller)
    _check_records_max(controller)
    interval_ms = config.node.broker_heartbeat_interval_ms
    if controller.broker_session_timeout_ms < 2 * interval_ms:
        raise ConfigError(
            f"broker.session.timeout.ms={controller.broker_session_timeout_ms} is less than two "
            f"times broker.heartbeat.interval.ms={interval_ms}: a heartbeat that is a little late "
            "would fence the broker; raise the one or lower the other, here and on the brokers"
        )
    return config, controller


def _of_both_roles(given: Mapping[str, Any], role: str) -> tuple[NodeConfig, Properties]:
    """The part that nodes of both roles have: the checked configuration with its notes, and the
    properties under the names that `bind` knows."""
    _check_role(given, role)
    is_broker = role == "broker"
    own, other = BROKER_NAMES, CONTROLLER_NAMES
    if not is_broker:
        own, other = other, own
    given = with_preset(given, own)
    properties = with_bound_names(given)
    config = _node_config(properties, BROKER if is_broker else CONTROLLER)
    notes = unbound(
        given,
        own | (of_listeners(given) if is_broker else of_controllers(given)),
        other,
        role,
        allow_unknown=config.node.kvorum_allow_unknown_properties,
    )
    return _with_warnings(dataclasses.replace(config, given=given, notes=notes)), properties


def _with_warnings(config: NodeConfig) -> NodeConfig:
    """The configuration with notes of weak secrets, and of an authorizer that the controllers'
    listener goes around."""
    text = "" if config.access is None else open_controllers(config.controller_listener)
    more = (*weak_secrets(config.given), *([text] if text else ()))
    return dataclasses.replace(config, notes=(*config.notes, *more))


def _check_token_times(controller: ControllerConfig) -> None:
    for name in ("expiry_check_interval_ms", "expiry_time_ms", "max_lifetime_ms"):
        value = getattr(controller, f"delegation_token_{name}")
        if value < 1:
            raise ConfigError(
                f"delegation.token.{name.replace('_', '.')}={value} must be positive, in ms; to "
                "have no delegation tokens, leave out delegation.token.secret.key"
            )


def _check_records_max(controller: ControllerConfig) -> None:
    most = controller.kvorum_controller_request_records_max
    if not 1 <= most <= RECORDS_PER_BATCH_MAX:
        raise ConfigError(
            f"kvorum.controller.request.records.max={most} must lie between 1 and "
            f"{RECORDS_PER_BATCH_MAX}, which one batch of the metadata log holds"
        )


def _check_callers(config: NodeConfig) -> None:
    """Raise ConfigError for an authorizer that would refuse every node."""
    tls = config.controller_listener.server
    is_named = tls is not None and tls.client_auth != "none"
    if config.access is None or is_named or "User:ANONYMOUS" in config.access.super_users:
        return
    name = config.controller_listener.name
    raise ConfigError(
        f"authorizer.class.name: on the listener {name} every node is User:ANONYMOUS, and would be "
        f"refused; set listener.security.protocol.map={name}:SSL and listener.name."
        f"{name.lower()}.ssl.client.auth=required, or put User:ANONYMOUS into super.users, which "
        "lets everybody in who reaches that listener"
    )


def broker_config(properties: Mapping[str, Any]) -> tuple[NodeConfig, BrokerConfig]:
    """Check a broker's properties. Raises ConfigError if one is invalid."""
    config, properties = _of_both_roles(properties, "broker")
    if config.node_id in config.controllers:
        raise ConfigError(
            f"node.id={config.node_id} is a controller in controller.quorum.voters; "
            "a broker needs an id of its own"
        )
    broker = bind(BrokerConfig, properties)
    if broker.replica_selector_class not in ("", RACK_AWARE):
        raise ConfigError(
            f"replica.selector.class={broker.replica_selector_class} is not served; leave it out, "
            f"or give {RACK_AWARE}"
        )
    defaults_problem = broker_defaults_problem(broker)
    if defaults_problem is not None:
        raise ConfigError(f"{defaults_problem}; set both, or leave them at their defaults")
    if broker.group_share_max_size > broker.group_share_max_share_sessions:
        raise ConfigError(
            f"group.share.max.size={broker.group_share_max_size} must not be above "
            f"group.share.max.share.sessions={broker.group_share_max_share_sessions}"
        )
    try:
        parse_overrides(broker.max_connections_per_ip_overrides)
    except ValueError as error:
        raise ConfigError(f"max.connections.per.ip.overrides: {error}") from error
    try:
        parse_policy(broker.group_consumer_migration_policy)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    cordons = cordons_problem(cordoned_paths(broker.cordoned_log_dirs), config.data_directories)
    if cordons is not None:
        raise ConfigError(cordons)
    return config, broker


def _check_role(properties: Mapping[str, Any], role: str) -> None:
    """Raise ConfigError for the other role's file, before its properties count as unknown."""
    other = "broker" if role == "controller" else "controller"
    name = {"broker": BROKER, "controller": controller_listener_name(properties)}[other]
    if str(properties.get("listeners", "")).startswith(f"{name}://"):
        raise ConfigError(
            f"this is a {other}'s file, and not a {role}'s: listeners={properties['listeners']}; "
            f"run it with kvorum {other} --config"
        )


def static_values(given: Mapping[str, Any]) -> dict[str, StaticValue]:
    """All properties of a broker at its start as text, by name.

    given: those of its file, checked; the others have their defaults. As in Kafka, unknown names
        are included.
    """
    values = {name: StaticValue(text_of(value), True) for name, value in given.items()}
    if BROKER_ID in values:
        values.setdefault(NODE_ID, values[BROKER_ID])
    elif NODE_ID in values:
        values[BROKER_ID] = values[NODE_ID]
    for cls in BROKER_CLASSES:
        for field in dataclasses.fields(cls):
            name = field.name.replace("_", ".")
            if name not in values and field.default is not dataclasses.MISSING:
                values[name] = StaticValue(text_of(field.default), False)
    return values


def _node_config(properties: Mapping[str, Any], listener_name: str) -> NodeConfig:
    is_broker = listener_name == BROKER
    check_types(BROKER_CLASSES if is_broker else CONTROLLER_CLASSES, properties)
    node, quorum = bind(NodeProperties, properties), bind(QuorumProperties, properties)
    _check_values(properties)
    _check_identity(node)
    _check_quorum(node)
    controllers = static_voters(node.controller_quorum_voters)
    bootstrap = bootstrap_servers(node.controller_quorum_bootstrap_servers)
    data_directories = _data_directories(node)
    overrides = peer_overrides(node.peer_address_overrides)
    is_https = node.metrics_listener.startswith(f"{HTTPS}://")
    metrics = None
    if node.metrics_listener:
        scheme = HTTPS if is_https else "HTTP"
        metrics = _listener("metrics.listener", node.metrics_listener, scheme)
    of_tls = bind(BrokerConfig, properties) if is_broker else bind(TlsProperties, properties)
    controllers_own = controller_listener(
        properties, node.listener_security_protocol_map, of_tls, listens=not is_broker
    )
    listeners = _broker_listeners(node, properties) if is_broker else ()
    security = NO_SECURITY
    tools: tuple[Listener, ...] = ()
    if listeners:
        listen, advertised = listeners[0].listen, listeners[0].advertised
        security = peer_security(
            listeners[0], node.sasl_mechanism_inter_broker_protocol, of_tls, properties
        )
    else:
        addresses, told = _controller_addresses(node, properties)
        listen, advertised = addresses.pop(controllers_own.name), told[controllers_own.name]
        defaults = dataclasses.replace(BrokerConfig(), **dataclasses.asdict(of_tls))
        tools = tool_listeners(
            addresses, told, node.listener_security_protocol_map, defaults, properties
        )
    return NodeConfig(
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        directory=os.path.abspath(node.metadata_log_dir or data_directories[0]),
        data_directories=data_directories,
        listen=listen,
        advertised=advertised,
        rack=node.broker_rack or None,
        controllers={i: overrides.get(i, address) for i, address in controllers.items()},
        voter_addresses=controllers,
        overrides=overrides,
        bootstrap_servers=bootstrap,
        raft=_raft_config(
            node,
            quorum,
            voters=tuple(sorted(controllers)),
            address=advertised if listener_name == CONTROLLER else None,
            # The ids that Apache Kafka uses for servers whose own ids are unknown.
            bootstrap_ids=tuple(-2 - i for i in range(len(bootstrap))),
        ),
        snapshots=_snapshot_policy(properties),
        node=node,
        waits=_waits(properties),
        metrics=metrics,
        metrics_tls=(
            tls_settings(OwnProperties("METRICS", of_tls, properties)) if is_https else None
        ),
        metrics_names=_metrics_names(node.metrics_names),
        given=dict(properties),
        listeners=listeners,
        tool_listeners=tools,
        controller_listener=controllers_own,
        peer_security=security,
        access=access_settings(node),
    )


def _check_identity(node: NodeProperties) -> None:
    if not min(RELEASES) <= node.metadata_version_max <= max(RELEASES):
        raise ConfigError(
            f"metadata.version.max={node.metadata_version_max} must lie in {min(RELEASES)} to "
            f"{max(RELEASES)}, which this build knows"
        )
    try:
        uuid_from_text(node.cluster_id)
    except ValueError as error:
        raise ConfigError(f"cluster.id: {error}") from error


def _check_quorum(node: NodeProperties) -> None:
    if bool(node.controller_quorum_voters) == bool(node.controller_quorum_bootstrap_servers):
        raise ConfigError(
            "give either controller.quorum.voters (a static voter set) or "
            "controller.quorum.bootstrap.servers (dynamic voters), "
            + ("and not both" if node.controller_quorum_voters else "for a node to find its quorum")
        )


def _broker_listeners(node: NodeProperties, properties: Mapping[str, Any]) -> tuple[Listener, ...]:
    return broker_listeners(
        listeners=node.listeners,
        advertised_listeners=node.advertised_listeners,
        protocol_map=node.listener_security_protocol_map,
        inter_broker=inter_broker_name(
            node.inter_broker_listener_name, node.security_inter_broker_protocol
        ),
        controllers=controller_listener_names(properties),
        broker=bind(BrokerConfig, properties),
        properties=properties,
    )


def _controller_addresses(
    node: NodeProperties, properties: Mapping[str, Any]
) -> tuple[dict[str, Address], dict[str, Address]]:
    """The addresses of a controller's listeners by name: where it listens, and where others find
    it. Raises ConfigError."""
    names = controller_listener_names(properties)
    listen = controller_addresses("listeners", node.listeners, names)
    told, what, text = listen, "listeners", node.listeners
    if node.advertised_listeners:
        what, text = "advertised.listeners", node.advertised_listeners
        told = controller_addresses(what, text, names)
    check_reachable(f"{what}={text}", names[0], told[names[0]], "other nodes")
    return dict(listen), told


def _waits(properties: Mapping[str, Any]) -> PatienceProperties:
    waits = bind(PatienceProperties, properties)
    for field in dataclasses.fields(waits):
        if getattr(waits, field.name) <= 0:
            name = field.name.replace("_", ".")
            raise ConfigError(f"{name}={getattr(waits, field.name)} must be positive")
    return waits


def _check_values(properties: Mapping[str, Any]) -> None:
    """Check a file against the table that also checks changes at run time. Raises ConfigError.

    Bad sequence without it: a broker with message.max.bytes=-1 starts, serves, and refuses every
    record.
    """
    problems = [
        problem
        for name, value in sorted(properties.items())
        if name in BROKER_CONFIGS and (problem := BROKER_CONFIGS[name].problem(text_of(value)))
    ]
    if problems:
        raise ConfigError("; ".join(problems))
    bounds_problem = bind(GroupBounds, properties).bounds_problem()
    if bounds_problem is not None:
        raise ConfigError(bounds_problem)
    log_settings(properties)


def _data_directories(node: NodeProperties) -> tuple[str, ...]:
    """Absolute paths of the data directories, in the order of the configuration."""
    text = node.log_dirs or node.log_dir
    given = [part.strip() for part in text.split(",")]
    if not all(given):
        raise ConfigError(
            f"log.dirs={node.log_dirs!r} (or log.dir={node.log_dir!r}) must name the node's data "
            "directories, with commas between them"
        )
    paths = [os.path.abspath(path) for path in given]
    # The metadata log may be in one of them, or outside all of them.
    own = [os.path.abspath(node.metadata_log_dir)] if node.metadata_log_dir else []
    for path in [*paths, *own]:
        within = next((p for p in paths + own if p != path and path.startswith(f"{p}/")), None)
        if paths.count(path) > 1 or within is not None:
            raise ConfigError(
                f"log.dirs={text!r} names {path} twice"
                if within is None
                else f"log.dirs={text!r}: {path} lies in {within}; each needs a place of its own"
            )
    return tuple(paths)


def _raft_config(
    node: NodeProperties,
    quorum: QuorumProperties,
    *,
    voters: tuple[int, ...],
    address: Address | None,
    bootstrap_ids: tuple[int, ...],
) -> RaftConfig:
    for field in dataclasses.fields(quorum):
        if getattr(quorum, field.name) <= 0:
            name = field.name.replace("_", ".")
            raise ConfigError(f"{name}={getattr(quorum, field.name)} must be positive")
    fetch_timeout_ms = quorum.controller_quorum_fetch_timeout_ms
    wait_ms = quorum.controller_quorum_fetch_wait_max_ms
    request_timeout_ms = quorum.controller_quorum_request_timeout_ms
    if not wait_ms < request_timeout_ms < fetch_timeout_ms:
        raise ConfigError(
            "controller.quorum.fetch.wait.max.ms < controller.quorum.request.timeout.ms < "
            f"controller.quorum.fetch.timeout.ms must hold, got {wait_ms}, "
            f"{request_timeout_ms}, {fetch_timeout_ms}"
        )
    if not 0 < quorum.controller_quorum_snapshot_chunk_bytes <= CHUNK_BYTES_MAX:
        raise ConfigError(
            f"controller.quorum.snapshot.chunk.bytes="
            f"{quorum.controller_quorum_snapshot_chunk_bytes} must lie in 1 to {CHUNK_BYTES_MAX}"
        )
    return RaftConfig(
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        voters=voters,
        address=address,
        bootstrap_ids=bootstrap_ids,
        election_timeout_ms=quorum.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=fetch_timeout_ms,
        check_quorum_timeout_ms=fetch_timeout_ms * 3 // 2,
        leader_loss_grace_ms=quorum.controller_quorum_leader_loss_grace_ms,
        fetch_wait_max_ms=wait_ms,
        retry_backoff_ms=quorum.controller_quorum_retry_backoff_ms,
        request_timeout_ms=request_timeout_ms,
        snapshot_chunk_bytes=quorum.controller_quorum_snapshot_chunk_bytes,
    )


def _snapshot_policy(properties: Mapping[str, Any]) -> SnapshotPolicy:
    policy = bind(SnapshotPolicy, properties)
    if policy.metadata_log_segment_bytes < SEGMENT_BYTES_MIN:
        raise ConfigError(
            f"metadata.log.segment.bytes={policy.metadata_log_segment_bytes} must be at least "
            f"{SEGMENT_BYTES_MIN}: one decision of the controller goes into one batch"
        )
    if policy.metadata_log_max_record_bytes_between_snapshots <= 0:
        raise ConfigError("metadata.log.max.record.bytes.between.snapshots must be positive")
    return policy


def _listener(property_name: str, text: str, listener_name: str) -> Address:
    name, separator, address = text.partition("://")
    if not separator or name != listener_name or "," in text:
        raise ConfigError(
            f"{property_name}={text!r} must be one listener of the form {listener_name}://host:port"
        )
    return parse_address(property_name, address)


def _metrics_names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not set(names) <= set(NAME_SETS) or len(set(names)) != len(names):
        raise ConfigError(
            f"metrics.names={text!r} must be {OWN}, {KAFKA}, or both with a comma between them"
        )
    return names
