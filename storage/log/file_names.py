"""Names of a segment's files: the base offset as 20 digits, and what kind of file it is."""

from __future__ import annotations

from kvorum.runtime.disk import Disk

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"
RECOVERY_SUFFIX = ".recovery"
DELETED_SUFFIX = ".deleted"
NAME_DIGITS = 20
FILE_NAME_BYTES_MAX = 255


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's file name: the base offset as 20 digits."""
    return f"{base_offset:020d}{suffix}"


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Base offsets of the files with this suffix among `names`, ascending."""
    length = NAME_DIGITS + len(suffix)
    return sorted(
        int(name[:NAME_DIGITS])
        for name in names
        if len(name) == length and name.endswith(suffix) and name[:NAME_DIGITS].isdigit()
    )


def put_aside(disk: Disk, directory: str, base_offset: int) -> None:
    """Give a segment's files the suffix of those that are removed later.

    .log first: to the next start an index beside a .log.deleted is what a crash has left, while a
    .log that lost its index would look as if it had never been whole (`lost_files.py`).
    """
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)


def replica_of(name: str) -> tuple[str, int] | None:
    """Topic and partition of a replica's folder, by its name; None if it is no such name."""
    topic, _, partition = name.rpartition("-")
    is_number = partition.isascii() and partition.isdigit()
    return (topic, int(partition)) if topic and is_number else None


def aside_name(name: str, unique: str, suffix: str) -> str:
    """`<topic>-<partition>.<unique><suffix>` for a replica's folder `name` that is put aside; of a
    long topic as much as file systems take, as in Kafka."""
    topic, _, partition = name.rpartition("-")
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: FILE_NAME_BYTES_MAX - len(tail)] + tail
