"""Names of a segment's files: the base offset as 20 digits, and a suffix for the kind of file."""

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
METADATA_LOG_FOLDER = "__cluster_metadata-0"
"""Folder of the metadata log in a node's data directory."""
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


def mark_deleted(disk: Disk, directory: str, base_offset: int) -> None:
    """Rename a segment's files to `.deleted`; they are removed later.

    The .log file comes first. An index beside a .log.deleted shows the next start a crash in this
    function. A .log without its index would look like a segment that was never sealed
    (`storage.recovery.missing_files`).
    """
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)


def replica_of(name: str) -> tuple[str, int] | None:
    """Topic and partition of a replica's folder; None if the name is not that of a replica."""
    topic, _, partition = name.rpartition("-")
    is_number = partition.isascii() and partition.isdigit()
    return (topic, int(partition)) if topic and is_number else None


def aside_name(name: str, unique: str, suffix: str) -> str:
    """`<topic>-<partition>.<unique><suffix>`: the name of a replica's folder that is put aside.

    A long topic name is shortened to what file systems accept, as in Kafka.
    """
    topic, _, partition = name.rpartition("-")
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: FILE_NAME_BYTES_MAX - len(tail)] + tail
