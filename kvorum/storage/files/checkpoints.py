"""Small text files of a data directory and of its partitions' folders, in Kafka's formats.

Every write is atomic, and durable on return (`Disk.write_atomic` fsyncs file and folder), except
`put_partition_metadata`.
"""

from __future__ import annotations

import json

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.ids import uuid_from_text, uuid_text

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_PARTITION_METADATA_HEAD = b"version: 0\ntopic_id: "
TOPIC_ID_AT = len(_PARTITION_METADATA_HEAD)
TOPIC_ID_CHARACTERS = 22

TopicPartition = tuple[str, int]


def write_offsets(disk: Disk, path: str, offsets: dict[TopicPartition, int]) -> None:
    """Write an offset checkpoint: version 0, the count, lines of `topic partition offset`."""
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {at}" for (topic, partition), at in sorted(offsets.items())]
    disk.write_atomic(path, ("\n".join(lines) + "\n").encode())


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """(topic, partition) -> offset; empty when the file is missing. Raises CorruptData."""
    if not disk.exists(path):
        return {}
    lines = disk.read_bytes(path).decode("utf-8", "replace").split("\n")
    offsets: dict[TopicPartition, int] = {}
    at = 0
    try:
        version = int(lines[at])
        at = 1
        count = int(lines[at])
        for at in range(2, 2 + count):
            topic, partition, offset = lines[at].split(" ")
            offsets[topic, int(partition)] = int(offset)
    except (ValueError, IndexError) as error:
        found = f"{lines[at][:40]!r} in line {at + 1}" if at < len(lines) else "too few lines"
        raise CorruptData(path, 0, f"not an offset checkpoint: {found}") from error
    if version != 0 or len(offsets) != count:
        raise CorruptData(path, 0, f"version {version}, {len(offsets)} entries of {count}")
    return offsets


def write_clean_shutdown(disk: Disk, directory: str, *, broker_epoch: int) -> None:
    """Mark every log in `directory` as cleanly closed; call it after all of them were."""
    body = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomic(f"{directory}/{CLEAN_SHUTDOWN}", body.encode())


def read_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """The broker epoch of a clean shutdown, None after an unclean one. Raises OSError."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    try:
        content = json.loads(disk.read_bytes(path))
        return int(content["brokerEpoch"]) if content["version"] == 0 else None
    except (ValueError, KeyError, TypeError):
        # An unreadable marker proves nothing, so the start is treated as unclean.
        return None


def remove_clean_shutdown(disk: Disk, directory: str) -> None:
    """Remove the clean-shutdown marker, durably, before any log is opened: after a crash of the new
    run, the next start must not find it."""
    disk.remove(f"{directory}/{CLEAN_SHUTDOWN}")
    disk.sync_dir(directory)


def write_partition_metadata(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the topic id of a partition's folder. topic_id: 16 bytes."""
    disk.write_atomic(f"{directory}/{PARTITION_METADATA}", _partition_metadata(topic_id))


def put_partition_metadata(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Like `write_partition_metadata`, but not durable."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.pwrite(_partition_metadata(topic_id), 0)
    finally:
        file.close()


def _partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def sync_partition_metadata(disk: Disk, directory: str) -> None:
    """Make the partition.metadata of a folder durable."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.sync()
    finally:
        file.close()
    disk.sync_dir(directory)


def read_partition_metadata(disk: Disk, directory: str) -> bytes | None:
    """The 16 bytes of the topic id; None when the file is missing. Raises CorruptData."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    fields = {}
    for line in disk.read_bytes(path).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    try:
        if fields["version"] != "0":
            raise CorruptData(path, 0, f"version {fields['version']}")
        return uuid_from_text(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptData(
            path,
            0,
            "not a partition.metadata; put it back (version: 0, topic_id: as `kvorum topics "
            "describe` has it)",
        ) from error


def is_torn_partition_metadata(data: bytes) -> bool:
    """True if a power loss can have left this of a partition.metadata that was not fsynced: a
    beginning, perhaps followed by zeros."""
    if len(data) == TOPIC_ID_AT + TOPIC_ID_CHARACTERS and not data.endswith(b"\0"):
        return False
    kept = data.rstrip(b"\0")
    head, topic_id = kept[:TOPIC_ID_AT], kept[TOPIC_ID_AT:]
    return _PARTITION_METADATA_HEAD.startswith(head) and len(topic_id) < TOPIC_ID_CHARACTERS


def write_meta_properties(disk: Disk, directory: str, properties: dict[str, str]) -> None:
    """Write the meta.properties of a data directory: version=1, cluster.id, node.id,
    directory.id."""
    lines = [f"{_escape(name)}={_escape(value)}" for name, value in sorted(properties.items())]
    disk.write_atomic(f"{directory}/{META_PROPERTIES}", ("\n".join(lines) + "\n").encode())


def read_meta_properties(disk: Disk, directory: str) -> dict[str, str] | None:
    """The properties; None when the file is missing. Raises CorruptData.

    Reads the subset of Java's format that is written for this file: `name=value`, comments with #.
    """
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    properties: dict[str, str] = {}
    position = 0
    for line in disk.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            name, separator, value = line.partition("=")
            if not separator:
                raise CorruptData(path, position, f"no '=' in {line[:20]!r}")
            properties[name.strip()] = value.strip().replace("\\:", ":").replace("\\\\", "\\")
        position += len(line.encode()) + 1
    return properties


def _escape(text: str) -> str:
    if any(mark in text for mark in "\r\n="):
        raise ValueError(f"{text!r} cannot stand in {META_PROPERTIES}")
    return text.replace("\\", "\\\\")
