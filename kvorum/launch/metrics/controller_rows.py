"""The rows of controllers."""

from __future__ import annotations

from kvorum.launch.metrics.row import COUNTER, GAUGE, HISTOGRAM, Row


def _row(
    name: str, kind: str, source: str, text: str, kafka: str = "", *, scale: float = 1.0
) -> Row:
    """kafka: name of the gauge in Kafka's KafkaController."""
    mbean = f"kafka.controller:type=KafkaController,name={kafka}" if kafka else ""
    exported = f"kafka_controller_kafkacontroller_{kafka.lower()}" if kafka else ""
    own = f"kvorum_controller_{name}" if name else ""
    return Row(own, kind, "node", source, text, mbean, exported, scale)


CONTROLLER_ROWS = (
    _row("is_active", GAUGE, "is_active",
         "1: this controller is the active one; the sum over all must be 1.",
         "ActiveControllerCount"),
    _row("claims_total", COUNTER, "controller.claims", "Times that this controller became active.",
         "NewActiveControllersCount"),
    _row("", GAUGE, "brokers_active", "Brokers in service.", "ActiveBrokerCount"),
    _row("", GAUGE, "brokers_fenced", "Brokers out of service.", "FencedBrokerCount"),
    _row("", GAUGE, "topic_count", "Topics.", "GlobalTopicCount"),
    _row("", GAUGE, "counts.partitions", "Partitions.", "GlobalPartitionCount"),
    _row("", GAUGE, "counts.offline_partitions", "Partitions without a leader.",
         "OfflinePartitionsCount"),
    _row("", GAUGE, "counts.imbalanced_partitions",
         "Partitions led by another than their preferred replica.",
         "PreferredReplicaImbalanceCount"),
    _row("", GAUGE, "applied_offset", "Last applied offset.", "LastAppliedRecordOffset"),
    _row("", GAUGE, "raft.high_watermark", "Last committed offset.", "LastCommittedRecordOffset"),
    _row("", GAUGE, "age_s", "For how long no leader was heard of.", "LastAppliedRecordLagMs",
         scale=1000.0),
    _row("decisions_total", COUNTER, "controller.decisions",
         "Requests that this controller decided while it was active."),
    _row("decision_seconds", HISTOGRAM, "controller.decision_s",
         "Time to decide one request, before its commit."),
    Row("", HISTOGRAM, "node", "controller.decision_s", "Time to decide one request.",
        "kafka.controller:type=ControllerEventManager,name=EventQueueProcessingTimeMs",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems", 1000.0),
    _row("metadata_errors_total", COUNTER, "controller.failed_decisions",
         "Requests that could not be decided by a bug.", "MetadataErrorCount"),
    _row("timed_out_heartbeats_total", COUNTER, "controller.timed_out_heartbeats",
         "Brokers fenced because their session ended.", "TimedOutBrokerHeartbeatCount"),
    _row("leader_elections_total", COUNTER, "controller.elections",
         "Partition leaders that this controller elected."),
    Row("", COUNTER, "node", "controller.elections", "Partition leaders elected.",
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count"),
    _row("unclean_leader_elections_total", COUNTER, "controller.unclean_elections",
         "Leaders elected from outside the ISR; records may be lost."),
    Row("", COUNTER, "node", "controller.unclean_elections", "Unclean elections.",
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        "kafka_controller_controllerstats_uncleanleaderelections_total"),
)  # fmt: skip
