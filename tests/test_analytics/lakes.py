"""Lakes of generated runs, written by the writer that `kvorum lake add` uses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from kvorum.chaos.lake.parts import write_rows
from kvorum.chaos.lake.store import Lake
from kvorum.chaos.lake.tables import RUNS, TABLES
from kvorum.metadata.inspect.export_schema import Table

WALL_MS = 1_700_000_000_000
PARTITIONS = 4
BROKERS = (101, 102, 103, 104)
#: Ids of faults that strike no broker.
OF_CLIENTS = (3, 7)
Row = dict[str, Any]


def make_lake(folder: Path, runs: dict[str, Row], *, seed: int = 0) -> Lake:
    """A lake of random runs. runs: by run id, the columns of the table `runs` that differ from the
    usual values."""
    lake = Lake(str(folder))
    lake.create()
    for number, (run_id, columns) in enumerate(runs.items()):
        add_run(lake, run_id, random_tables(random.Random(seed + number)), columns)
    return lake


def add_run(lake: Lake, run_id: str, tables: dict[str, list[Row]], columns: Row) -> None:
    """Write the tables, and the row in `runs` that states their sizes."""
    counts = {}
    for name, rows in tables.items():
        counts[name] = write(lake, table_named(name), run_id, rows)
    row = {
        "id": run_id, "kind": "chaos", "experiment": "leaders die", "system": "kvorum",
        "version": "0.1.0", "seed": 1, "verdict": "passed", "is_complete": True, "controllers": 3,
        "brokers": 4, "topic": "orders", "partitions": PARTITIONS, "replication_factor": 3,
        "started_wall_ms": WALL_MS, "history_start_wall_ms": WALL_MS,
        "rows": sorted(counts.items()),
    }  # fmt: skip
    write(lake, RUNS, run_id, [row | columns])


def write(lake: Lake, table: Table, run_id: str, rows: list[Row]) -> int:
    names = [column.name for column in table.columns]
    return write_rows(lake, table, run_id, ([row.get(name) for name in names] for row in rows))


def random_tables(rng: random.Random) -> dict[str, list[Row]]:
    history = _history(rng)
    end_ms = history[-1]["time_ms"]
    faults = _faults(rng, end_ms)
    return {
        "history": history,
        "faults": faults,
        "milestones": _milestones(rng, faults, end_ms),
        "voters": _voters(rng, end_ms),
        **_metadata(rng),
    }


def _history(rng: random.Random) -> list[Row]:
    """Sends to two topics, with pauses now and then, and created topics."""
    rows: list[Row] = []
    things = [("orders", number) for number in range(PARTITIONS)] + [("copies", 0)]
    for topic, partition in things:
        now_ms = rng.uniform(0, 300)
        for value in range(500):
            now_ms += rng.uniform(1, 20) if rng.random() > 0.02 else rng.uniform(100, 1500)
            outage = rng.random() < 0.02
            is_slow = outage or (topic == "orders" and value == 0)
            latency_ms = rng.uniform(300, 2500) if is_slow else rng.uniform(0.4, 40)
            kind = rng.choices(["ok", "info", "fail", None], [93, 4, 2, 1])[0]
            is_in_transaction = topic == "copies"
            base = {
                "f": "transaction" if is_in_transaction else "send", "operation": "send",
                "process": "p", "topic": topic, "partition": partition, "value": value,
            }  # fmt: skip
            rows.append({**base, "time_ms": round(now_ms, 3), "type": "invoke"})
            if kind is None:
                continue
            done_ms = round(now_ms + latency_ms, 3)
            done = {**base, "time_ms": done_ms, "type": kind, "latency_ms": round(latency_ms, 3)}
            rows.append(done | ({"offset": value} if kind == "ok" else {"error": "_TIMED_OUT"}))
    rows += _administration(rng)
    for number in range(50):
        rows.append({
            "f": "poll", "operation": "poll", "process": "c", "type": "ok", "topic": "orders",
            "partition": 0, "value": number, "offset": number, "time_ms": 10.0 * number,
        })  # fmt: skip
    # A generator of its own: the other tables stay as they are without this one.
    rows += _share_group(random.Random(len(rows)), max(row["time_ms"] for row in rows))
    rows.sort(key=lambda row: row["time_ms"])
    for index, row in enumerate(rows):
        row.update(index=index, wall_ms=WALL_MS + int(row["time_ms"]))
    return rows


def _share_group(rng: random.Random, end_ms: float) -> list[Row]:
    """Records that members get up to five times, and mostly accept in the end."""
    rows: list[Row] = []
    for offset in range(300):
        base = {"process": "s", "topic": "orders", "partition": offset % 2, "offset": offset,
                "group": "workers"}  # fmt: skip
        now_ms = rng.uniform(0, end_ms * 0.9)
        for count in range(1, rng.choice([1, 1, 1, 2, 3, 5]) + 1):
            now_ms = min(now_ms + rng.uniform(1, 400), end_ms)
            rows.append({
                **base, "f": "deliver", "operation": "deliver", "type": "ok",
                "time_ms": round(now_ms, 3), "delivery_count": count,
            })  # fmt: skip
            kind = rng.choice(["accept", "accept", "release", "reject"])
            given = {**base, "f": "acknowledge", "operation": "acknowledge",
                     "acknowledgement": kind}  # fmt: skip
            rows.append({**given, "type": "invoke", "time_ms": round(now_ms, 3)})
            now_ms = min(now_ms + rng.uniform(0.5, 40), end_ms)
            outcome = rng.choice(["ok", "ok", "ok", "info"])
            rows.append({**given, "type": outcome, "time_ms": round(now_ms, 3)})
    return rows


def _administration(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    now_ms = 50.0
    for _ in range(60):
        now_ms += rng.uniform(20, 200) if rng.random() > 0.1 else rng.uniform(300, 900)
        latency_ms = rng.uniform(2, 150)
        kind, error = rng.choice(
            [("ok", None), ("ok", None), ("fail", "TOPIC_ALREADY_EXISTS: x"), ("info", "_TIMED")]
        )
        base = {"f": rng.choice(["create-topic", "delete-topic"]), "process": "t", "topic": "x"}
        rows.append({**base, "type": "invoke", "time_ms": round(now_ms, 3)})
        rows.append({
            **base, "type": kind, "error": error, "latency_ms": round(latency_ms, 3),
            "time_ms": round(now_ms + latency_ms, 3),
        })  # fmt: skip
    return rows


def _faults(rng: random.Random, end_ms: float) -> list[Row]:
    faults = []
    for fault_id in range(9):
        begin_ms = round(rng.uniform(0, end_ms) if fault_id else end_ms + 5, 3)
        held = sorted(rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)))
        node = f"broker-{rng.choice(BROKERS)}" if fault_id % 4 != 1 else "controller-1"
        node = "clients" if fault_id in OF_CLIENTS else node
        faults.append({
            "fault_id": fault_id, "name": f"f{fault_id}", "description": "", "target": "one",
            "fault": ["kill", "cut", "stop"][fault_id % 3], "nodes": [node], "roles": [],
            "struck_ms": round(begin_ms - rng.uniform(0, 30), 3), "begin_ms": begin_ms,
            "end_ms": rng.choice([None, round(begin_ms + rng.uniform(100, 2000), 3)]),
            "begin_wall_ms": WALL_MS + int(begin_ms), "topic": "orders",
            "led_partitions": [number for number in held if rng.random() < 0.5],
            "held_partitions": held, "is_active_controller": fault_id % 4 == 1,
        })  # fmt: skip
    return faults


def _milestones(rng: random.Random, faults: list[Row], end_ms: float) -> list[Row]:
    rows: list[Row] = []
    for number in range(PARTITIONS):
        rows.append(
            {"time_ms": -50.0, "what": "leader", "leader": 101, "epoch": 0, "partition": number}
        )
        rows.append({"time_ms": -50.0, "what": "isr", "isr": [101, 102, 103], "epoch": 0,
                     "partition": number})  # fmt: skip
    for step in range(1, 120):
        at_ms = float(int(end_ms * step / 120))
        number = rng.randrange(PARTITIONS)
        if rng.random() < 0.5:
            leader = rng.choice([101, 102, 103, -1])
            rows.append({"what": "leader", "leader": leader, "epoch": step, "partition": number,
                         "time_ms": at_ms})  # fmt: skip
        else:
            isr = sorted(rng.sample([101, 102, 103], rng.randint(1, 3)))
            rows.append({"what": "isr", "isr": isr, "epoch": step, "partition": number,
                         "time_ms": at_ms})  # fmt: skip
    for row in rows:
        row["topic"] = "orders"
    for fault in faults:
        node = fault["nodes"][0]
        at_ms = float(int(fault["struck_ms"] + rng.uniform(5, 900)))
        if node.startswith("broker") and rng.random() < 0.8:
            rows.append({"what": "fenced", "broker": int(node[-3:]), "time_ms": at_ms})
        elif node.startswith("controller"):
            rows.append({"what": "active-controller", "leader": rng.choice([1, 2, 3]),
                         "epoch": fault["fault_id"], "time_ms": at_ms})  # fmt: skip
    rows.append({"what": "fenced", "broker": 104, "time_ms": -1_000.0})
    for row in rows:
        row["wall_ms"] = WALL_MS + row["time_ms"]
    return sorted(rows, key=lambda row: row["time_ms"])


def _voters(rng: random.Random, end_ms: float) -> list[Row]:
    rows = []
    for step in range(30):
        end = 100 + 10 * step
        for voter in (1, 2, 3):
            lag = 0 if voter == 1 else rng.choice([0, 0, 1, 7])
            is_known = voter == 1 or rng.random() > 0.1
            rows.append({
                "time_ms": end_ms * step / 30, "wall_ms": WALL_MS + step, "leader_id": 1,
                "leader_epoch": 1, "high_watermark": end, "voter_id": voter,
                "log_end_offset": end - lag if is_known else None, "lag": lag if is_known else None,
            })  # fmt: skip
    return rows


def _metadata(rng: random.Random) -> dict[str, list[Row]]:
    racks = {101: "z1/a", 102: "z1/b", 103: "z2/a", 104: None}
    partitions = []
    for number in range(40):
        replicas = rng.sample(BROKERS, 3)
        partitions.append({
            "topic_id": "t1", "topic": "orders" if number < 20 else "other", "partition": number,
            "replicas": replicas, "isr": replicas[: rng.randint(1, 3)], "leader": replicas[0],
            "leader_epoch": 1, "partition_epoch": 1,
        })  # fmt: skip
    records = [
        {
            "offset": offset, "epoch": 1 + offset // 100, "timestamp_ms": WALL_MS + 173 * offset,
            "record_type": rng.choice(["PartitionChange", "RegisterBroker"]), "record_version": 0,
            "payload_json": json.dumps({"step": "ü" * (offset % 5)}),
        }
        for offset in range(200)
    ]  # fmt: skip
    return {
        "partitions": partitions,
        "brokers": [
            {"broker_id": broker, "rack": rack, "host": f"host-{broker}", "is_fenced": False}
            for broker, rack in racks.items()
        ],
        "controllers": [
            {"controller_id": number, "host": f"host-{100 + number}"} for number in (1, 2, 3)
        ],
        "configs": [
            {"resource_type": kind, "resource_name": resource, "name": name, "value": value}
            for kind, resource, name, value in (
                (2, "orders", "min.insync.replicas", "2"),
                (4, "", "min.insync.replicas", "3"),
                (2, "orders", "retention.ms", "9"),
            )
        ],
        "metadata_records": records,
    }  # fmt: skip


def table_named(name: str) -> Table:
    return {table.name: table for table in TABLES}[name]
