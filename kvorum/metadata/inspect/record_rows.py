"""Records of the metadata log as text: JSON lines, or rows of the exported table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kvorum.metadata.configs.secrets import record_to_dict
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import Record
from kvorum.metadata.inspect.history import LogEntry, MetadataHistory
from kvorum.runtime.ids import uuid_text

Epochs = dict[tuple[bytes, int], tuple[int, int]]
"""(topic id, partition) to (leader epoch, partition epoch)."""


def json_line(entry: LogEntry) -> str:
    """`{"offset", "epoch", "timestamp_ms", "type", "version", "data"}`, uuids as text."""
    line = {
        "offset": entry.offset,
        "epoch": entry.epoch,
        "timestamp_ms": entry.timestamp_ms,
        "type": entry.type,
        "version": entry.version,
        "data": entry.fields,
    }
    return json.dumps(line, default=_json_value)


def record_json(record: Record) -> str:
    """`{"type", "version", "data"}`, uuids as text, without secrets."""
    line = {
        "type": type(record).__name__,
        "version": record.VERSION,
        "data": record_to_dict(record),
    }
    return json.dumps(line, default=_json_value)


def record_rows(history: MetadataHistory, stop: int) -> Iterator[dict[str, Any]]:
    """Rows of export_schema.METADATA_RECORDS, from the history's first offset up to `stop`."""
    start = history.first_offset
    base = history.image_at(start)
    names = {topic_id: topic.name for topic_id, topic in base.topics.items()}
    epochs: Epochs = {}
    for entry in history.entries(start, stop):
        row: dict[str, Any] = {
            "offset": entry.offset,
            "epoch": entry.epoch,
            "timestamp_ms": entry.timestamp_ms,
            "record_type": entry.type,
            "record_version": entry.version,
            "payload_json": json.dumps(entry.fields, default=_json_value, sort_keys=True),
        }
        if entry.record is not None:
            row |= _subject_of(entry.fields, names, epochs, base)
        yield row


def _subject_of(
    fields: dict[str, Any], names: dict[bytes, str], epochs: Epochs, base: ClusterImage
) -> dict[str, Any]:
    """The subject of the record, and the fields of a partition that it sets."""
    topic_id: bytes | None = fields.get("topic_id")
    if topic_id is not None and "name" in fields:
        names[topic_id] = fields["name"]
    row: dict[str, Any] = {
        "topic_id": None if topic_id is None else uuid_text(topic_id),
        "topic": None if topic_id is None else names.get(topic_id),
        "partition": fields.get("partition_id"),
        "broker_id": fields.get("broker_id"),
        "leader": fields.get("leader"),
        "isr": None if fields.get("isr") is None else list(fields["isr"]),
    }
    if topic_id is not None and row["partition"] is not None:
        row["leader_epoch"], row["partition_epoch"] = _epochs_after(fields, epochs, base)
    return row


def _epochs_after(fields: dict[str, Any], epochs: Epochs, base: ClusterImage) -> tuple[int, int]:
    """Leader and partition epoch after the record (KIP-631)."""
    key = (fields["topic_id"], fields["partition_id"])
    if "leader_epoch" in fields:
        after = (fields["leader_epoch"], fields["partition_epoch"])
    else:
        before = epochs.get(key)
        if before is None:
            # The partition was created before the log begins, so its epochs come from the snapshot.
            partition = base.partition(*key)
            before = (0, 0)
            if partition is not None:
                before = (partition.leader_epoch, partition.partition_epoch)
        after = (before[0] + (fields["leader"] is not None), before[1] + 1)
    epochs[key] = after
    return after


def _json_value(value: Any) -> str:
    return uuid_text(value) if len(value) == 16 else value.hex()
