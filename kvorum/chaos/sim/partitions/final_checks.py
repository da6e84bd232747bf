"""The checks of all replicas once the world has healed and no client writes any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.broker.partition.replica import Replica
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import replica_of
from kvorum.chaos.sim.partitions.compaction import CompactedHistory
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.watch import view_of
from kvorum.storage.format.batch import iter_headers

if TYPE_CHECKING:
    from kvorum.chaos.sim.partitions.history import PartitionHistory

BYTES_MAX = 1 << 20


def open_ends(world: DataWorld) -> str | None:
    """The reason why a partition has not recovered. None if every replica of every partition is in
    sync and as long as its leader, and every record is committed."""
    image = world.reference.newest
    for topic in image.topics.values():
        for partition_id, partition in sorted(topic.partitions.items()):
            name = f"{topic.name}-{partition_id}"
            if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                return f"{name} leader {partition.leader}, ISR {partition.isr}"
            ends = set()
            for broker_id in partition.replicas:
                replica = replica_of(world.brokers[broker_id], topic.topic_id, partition_id)
                if replica is None or replica.is_offline:
                    return f"{name} has no replica on {broker_id}"
                ends |= {replica.log.end_offset, replica.core.high_watermark}
            if len(ends) > 1:
                return f"{name} ends at {sorted(ends)}"
    return None


def check_replicas_equal(world: DataWorld) -> None:
    """Every replica has all committed records, with equal bytes, except those that retention
    deleted."""
    for (topic_id, partition_id), history in sorted(world.watch.histories.items()):
        found = []
        for broker_id in world.broker_ids:
            replica = replica_of(world.brokers[broker_id], topic_id, partition_id)
            if replica is not None:
                _check_again(world, history, broker_id, replica)
                found.append((broker_id, replica))
        if found and not isinstance(history, CompactedHistory):
            _check_bytes(history.name, found)


def _check_again(
    world: DataWorld, history: PartitionHistory, broker_id: int, replica: Replica
) -> None:
    """Check a replica from its first offset to the last, even if it was checked before."""
    known = history.known.get(broker_id)
    if known is not None:
        known.checked = 0
    history.observe(view_of(world.nodes[broker_id], replica), world.timeline.events)


def _check_bytes(name: str, found: list[tuple[int, Replica]]) -> None:
    begin = max(replica.log.start_offset for _, replica in found)
    contents = {broker_id: content_of(replica, begin) for broker_id, replica in found}
    first_id, first = next(iter(contents.items()))
    for broker_id, content in contents.items():
        check(
            content == first,
            "ReplicasEqual",
            f"{name}: the log of {broker_id} is not byte for byte that of {first_id} from {begin}",
        )


def content_of(replica: Replica, begin: int) -> bytes:
    """The batches of a log from `begin` on."""
    log, parts, offset = replica.log, [], begin
    while offset < log.end_offset:
        piece = log.read(offset, bytes_max=BYTES_MAX, end_offset=log.end_offset)
        data = piece.read()
        if not data:
            break
        parts.append(data)
        offset = log_end_of(data)
    return b"".join(parts)


def log_end_of(data: bytes) -> int:
    """The offset after the last batch."""
    return max(header.end_offset for _, header in iter_headers(data))
