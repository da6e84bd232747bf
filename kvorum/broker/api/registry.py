"""The table of the Kafka APIs, one file each; ApiVersions advertises what is listed here (the
telemetry APIs only while there is a subscription).

The file of a cold API has `API` (its versions) and `handle(context, request)`. The latter returns
the answer's fields (see wire.kio_codec), an encoded body, or a coroutine that returns either. The
request is kio's, unless the file has `parse(version, body)`. A hot handler gets the request's
bytes, and fills the slot itself.
"""

# ruff: noqa: F401 - an import is the one place where an API is listed

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvorum.broker.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from kvorum.broker.api.context import RequestContext
from kvorum.wire.kio_codec import warm_up
from kvorum.wire.versions import ServedVersions

HotHandler = Callable[[RequestContext, memoryview, int, int], None]

MODULES: dict[int, Any] = {
    module.API.key: module for module in tuple(globals().values()) if hasattr(module, "API")
}
"""Every file of an API imported here, by the API's key: the imports are the list."""

_HOT = (
    produce,
    fetch,
    heartbeat,
    consumer_group_heartbeat,
    share_fetch,
    share_acknowledge,
    share_group_heartbeat,
    streams_group_heartbeat,
)
"""Hot APIs: their handlers parse their requests and fill the slot themselves, without a task."""
HOT_HANDLERS: dict[int, HotHandler] = {module.API.key: module.handle for module in _HOT}

SERVED = ServedVersions(module.API for module in MODULES.values())
api_versions.set_served(SERVED)

SERVED_TO_TOOLS = ServedVersions(
    module.API
    for module in (
        add_raft_voter,
        alter_client_quotas,
        alter_configs,
        alter_partition_reassignments,
        alter_user_scram_credentials,
        api_versions,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_quorum,
        describe_user_scram_credentials,
        elect_leaders,
        expire_delegation_token,
        incremental_alter_configs,
        list_partition_reassignments,
        remove_raft_voter,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        unregister_broker,
        unregister_controller,
        update_features,
    )
)
"""The APIs of a controller's listeners for Kafka's tools (KIP-919): Kafka's, without those of nodes
among themselves, and the listing of client quotas, which tools need to show what they change."""


#: Versions that common clients use: librdkafka 2.x, Java 4.x, kafka-python, aiokafka.
_USUAL_VERSIONS = {
    "api_versions": (3, 4),
    "metadata": (4, 9, 12, 13),
    "find_coordinator": (2, 6),
    "list_offsets": (7, 10),
    "init_producer_id": (4, 5),
    "create_topics": (4, 7),
}


def usual_schemas() -> Iterator[tuple[str, int]]:
    """(API name, version) of the schemas that nearly every client needs.

    Importing a schema at its first request stops the event loop for tens of milliseconds. `warm_up`
    imports them beforehand, one at a time.
    """
    for name, versions in _USUAL_VERSIONS.items():
        for version in versions:
            yield name, version


def preload() -> None:
    """Import all usual schemas at once (a tenth of a second), before clients connect."""
    for name, version in usual_schemas():
        warm_up(name, version)
