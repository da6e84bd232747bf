"""The metrics of a broker for Prometheus, read at each scrape from the broker's own state.

The names are Kvorum's: `kvorum_broker_...`; the help text names Kafka's gauge of the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from kvorum.broker.manager.replica_manager import ReplicaManager
    from kvorum.broker.network.server import KafkaServer


def broker_metrics(replicas: ReplicaManager, server: KafkaServer) -> Iterator[Metric]:
    """Gauges of one broker: its directories, replicas and connections."""
    directories = replicas.directories
    online = GaugeMetricFamily(
        "kvorum_broker_log_directory_online",
        "1: the data directory is in use; 0: it has failed, and what lay there is offline.",
        labels=["directory"],
    )
    for directory in directories.items:
        online.add_metric([directory.path], 0 if directory.is_offline else 1)
    yield online
    yield _gauge(
        "log_directories_offline",
        "Data directories that have failed (Kafka: OfflineLogDirectoryCount).",
        directories.offline_count,
    )
    replicas_here = replicas.registry.all()
    led = [replica for replica in replicas_here if replica.core.is_leader]
    yield _gauge("replicas", "Replicas on this broker (PartitionCount).", len(replicas_here))
    yield _gauge("replicas_led", "Partitions led by this broker (LeaderCount).", len(led))
    yield _gauge(
        "replicas_offline",
        "Replicas here that cannot be used (OfflineReplicaCount).",
        sum(replica.is_offline for replica in replicas_here) + len(replicas.registry.broken),
    )
    yield _gauge(
        "partitions_under_replicated",
        "Led partitions of which some replica is not in sync (UnderReplicatedPartitions).",
        sum(len(r.core.isr_state.isr) < len(r.core.replicas) for r in led),
    )
    yield _gauge(
        "partitions_under_min_isr",
        "Led partitions with fewer in sync than min.insync.replicas (UnderMinIsrPartitionCount).",
        sum(replica.core.is_under_min_isr for replica in led),
    )
    yield _gauge("connections", "Clients and followers connected.", server.connection_count)
    services = server.services
    now_ms = services.now_ms()
    services.client_figures.forget(lambda known: services.telemetry.is_known(known, now_ms))
    yield from services.client_figures.metrics()


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"kvorum_broker_{name}", text, value=value)
