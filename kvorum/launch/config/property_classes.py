"""The classes of a node's properties: names, defaults and meanings, without the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.kafka_properties import BROKER_ID
from kvorum.launch.config.listeners import of_listeners
from kvorum.launch.config.node_links import TlsProperties, of_controllers
from kvorum.metadata.configs.broker_keys import OTHER_NAMES
from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.features import RELEASES
from kvorum.raft.node.snapshot_files import SnapshotPolicy
from kvorum.runtime.config import property_names
from kvorum.runtime.http2.keepalive import (
    CONNECT_TIMEOUT_MS,
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    Patience,
)

BROKER = "PLAINTEXT"
CONTROLLER = "CONTROLLER"
"""Listener names of brokers and controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProperties:
    """Identity and addresses of a node.

    listeners: `NAME://host:port,...` (brokers, for Kafka clients) or `CONTROLLER://host:port`.
    advertised_listeners: the addresses that clients get from a broker, and the address at which
        other nodes reach a controller; by default those of listeners.
    listener_security_protocol_map, inter_broker_listener_name: see launch.config.listeners.
    controller_listener_names, security_inter_broker_protocol, sasl_mechanism_inter_broker_protocol:
        see launch.config.node_links.
    controller_quorum_voters: `1@host:port,2@host:port,...`, a static voter set, equal on all nodes.
    controller_quorum_bootstrap_servers: `host:port,...`, some controllers of a quorum with dynamic
        voters. Exactly one of these two must be given.
    log_dirs: the node's data directories, separated by commas.
    log_dir: a single one, if log_dirs is not given.
    metadata_log_dir: directory of the metadata log; by default the first data directory.
    peer_address_overrides: `id=host:port,...`, the address of a peer if it differs from the one the
        peer gives: a proxy, a tunnel, an address behind NAT.
    metadata_version_max: the highest metadata.version that the node reports as supported. A lower
        value makes it act like an older build, to rehearse a rolling upgrade.
    metrics_listener: `HTTP://host:port`, or HTTPS, for Prometheus; empty means none.
    metrics_names: `kvorum`, `kafka` (the names of the JMX exporter), or both.
    kvorum_logging_format, kvorum_logging_levels, kvorum_audit_file: see launch.daemon.logs.
    kvorum_tracing_enable: see launch.daemon.tracing.
    authorizer_class_name, super_users, allow_everyone_if_no_acl_found,
        kvorum_controller_principals, kvorum_broker_principals: see launch.config.access.
    kvorum_preset: the name of a set of properties (`launch.config.presets`); empty means none.
    kvorum_allow_unknown_properties: names that neither Kafka nor Kvorum has are ignored with a
        warning; otherwise they stop the start.
    """

    node_id: int
    cluster_id: str
    listeners: str
    log_dirs: str = ""
    log_dir: str = ""
    metadata_log_dir: str = ""
    controller_quorum_voters: str = ""
    controller_quorum_bootstrap_servers: str = ""
    advertised_listeners: str = ""
    listener_security_protocol_map: str = ""
    inter_broker_listener_name: str = ""
    security_inter_broker_protocol: str = ""
    sasl_mechanism_inter_broker_protocol: str = ""
    controller_listener_names: str = CONTROLLER
    broker_rack: str = ""
    peer_address_overrides: str = ""
    broker_heartbeat_interval_ms: int = 500
    controlled_shutdown_timeout_ms: int = 3_000
    metadata_version_max: int = max(RELEASES)
    metrics_listener: str = ""
    metrics_names: str = "kvorum"
    kvorum_preset: str = ""
    kvorum_allow_unknown_properties: bool = False
    kvorum_logging_format: str = "text"
    kvorum_logging_levels: str = ""
    kvorum_audit_file: str = ""
    kvorum_tracing_enable: bool = False
    authorizer_class_name: str = ""
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    kvorum_controller_principals: str = ""
    kvorum_broker_principals: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumProperties:
    """Timeouts of the quorum in ms, and the size of a snapshot chunk; see `RaftConfig`."""

    controller_quorum_election_timeout_ms: int = 300
    controller_quorum_fetch_timeout_ms: int = 900
    controller_quorum_request_timeout_ms: int = 800
    controller_quorum_fetch_wait_max_ms: int = 400
    controller_quorum_retry_backoff_ms: int = 20
    controller_quorum_leader_loss_grace_ms: int = 30
    controller_quorum_snapshot_chunk_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PatienceProperties:
    """The times that a node waits for another one, in ms.

    controller_socket_timeout_ms: for a controller's answer to a heartbeat or a registration; then
        the next controller is asked.
    socket_connection_setup_timeout_ms: for a connection.
    rpc_keepalive_time_ms: a gRPC connection that is silent for this long is pinged, and closed if
        nothing arrives within rpc_keepalive_timeout_ms after that.
    initial_broker_registration_timeout_ms: a broker that could not register by then exits.
    """

    controller_socket_timeout_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = CONNECT_TIMEOUT_MS
    rpc_keepalive_time_ms: int = KEEPALIVE_TIME_MS
    rpc_keepalive_timeout_ms: int = KEEPALIVE_TIMEOUT_MS
    initial_broker_registration_timeout_ms: int = 60_000

    def of_connections(self) -> Patience:
        """The part that concerns connections."""
        return Patience(
            connect_ms=self.socket_connection_setup_timeout_ms,
            time_ms=self.rpc_keepalive_time_ms,
            timeout_ms=self.rpc_keepalive_timeout_ms,
        )


_OF_BOTH = (NodeProperties, QuorumProperties, PatienceProperties, SnapshotPolicy)
CONTROLLER_CLASSES = (*_OF_BOTH, TlsProperties, ControllerConfig)
BROKER_CLASSES = (*_OF_BOTH, BrokerConfig)
CONTROLLER_NAMES = frozenset((*property_names(*CONTROLLER_CLASSES), BROKER_ID))
BROKER_NAMES = frozenset((*property_names(*BROKER_CLASSES), *(key.name for key in OTHER_NAMES)))
"""The properties that a node of each role obeys."""


def settings_for(role: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a whole cluster that apply to its controllers, or to its brokers."""
    own, other = CONTROLLER_NAMES, BROKER_NAMES
    if role == "broker":
        own, other = other, own
    kept = {name: value for name, value in settings.items() if name in own or name not in other}
    if role == "controller":
        for name in of_listeners(kept) - of_controllers(kept):
            del kept[name]
    return kept
