"""Pure rules for snapshots: when one is due, and which old ones are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.runtime.errors import invariant
from kvorum.snapshots.format import SnapshotId

#: Apache Kafka's defaults, in its order: metadata.log.max.record.bytes.between.snapshots,
#: metadata.log.max.snapshot.interval.ms, metadata.max.retention.bytes, metadata.max.retention.ms.
BYTES_BETWEEN_SNAPSHOTS_MAX = 20 << 20
SNAPSHOT_INTERVAL_MS = 3_600_000
RETENTION_BYTES = 100 << 20
RETENTION_MS = 7 * 24 * 3_600_000

RETAINED_MIN = 2
"""If the newest is damaged, the next older one and the log behind it give the same state."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The facts of a snapshot that retention needs. timestamp_ms: of the last record in it."""

    id: SnapshotId
    size_bytes: int
    timestamp_ms: int


def is_due(
    *,
    bytes_since: int,
    ms_since: int,
    records_since: int,
    bytes_max: int = BYTES_BETWEEN_SNAPSHOTS_MAX,
    interval_ms: int = SNAPSHOT_INTERVAL_MS,
) -> bool:
    """True if a snapshot should be written now.

    bytes_since, ms_since, records_since: since the last snapshot, or the start of the log. Without
        new records none is due, because it would equal the last one. With an interval of 0 only the
        bytes count, as in Kafka.
    """
    if records_since <= 0:
        return False
    return bytes_since >= bytes_max or 0 < interval_ms <= ms_since


def to_remove(
    snapshots: Sequence[SnapshotFile],
    *,
    log_bytes: int,
    now_ms: int,
    retention_bytes: int = RETENTION_BYTES,
    retention_ms: int = RETENTION_MS,
    retained_min: int = RETAINED_MIN,
) -> tuple[SnapshotId, ...]:
    """The snapshots to remove, oldest first; never one that is newer than a kept one.

    The oldest is removed while more than retained_min remain, and it is older than retention_ms or
    log and snapshots together exceed retention_bytes. log_bytes is not reduced for removed
    snapshots: only the log knows how much of it they release, and the next round counts again.
    """
    invariant(retained_min >= 1, f"retained_min is {retained_min}: the newest snapshot must stay")
    by_age = sorted(snapshots, key=lambda snapshot: snapshot.id)
    total_bytes = log_bytes + sum(snapshot.size_bytes for snapshot in by_age)
    removed: list[SnapshotId] = []
    for snapshot in by_age[: max(len(by_age) - retained_min, 0)]:
        is_old = now_ms - snapshot.timestamp_ms > retention_ms
        if not is_old and total_bytes <= retention_bytes:
            break
        removed.append(snapshot.id)
        total_bytes -= snapshot.size_bytes
    return tuple(removed)
