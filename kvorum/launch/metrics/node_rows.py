"""The rows of every node: the quorum, the metadata, the process."""

from __future__ import annotations

from kvorum.launch.metrics.row import COUNTER, GAUGE, HISTOGRAM, Row

_RAFT = "kafka.server:type=raft-metrics"
_CHANNEL = "kafka.server:type=raft-channel-metrics"


def _raft(name: str, kind: str, source: str, text: str, attribute: str = "") -> Row:
    """A row of the quorum. attribute: of Kafka's MBean, if it has one."""
    exported = f"kafka_server_raftmetrics_{attribute.replace('-', '_')}" if attribute else ""
    mbean = f"{_RAFT} {attribute}" if attribute else ""
    own = f"kvorum_raft_{name}" if name else ""
    return Row(own, kind, "node", f"raft.{source}", text, mbean, exported)


def _channel(name: str, source: str, text: str, attribute: str) -> Row:
    exported = f"kafka_server_raftchannelmetrics_{attribute.replace('-', '_')}"
    return Row(
        f"kvorum_raft_{name}", COUNTER, "node", f"raft.metrics.{source}", text,
        f"{_CHANNEL} {attribute}", exported,
    )  # fmt: skip


NODE_ROWS = (
    _raft("is_leader", GAUGE, "is_leader", "1: this node leads the quorum."),
    Row(
        "kvorum_raft_state", GAUGE, "role", "is_in",
        "1 for the node's role: leader, follower, candidate, prospective, unattached, resigned, "
        "observer.",
        f"{_RAFT} current-state", "kafka_server_raftmetrics_current_state",
    ),
    Row("kvorum_raft_refuses_leader", GAUGE, "node", "refuses_leader",
        "1: the node refuses the leader, which lacks committed records; /readyz says more."),
    _raft("leader_id", GAUGE, "leader_id", "The leader, as far as known; -1: none.",
          "current-leader"),
    _raft("voted_id", GAUGE, "voted_id", "The node that got this node's vote; -1: none.",
          "current-vote"),
    _raft("epoch", GAUGE, "epoch", "The quorum's epoch.", "current-epoch"),
    _raft("high_watermark_offset", GAUGE, "high_watermark",
          "End of what is committed, as far as this node knows.", "high-watermark"),
    _raft("log_end_offset", GAUGE, "log_end_offset", "End of this node's metadata log.",
          "log-end-offset"),
    _raft("log_end_epoch", GAUGE, "log_end_epoch", "Epoch of the last record of the metadata log.",
          "log-end-epoch"),
    _raft("log_bytes", GAUGE, "log_bytes", "Bytes of this node's metadata log."),
    _raft("voters", GAUGE, "voters", "Voters of the quorum.", "number-of-voters"),
    _raft("observers", GAUGE, "observers", "Nodes that follow without a vote; on the leader only.",
          "number-of-observers"),
    _raft("elections_total", COUNTER, "metrics.elections",
          "Elections in which this node was a candidate."),
    _raft("leader_changes_total", COUNTER, "metrics.leader_changes",
          "Changes of the leader that this node saw."),
    _raft("election_seconds", HISTOGRAM, "metrics.election_s",
          "From the loss of a leader to the next one."),
    _raft("", GAUGE, "election_mean_ms", "Mean of the last minute, in ms.",
          "election-latency-avg"),
    _raft("", GAUGE, "election_max_ms", "Maximum of the last minute, in ms.",
          "election-latency-max"),
    _raft("commit_seconds", HISTOGRAM, "metrics.commit_s",
          "From append to commit, on the leader."),
    _raft("", GAUGE, "commit_mean_ms", "Mean of the last minute, in ms.", "commit-latency-avg"),
    _raft("", GAUGE, "commit_max_ms", "Maximum of the last minute, in ms.",
          "commit-latency-max"),
    _raft("flush_seconds", HISTOGRAM, "metrics.flush_s", "Fsyncs of the metadata log."),
    _raft("appended_records_total", COUNTER, "metrics.appended_records",
          "Records that this node appended as leader."),
    _raft("", GAUGE, "append_rate", "Records a second over the last minute.",
          "append-records-rate"),
    _raft("fetched_records_total", COUNTER, "metrics.fetched_records",
          "Records that this node fetched from the leader."),
    _raft("", GAUGE, "fetch_rate", "Records a second over the last minute.",
          "fetch-records-rate"),
    _channel("requests_sent_total", "requests_sent", "Requests to other nodes of the quorum.",
             "request-total"),
    _channel("responses_received_total", "responses_received", "Answers to those requests.",
             "response-total"),
    _channel("sent_bytes_total", "bytes_sent", "Bytes of records in answers to fetches.",
             "outgoing-byte-total"),
    _channel("received_bytes_total", "bytes_received", "Bytes of records in fetched answers.",
             "incoming-byte-total"),
    Row("kvorum_raft_follower_lag_records", GAUGE, "follower", "lag_records",
        "Records that a voter or observer is behind, on the leader."),
    Row("kvorum_raft_follower_fetch_age_seconds", GAUGE, "follower", "fetch_age_s",
        "Time since the last fetch of a voter or observer, on the leader."),
    Row("kvorum_raft_follower_clock_ahead_seconds", GAUGE, "follower", "clock_ahead_s",
        "Wall clock of a voter or observer ahead of the leader's, at its last fetch."),
    Row("kvorum_snapshot_bytes", GAUGE, "node", "snapshot.size_bytes",
        "Size of the newest snapshot of the metadata; none without one.",
        "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedBytes",
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes"),
    Row("kvorum_snapshot_age_seconds", GAUGE, "node", "snapshot.age_s",
        "Age of the newest snapshot's last record; none without one.",
        "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedAgeMs",
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems", 1000.0),
    Row("kvorum_metadata_applied_offset", GAUGE, "node", "applied_offset",
        "End of the metadata log that is applied here.",
        "kafka.server:type=MetadataLoader,name=LastAppliedOffset",
        "kafka_server_metadataloader_lastappliedoffset"),
    Row("kvorum_metadata_age_seconds", GAUGE, "node", "age_s",
        "For how long no leader of the quorum was heard of; the figures of the cluster are as old. "
        "+Inf: never."),
    Row("kvorum_metadata_topics", GAUGE, "node", "topic_count", "Topics of the cluster."),
    Row("kvorum_metadata_partitions", GAUGE, "node", "counts.partitions",
        "Partitions of the cluster."),
    Row("kvorum_metadata_partitions_offline", GAUGE, "node", "counts.offline_partitions",
        "Partitions of the cluster without a leader."),
    Row("kvorum_metadata_partitions_imbalanced", GAUGE, "node", "counts.imbalanced_partitions",
        "Partitions that are led by another replica than their preferred one."),
    Row("kvorum_metadata_brokers_active", GAUGE, "node", "brokers_active", "Brokers in service."),
    Row("kvorum_metadata_brokers_fenced", GAUGE, "node", "brokers_fenced",
        "Registered brokers out of service."),
    Row("kvorum_certificate_end_time_seconds", GAUGE, "certificate", "ends_s",
        "End of the certificate that this node shows on a listener (server), or to that of another "
        "node (client), since the epoch of Unix."),
    Row("kvorum_peer_failures_total", COUNTER, "node", "peer_failures.count",
        "Connections closed because of an unexpected error, a bug of this node; its log has a line "
        "for each."),
    Row("kvorum_rpc_handshakes_failed_total", COUNTER, "node", "peer_failures.rpc_handshakes",
        "TLS handshakes of other nodes and of commands that failed at this controller."),
    Row("kvorum_loop_lag_seconds", HISTOGRAM, "node", "watch.lag_s",
        "How late timers of the event loop are, tested twice a second.",
        "kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs",
        "kafka_controller_controllereventmanager_eventqueuetimems", 1000.0),
    Row("kvorum_loop_idle_ratio", GAUGE, "node", "watch.idle_ratio",
        "Share of the last minute in which the event loop's thread used no CPU."),
    Row("process_open_fds", GAUGE, "node", "process.open_fds", "Open file descriptors.",
        "java.lang:type=OperatingSystem", "process_open_fds"),
    Row("process_max_fds", GAUGE, "node", "process.max_fds", "Limit of open file descriptors."),
    Row("process_cpu_seconds_total", COUNTER, "node", "process.cpu_s",
        "CPU time, of the system and of the user."),
    Row("process_resident_memory_bytes", GAUGE, "node", "process.resident_bytes",
        "Resident memory."),
    Row("process_start_time_seconds", GAUGE, "node", "process.start_s",
        "Start of the process, since the epoch of Unix."),
    Row("kvorum_process_disk_read_bytes_total", COUNTER, "node", "process.read_bytes",
        "Bytes that the process made the disk read.",
        "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
        "kafka_server_kafkaserver_linux_disk_read_bytes"),
    Row("kvorum_process_disk_written_bytes_total", COUNTER, "node", "process.written_bytes",
        "Bytes that the process made the disk write.",
        "kafka.server:type=KafkaServer,name=linux-disk-write-bytes",
        "kafka_server_kafkaserver_linux_disk_write_bytes"),
)  # fmt: skip
