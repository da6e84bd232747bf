"""DescribeLogDirs (35). Served: v1-5. One result for each data directory. A replica that moves to
another directory has a second row there, as a future replica; its lag is against the current one.

An offline directory answers KAFKA_STORAGE_ERROR and lists no partitions, as in Kafka. For Kvorum's
own command line, tagged fields give each directory's id, why it is offline, if it is cordoned
(Kafka's field for it came with v5), and which replicas in an online directory are offline.
"""

from __future__ import annotations

import shutil
from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.partition.future_replica import FutureReplica
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import OWN_TAGS
from kvorum.wire.log_dirs_codec import (
    CORDONED_TAG,
    DIRECTORY_ID_TAG,
    OFFLINE_TAG,
    OWN_CLIENT_ID,
    REASON_TAG,
    pack_offline,
)
from kvorum.wire.versions import Api

API = Api(key=35, name="describe_log_dirs", min_version=1, max_version=5, first_flexible=2)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.DESCRIBE):
        return {"error_code": CLUSTER_REFUSED.code, "results": ()}
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, p) for topic in request.topics for p in topic.partitions}
    registry = context.services.registry
    by_directory: dict[LogDirectory, dict[str, list[dict[str, Any]]]] = {
        log_dir: {} for log_dir in context.services.replicas.directories.items
    }
    for replica in registry.all():
        core = replica.core
        if wanted is None or (core.topic, core.partition_id) in wanted:
            by_directory[replica.log_dir].setdefault(core.topic, []).append(_partition(replica))
            if replica.future is not None:
                row = _future(replica, replica.future)
                by_directory[replica.future.log_dir].setdefault(core.topic, []).append(row)
    results = [_directory(log_dir, topics) for log_dir, topics in by_directory.items()]
    if context.client_id == OWN_CLIENT_ID:
        for log_dir, result in zip(by_directory, results, strict=True):
            tags = [*_own_tags(log_dir), (OFFLINE_TAG, _offline_in(log_dir, registry))]
            result[OWN_TAGS] = [*tags, (CORDONED_TAG, b"")] if log_dir.is_cordoned else tags
    return {"error_code": ErrorCode.NONE, "results": results}


def _directory(log_dir: LogDirectory, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    error = ErrorCode.KAFKA_STORAGE_ERROR if log_dir.is_offline else ErrorCode.NONE
    total_bytes, usable_bytes = -1, -1
    if not log_dir.is_offline:
        try:
            usage = shutil.disk_usage(log_dir.path)
            total_bytes, usable_bytes = usage.total, usage.free
        except OSError:
            # A failed statvfs call does not take the directory offline; the next write will, if the
            # disk fails.
            error = ErrorCode.KAFKA_STORAGE_ERROR
    shown = {} if error != ErrorCode.NONE else topics
    return {
        "error_code": error,
        "log_dir": log_dir.path,
        "topics": [{"name": name, "partitions": rows} for name, rows in sorted(shown.items())],
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "is_cordoned": log_dir.is_cordoned,
    }


def _own_tags(log_dir: LogDirectory) -> list[tuple[int, bytes]]:
    tags = [(REASON_TAG, log_dir.reason.encode())]
    return tags if log_dir.id is None else [(DIRECTORY_ID_TAG, log_dir.id), *tags]


def _offline_in(log_dir: LogDirectory, registry: ReplicaRegistry) -> bytes:
    """The value of OFFLINE_TAG: the offline replicas in a directory, none if the directory itself
    is offline."""
    if log_dir.is_offline:
        return pack_offline(())
    names = [broken.name for broken in registry.broken if broken.log_dir is log_dir]
    names += [
        f"{replica.core.topic}-{replica.core.partition_id}"
        for replica in registry.all()
        if replica.is_offline and replica.log_dir is log_dir
    ]
    return pack_offline(sorted(names))


def _partition(replica: Replica) -> dict[str, Any]:
    core = replica.core
    return {
        "partition_index": core.partition_id,
        "partition_size": replica.log.size_bytes,
        "offset_lag": 0 if core.is_leader else max(core.high_watermark - core.end_offset, 0),
        "is_future_key": False,
    }


def _future(replica: Replica, future: FutureReplica) -> dict[str, Any]:
    return {
        "partition_index": replica.core.partition_id,
        "partition_size": future.size_bytes,
        "offset_lag": max(replica.log.end_offset - future.end_offset, 0),
        "is_future_key": True,
    }
