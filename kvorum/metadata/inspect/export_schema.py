"""The tables of an export: name, type and meaning of every column, and a version.

This is their only definition. It goes into the metadata of every Parquet file and, as schema.json,
beside the data, where programs that do not import Kvorum check what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

SCHEMA_VERSION = 2
"""Rises when a column changes its type or meaning or is removed, but not for a new column."""

SCHEMA_FILE = "schema.json"
VERSION_KEY = "kvorum.schema.version"
MEANING_KEY = "kvorum.meaning"
UNIT_KEY = "kvorum.unit"


class Column(NamedTuple):
    """type: int32, int64, double, string, bool, list<T>, or map<string,T>.
    unit: empty if the value has none, or if the meaning states it. A column may be null, unless
        is_required.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    is_required: bool = False


class Table(NamedTuple):
    """One table: a file of the export, or a folder of files if it has many rows."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


_TOPIC = (
    Column("topic_id", "string", "the topic's uuid in Kafka's base64 form"),
    Column("topic", "string", "the topic's name"),
)
_EPOCHS = (
    Column("leader_epoch", "int32", "rises with every leader"),
    Column("partition_epoch", "int32", "rises with every change of the partition"),
)

METADATA_RECORDS = Table(
    "metadata_records",
    "the metadata log, a row a record, from offset 0 or else the oldest snapshot on",
    (
        Column("offset", "int64", "offset in the metadata log"),
        Column("epoch", "int32", "epoch of the quorum's leader that wrote it"),
        Column("timestamp_ms", "int64", "wall clock of that leader, ms since 1970"),
        Column("record_type", "string", "class of the record, or the control record's name"),
        Column("record_version", "int32", "version of the record's layout"),
        *_TOPIC,
        Column("partition", "int32", "partition that the record is about"),
        Column("broker_id", "int32", "broker that the record is about"),
        Column("leader", "int32", "leader that the record sets; null leaves it as it was"),
        Column("isr", "list<int32>", "ISR that the record sets; null leaves it as it was"),
        Column("leader_epoch", "int32", "of the partition once the record has acted"),
        Column("partition_epoch", "int32", "of the partition once the record has acted"),
        Column("payload_json", "string", "all fields of the record as a JSON object"),
    ),
)
PARTITIONS = Table(
    "partitions",
    "the image: a row a partition",
    (
        *_TOPIC,
        Column("partition", "int32", "number from 0"),
        Column("replicas", "list<int32>", "broker ids, in order of preference for leadership"),
        Column("isr", "list<int32>", "broker ids in sync"),
        Column("leader", "int32", "broker id of the leader, -1 for none"),
        *_EPOCHS,
        Column("adding_replicas", "list<int32>", "being added by a reassignment (KIP-455)"),
        Column("removing_replicas", "list<int32>", "being removed by a reassignment (KIP-455)"),
        Column("leader_recovery_state", "int32", "1 after an unclean election, until recovered"),
        Column("elr", "list<int32>", "eligible leader replicas (KIP-966)"),
        Column("last_known_elr", "list<int32>", "those before the last one was lost (KIP-966)"),
    ),
)
TOPICS = Table(
    "topics",
    "the image: a row a topic",
    (
        *_TOPIC,
        Column("partitions", "int32", "how many it has"),
        Column("replication_factor", "int32", "most replicas that one of them has"),
    ),
)
BROKERS = Table(
    "brokers",
    "the image: a row a registered broker",
    (
        Column("broker_id", "int32", "its node id"),
        Column("broker_epoch", "int64", "offset of its registration"),
        Column("host", "string", "of its client listener"),
        Column("port", "int32", "of its client listener"),
        Column("rack", "string", "broker.rack, null for none"),
        Column("is_fenced", "bool", "out of service"),
        Column("incarnation_id", "string", "uuid of its process"),
    ),
)
CONTROLLERS = Table(
    "controllers",
    "the image: a row a registered controller",
    (
        Column("controller_id", "int32", "its node id"),
        Column("host", "string", "of its first listener"),
        Column("port", "int32", "of its first listener"),
        Column("incarnation_id", "string", "uuid of its process"),
    ),
)
CONFIGS = Table(
    "configs",
    "the image: a row a dynamic config",
    (
        Column("resource_type", "int32", "Kafka's number: 2 topic, 4 broker"),
        Column("resource_name", "string", "the resource; empty for the cluster's default"),
        Column("name", "string", "of the config"),
        Column("value", "string", "of the config; [hidden] for a password or an unknown name"),
    ),
)
FEATURES = Table(
    "features",
    "the image: a row a finalised feature",
    (
        Column("feature", "string", "its name (KIP-584)"),
        Column("level", "int32", "its finalised level"),
    ),
)
CLIENT_QUOTAS = Table(
    "client_quotas",
    "the image: a row a quota (KIP-546)",
    (
        Column("entity", "string", "whom it binds: `type=name` pairs, <default> for all others"),
        Column("key", "string", "which quota"),
        Column("value", "double", "its value"),
    ),
)
ACLS = Table(
    "acls",
    "the image: a row an ACL",
    (
        Column("acl_id", "string", "its uuid in Kafka's base64 form"),
        Column("resource_type", "string", "Kafka's name: TOPIC, GROUP, CLUSTER and so on"),
        Column("resource_name", "string", "the resource, * for all, or a prefix of names"),
        Column("pattern_type", "string", "LITERAL or PREFIXED"),
        Column("principal", "string", "whom it is about, `User:*` for everybody"),
        Column("host", "string", "from where: an address, a range, or * for everywhere"),
        Column("operation", "string", "Kafka's name: READ, WRITE, ALL and so on"),
        Column("permission", "string", "ALLOW or DENY"),
    ),
)
DELEGATION_TOKENS = Table(
    "delegation_tokens",
    "the image: a row a delegation token, without its HMAC",
    (
        Column("token_id", "string", "its id, by which a client names it at the login"),
        Column("owner", "string", "the principal that a client with the token is"),
        Column("requester", "string", "the principal that created it"),
        Column("renewers", "list<string>", "principals that may renew it too"),
        Column("issue_timestamp_ms", "int64", "when it was created"),
        Column("max_timestamp_ms", "int64", "beyond this time it cannot be renewed"),
        Column("expiration_timestamp_ms", "int64", "beyond this time it is not valid"),
    ),
)
IMAGE = Table(
    "image",
    "the whole image: a row a leaf of the tree that `kvorum metadata` shows",
    (
        Column("path", "string", "as `kvorum metadata cat` takes it"),
        Column("value_json", "string", "the value there as JSON"),
    ),
)

TABLES = (
    METADATA_RECORDS,
    PARTITIONS,
    TOPICS,
    BROKERS,
    CONTROLLERS,
    CONFIGS,
    FEATURES,
    CLIENT_QUOTAS,
    ACLS,
    DELEGATION_TOKENS,
    IMAGE,
)


def document() -> dict[str, Any]:
    """The content of schema.json: {version, tables: {name: {meaning, columns}}}."""
    return {"version": SCHEMA_VERSION, "tables": described(TABLES)}


def described(tables: Sequence[Table]) -> dict[str, Any]:
    """name -> {meaning, columns}, in plain values."""
    return {
        table.name: {
            "meaning": table.meaning,
            "columns": [column._asdict() for column in table.columns],
        }
        for table in tables
    }


def arrow_schema(table: Table) -> Any:
    """The table's pyarrow schema; version and meanings are in the schema's metadata."""
    import pyarrow as pa

    metadata = {VERSION_KEY: str(SCHEMA_VERSION), MEANING_KEY: table.meaning}
    return pa.schema(arrow_fields(table), metadata=metadata)


def arrow_fields(table: Table) -> list[Any]:
    """The table's columns as pyarrow fields, with meaning and unit in their metadata."""
    import pyarrow as pa

    return [
        pa.field(
            column.name,
            _arrow_type(column.type),
            nullable=not column.is_required,
            metadata={MEANING_KEY: column.meaning, UNIT_KEY: column.unit},
        )
        for column in table.columns
    ]


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name.startswith("list<"):
        return pa.list_(_arrow_type(name[5:-1]))
    if name.startswith("map<string,"):
        return pa.map_(pa.string(), _arrow_type(name[11:-1]))
    return {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
    }[name]
