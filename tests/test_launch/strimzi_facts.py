"""The metrics and labels that Strimzi's dashboards for Kafka and KRaft, and its alert rules for
Kafka, ask for.

Facts about expressions of strimzi-kafka.json, strimzi-kraft.json and prometheus-kafka-rules.yaml,
without the files: for each
expression its metric, the labels that it selects by or that its variables and `by` need, and True
if it takes a rate of the metric.
"""

from __future__ import annotations

from typing import NamedTuple


class Asked(NamedTuple):
    metric: str
    labels: tuple[str, ...]
    is_rate: bool = False


_NS = ("namespace",)
_CLUSTER = ("namespace", "strimzi_io_cluster")
_POD = (*_CLUSTER, "kubernetes_pod_name")
_NAMED = ("namespace", "kubernetes_pod_name", "strimzi_io_name")
_TOPIC = (*_POD, "topic")

KAFKA = (
    Asked("kafka_server_replicamanager_leadercount", _POD),
    Asked("kafka_controller_kafkacontroller_activecontrollercount", _CLUSTER),
    Asked("kafka_controller_controllerstats_uncleanleaderelections_total", _CLUSTER, True),
    Asked("kafka_server_replicamanager_partitioncount", _CLUSTER),
    Asked("kafka_server_replicamanager_underreplicatedpartitions", _CLUSTER),
    Asked("kafka_cluster_partition_atminisr", _CLUSTER),
    Asked("kafka_cluster_partition_underminisr", _CLUSTER),
    Asked("kafka_cluster_partition_replicascount", _TOPIC),
    Asked("kafka_controller_kafkacontroller_offlinepartitionscount", _CLUSTER),
    Asked("process_open_fds", ("namespace", "kubernetes_pod_name", "container")),
    Asked("kafka_server_brokertopicmetrics_bytesin_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_bytesout_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_messagesin_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_totalproducerequests_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_failedproducerequests_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_totalfetchrequests_total", _TOPIC, True),
    Asked("kafka_server_brokertopicmetrics_failedfetchrequests_total", _TOPIC, True),
    Asked("kafka_network_socketserver_networkprocessoravgidle_percent", _POD),
    Asked("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _POD),
    Asked("kafka_server_kafkaserver_linux_disk_write_bytes", _POD, True),
    Asked("kafka_server_kafkaserver_linux_disk_read_bytes", _POD, True),
    Asked("kafka_server_socket_server_metrics_connection_count", (*_POD, "listener")),
    Asked("kafka_log_log_size", (*_TOPIC, "partition")),
)
KRAFT = (
    Asked("process_open_fds", ("namespace", "kubernetes_pod_name", "container")),
    Asked("kafka_server_raftmetrics_append_records_rate", _POD),
    Asked("kafka_server_raftmetrics_fetch_records_rate", _NAMED),
    Asked("kafka_server_raftmetrics_commit_latency_avg", _POD),
    Asked("kafka_server_raftmetrics_current_state", ("kubernetes_pod_name", "current_state")),
    Asked("kafka_server_raftmetrics_current_leader", _POD),
    Asked("kafka_server_raftmetrics_current_vote", _POD),
    Asked("kafka_server_raftmetrics_current_epoch", _POD),
    Asked("kafka_server_raftchannelmetrics_incoming_byte_total", _POD, True),
    Asked("kafka_server_raftchannelmetrics_outgoing_byte_total", _POD, True),
    Asked("kafka_server_raftchannelmetrics_request_total", _POD, True),
    Asked("kafka_server_raftchannelmetrics_response_total", _POD, True),
    Asked("kafka_server_raftmetrics_high_watermark", _NAMED),
    Asked("kafka_server_raftmetrics_log_end_offset", _NAMED),
)
RULES = (
    Asked("kafka_server_replicamanager_underreplicatedpartitions", ("kubernetes_pod_name",)),
    Asked("kafka_controller_kafkacontroller_activecontrollercount", ("strimzi_io_name", *_NS)),
    Asked("kafka_controller_kafkacontroller_offlinepartitionscount", (*_NS, "pod")),
    Asked("kafka_server_replicamanager_underminisrpartitioncount", ("kubernetes_pod_name",)),
    Asked("kafka_log_logmanager_offlinelogdirectorycount", ("kubernetes_pod_name",)),
    Asked("up", ("kubernetes_pod_name", "strimzi_io_component_type")),
)
"""KafkaRunningOutOfSpace and both alerts about containers ask for metrics in NO_VALUE."""
NO_VALUE = (
    "jvm_memory_used_bytes",
    "jvm_gc_collection_seconds_sum",
    "jvm_gc_collection_seconds_count",
    "jvm_threads_current",
    "container_memory_usage_bytes",
    "container_cpu_usage_seconds_total",
    "container_last_seen",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
)
"""Metrics of the JVM, of containers and of the kubelet; docs/metrics.md has the reason of each."""
