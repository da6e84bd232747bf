"""The pure parts of a share group's members."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from kvorum.chaos.experiment_file.workloads import ShareGroupPlan
from kvorum.chaos.history import (
    FAIL,
    INFO,
    OK,
    Acknowledgement,
    Delivery,
    HistoryWriter,
    read_history,
)
from kvorum.chaos.workloads.share_groups import Progress
from kvorum.chaos.workloads.share_member import (
    acknowledgements_of,
    deliveries_of,
    outcome_of,
    piped_event,
    start_line,
)
from kvorum.runtime.errors import CorruptData


def record(partition: int, offset: int, count: int | None) -> SimpleNamespace:
    return SimpleNamespace(
        topic=lambda: "orders",
        partition=lambda: partition,
        offset=lambda: offset,
        delivery_count=lambda: count,
    )


RECORDS = [record(1, 7, 2), record(0, 3, 1), record(1, 9, None)]


def test_records_are_grouped_by_partition_and_an_unknown_count_is_0():
    assert deliveries_of(RECORDS) == [
        Delivery("orders", 0, (3,), (1,)),
        Delivery("orders", 1, (7, 9), (2, 0)),
    ]
    assert acknowledgements_of(RECORDS, ["accept", "release", "reject"]) == [
        Acknowledgement("orders", 0, (3,), ("release",)),
        Acknowledgement("orders", 1, (7, 9), ("accept", "reject")),
    ]


def test_only_a_refusal_of_the_leader_is_a_certain_failure():
    assert outcome_of(None) == OK
    assert outcome_of("INVALID_RECORD_STATE") == FAIL
    for name in ("_TRANSPORT", "NOT_LEADER_OR_FOLLOWER", "no answer"):
        assert outcome_of(name) == INFO


def test_progress_has_all_once_every_gap_is_closed():
    progress = Progress()
    for offsets in ((0, 1), (4,), (3, 1)):
        progress.add(Delivery("orders", 0, offsets, (1,) * len(offsets)))
    assert progress.has_all({0: 2}) and not progress.has_all({0: 3})
    progress.add(Delivery("orders", 0, (2,), (1,)))
    assert progress.has_all({0: 5}) and not progress.has_all({0: 5, 1: 1})
    assert progress.has_all({0: 5, 1: 0})


def test_an_event_comes_through_the_pipe_as_it_was():
    ops = [Delivery("orders", 0, (3,), (1,))]
    fields = {"process": "w-1.1", "type": "ok", "f": "deliver", "ops": ops, "group": "w"}
    assert piped_event(msgspec.json.encode(fields) + b"\n") == fields
    assert piped_event(b'{"f":"join"}') == {"f": "join"}


def test_the_first_line_has_the_whole_plan():
    plan = ShareGroupPlan(group="w", members=7, lock_duration_ms=20_000)
    line = start_line(process="w-1.1", settings={"a": 1}, plan=plan, topic="orders", seed=5)
    start = msgspec.json.decode(line)
    assert msgspec.convert(start.pop("plan"), ShareGroupPlan) == plan
    assert start == {"process": "w-1.1", "settings": {"a": 1}, "topic": "orders", "seed": 5}


@pytest.mark.parametrize(
    ("f", "op", "sentence"),
    [
        ("deliver", Delivery("orders", 0, (1, 2), (1,)), "counts and offsets of a delivery"),
        ("deliver", Acknowledgement("orders", 0, (1,), ()), "types and offsets of an acknow"),
    ],
)
def test_a_history_with_columns_of_different_lengths_is_damaged(tmp_path, f, op, sentence):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:
        history.append(process="w-1.1", type="ok", f=f, ops=[op])
    with pytest.raises(CorruptData, match=sentence):
        list(read_history(path))
