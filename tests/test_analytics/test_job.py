"""The job on generated runs, against the same figures worked out in plain Python."""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvorum.analytics.schemas import find_inputs
from kvorum.chaos.experiment.export import faults_schema, history_schema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARTITIONS = 4
ISR = pa.list_(pa.int32())
RECORD_COLUMNS = [
    ("offset", pa.int64()), ("epoch", pa.int32()), ("timestamp_ms", pa.int64()),
    ("record_type", pa.string()), ("record_version", pa.int32()), ("topic_id", pa.string()),
    ("topic", pa.string()), ("partition", pa.int32()), ("broker_id", pa.int32()),
    ("leader", pa.int32()), ("isr", ISR), ("leader_epoch", pa.int32()),
    ("partition_epoch", pa.int32()), ("payload_json", pa.string()),
]  # fmt: skip
PARTITION_COLUMNS = [
    ("topic_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
    ("replicas", ISR), ("isr", ISR), ("leader", pa.int32()), ("leader_epoch", pa.int32()),
    ("partition_epoch", pa.int32()),
]  # fmt: skip
BROKER_COLUMNS = [
    ("broker_id", pa.int32()), ("broker_epoch", pa.int64()), ("host", pa.string()),
    ("port", pa.int32()), ("rack", pa.string()), ("is_fenced", pa.bool_()),
    ("incarnation_id", pa.string()),
]  # fmt: skip


def make_history(rng: random.Random) -> tuple[list[dict], list[dict]]:
    """Acknowledgements that stop for a while now and then, and faults at random moments."""
    rows: list[dict] = []
    for partition in range(PARTITIONS):
        now_ms = 100.0
        for value in range(600):
            now_ms += rng.uniform(1, 20) if rng.random() > 0.01 else rng.uniform(200, 1500)
            latency_ms = rng.uniform(0.5, 40)
            kind = rng.choices(["ok", "info", "fail"], [96, 3, 1])[0]
            base = {"partition": partition, "value": value, "f": "produce", "process": "p"}
            rows.append({**base, "time_ms": now_ms, "type": "invoke"})
            done = {**base, "time_ms": now_ms + latency_ms, "type": kind, "latency_ms": latency_ms}
            if kind == "ok":
                done["offset"] = value
            else:
                done["error"] = "_MSG_TIMED_OUT"
            rows.append(done)
    for number in range(50):
        at_ms = 150.0 + number * 120 + rng.uniform(0, 80)
        created = {"f": "create-topic", "process": "t", "type": "ok", "latency_ms": 5.0}
        rows.append({**created, "time_ms": at_ms})
    rows.sort(key=lambda row: row["time_ms"])
    for index, row in enumerate(rows):
        row.update(index=index, wall_ms=1_700_000_000_000 + int(row["time_ms"]), run_id="r")
    last_ms = rows[-1]["time_ms"]
    faults = []
    for fault_id in range(9):
        begin_ms = rng.uniform(0, last_ms) if fault_id else last_ms + 5
        held = sorted(rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)))
        faults.append(
            {
                "run_id": "r", "fault_id": fault_id, "name": f"f{fault_id}",
                "fault": ["kill", "cut", "pause"][fault_id % 3], "description": "", "target": "one",
                "nodes": [f"broker-{101 + fault_id % 3}"], "begin_ms": begin_ms, "end_ms": None,
                "begin_wall_ms": 1_700_000_000_000 + int(begin_ms),
                "led_partitions": [p for p in held if rng.random() < 0.5],
                "held_partitions": held, "is_active_controller": fault_id % 4 == 1,
                "controllers": 3, "brokers": 3,
            }
        )  # fmt: skip
    return rows, faults


def make_records(rng: random.Random, faults: list[dict]) -> list[dict]:
    rows: list[dict] = []
    base_ms = 1_700_000_000_000
    for partition in range(PARTITIONS):
        rows.append({
            "record_type": "Partition", "topic_id": "t1", "topic": "orders", "partition": partition,
            "isr": [101, 102, 103], "leader": 101, "timestamp_ms": base_ms,
        })  # fmt: skip
    for step in range(200):
        change = {
            "record_type": "PartitionChange", "topic_id": "t1", "topic": None,
            "partition": rng.randrange(PARTITIONS), "timestamp_ms": base_ms + step * 100,
        }  # fmt: skip
        if rng.random() < 0.7:
            change["isr"] = rng.sample([101, 102, 103], rng.randint(1, 3))
        if rng.random() < 0.5:
            change["leader"] = rng.choice([101, 102, 103])
        rows.append(change)
    for broker_id, fenced in ((101, True), (102, True), (103, False), (103, True), (104, True)):
        struck = [f["begin_wall_ms"] for f in faults if f"broker-{broker_id}" in f["nodes"]]
        rows.append({
            "record_type": "BrokerRegistrationChange", "broker_id": broker_id,
            "timestamp_ms": (min(struck) if struck else base_ms) + 50,
            "payload_json": json.dumps({"broker_id": broker_id, "is_fenced": fenced}),
        })  # fmt: skip
    for offset, row in enumerate(rows):
        row.update(offset=offset, epoch=1, record_version=0)
        row.setdefault("payload_json", json.dumps({"step": offset}))
    return rows


def write_run(folder: Path, seed: int) -> dict:
    rng = random.Random(seed)
    history, faults = make_history(rng)
    records = make_records(rng, faults)
    partitions = [
        {
            "topic_id": "t1", "topic": "orders", "partition": number,
            "replicas": (order := rng.sample([101, 102, 103], 2)),
            "isr": order[: rng.randint(1, 2)],
            "leader": order[0], "leader_epoch": 1, "partition_epoch": 1,
        }
        for number in range(40)
    ]  # fmt: skip
    brokers = [
        {"broker_id": 101 + at, "rack": f"rack-{at % 2}", "is_fenced": False} for at in range(4)
    ]
    (folder / "metadata").mkdir(parents=True)

    def write(name: str, rows: list[dict], schema: pa.Schema) -> None:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name)

    write("history.parquet", history, history_schema())
    write("faults.parquet", faults, faults_schema())
    write("metadata/metadata_records.parquet", records, pa.schema(RECORD_COLUMNS))
    write("metadata/partitions.parquet", partitions, pa.schema(PARTITION_COLUMNS))
    write("metadata/brokers.parquet", brokers, pa.schema(BROKER_COLUMNS))
    return {
        "history": history, "faults": faults, "records": records,
        "partitions": partitions, "brokers": brokers,
    }  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The inputs of two runs and the output folder of one job over them, run as users run it."""
    base = tmp_path_factory.mktemp("analytics")
    runs = {name: write_run(base / name, seed) for seed, name in enumerate(("run-a", "run-b"))}
    output = base / "out"
    command = [sys.executable, "-m", "kvorum.analytics.job", "--input"]
    command += [str(base / name) for name in runs]
    command += ["--output", str(output), "--master", "local[2]"]
    root = Path(__file__).resolve().parents[2]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=240)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return runs, output, finished.stdout


def table(output: Path, name: str) -> list[dict[str, str]]:
    with open(output / "tables" / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float | None:
    return float(text) if text else None


def slow_recoveries(run: dict) -> list[tuple[dict, str, float | None]]:
    """(fault, role, recovery) by looking at every acknowledgement for every fault."""
    found = []
    for fault in run["faults"]:
        subjects = [
            (partition, "led" if partition in fault["led_partitions"] else "held")
            for partition in fault["held_partitions"]
        ]
        if fault["is_active_controller"]:
            subjects.append((None, "controller"))
        for partition, role in subjects:
            wanted = "create-topic" if partition is None else "produce"
            times = [
                row["time_ms"]
                for row in run["history"]
                if row["f"] == wanted
                and row["type"] == "ok"
                and row.get("partition") == partition
                and row["time_ms"] - row["latency_ms"] >= fault["begin_ms"]
            ]
            found.append((fault, role, min(times) - fault["begin_ms"] if times else None))
    return found


def rank(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def test_failover_percentiles_agree_with_plain_python(done):
    runs, output, _ = done
    groups: dict[tuple[str, str], list[float | None]] = {}
    for run in runs.values():
        for fault, role, recovery in slow_recoveries(run):
            groups.setdefault((fault["fault"], role), []).append(recovery)
    rows = {(row["fault"], row["role"]): row for row in table(output, "failover_by_fault")}
    assert set(rows) == set(groups)
    for key, recoveries in groups.items():
        known = [value for value in recoveries if value is not None]
        row = rows[key]
        assert int(row["observations"]) == len(recoveries)
        assert int(row["never"]) == len(recoveries) - len(known)
        if not known:
            assert (row["p50_ms"], row["p95_ms"], row["max_ms"]) == ("", "", "")
            continue
        assert number(row["p50_ms"]) == pytest.approx(rank(known, 0.5))
        assert number(row["p95_ms"]) == pytest.approx(rank(known, 0.95))
        assert number(row["max_ms"]) == pytest.approx(max(known))


def test_runs_are_compared_with_the_first(done):
    runs, output, _ = done
    rows = [
        row for row in table(output, "failover_by_run")
        if (row["fault"], row["role"]) == ("kill", "held")
    ]  # fmt: skip
    assert [row["run"] for row in rows] == sorted(runs)
    assert number(rows[0]["ratio_to_first"]) == 1.0
    ratio = number(rows[1]["p50_ms"]) / number(rows[0]["p50_ms"])
    assert number(rows[1]["ratio_to_first"]) == pytest.approx(ratio)


def test_unavailability_agrees_with_plain_python(done):
    runs, output, _ = done
    expected = {}
    for name, run in runs.items():
        produced = [row for row in run["history"] if row["f"] == "produce"]
        begin_ms = min(row["time_ms"] for row in produced if row["type"] == "invoke")
        end_ms = max(row["time_ms"] for row in produced if row["type"] in ("invoke", "ok"))
        for partition in range(PARTITIONS):
            times = [
                row["time_ms"]
                for row in produced
                if row["type"] == "ok" and row["partition"] == partition
            ]
            edges = [begin_ms, *times, end_ms]
            gaps = [b - a for a, b in itertools.pairwise(edges)]
            long = [gap for gap in gaps if gap >= 200]
            expected[name, str(partition)] = (max(gaps), len(long), sum(long))
    rows = table(output, "unavailability")
    got = {
        (row["run"], row["partition"]): (
            number(row["longest_ms"]), int(row["silences"]), number(row["unavailable_ms"])
        )
        for row in rows
    }  # fmt: skip
    assert set(got) == set(expected)
    for key, figures in expected.items():
        assert got[key] == pytest.approx(figures)


def test_outcomes_are_counted(done):
    runs, output, _ = done
    rows = {row["run"]: row for row in table(output, "outcomes_by_run")}
    for name, run in runs.items():
        kinds = [row["type"] for row in run["history"] if row["f"] == "produce"]
        assert int(rows[name]["invoked"]) == kinds.count("invoke")
        assert int(rows[name]["acknowledged"]) == kinds.count("ok")
        assert int(rows[name]["unknown"]) == kinds.count("info")
        assert int(rows[name]["failed"]) == kinds.count("fail")


def test_isr_churn_agrees_with_a_replay(done):
    runs, output, _ = done
    expected = {}
    for name, run in runs.items():
        state: dict[int, tuple[set[int], int]] = {}
        counts = {partition: [0, 0, 0, 0] for partition in range(PARTITIONS)}
        for row in run["records"]:
            if row.get("topic_id") is None:
                continue
            partition = row["partition"]
            isr, leader = state.get(partition, (None, None))
            now = set(row["isr"]) if row.get("isr") else None
            if isr is not None and now is not None and now != isr:
                counts[partition][0] += 1
                counts[partition][1 if len(now) < len(isr) else 2] += 1
            if leader is not None and row.get("leader") not in (None, leader):
                counts[partition][3] += 1
            state[partition] = (now or isr, row.get("leader") or leader)
        for partition, figures in counts.items():
            expected[name, str(partition)] = figures
    got = {
        (row["run"], row["partition"]): [
            int(row[key]) for key in ("isr_changes", "shrinks", "expands", "leader_changes")
        ]
        for row in table(output, "isr_churn")
    }
    assert got == expected
    assert {row["topic"] for row in table(output, "isr_churn")} == {"orders"}


def test_skew_counts_leaders_preferred_and_replicas(done):
    runs, output, _ = done
    rows = {(row["run"], int(row["broker_id"])): row for row in table(output, "leader_skew")}
    for name, run in runs.items():
        for broker in run["brokers"]:
            broker_id = broker["broker_id"]
            led = sum(1 for p in run["partitions"] if p["leader"] == broker_id)
            held = sum(1 for p in run["partitions"] if broker_id in p["replicas"])
            row = rows[name, broker_id]
            assert (int(row["leaders"]), int(row["replicas"])) == (led, held)
            assert number(row["leader_skew"]) == pytest.approx(led / (40 / 4))


def test_loss_of_a_rack_is_counted(done):
    runs, output, _ = done
    rows = {(row["run"], row["rack"]): row for row in table(output, "rack_loss")}
    for name, run in runs.items():
        for rack in ("rack-0", "rack-1"):
            lost = {b["broker_id"] for b in run["brokers"] if b["rack"] == rack}
            left = [len(set(p["isr"]) - lost) for p in run["partitions"]]
            assert int(rows[name, rack]["offline"]) == left.count(0)
            assert int(rows[name, rack]["one_copy_left"]) == left.count(1)


def test_record_mix_and_growth_add_up(done):
    runs, output, _ = done
    mix = table(output, "record_mix")
    for name, run in runs.items():
        own = [row for row in mix if row["run"] == name]
        counts = {row["record_type"]: int(row["records"]) for row in own}
        assert counts["PartitionChange"] == 200
        assert sum(counts.values()) == len(run["records"])
        assert sum(number(row["share"]) for row in own) == pytest.approx(1.0)
    growth = table(output, "metadata_growth")
    total = sum(int(row["records"]) for row in growth)
    assert total == sum(len(run["records"]) for run in runs.values())


def test_fencing_is_put_down_to_the_latest_fault_on_that_broker(done):
    runs, output, _ = done
    rows = {(row["run"], row["broker_id"], row["cause"]) for row in table(output, "fencing_causes")}
    expected = set()
    for name, run in runs.items():
        for record in run["records"]:
            if record["record_type"] != "BrokerRegistrationChange":
                continue
            if not json.loads(record["payload_json"])["is_fenced"]:
                continue
            near = [
                (fault["begin_wall_ms"], fault["fault"])
                for fault in run["faults"]
                if f"broker-{record['broker_id']}" in fault["nodes"]
                and 0 <= record["timestamp_ms"] - fault["begin_wall_ms"] <= 60_000
            ]
            cause = max(near)[1] if near else "no fault"
            expected.add((name, str(record["broker_id"]), cause))
    assert rows == expected
    assert ("run-a", "104", "no fault") in rows


def test_summary_parquet_and_pictures_are_there(done):
    _, output, printed = done
    summary = json.loads((output / "summary.json").read_text())
    assert summary["runs"] == ["run-a", "run-b"]
    assert summary["skipped"] == {}
    for name in summary["tables"]:
        written = pq.read_table(output / "tables" / f"{name}.parquet")
        assert written.num_rows == summary["tables"][name]
    assert len(summary["plots"]) == 5
    for name in summary["plots"]:
        assert (output / "plots" / name).read_bytes().startswith(b"\x89PNG")
    assert "failover_by_fault: " in printed


def test_folder_without_any_known_file_is_refused(tmp_path):
    from kvorum.analytics.job import main

    assert main(["--input", str(tmp_path), "--output", str(tmp_path / "out")]) == 2


def test_inputs_that_are_given_one_by_one_add_up(tmp_path, capsys):
    from kvorum.analytics.job import main

    gone = [str(tmp_path / name) for name in ("one", "two")]
    assert main(["--input", gone[0], "--input", gone[1], "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"no such folder: {', '.join(gone)}\n"


def test_a_folder_that_is_missing_is_an_error_that_names_it(tmp_path, capsys):
    from kvorum.analytics.job import main

    write_run(tmp_path / "run", 3)
    gone = tmp_path / "gone"
    inputs = [str(tmp_path / "run"), str(gone)]
    assert main(["--input", *inputs, "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"no such folder: {gone}\n"
    assert not (tmp_path / "out").exists()


def test_java_that_is_missing_is_named(tmp_path, capsys, monkeypatch):
    from kvorum.analytics.job import main

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--input", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "needs Java 17 or later" in capsys.readouterr().err


@pytest.mark.parametrize("is_judged", [True, False])
def test_a_run_that_was_interrupted_is_left_out_by_name(tmp_path, is_judged):
    write_run(tmp_path / "whole", 3)
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "history.jsonl").touch()
    if is_judged:
        (cut / "run.json").touch()
    (tmp_path / "empty").mkdir()
    found, left_out = find_inputs([str(tmp_path / name) for name in ("whole", "cut", "empty")])
    assert list(found["history"]) == ["whole"]
    assert set(left_out) == {"cut", "empty"}
    assert "it was interrupted" in left_out["cut"]
    assert (f"kvorum report {cut}" in left_out["cut"]) == is_judged
    assert "holds none of the files" in left_out["empty"]


def test_missing_inputs_leave_their_tables_out(tmp_path):
    from kvorum.analytics.job import run_job

    write_run(tmp_path / "run", 3)
    for name in ("faults.parquet", "metadata/brokers.parquet"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "history.jsonl").touch()
    summary = run_job([str(tmp_path / "run"), str(tmp_path / "cut")], str(tmp_path / "out"))
    assert summary["runs"] == ["run"]
    assert set(summary["skipped"]) == {
        "cut",
        "failover_by_fault", "failover_by_run", "leader_skew", "rack_loss", "fencing_causes",
    }  # fmt: skip
    assert summary["tables"]["isr_churn"] == PARTITIONS
