"""A request of every Kafka API that needs access to something."""

from __future__ import annotations

from typing import Any

from tests.test_broker.raw_client import batch, fetch_values, produce_values

TOPIC, GROUP, TRANSACTIONAL_ID = "orders", "readers", "payments"
STREAMS_GROUP = "streamers"
SHARE_GROUP = "sharers"
TOPIC_ID = b"the topic's id.."
"""In place of the id that the topic has on the broker."""

_CONFIG_RESOURCES = [(2, TOPIC), (4, ""), (32, GROUP)]


def _config(resource_type: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"resource_type": resource_type, "resource_name": name, **fields}


_ONE_PARTITION = [{"name": TOPIC, "partitions": [0]}]
_MEMBER: dict[str, Any] = {
    "group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None,
}  # fmt: skip
_PRODUCER = {"producer_id": 7, "producer_epoch": 0}

INIT: dict[str, Any] = {
    "transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 60_000, "producer_id": -1,
    "producer_epoch": -1,
}  # fmt: skip


def _state(**partition: Any) -> dict[str, Any]:
    """Fields of a request to a share coordinator."""
    rows = [{"partition": 0, **partition}]
    return {"group_id": SHARE_GROUP, "topics": [{"topic_id": TOPIC_ID, "partitions": rows}]}


_SHARED = [{
    "topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
}]  # fmt: skip

REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "produce": (9, produce_values(TOPIC, batch(1))),
    "fetch": (12, fetch_values(TOPIC, 0)),
    "metadata": (9, {
        "topics": [{"name": TOPIC}, {"name": "new"}], "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }),
    "init_producer_id": (4, {
        "transactional_id": None, "transaction_timeout": 1_000, "producer_id": -1,
        "producer_epoch": -1,
    }),
    "add_partitions_to_txn": (3, {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID, "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": _ONE_PARTITION,
    }),
    "list_offsets": (7, {"replica_id": -1, "isolation_level": 0, "topics": [{
        "name": TOPIC, "partitions": [
            {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},
        ],
    }]}),
    "offset_commit": (8, {
        "group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "topics": [{"name": TOPIC, "partitions": [{
            "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }]}],
    }),
    "offset_fetch": (8, {"require_stable": False, "groups": [
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ]}),
    "find_coordinator": (4, {"key_type": 0, "coordinator_keys": [GROUP]}),
    "join_group": (7, {
        "group_id": GROUP, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": [], "reason": None,
    }),
    "heartbeat": (4, _MEMBER),
    "leave_group": (4, {"group_id": GROUP, "members": []}),
    "sync_group": (5, {
        **_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": [],
    }),
    "describe_groups": (6, {"groups": [GROUP], "include_authorized_operations": False}),
    "list_groups": (4, {"states_filter": []}),
    "delete_groups": (2, {"groups_names": [GROUP]}),
    "offset_delete": (0, {"group_id": GROUP, "topics": [
        {"name": TOPIC, "partitions": [{"partition_index": 0}]},
    ]}),
    "consumer_group_heartbeat": (1, {
        "group_id": GROUP, "member_id": "m", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 5_000, "subscribed_topic_names": [TOPIC],
        "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [],
    }),
    "share_group_heartbeat": (1, {
        "group_id": SHARE_GROUP, "member_id": "m", "member_epoch": 0, "rack_id": None,
        "subscribed_topic_names": [TOPIC],
    }),
    "share_group_describe": (1, {
        "group_ids": [SHARE_GROUP], "include_authorized_operations": False,
    }),
    "streams_group_heartbeat": (1, {
        "group_id": STREAMS_GROUP, "member_id": "m", "member_epoch": 0,
        "endpoint_information_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 1_000, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        "process_id": "p", "user_endpoint": None, "client_tags": [], "task_offsets": None,
        "task_end_offsets": None, "shutdown_application": False,
        "topology": {"epoch": 0, "subtopologies": [{
            "subtopology_id": "0", "source_topics": [TOPIC], "source_topic_regex": [],
            # No cluster has so many brokers: the topic stays missing.
            "state_changelog_topics": [{
                "name": "never-made", "partitions": 0, "replication_factor": 99,
                "topic_configs": [],
            }],
            "repartition_sink_topics": [], "repartition_source_topics": [],
            "copartition_groups": [],
        }]},
    }),
    "streams_group_describe": (1, {
        "group_ids": [STREAMS_GROUP], "include_authorized_operations": False,
        "include_topology_description": False,
    }),
    "streams_group_topology_description_update": (0, {
        "group_id": STREAMS_GROUP, "member_id": "m", "topology_epoch": 0,
        "topology_description": {"subtopologies": [], "global_stores": []},
    }),
    "share_fetch": (2, {
        "group_id": SHARE_GROUP, "member_id": "m", "share_session_epoch": 0, "max_wait": 0,
        "min_bytes": 1, "max_bytes": 1_000, "max_records": 1, "batch_size": 1,
        "share_acquire_mode": 0, "is_renew_ack": False, "topics": _SHARED,
        "forgotten_topics_data": [],
    }),
    "share_acknowledge": (2, {
        "group_id": SHARE_GROUP, "member_id": "another", "share_session_epoch": 1,
        "is_renew_ack": False, "topics": [{"topic_id": TOPIC_ID, "partitions": [{
            "partition_index": 0, "acknowledgement_batches": [
                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]},
            ],
        }]}],
    }),
    "initialize_share_group_state": (0, _state(state_epoch=1, start_offset=-1)),
    "read_share_group_state": (0, _state(leader_epoch=0)),
    "write_share_group_state": (1, _state(
        state_epoch=1, leader_epoch=0, start_offset=-1, delivery_complete_count=0,
        state_batches=[],
    )),
    "delete_share_group_state": (0, _state()),
    "read_share_group_state_summary": (1, _state(leader_epoch=0)),
    "describe_share_group_offsets": (1, {"groups": [{
        "group_id": SHARE_GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}],
    }]}),
    "alter_share_group_offsets": (0, {"group_id": SHARE_GROUP, "topics": [{
        "topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}],
    }]}),
    "delete_share_group_offsets": (0, {
        "group_id": SHARE_GROUP, "topics": [{"topic_name": TOPIC}],
    }),
    "consumer_group_describe": (1, {"group_ids": [GROUP], "include_authorized_operations": False}),
    "create_topics": (7, {"timeout": 1_000, "validate_only": False, "topics": [{
        "name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }]}),
    "delete_topics": (5, {"topic_names": ["old"], "timeout": 1_000}),
    "create_partitions": (3, {"timeout": 1_000, "validate_only": True, "topics": [
        {"name": TOPIC, "count": 2, "assignments": None},
    ]}),
    "delete_records": (2, {"timeout": 1_000, "topics": [
        {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]},
    ]}),
    "offset_for_leader_epoch": (4, {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
    ]}]}),
    "describe_topic_partitions": (0, {
        "topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None,
    }),
    "describe_producers": (0, {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}),
    "add_offsets_to_txn": (3, {
        "transactional_id": TRANSACTIONAL_ID, **_PRODUCER, "group_id": GROUP,
    }),
    "end_txn": (3, {"transactional_id": TRANSACTIONAL_ID, **_PRODUCER, "committed": True}),
    "write_txn_markers": (1, {"markers": [{
        **_PRODUCER, "transaction_result": False, "coordinator_epoch": 0,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }]}),
    "txn_offset_commit": (3, {
        "transactional_id": TRANSACTIONAL_ID, **_PRODUCER, **_MEMBER, "topics": [
            {"name": TOPIC, "partitions": [{
                "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
                "committed_metadata": "",
            }]},
        ],
    }),
    "describe_transactions": (0, {"transactional_ids": [TRANSACTIONAL_ID]}),
    "list_transactions": (0, {"state_filters": [], "producer_id_filters": []}),
    "describe_configs": (4, {
        "resources": [
            _config(kind, name, configuration_keys=None) for kind, name in _CONFIG_RESOURCES
        ],
        "include_synonyms": False, "include_documentation": False,
    }),
    "alter_configs": (2, {"validate_only": True, "resources": [
        _config(kind, name, configs=[]) for kind, name in _CONFIG_RESOURCES
    ]}),
    "incremental_alter_configs": (1, {"validate_only": True, "resources": [
        _config(kind, name, configs=[]) for kind, name in _CONFIG_RESOURCES
    ]}),
    "list_config_resources": (1, {"resource_types": []}),
    "alter_replica_log_dirs": (2, {"dirs": [
        {"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]},
    ]}),
    "describe_log_dirs": (4, {"topics": None}),
    "elect_leaders": (2, {"election_type": 0, "timeout": 1_000, "topic_partitions": [
        {"topic": TOPIC, "partitions": [0]},
    ]}),
    "alter_partition_reassignments": (0, {"timeout": 1_000, "topics": [
        {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]},
    ]}),
    "list_partition_reassignments": (0, {"timeout": 1_000, "topics": None}),
    "describe_client_quotas": (1, {"components": [], "strict": False}),
    "alter_client_quotas": (1, {"validate_only": True, "entries": [
        {"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []},
    ]}),
    "describe_user_scram_credentials": (0, {"users": [{"name": "a"}]}),
    "alter_user_scram_credentials": (0, {"upsertions": [], "deletions": [
        {"name": "a", "mechanism": 1},
    ]}),
    "describe_quorum": (0, {"topics": []}),
    "update_features": (1, {"timeout": 1_000, "feature_updates": [], "validate_only": True}),
    "unregister_broker": (0, {"broker_id": 99}),
    "unregister_controller": (0, {"controller_id": 99}),
    "add_raft_voter": (0, {
        "cluster_id": None, "timeout": 1_000, "voter_id": 9, "voter_directory_id": bytes(16),
        "listeners": [],
    }),
    "remove_raft_voter": (0, {
        "cluster_id": None, "voter_id": 9, "voter_directory_id": b"x" * 16,
    }),
    "create_acls": (3, {"creations": [{
        "resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }]}),
    "describe_acls": (3, {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }),
    "delete_acls": (3, {"filters": [{
        "resource_type_filter": 2, "resource_name_filter": "none", "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }]}),
    "create_delegation_token": (3, {
        "owner_principal_type": "User", "owner_principal_name": "other", "renewers": [],
        "max_lifetime": -1,
    }),
    "describe_delegation_token": (3, {"owners": None}),
}  # fmt: skip

OTHERS: list[tuple[str, int, dict[str, Any]]] = [
    ("produce", 9, {
        **produce_values(TOPIC, batch(1, **_PRODUCER, base_sequence=0, is_transactional=True)),
        "transactional_id": TRANSACTIONAL_ID,
    }),
    ("fetch", 12, {**fetch_values(TOPIC, 0), "replica_id": 1}),
    ("metadata", 9, {
        "topics": None, "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": False,
    }),
    ("init_producer_id", 4, INIT),
    ("add_partitions_to_txn", 4, {"transactions": [{
        "transactional_id": TRANSACTIONAL_ID, **_PRODUCER, "verify_only": True,
        "topics": _ONE_PARTITION,
    }]}),
    ("find_coordinator", 6, {
        "key_type": 2, "coordinator_keys": ["sharers:AAAAAAAAAAAAAAAAAAAAAQ:0"],
    }),
    ("find_coordinator", 4, {"key_type": 1, "coordinator_keys": [TRANSACTIONAL_ID]}),
    ("describe_cluster", 1, {
        "include_cluster_authorized_operations": True, "endpoint_type": 1,
    }),
]  # fmt: skip
"""More requests of APIs that ask different questions for different requests."""
