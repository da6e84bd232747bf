"""The metadata log and its image as Parquet, with an explicit, versioned schema.

Files: metadata_records, topics, partitions, brokers (.parquet). docs/formats.md describes each
column; the Spark job declares the same schema for itself, and a test holds the two together.
pyarrow is imported only here and only when something is exported.
"""

from __future__ import annotations

import json
import os
from typing import Any

from metadata.image import ClusterImage
from metadata.loader import committed_records
from metadata.record_codec import record_to_dict
from metadata.records import Record
from metadata.snapshot_view import MetadataCopy, base_image, image_of
from runtime.ids import uuid_text

SCHEMA_VERSION = 1


def schemas() -> dict[str, Any]:
    """File name (without ending) to pyarrow schema."""
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    tables = {
        "metadata_records": [
            ("offset", pa.int64()),
            ("epoch", pa.int32()),
            ("timestamp_ms", pa.int64()),
            ("record_type", pa.string()),
            ("record_version", pa.int32()),
            ("topic_id", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("broker_id", pa.int32()),
            ("leader", pa.int32()),
            ("isr", ids),
            ("leader_epoch", pa.int32()),
            ("partition_epoch", pa.int32()),
            ("payload_json", pa.string()),
        ],
        "partitions": [
            ("topic_id", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("replicas", ids),
            ("isr", ids),
            ("leader", pa.int32()),
            ("leader_epoch", pa.int32()),
            ("partition_epoch", pa.int32()),
            ("adding_replicas", ids),
            ("removing_replicas", ids),
            ("leader_recovery_state", pa.int32()),
            ("elr", ids),
            ("last_known_elr", ids),
        ],
        "topics": [
            ("topic_id", pa.string()),
            ("topic", pa.string()),
            ("partitions", pa.int32()),
            ("replication_factor", pa.int32()),
        ],
        "brokers": [
            ("broker_id", pa.int32()),
            ("broker_epoch", pa.int64()),
            ("host", pa.string()),
            ("port", pa.int32()),
            ("rack", pa.string()),
            ("is_fenced", pa.bool_()),
            ("incarnation_id", pa.string()),
        ],
    }
    metadata = {"kvorum.schema.version": str(SCHEMA_VERSION)}
    return {name: pa.schema(fields, metadata=metadata) for name, fields in tables.items()}


def export_metadata(copy: MetadataCopy, directory: str) -> dict[str, int]:
    """Write the Parquet files of a copy of the metadata; rows by file name.

    The records table begins where the copy's snapshot ends; the others are whole.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.makedirs(directory, exist_ok=True)
    image = image_of(copy)
    rows = {
        "metadata_records": _record_rows(copy),
        "partitions": _partition_rows(image),
        "topics": _topic_rows(image),
        "brokers": _broker_rows(image),
    }
    for name, schema in schemas().items():
        table = pa.Table.from_pylist(rows[name], schema=schema)
        pq.write_table(table, os.path.join(directory, f"{name}.parquet"))
    return {name: len(table) for name, table in rows.items()}


def _record_rows(copy: MetadataCopy) -> list[dict[str, Any]]:
    names = {topic.topic_id: topic.name for topic in base_image(copy).topics.values()}
    epochs: dict[tuple[bytes, int], list[int]] = {}
    rows = []
    for offset, epoch, timestamp_ms, record in committed_records(copy.records):
        row: dict[str, Any] = {
            "offset": offset,
            "epoch": epoch,
            "timestamp_ms": timestamp_ms,
            "record_type": "LeaderChange",
            "record_version": 0,
            "payload_json": "{}",
        }
        if record is not None:
            row |= _fields_of(record, names, epochs)
        rows.append(row)
    return rows


def _fields_of(
    record: Record, names: dict[bytes, str], epochs: dict[tuple[bytes, int], list[int]]
) -> dict[str, Any]:
    fields = record_to_dict(record)
    topic_id: bytes | None = fields.get("topic_id")
    if topic_id is not None and "name" in fields:
        names[topic_id] = fields["name"]
    row: dict[str, Any] = {
        "record_type": type(record).__name__,
        "record_version": record.VERSION,
        "topic_id": None if topic_id is None else uuid_text(topic_id),
        "topic": None if topic_id is None else names.get(topic_id),
        "partition": fields.get("partition_id"),
        "broker_id": fields.get("broker_id"),
        "leader": fields.get("leader"),
        "isr": None if fields.get("isr") is None else list(fields["isr"]),
        "payload_json": json.dumps(fields, default=_json_value, sort_keys=True),
    }
    if topic_id is not None and row["partition"] is not None:
        row["leader_epoch"], row["partition_epoch"] = _epochs_after(fields, epochs)
    return row


def _epochs_after(
    fields: dict[str, Any], epochs: dict[tuple[bytes, int], list[int]]
) -> tuple[int, int]:
    """Leader and partition epoch once the record has acted (kraft.md, replaying rules)."""
    key = (fields["topic_id"], fields["partition_id"])
    if "leader_epoch" in fields:
        epochs[key] = [fields["leader_epoch"], fields["partition_epoch"]]
    else:
        held = epochs.setdefault(key, [0, 0])
        held[0] += fields["leader"] is not None
        held[1] += 1
    return epochs[key][0], epochs[key][1]


def _json_value(value: Any) -> str:
    return uuid_text(value) if len(value) == 16 else value.hex()


def _partition_rows(image: ClusterImage) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": uuid_text(topic.topic_id),
            "topic": topic.name,
            "partition": partition_id,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "adding_replicas": list(partition.adding_replicas),
            "removing_replicas": list(partition.removing_replicas),
            "leader_recovery_state": partition.leader_recovery_state,
            "elr": list(partition.elr),
            "last_known_elr": list(partition.last_known_elr),
        }
        for topic in sorted(image.topics.values(), key=lambda t: t.name)
        for partition_id, partition in sorted(topic.partitions.items())
    ]


def _topic_rows(image: ClusterImage) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": uuid_text(topic.topic_id),
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": len(topic.partitions[0].replicas),
        }
        for topic in sorted(image.topics.values(), key=lambda t: t.name)
    ]


def _broker_rows(image: ClusterImage) -> list[dict[str, Any]]:
    return [
        {
            "broker_id": broker.broker_id,
            "broker_epoch": broker.broker_epoch,
            "host": broker.endpoint.host,
            "port": broker.endpoint.port,
            "rack": broker.rack,
            "is_fenced": broker.is_fenced,
            "incarnation_id": uuid_text(broker.incarnation_id),
        }
        for _, broker in sorted(image.brokers.items())
    ]
