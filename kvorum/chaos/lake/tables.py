"""The tables of a lake: every column with its type, unit and meaning, and a version. Pure.

This is their only definition. It goes into the metadata of every Parquet file, and as lake.json
into the root of the lake, where programs that do not import Kvorum check what they read. A lake has
the files `TABLE/v=VERSION/run_id=RUN/part-*.parquet`; the run id is in the path and in no column.

Times named `time_ms` are milliseconds of a run's own monotonic clock, from the beginning of its
history; times named `wall_ms` are milliseconds since 1970.
"""

from __future__ import annotations

from typing import Any

from kvorum.metadata.inspect.export_schema import (
    BROKERS,
    CONFIGS,
    CONTROLLERS,
    MEANING_KEY,
    METADATA_RECORDS,
    PARTITIONS,
    TOPICS,
    Column,
    Table,
    arrow_fields,
    described,
)

LAKE_VERSION = 2
"""Rises when a column changes its type or meaning or is removed, but not for a new column."""

LAKE_FILE = "lake.json"
NAME_KEY = "kvorum.table"
VERSION_KEY = "kvorum.lake.version"


def _time(meaning: str, *, is_required: bool = False) -> Column:
    return Column("time_ms", "double", meaning, "ms of the run", is_required)


RUNS = Table(
    "runs",
    "a run, or an export of metadata; written last, so that a run without a row is incomplete",
    (
        Column("id", "string", "the run's id, equal to run_id of the path", is_required=True),
        Column("kind", "string", "chaos or metadata", is_required=True),
        Column("experiment", "string", "title of the experiment"),
        Column("tags", "list<string>", "of the experiment"),
        Column("system", "string", "the system under test: kvorum, kafka, attached"),
        Column("version", "string", "of the system under test"),
        Column("seed", "int64", "of the run"),
        Column("verdict", "string", "passed, failed, inconclusive; null if it was not judged"),
        Column("reasons", "list<string>", "why the verdict is not passed"),
        Column("is_complete", "bool", "false if the run was broken off", is_required=True),
        Column("controllers", "int32", "of the cluster", "nodes"),
        Column("brokers", "int32", "of the cluster", "nodes"),
        Column("topic", "string", "topic of the load"),
        Column("partitions", "int32", "of the load's topic", "partitions"),
        Column("replication_factor", "int32", "of the load's topic", "replicas"),
        Column("min_insync_replicas", "int32", "of the load's topic", "replicas"),
        Column("records_per_second", "int32", "that the load sends", "records/s"),
        Column("record_bytes", "int32", "of a record's value", "bytes"),
        Column("promises", "map<string,double>", "limits that the experiment states, by name"),
        Column("broken_promises", "list<string>", "names of those that the run broke"),
        Column("lost", "int64", "acknowledged records that are gone; null if not known", "records"),
        Column("duplicated", "int64", "records that are there twice; null if not known", "records"),
        Column("reordered", "int64", "records out of order; null if not known", "records"),
        Column("started_wall_ms", "int64", "begin of the run, or the export", "ms since 1970"),
        Column("ended_wall_ms", "int64", "end of the run", "ms since 1970"),
        Column("history_start_wall_ms", "int64", "wall clock at time_ms 0", "ms since 1970"),
        Column("milestones_source", "string", "the origin of the table milestones, in words"),
        Column("report", "string", "path or URI of the run's page"),
        Column("rows", "map<string,int64>", "rows of the run in each other table", "rows"),
    ),
)
HISTORY = Table(
    "history",
    "an event of a run's history; one about records has a row for each record",
    (
        Column("index", "int64", "number of the event in the run", is_required=True),
        _time("of the event", is_required=True),
        Column("wall_ms", "int64", "of the event", "ms since 1970", is_required=True),
        Column("process", "string", "client that acted", is_required=True),
        Column("type", "string", "invoke, ok, fail (no effect), info (unknown)", is_required=True),
        Column("f", "string", "function: send, poll, transaction, commit, ...", is_required=True),
        Column(
            "operation", "string", "send, poll, deliver or acknowledge, of a row that is a record's"
        ),
        Column("topic", "string", "topic of the record or of the event"),
        Column("partition", "int32", "partition of the record; -1 if not known"),
        Column("value", "int64", "of the record, unique in its partition"),
        Column("offset", "int64", "of the record"),
        Column("latency_ms", "double", "from the invocation to this outcome", "ms"),
        Column("transaction", "string", "transactional id"),
        Column("group", "string", "group id"),
        Column("generation", "int32", "of the group"),
        Column("error", "string", "Kafka's error name and text"),
        Column("delivery_count", "int32", "of a delivery to a member of a share group", "records"),
        Column("acknowledgement", "string", "of a share group's member: accept, release, reject"),
    ),
)
FAULTS = Table(
    "faults",
    "a fault that was injected",
    (
        Column("fault_id", "int32", "number in the run", is_required=True),
        Column("name", "string", "of the experiment's step", is_required=True),
        Column("fault", "string", "kind: kill, pause, cut, ...", is_required=True),
        Column("description", "string", "the fault in words", is_required=True),
        Column("target", "string", "as the experiment states it", is_required=True),
        Column("nodes", "list<string>", "nodes that it hit", is_required=True),
        Column("roles", "list<string>", "what these nodes were at that moment", is_required=True),
        Column("struck_ms", "double", "when its first part was in force", "ms of the run"),
        Column("begin_ms", "double", "when all of it was in force", "ms of the run", True),
        Column("end_ms", "double", "when it was undone; null if it was not", "ms of the run"),
        Column("begin_wall_ms", "int64", "begin_ms on the wall clock", "ms since 1970", True),
        Column("topic", "string", "topic of the partitions below"),
        Column("led_partitions", "list<int32>", "that the nodes led", is_required=True),
        Column("held_partitions", "list<int32>", "of which they had a replica", is_required=True),
        Column("is_active_controller", "bool", "it hit the active controller", is_required=True),
    ),
)
MILESTONES = Table(
    "milestones",
    "a decision of the cluster: a fencing, a new leader, a new ISR, a new active controller",
    (
        _time("of the decision; null without a history"),
        Column("wall_ms", "double", "of the decision", "ms since 1970", is_required=True),
        Column("what", "string", "fenced, unfenced, leader, isr, active-controller", "", True),
        Column("broker", "int32", "that was fenced or unfenced"),
        Column("topic", "string", "of the partition"),
        Column("partition", "int32", "that has the leader or ISR"),
        Column("leader", "int32", "new leader, -1 for none"),
        Column("epoch", "int32", "of the new leader"),
        Column("isr", "list<int32>", "new ISR, broker ids"),
    ),
)
VOTERS = Table(
    "voters",
    "a voter, as the quorum's leader described it at one moment",
    (
        _time("of the description; null without a history"),
        Column("wall_ms", "int64", "of the description", "ms since 1970", is_required=True),
        Column("leader_id", "int32", "the quorum's leader", is_required=True),
        Column("leader_epoch", "int32", "its epoch", is_required=True),
        Column("high_watermark", "int64", "that the leader stated", "records", is_required=True),
        Column("voter_id", "int32", "the voter", is_required=True),
        Column("log_end_offset", "int64", "the voter's, as the leader knows it", "records"),
        Column("lag", "int64", "leader's log end offset less the voter's", "records"),
    ),
)


OF_METADATA = (METADATA_RECORDS, PARTITIONS, TOPICS, BROKERS, CONTROLLERS, CONFIGS)
"""Tables of the exported metadata log and image, as the export defines them."""

TABLES = (RUNS, HISTORY, FAULTS, MILESTONES, VOTERS, *OF_METADATA)


def document() -> dict[str, Any]:
    """The content of lake.json: {lake: version, tables: {name: {meaning, columns}}}."""
    return {"lake": LAKE_VERSION, "tables": described(TABLES)}


def arrow_schema(table: Table) -> Any:
    """The table's pyarrow schema; version, meanings and units are in its metadata."""
    import pyarrow as pa

    metadata = {
        NAME_KEY: table.name,
        VERSION_KEY: str(LAKE_VERSION),
        MEANING_KEY: table.meaning,
    }
    return pa.schema(arrow_fields(table), metadata=metadata)
