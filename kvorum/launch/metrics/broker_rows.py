"""The rows of brokers: requests, topics, partitions, and the broker's parts."""

from __future__ import annotations

from kvorum.launch.metrics.row import COUNTER, GAUGE, HISTOGRAM, Row
from kvorum.launch.metrics.share_rows import SHARE_ROWS

_REQUEST = "kafka.network:type=RequestMetrics,name={},request="
_TOPIC = "kafka.server:type=BrokerTopicMetrics,name={}PerSec"


def _time(name: str, source: str, text: str, kafka: str) -> Row:
    return Row(
        f"kvorum_request_{name}seconds", HISTOGRAM, "api", source, text, _REQUEST.format(kafka),
        f"kafka_network_requestmetrics_{kafka.lower()}", 1000.0,
    )  # fmt: skip


def _traffic(name: str, source: str, text: str, kafka: str) -> tuple[Row, ...]:
    """Two rows, by topic and for all topics; Kafka has one name for both, with and without the
    label `topic`."""
    mbean, exported = _TOPIC.format(kafka), f"kafka_server_brokertopicmetrics_{kafka.lower()}_total"
    return (
        Row(f"kvorum_topic_{name}_total", COUNTER, "topic", source, f"{text}, by topic.",
            f"{mbean},topic=", exported),
        Row(f"kvorum_broker_{name}_total", COUNTER, "topics", source,
            f"{text}, of all topics, deleted ones too.", mbean, exported),
    )  # fmt: skip


def _manager(name: str, source: str, text: str, kafka: str, kind: str = GAUGE) -> Row:
    """A row of Kafka's ReplicaManager. kafka: name of its gauge."""
    exported = kafka.lower().removesuffix("persec") + ("_total" if "PerSec" in kafka else "")
    return Row(
        f"kvorum_broker_{name}", kind, "node", source, text,
        f"kafka.server:type=ReplicaManager,name={kafka}",
        f"kafka_server_replicamanager_{exported}",
    )  # fmt: skip


def _log(name: str, source: str, text: str, kafka: str) -> Row:
    return Row(
        f"kvorum_partition_{name}", GAUGE, "replica", source, text,
        f"kafka.log:type=Log,name={kafka},topic=,partition=", f"kafka_log_log_{kafka.lower()}",
    )  # fmt: skip


def _partition(name: str, source: str, text: str, kafka: str) -> Row:
    return Row(
        f"kvorum_partition_{name}", GAUGE, "led", source, text,
        f"kafka.cluster:type=Partition,name={kafka},topic=,partition=",
        f"kafka_cluster_partition_{kafka.lower()}",
    )  # fmt: skip


def _sockets(name: str, kind: str, source: str, text: str, kafka: str) -> Row:
    return Row(
        f"kvorum_{name}", kind, "listener", source, text,
        f"kafka.server:type=socket-server-metrics,listener=,networkProcessor= {kafka}",
        f"kafka_server_socket_server_metrics_{kafka.replace('-', '_')}",
    )  # fmt: skip


def _idle(mbean: str, exported: str) -> Row:
    return Row("", GAUGE, "node", "watch.idle_ratio",
               "The one event loop does the work of both kinds of Kafka's threads.",
               mbean, exported)  # fmt: skip


_REQUESTS = (
    Row("kvorum_requests_total", COUNTER, "api", "requests", "Requests, by API.",
        _REQUEST.format("RequestsPerSec"), "kafka_network_requestmetrics_requests_total"),
    Row("kvorum_request_errors_total", COUNTER, "error", "count",
        "Error codes in answers: of the whole answer, and of each partition in Produce and Fetch.",
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=,error=",
        "kafka_network_requestmetrics_errors_total"),
    _time("", "total_s", "From reading a request to sending its answer. Of each API at most 200 "
          "requests a second are timed.", "TotalTimeMs"),
    _time("local_", "local_s", "In the handler.", "LocalTimeMs"),
    _time("remote_", "remote_s", "Waiting for others: replication, data, a controller.",
          "RemoteTimeMs"),
    _time("throttle_", "throttle_s", "The pause that a quota gave the client.", "ThrottleTimeMs"),
    _time("send_", "send_s", "From a ready answer until the socket had taken it and those before "
          "it.", "ResponseSendTimeMs"),
)  # fmt: skip

_TOPICS = (
    *_traffic("messages_in", "messages_in", "Records that clients appended", "MessagesIn"),
    *_traffic("bytes_in", "bytes_in", "Bytes that clients appended", "BytesIn"),
    *_traffic("bytes_out", "bytes_out", "Bytes that consumers read", "BytesOut"),
    *_traffic("produce_requests", "produce_requests", "Batches that were appended",
              "TotalProduceRequests"),
    *_traffic("failed_produce_requests", "failed_produce_requests",
              "Batches that could not be appended", "FailedProduceRequests"),
    *_traffic("fetch_requests", "fetch_requests",
              "Partitions with records in answers to Fetch", "TotalFetchRequests"),
    *_traffic("failed_fetch_requests", "failed_fetch_requests",
              "Partitions with an error in answers to Fetch", "FailedFetchRequests"),
    *_traffic("replication_bytes_in", "replication_bytes_in",
              "Bytes that this broker's followers fetched", "ReplicationBytesIn"),
    *_traffic("replication_bytes_out", "replication_bytes_out",
              "Bytes that other brokers' followers fetched here", "ReplicationBytesOut"),
)  # fmt: skip

_REPLICAS = (
    _manager("replicas", "counts.replicas", "Replicas on this broker.", "PartitionCount"),
    _manager("replicas_led", "counts.led", "Partitions led by this broker.", "LeaderCount"),
    _manager("replicas_offline", "counts.offline", "Replicas here that cannot be used.",
             "OfflineReplicaCount"),
    _manager("partitions_under_replicated", "counts.under_replicated",
             "Led partitions with fewer replicas in sync than they have without those being added.",
             "UnderReplicatedPartitions"),
    _manager("partitions_under_min_isr", "counts.under_min_isr",
             "Led partitions with fewer in sync than min.insync.replicas.",
             "UnderMinIsrPartitionCount"),
    _manager("partitions_at_min_isr", "counts.at_min_isr",
             "Led partitions with just min.insync.replicas in sync.", "AtMinIsrPartitionCount"),
    _manager("partitions_reassigning", "counts.reassigning",
             "Led partitions that are being reassigned.", "ReassigningPartitions"),
    _manager("isr_shrinks_total", "traffic.isr_shrinks",
             "Times that an in-sync replica left a partition led here.", "IsrShrinksPerSec",
             COUNTER),
    _manager("isr_expands_total", "traffic.isr_expands",
             "Times that a replica joined the ISR of a partition led here.", "IsrExpandsPerSec",
             COUNTER),
    _manager("failed_isr_updates_total", "traffic.failed_isr_updates",
             "Proposals for an ISR that the controller refused.", "FailedIsrUpdatesPerSec",
             COUNTER),
    Row("kvorum_broker_follower_lag_records", GAUGE, "node", "counts.follower_lag",
        "Records that the slowest follower of a partition led here is behind."),
    Row("kvorum_broker_fetch_lag_records", GAUGE, "node", "counts.fetch_lag",
        "High watermark minus end of the log, of the replica here that is furthest behind.",
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        "kafka_server_replicafetchermanager_maxlag"),
    _partition("replicas", "core.replica_count", "Replicas of a partition led here.",
               "ReplicasCount"),
    _partition("in_sync_replicas", "core.in_sync_count", "Its in-sync replicas.",
               "InSyncReplicasCount"),
    _partition("under_replicated", "core.is_under_replicated",
               "1: fewer replicas are in sync than it has without those being added.",
               "UnderReplicated"),
    _partition("under_min_isr", "core.is_under_min_isr",
               "1: fewer are in sync than min.insync.replicas.", "UnderMinIsr"),
    _partition("at_min_isr", "core.is_at_min_isr", "1: just min.insync.replicas are in sync.",
               "AtMinIsr"),
    _log("log_bytes", "log.size_bytes", "Bytes of a replica's log.", "Size"),
    _log("log_segments", "log.segment_count", "Its segments.", "NumLogSegments"),
    _log("log_start_offset", "log.start_offset", "First offset that can be read.",
         "LogStartOffset"),
    _log("log_end_offset", "log.end_offset", "Offset that the next record gets.", "LogEndOffset"),
    Row("kvorum_partition_high_watermark_offset", GAUGE, "replica", "core.high_watermark",
        "End of what every in-sync replica has."),
)  # fmt: skip

_PARTS = (
    Row("kvorum_log_flush_seconds", HISTOGRAM, "node", "metrics.flush_s",
        "Fsyncs of partitions' logs.", "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        "kafka_log_logflushstats_logflushrateandtimems", 1000.0),
    Row("kvorum_broker_log_directory_online", GAUGE, "directory", "is_online",
        "1: the data directory is in use; 0: it has failed, and what lay there is offline."),
    Row("", GAUGE, "directory", "is_offline", "1: the data directory has failed.",
        "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=",
        "kafka_log_logmanager_logdirectoryoffline"),
    Row("kvorum_broker_log_directories_offline", GAUGE, "node", "directories_offline",
        "Data directories that have failed.",
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "kafka_log_logmanager_offlinelogdirectorycount"),
    Row("kvorum_purgatory_requests", GAUGE, "operation", "count",
        "Requests that wait: for replication (Produce), for data (Fetch).",
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=",
        "kafka_server_delayedoperationpurgatory_purgatorysize"),
    _sockets("broker_connections", GAUGE, "open", "Connections of clients and followers now.",
             "connection-count"),
    _sockets("broker_connections_made_total", COUNTER, "counts.made", "Connections accepted.",
             "connection-creation-total"),
    _sockets("broker_connections_closed_total", COUNTER, "counts.closed", "Connections closed.",
             "connection-close-total"),
    _sockets("broker_authentications_total", COUNTER, "counts.authentications",
             "Clients that logged in, or whose TLS handshake ended well.",
             "successful-authentication-total"),
    _sockets("broker_authentications_failed_total", COUNTER, "counts.failed_authentications",
             "Refused logins, and TLS handshakes that failed.", "failed-authentication-total"),
    _sockets("broker_reauthentications_total", COUNTER, "counts.reauthentications",
             "Clients that logged in again on their connection.",
             "successful-reauthentication-total"),
    _sockets("broker_reauthentications_failed_total", COUNTER, "counts.failed_reauthentications",
             "Refused logins of clients that were logged in.", "failed-reauthentication-total"),
    _sockets("broker_connections_expired_total", COUNTER, "counts.expired",
             "Connections closed because their clients did not log in again in time.",
             "expired-connections-killed-count"),
    _idle("kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
          "kafka_network_socketserver_networkprocessoravgidle_percent"),
    _idle("kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
          "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
    Row("kvorum_groups", GAUGE, "groups", "count",
        "Groups whose coordinator is this broker, by protocol.",
        "kafka.server:type=group-coordinator-metrics,protocol= group-count",
        "kafka_server_group_coordinator_metrics_group_count"),
    Row("", GAUGE, "node", "groups", "Groups of this coordinator.",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
        "kafka_coordinator_group_groupmetadatamanager_numgroups"),
    Row("kvorum_group_members", GAUGE, "node", "group_members", "Members of those groups."),
    Row("kvorum_transactional_ids", GAUGE, "transactions", "count",
        "Transactional ids whose coordinator is this broker, by state."),
    Row("kvorum_coordinator_shards", GAUGE, "node", "coordinator_shards",
        "Partitions of __consumer_offsets, __transaction_state and __share_group_state that this "
        "broker coordinates."),
    Row("kvorum_broker_is_fenced", GAUGE, "node", "is_fenced",
        "1: the controller has taken this broker out of service, or it has not joined yet.",
        ),
    Row("", GAUGE, "node", "broker_state", "2: starting or fenced, 3: running.",
        "kafka.server:type=KafkaServer,name=BrokerState", "kafka_server_kafkaserver_brokerstate"),
    Row("", GAUGE, "node", "age_s", "For how long no leader of the quorum was heard of.",
        "kafka.server:type=broker-metadata-metrics last-applied-record-lag-ms",
        "kafka_server_brokermetadatametrics_last_applied_record_lag_ms", 1000.0),
    Row("", GAUGE, "node", "applied_offset", "End of the metadata log that is applied here.",
        "kafka.server:type=broker-metadata-metrics last-applied-record-offset",
        "kafka_server_brokermetadatametrics_last_applied_record_offset"),
)  # fmt: skip

BROKER_ROWS = (*_REQUESTS, *_TOPICS, *_REPLICAS, *_PARTS, *SHARE_ROWS)
