"""Which topics and partitions the filters of `kvorum topics` select."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.cli.topic_filters import adding_replicas, exact_names, selected
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed


def partition(number: int, leader: int, replicas: list[int], isr: list[int]) -> dict[str, Any]:
    return {"partition": number, "leader": leader, "replicas": replicas, "isr": isr}


TOPICS = [
    {"topic": "__consumer_offsets", "partitions": [partition(0, 1, [1, 2], [1])]},
    {"topic": "bills", "partitions": [partition(0, 1, [1, 2], [1, 2])]},
    {
        "topic": "orders",
        "partitions": [
            partition(0, 1, [1, 2], [1, 2]),
            partition(1, -1, [1, 2], [1]),
            partition(2, 1, [1, 2, 3], [1, 2]),
        ],
    },
]
ADDING = {("orders", 2): [3]}


def chosen(*names: str, **flags: bool) -> dict[str, list[int]]:
    off = dict.fromkeys(("exclude_internal", "is_unavailable", "is_under_replicated"), False)
    found = selected(TOPICS, names, {**off, **flags}, lambda: ADDING)
    return {row["topic"]: [each["partition"] for each in row["partitions"]] for row in found}


def test_names_and_patterns_select_topics() -> None:
    assert list(chosen()) == ["__consumer_offsets", "bills", "orders"]
    assert list(chosen("ord*", "bills")) == ["bills", "orders"]
    assert list(chosen("*s")) == ["__consumer_offsets", "bills", "orders"]
    assert list(chosen("[ab]ills")) == ["bills"]
    assert list(chosen("order")) == []
    assert list(chosen(exclude_internal=True)) == ["bills", "orders"]


def test_only_whole_names_are_asked_for_by_name() -> None:
    assert exact_names(["orders", "bills"]) == ["orders", "bills"]
    assert exact_names([]) is None and exact_names(["orders", "b*"]) is None


def test_partitions_are_selected_by_their_state() -> None:
    assert chosen(is_unavailable=True) == {"orders": [1]}
    assert chosen("orders", is_unavailable=True, is_under_replicated=True) == {"orders": [1]}
    assert chosen(is_under_replicated=True) == {"__consumer_offsets": [0], "orders": [1]}


def test_a_replica_that_is_being_added_is_no_lack_of_replicas() -> None:
    moving = [{"topic": "t", "partitions": [partition(0, 1, [1, 2, 3], [1, 2])]}]
    off = dict.fromkeys(("exclude_internal", "is_unavailable"), False)
    options = off | {"is_under_replicated": True}
    assert selected(moving, [], options, dict)
    assert not selected(moving, [], options, lambda: {("t", 0): [3]})


def test_a_user_who_may_not_see_reassignments_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def reassignments(self) -> list[Any]:
            raise CommandFailed("CLUSTER_AUTHORIZATION_FAILED", EXIT_NOT_AUTHORIZED)

    monkeypatch.setattr("kvorum.cli.partition_backends.partitions_of", lambda _: Refusing())
    assert adding_replicas(None) == {}
    assert "count as out of sync: CLUSTER_AUTHORIZATION_FAILED" in capsys.readouterr().err
