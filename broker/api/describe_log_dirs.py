"""DescribeLogDirs (35). Served: v1-4. There is one log directory and there are no future logs."""

from __future__ import annotations

import shutil
from typing import Any

from broker.context import RequestContext
from broker.replica import Replica
from runtime.errors import ErrorCode
from wire.versions import Api

API = Api(key=35, name="describe_log_dirs", min_version=1, max_version=4, first_flexible=2)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, p) for topic in request.topics for p in topic.partitions}
    topics: dict[str, list[dict[str, Any]]] = {}
    for replica in context.services.replicas.all():
        core = replica.core
        if wanted is None or (core.topic, core.partition_id) in wanted:
            topics.setdefault(core.topic, []).append(_partition(replica))
    directory = context.services.replicas.store.directory
    total_bytes, usable_bytes = -1, -1
    error = ErrorCode.NONE
    try:
        usage = shutil.disk_usage(directory)
        total_bytes, usable_bytes = usage.total, usage.free
    except OSError:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    result = {
        "error_code": error,
        "log_dir": directory,
        "topics": [{"name": name, "partitions": rows} for name, rows in sorted(topics.items())],
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
    return {"error_code": ErrorCode.NONE, "results": [result]}


def _partition(replica: Replica) -> dict[str, Any]:
    core = replica.core
    return {
        "partition_index": core.partition_id,
        "partition_size": replica.log.size_bytes,
        "offset_lag": 0 if core.is_leader else max(core.high_watermark - core.end_offset, 0),
        "is_future_key": False,
    }
