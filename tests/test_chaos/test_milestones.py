from __future__ import annotations

import json
from typing import Any

import pytest

from kvorum.chaos.outages.milestones import (
    Milestone,
    MilestoneSource,
    SeenMilestones,
    milestones_in,
    milestones_of,
    read_milestones,
    write_milestones,
)
from kvorum.chaos.outages.observations import PartitionSeen, QuorumSeen
from kvorum.metadata.inspect.export import export_history
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.runtime.errors import CorruptData

from .histories import HistoryBuilder


def row(at_ms: int, kind: str, payload: dict[str, Any] | None = None, **columns: Any) -> Any:
    empty = dict.fromkeys(("topic", "partition", "broker_id", "leader", "isr", "leader_epoch"))
    return {
        "epoch": 3, "timestamp_ms": at_ms, "record_type": kind,
        "payload_json": json.dumps(payload or {}), **empty, **columns,
    }  # fmt: skip


def partition(at_ms: int, kind: str = "PartitionChange", **columns: Any) -> Any:
    return row(at_ms, kind, topic="orders", partition=0, **columns)


def told(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (item.wall_ms, item.what, item.broker, item.leader, item.epoch, item.isr)
        for item in milestones_of(rows)
    ]


def test_a_broker_is_fenced_by_its_record_and_by_the_registration_of_its_next_process():
    change = "BrokerRegistrationChange"
    rows = [
        row(1, "RegisterBroker", {"is_fenced": True}, broker_id=101),
        row(2, change, {"is_fenced": False}, broker_id=101),
        row(3, change, {"is_fenced": None, "in_controlled_shutdown": True}, broker_id=101),
        row(4, change, {"is_fenced": True}, broker_id=101),
        row(5, "RegisterBroker", {"is_fenced": True}, broker_id=101),
        row(6, change, {"is_fenced": False}, broker_id=101),
        row(7, "RegisterBroker", {"is_fenced": True}, broker_id=101),
    ]
    assert [item[:3] for item in told(rows)] == [
        (2, "unfenced", 101), (4, "fenced", 101), (6, "unfenced", 101), (7, "fenced", 101),
    ]  # fmt: skip


def test_a_partition_changes_by_its_leader_and_by_the_members_of_its_isr():
    rows = [
        partition(1, "Partition", leader=101, leader_epoch=0, isr=[101, 102]),
        partition(2, leader_epoch=0, isr=[102, 101]),
        partition(3, leader=102, leader_epoch=1, isr=[102]),
        partition(4, leader=-1, leader_epoch=2),
    ]
    assert told(rows) == [
        (1, "leader", None, 101, 0, None), (1, "isr", None, None, 0, (101, 102)),
        (3, "leader", None, 102, 1, None), (3, "isr", None, None, 1, (102,)),
        (4, "leader", None, -1, 2, None),
    ]  # fmt: skip


def test_a_new_active_controller_is_its_leader_change():
    (found,) = told([row(9, "LeaderChange", {"leaderId": 2, "voters": []})])
    assert found == (9, "active-controller", None, 2, 3, None)


def seen_by(history: HistoryBuilder) -> list[Milestone]:
    seen = SeenMilestones(1_000.0)
    return [item for event in history.events for item in seen.add(event)]


def watch(history: HistoryBuilder, at_ms: float, observer: str, leader: int, epoch: int, *isr: int):
    item = PartitionSeen(
        observer=observer, topic="orders", partition=0, leader=leader, leader_epoch=epoch,
        isr=isr, replicas=(101, 102, 103),
    )  # fmt: skip
    history.add(
        "observer", "ok", "observe", topic="orders", partition=0, details=item.details(),
        at_ms=at_ms,
    )  # fmt: skip


def test_a_stale_broker_that_goes_on_where_others_have_been_adds_nothing():
    history = HistoryBuilder()
    for at_ms, isr in ((1, (101, 102, 103)), (2, (101, 102)), (3, (101, 102, 103))):
        watch(history, at_ms, "a", 101, 4, *isr)
    for at_ms, isr in ((4, (101, 102, 103)), (5, (102, 101)), (6, (101, 102, 103))):
        watch(history, at_ms, "b", 101, 4, *isr)
    watch(history, 7, "b", 101, 4, 101)
    watch(history, 8, "a", 102, 5, 102)
    watch(history, 9, "b", 101, 4, 101)
    told = [(item.wall_ms - 1_000, item.what, item.isr) for item in seen_by(history)]
    assert told == [
        (1, "leader", None), (1, "isr", (101, 102, 103)), (2, "isr", (101, 102)),
        (3, "isr", (101, 102, 103)), (7, "isr", (101,)), (8, "leader", None), (8, "isr", (102,)),
    ]  # fmt: skip


def test_the_newest_epoch_of_the_quorum_counts_once():
    history = HistoryBuilder()
    for leader_id, epoch in ((1, 1), (-1, 2), (3, 2), (1, 1), (3, 2)):
        seen = QuorumSeen(observer="c", leader_id=leader_id, leader_epoch=epoch, high_watermark=-1)
        history.observed(**seen.details())
    assert [(item.leader, item.epoch) for item in seen_by(history)] == [(1, 1), (3, 2)]


def test_a_run_without_an_exported_log_has_no_milestones(tmp_path):
    assert milestones_in(str(tmp_path)) is None


def test_milestones_are_made_from_the_export_and_kept(tmp_path):
    export_history(MetadataHistory(name="a test"), str(tmp_path / "metadata"))
    source, milestones = milestones_in(str(tmp_path)) or (None, None)
    assert (source.first_wall_ms, milestones) == (0, [])
    kept = [Milestone(wall_ms=5, what="isr", topic="t", partition=0, isr=(1,))]
    path = str(tmp_path / "milestones.jsonl")
    write_milestones(path, source, kept)
    assert milestones_in(str(tmp_path)) == (source, kept)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty file"),
        ('{"milestones":9,"source":"s"}\n', "line 1 is no milestone: version 9"),
        ('{"milestones":1,"source":"s"}\n{"wall_ms":1}\n', "line 2 is no milestone"),
        ('{"milestones":1,"source":"s"}\n{"wall_ms":1,"what":"x"}\n', "line 2 is no milestone"),
    ],
)
def test_a_damaged_file_is_one_sentence_with_its_line_and_the_way_out(tmp_path, text, words):
    path = tmp_path / "milestones.jsonl"
    path.write_text(text)
    with pytest.raises(CorruptData, match=words) as caught:
        read_milestones(str(path))
    assert "delete" in str(caught.value)
    assert MilestoneSource(milestones=1, source="s").first_wall_ms == 0
