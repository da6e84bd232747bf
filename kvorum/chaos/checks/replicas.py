"""Divergent replicas, on the disks of brokers that have stopped.

Below the smallest high watermark of a partition's replicas every record is committed, so all
replicas hold the same batches there: offset, leader epoch and CRC, which covers the records.
Compaction rewrites batches on each broker at its own time, so of a compacted topic only the records
that two replicas both still have are compared. The folders are Kafka's, and so are Kvorum's.

The high watermarks are those of each data directory's checkpoint. A broker that was killed may have
written an older one: less is compared then, and never too much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvorum.chaos.checks.results import CheckResult, Findings, Promise
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.checkpoints import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    PARTITION_METADATA,
    TopicPartition,
    read_offsets,
    read_partition_metadata,
)
from kvorum.storage.files.file_names import LOG_SUFFIX, file_name, offsets_of, replica_of
from kvorum.storage.format.batch import BatchError, iter_records
from kvorum.storage.format.batch_stream import StoredBatch, stored_batches

DIVERGENT_REPLICAS = Promise(
    check="divergent-replicas",
    promise="all replicas hold the same records below the high watermark",
)
#: Internal topics, which are compacted.
_INTERNAL = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__kvorum_events"}
)
_METADATA_TOPIC = "__cluster_metadata"
_BUFFER_BYTES = 1 << 20


class _Item(NamedTuple):
    """A batch, or a record of a compacted log. content: the parts that must be
    equal in all replicas; `_told` writes them as text."""

    offset: int
    end_offset: int
    content: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """One folder.

    start_offset: of the log, by its checkpoint.
    high_watermark: 0 if no checkpoint has one.
    """

    broker: str
    directory: str
    topic_id: bytes | None
    start_offset: int
    high_watermark: int


def divergent_replicas(
    disk: Disk,
    log_dirs: Mapping[str, Sequence[str]],
    *,
    compacted_topics: frozenset[str] = frozenset(),
) -> CheckResult:
    """Compare the replicas of every partition. Reads only; memory is a buffer a replica.

    log_dirs: the data directories of each broker, by its name. examined counts the batches, or
    records of compacted topics, that two replicas were compared at. Raises OSError and, for a
    damaged checkpoint, CorruptData; a damaged log is a finding.
    """
    found = Findings(DIVERGENT_REPLICAS)
    partitions: dict[TopicPartition, list[_Replica]] = {}
    for broker in sorted(log_dirs):
        for directory in log_dirs[broker]:
            for key, replica in _replicas_in(disk, broker, directory):
                partitions.setdefault(key, []).append(replica)
    for key, replicas in sorted(partitions.items()):
        is_compacted = key[0] in compacted_topics or key[0] in _INTERNAL
        for same_topic in _by_topic_id(replicas):
            _compare(disk, found, key, same_topic, is_compacted=is_compacted)
    return found.result()


def _replicas_in(
    disk: Disk, broker: str, directory: str
) -> Iterator[tuple[TopicPartition, _Replica]]:
    high_watermarks = read_offsets(disk, f"{directory}/{HIGH_WATERMARK}")
    starts = read_offsets(disk, f"{directory}/{LOG_START_OFFSET}")
    for name in sorted(disk.list_dir(directory)):
        key = replica_of(name)
        if key is None or key[0] == _METADATA_TOPIC:
            continue
        folder = f"{directory}/{name}"
        if PARTITION_METADATA not in disk.list_dir(folder):
            continue
        yield (
            key,
            _Replica(
                broker=broker,
                directory=folder,
                topic_id=read_partition_metadata(disk, folder),
                start_offset=starts.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
            ),
        )


def _by_topic_id(replicas: list[_Replica]) -> list[list[_Replica]]:
    """A deleted topic's folder may be there beside that of a new one of its name."""
    found: dict[bytes | None, list[_Replica]] = {}
    for replica in replicas:
        found.setdefault(replica.topic_id, []).append(replica)
    return list(found.values())


def _compare(
    disk: Disk,
    found: Findings,
    key: TopicPartition,
    replicas: list[_Replica],
    *,
    is_compacted: bool,
) -> None:
    name = f"{key[0]}-{key[1]}"
    if len(replicas) < 2:
        return
    limit = min(replica.high_watermark for replica in replicas)
    start = max(replica.start_offset for replica in replicas)
    if limit <= start:
        found.note(f"{name} has no common record below the smallest high watermark, {limit}")
        return
    read = _records if is_compacted else _batches
    first, *others = replicas
    for other in others:
        try:
            _compare_two(
                found,
                key,
                (first, _from(read(disk, first.directory, limit), start)),
                (other, _from(read(disk, other.directory, limit), start)),
                may_lack=is_compacted,
            )
        except (CorruptData, BatchError) as damage:
            found.add(
                f"{name}: below the high watermark a log is damaged: {damage}",
                topic=key[0],
                partition=key[1],
            )


def _from(items: Iterator[_Item], start: int) -> Iterator[_Item]:
    return (item for item in items if item.end_offset > start)


def _compare_two(
    found: Findings,
    key: TopicPartition,
    one: tuple[_Replica, Iterator[_Item]],
    other: tuple[_Replica, Iterator[_Item]],
    *,
    may_lack: bool,
) -> None:
    """Walk both logs to the first difference. may_lack: either may lack items of the other."""
    mine, theirs = next(one[1], None), next(other[1], None)
    while mine is not None or theirs is not None:
        if may_lack and (mine is None or theirs is None):
            return
        if may_lack and mine is not None and theirs is not None and mine.offset != theirs.offset:
            if mine.offset < theirs.offset:
                mine = next(one[1], None)
            else:
                theirs = next(other[1], None)
            continue
        found.examined += 1
        if mine != theirs:
            at = min(item.offset for item in (mine, theirs) if item is not None)
            found.add(
                f"{key[0]}-{key[1]} differs at offset {at}: {_told(one[0], mine)}, "
                f"{_told(other[0], theirs)}",
                topic=key[0],
                partition=key[1],
                offset=at,
            )
            return
        mine, theirs = next(one[1], None), next(other[1], None)


def _told(replica: _Replica, item: _Item | None) -> str:
    if item is None:
        return f"{replica.broker} has nothing from there on"
    words = ", ".join(str(part) for part in item.content)
    return f"{replica.broker} has [{item.offset}, {item.end_offset}) {words}"


def _stored(disk: Disk, directory: str, limit: int) -> Iterator[StoredBatch]:
    """The batches that end at or below the limit, in order."""
    for base_offset in offsets_of(disk.list_dir(directory), LOG_SUFFIX):
        if base_offset >= limit:
            return
        file = disk.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}")
        try:
            for run in stored_batches(
                file, size=file.size(), base_offset=base_offset, buffer_bytes=_BUFFER_BYTES
            ):
                for batch in run:
                    if batch.header.end_offset > limit:
                        return
                    yield batch
                    if batch.header.end_offset == limit:
                        # The rest may be torn, and is not committed.
                        return
        finally:
            file.close()


def _batches(disk: Disk, directory: str, limit: int) -> Iterator[_Item]:
    for _, header, _ in _stored(disk, directory, limit):
        content = (f"epoch {header.leader_epoch}", f"CRC {header.crc:#010x}")
        yield _Item(header.base_offset, header.end_offset, content)


def _records(disk: Disk, directory: str, limit: int) -> Iterator[_Item]:
    for _, header, data in _stored(disk, directory, limit):
        for record in iter_records(data, 0, header):
            content = (f"epoch {header.leader_epoch}", f"key {record.key!r}", record.value)
            yield _Item(record.offset, record.offset + 1, content)
