"""A broker's settings: Kafka's property names in snake case, with Kafka's defaults (4.1.0).

Where Kvorum differs from Kafka the comment says so and why.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.storage.format.record_validation import BATCH_ITEMS_MAX
from kvorum.wire.primitives import REQUEST_ITEMS_MAX

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

PartT = TypeVar("PartT")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(GroupBounds):
    """All configs that `kvorum/broker/` reads. Times in ms, sizes in bytes."""

    # Replication.
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_min_bytes: int = 1
    # Kafka: 500. New records end the wait at once, so a shorter wait would only wake idle brokers
    # more often. (A new high watermark waits for them, or for the end of the wait, unless consumers
    # read from followers: see `Replica.on_high_watermark`.)
    replica_fetch_wait_max_ms: int = 1_000
    replica_fetch_response_max_bytes: int = 10_485_760
    # Kafka: 1000. With a tenth, a follower resumes well within a second after an error. Errors are
    # answered at once, so a retry costs one small request.
    replica_fetch_backoff_ms: int = 100
    # Kafka: 30 000. A fetch is answered within replica_fetch_wait_max_ms, so seconds of silence
    # already mean a dead path; a new connection may find another.
    replica_socket_timeout_ms: int = 3_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    # The controllers' session timeout (Kafka: 9000). A leader without an answer from a controller
    # for this long must assume that it is fenced.
    broker_session_timeout_ms: int = 2_000

    # SASL. The mechanisms of a listener may have properties of their own: see launch's listeners.
    # (Kafka enables GSSAPI, which Kvorum does not have.)
    sasl_enabled_mechanisms: str = ""
    sasl_server_max_receive_size: int = 524_288
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    # "": delegation tokens are off. The controllers have the other properties of tokens.
    delegation_token_secret_key: str = field(default="", repr=False)

    # OAUTHBEARER, for listeners that have no properties of their own: see launch's oauthbearer.
    sasl_oauthbearer_clock_skew_seconds: int = 30
    sasl_oauthbearer_expected_audience: str = ""
    sasl_oauthbearer_expected_issuer: str = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = 3_600_000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = 10_000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = 100
    sasl_oauthbearer_jwks_endpoint_url: str = ""
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_sub_claim_name: str = "sub"

    # TLS, for listeners that have no properties of their own: see launch's listeners.
    ssl_keystore_type: str = "JKS"
    ssl_keystore_location: str = ""
    ssl_keystore_certificate_chain: str = field(default="", repr=False)
    ssl_keystore_key: str = field(default="", repr=False)
    ssl_key_password: str = field(default="", repr=False)
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str = ""
    ssl_truststore_certificates: str = field(default="", repr=False)
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_allow_dn_changes: bool = False
    ssl_allow_san_changes: bool = False

    # Topics.
    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    message_max_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = (1 << 31) - 9
    log_segment_bytes: int = 1_073_741_824
    log_roll_ms: int = 604_800_000
    log_roll_jitter_ms: int = 0
    log_preallocate: bool = False
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10_485_760
    log_segment_delete_delay_ms: int = 60_000
    log_flush_interval_messages: int = INT64_MAX
    log_flush_interval_ms: int = INT64_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_dir_failure_timeout_ms: int = 30_000
    log_cleanup_policy: str = "delete"
    log_cleaner_enable: bool = True
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = INT64_MAX
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_before_max_ms: int = INT64_MAX
    log_message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    producer_id_expiration_ms: int = 86_400_000
    leader_replication_throttled_rate: int = (1 << 63) - 1
    follower_replication_throttled_rate: int = (1 << 63) - 1
    replica_alter_log_dirs_io_max_bytes_per_second: int = (1 << 63) - 1
    cordoned_log_dirs: str = ""

    # Coordinators.
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104_857_600
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_segment_bytes: int = 104_857_600
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    # Kvorum's own: changes of the metadata as a topic.
    metadata_events_topic_enable: bool = False
    metadata_events_topic_replication_factor: int = 3
    metadata_events_topic_min_isr: int = 2
    metadata_events_topic_segment_bytes: int = 104_857_600
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000

    # Groups.
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: str = "uniform,range"
    group_consumer_migration_policy: str = "bidirectional"
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    group_share_max_share_sessions: int = 2_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = 2**31 - 1
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_num_standby_replicas: int = 0
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_rack_aware_assignment_tags: str = ""
    errors_deadletterqueue_auto_create_topics_enable: bool = False
    errors_deadletterqueue_topic_name_prefix: str = "dlq."
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    # Sockets and requests.
    socket_request_max_bytes: int = 104_857_600
    socket_listen_backlog_size: int = 50
    # Kafka: 102 400 each. The kernel sizes a connection's buffers by its traffic, unless a size is
    # set; -1 leaves it to the kernel, as in Kafka.
    socket_receive_buffer_bytes: int = -1
    socket_send_buffer_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    # Kafka: 2^31 - 1, in effect no limit. Each connection has a descriptor and a receive buffer.
    max_connections: int = 10_000
    max_connections_per_ip: int = INT32_MAX
    max_connection_creation_rate: int = INT32_MAX
    max_connections_per_ip_overrides: str = ""
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    fetch_max_bytes: int = 57_671_680
    replica_selector_class: str = ""
    max_incremental_fetch_session_cache_slots: int = 1_000
    request_timeout_ms: int = 30_000
    # Kvorum's own: answers that one connection may have outstanding, and unread bytes that it may
    # leave, before reading from it stops. (Kafka bounds them by its request queue,
    # queued.max.requests.)
    connection_requests_in_flight_max: int = 1_000
    connection_output_bytes_max: int = 67_108_864
    # Kvorum's own: records of a client's batch, as headers in all of them; and items of a request's
    # arrays and tagged fields.
    kvorum_batch_records_max: int = BATCH_ITEMS_MAX
    kvorum_request_items_max: int = REQUEST_ITEMS_MAX


def part_of(config: BrokerConfig, part: type[PartT], **given: Any) -> PartT:
    """An instance of `part`, a dataclass whose fields are some of `config`'s.

    given: fields whose value differs from the one in `config`.
    """
    names = (field.name for field in fields(part))  # type: ignore[arg-type]
    return part(**{name: getattr(config, name) for name in names} | given)
