"""The metrics of a node for Prometheus: the quorum, and the metadata that the node holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import NO_LEADER
from kvorum.raft.core import RaftCore


def quorum_metrics(core: RaftCore) -> Iterator[Metric]:
    """Metrics of the node's own part in the quorum."""
    yield GaugeMetricFamily(
        "kvorum_raft_is_leader", "1: this node leads the quorum.", value=int(core.is_leader)
    )
    yield GaugeMetricFamily(
        "kvorum_raft_leader_id", "Who leads, as far as known; -1: nobody.", value=core.leader_id
    )
    yield GaugeMetricFamily("kvorum_raft_epoch", "The quorum's epoch.", value=core.epoch)
    yield GaugeMetricFamily(
        "kvorum_raft_high_watermark_offset",
        "End of what is committed, as far as this node knows.",
        value=core.high_watermark,
    )


def image_metrics(image: ClusterImage, age_ms: int | None) -> Iterator[Metric]:
    """Metrics of the cluster, from this node's image.

    age_ms: time since this node last heard of a leader of the quorum; None if it never has. Without
        this metric, figures from before an outage would look current.
    """
    yield GaugeMetricFamily(
        "kvorum_metadata_age_seconds",
        "For how long no leader of the quorum was heard of; the figures are as old. +Inf: never.",
        value=math.inf if age_ms is None else age_ms / 1000,
    )
    partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
    brokers = image.brokers.values()
    for name, text, value in (
        ("applied_offset", "End of the metadata log that is applied here.", image.end_offset),
        ("topics", "Topics.", len(image.topics)),
        ("partitions", "Partitions.", len(partitions)),
        (
            "partitions_offline",
            "Partitions without a leader.",
            sum(partition.leader == NO_LEADER for partition in partitions),
        ),
        ("brokers_active", "Brokers in service.", sum(broker.is_active for broker in brokers)),
        ("brokers_fenced", "Brokers out of service.", sum(broker.is_fenced for broker in brokers)),
    ):
        yield GaugeMetricFamily(f"kvorum_metadata_{name}", text, value=value)
