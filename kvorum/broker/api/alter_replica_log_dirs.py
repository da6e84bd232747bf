"""AlterReplicaLogDirs (34). Served: v1-2, by the broker that hosts the replicas (KIP-113).

Each replica gets a future replica in the directory, and takes its place there once it has caught up
(`kvorum/broker/manager/directory_moves`). The answer is sent when the moves have begun. To name the
directory of a replica ends its move. If two directories are named for one replica, the last counts.

Errors per partition, in the order in which they are checked: INVALID_TOPIC_EXCEPTION if the name is
too long for the folder of a future replica, LOG_DIR_NOT_FOUND if the path is not in log.dirs,
KAFKA_STORAGE_ERROR if the directory is offline, INVALID_REPLICA_ASSIGNMENT if it is cordoned,
KAFKA_STORAGE_ERROR if the replica is offline, UNKNOWN_TOPIC_OR_PARTITION, and REPLICA_NOT_AVAILABLE
if another broker has the partition. After the last two the directory is remembered: the replica is
created there if this broker gets it.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.wire.versions import Api

API = Api(key=34, name="alter_replica_log_dirs", min_version=1, max_version=2, first_flexible=2)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    wanted = {
        (topic.name, partition_id): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition_id in topic.partitions
    }
    if context.allows_on_cluster(AclOperation.ALTER):
        answers = await context.services.replicas.moves.alter(wanted)
    else:
        answers = dict.fromkeys(wanted, CLUSTER_REFUSED.code)
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition_id), error in answers.items():
        by_topic.setdefault(topic, []).append(
            {"partition_index": partition_id, "error_code": error}
        )
    return {
        "results": [{"topic_name": topic, "partitions": rows} for topic, rows in by_topic.items()]
    }
