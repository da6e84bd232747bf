"""The rows of brokers about share groups."""

from __future__ import annotations

from kvorum.launch.metrics.row import COUNTER, GAUGE, HISTOGRAM, Row


def _partition(name: str, kind: str, source: str, text: str, kafka: str = "") -> Row:
    """A row by share-partition. kafka: name of Kafka's metric, "" if it has none."""
    exported = kafka.lower().removesuffix("persec") + ("_total" if "PerSec" in kafka else "")
    mbean = f"kafka.server:type=SharePartitionMetrics,name={kafka},group=,topic=,partition="
    return Row(
        f"kvorum_share_partition_{name}", kind, "share_partition", source, text,
        mbean if kafka else "",
        f"kafka_server_sharepartitionmetrics_{exported}" if kafka else "",
    )  # fmt: skip


def _sessions(name: str, source: str, text: str, kafka: str) -> Row:
    return Row(
        f"kvorum_share_{name}", GAUGE, "node", source, text,
        f"kafka.server:type=ShareSessionCache,name={kafka}",
        f"kafka_server_sharesessioncache_{kafka.lower()}",
    )  # fmt: skip


SHARE_ROWS = (
    Row("kvorum_share_groups", GAUGE, "share_groups", "count",
        "Share groups whose coordinator is this broker, by state.",
        "kafka.server:type=group-coordinator-metrics,state= share-group-count",
        "kafka_server_group_coordinator_metrics_share_group_count"),
    Row("kvorum_share_group_members", GAUGE, "node", "share.members", "Members of those groups."),
    Row("kvorum_share_group_rebalances_total", COUNTER, "node", "metrics.share.rebalances",
        "Heartbeats that began a new epoch of their share group, for new members or partitions.",
        "kafka.server:type=group-coordinator-metrics share-group-rebalance-count",
        "kafka_server_group_coordinator_metrics_share_group_rebalance_count"),
    Row("", GAUGE, "node", "share.rebalance_rate", "Those of a second.",
        "kafka.server:type=group-coordinator-metrics share-group-rebalance-rate",
        "kafka_server_group_coordinator_metrics_share_group_rebalance_rate"),
    Row("kvorum_share_partitions", GAUGE, "node", "share.partitions",
        "Share-partitions that this broker leads, in groups with a member that fetches here."),
    _partition("in_flight_records", GAUGE, "in_flight_records",
               "Offsets from the first one that is not settled to the last one that was delivered.",
               "InFlightMessageCount"),
    _partition("acquired_records", GAUGE, "acquired_records", "Those that members hold now."),
    Row("kvorum_share_partition_unsettled_records", GAUGE, "share_deliveries", "count",
        "Records in flight that are not acknowledged or archived, by deliveries so far: 1, 2, 3+."),
    _partition("lock_timeouts_total", COUNTER, "lock_timeouts",
               "Records that were taken back from a member at the end of its lock.",
               "AcquisitionLockTimeoutPerSec"),
    _sessions("sessions", "share.sessions.count", "Share sessions of members with this broker.",
              "ShareSessionsCount"),
    _sessions("session_partitions", "share.sessions.partition_count",
              "Partitions in those sessions; one counts for each member that fetches it.",
              "SharePartitionsCount"),
    Row("kvorum_share_deliveries_total", COUNTER, "node", "metrics.share.deliveries",
        "Records given to members, each time that they were."),
    Row("kvorum_share_redeliveries_total", COUNTER, "node", "metrics.share.redeliveries",
        "Those among them that a member had had before."),
    Row("kvorum_share_acknowledgements_total", COUNTER, "acknowledgements", "count",
        "Records that members acknowledged, by type: Accept, Release, Reject, Renew.",
        "kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec,ackType=",
        "kafka_server_sharegroupmetrics_recordacknowledgements_total"),
    Row("kvorum_share_lock_timeouts_total", COUNTER, "node", "metrics.share.lock_timeouts",
        "Records taken back at the end of a lock, of all share-partitions, ended ones too."),
    Row("kvorum_share_state_write_seconds", HISTOGRAM, "node", "metrics.share.state_write_s",
        "Writes to share coordinators, from the question to the answer: members wait for them."),
    Row("kvorum_share_failed_state_writes_total", COUNTER, "node",
        "metrics.share.failed_state_writes",
        "Those that ended in an error; the share-partition is then read anew."),
    Row("kvorum_share_dead_letters_total", COUNTER, "node", "metrics.share.dead_letters",
        "Dead letters written to the topics of share groups."),
    Row("kvorum_share_failed_dead_letter_writes_total", COUNTER, "node",
        "metrics.share.failed_dead_letter_writes",
        "Attempts to write some that wrote none; nearly all are made again."),
    Row("kvorum_share_lost_dead_letters_total", COUNTER, "node", "metrics.share.lost_dead_letters",
        "Records that were archived without one: the group or the topic has the wrong configs."),
    Row("kvorum_share_coordinator_states", GAUGE, "node", "share.states",
        "Share-partitions whose state the share coordinators on this broker keep."),
    Row("kvorum_share_coordinator_writes_total", COUNTER, "node",
        "metrics.share.coordinator_writes", "Writes that they took from leaders.",
        "kafka.server:type=share-coordinator-metrics write-total",
        "kafka_server_share_coordinator_metrics_write_total"),
    Row("kvorum_share_coordinator_write_seconds", HISTOGRAM, "node",
        "metrics.share.coordinator_write_s", "Those writes, until their records were replicated."),
    *(
        Row("", GAUGE, "node", f"share.{source}", f"Kafka's {attribute} of the last minute.",
            f"kafka.server:type=share-coordinator-metrics {attribute}",
            f"kafka_server_share_coordinator_metrics_{attribute.replace('-', '_')}")
        for source, attribute in (
            ("write_rate", "write-rate"),
            ("write_mean_ms", "write-latency-avg"),
            ("write_max_ms", "write-latency-max"),
        )
    ),
    Row("", GAUGE, "share_shards", "count", "Share coordinators on this broker.",
        "kafka.server:type=share-coordinator-metrics,state= num-partitions",
        "kafka_server_share_coordinator_metrics_num_partitions"),
)  # fmt: skip
