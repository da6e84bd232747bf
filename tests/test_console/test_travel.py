"""The metadata at any offset, and what no page may show of it."""

from __future__ import annotations

import pytest

from kvorum.console.core.views import BadParameter, NotThere
from kvorum.console.travel import Travel
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.image.records import HIDDEN, Config, PartitionChange, RemoveTopic
from tests.test_console.samples import (
    ORDERS,
    cluster_records,
    history_with,
    password,
    registration,
)

RECORDS = (
    *cluster_records(),  # 0 to 9
    PartitionChange(topic_id=ORDERS, partition_id=0, isr=(101, 102)),  # 10
    Config(RESOURCE_TOPIC, "orders", "retention.ms", "60000"),  # 11
    password("a secret of many words"),  # 12
    RemoveTopic(topic_id=ORDERS),  # 13
)


@pytest.fixture
def history():
    return history_with(*RECORDS)


def names(document):
    return [entry["name"] for entry in document["entries"]]


def text_at(travel, history, path, at):
    folder, _, name = path.rpartition("/")
    document = travel.tree(history, {"path": folder, "at": str(at)})
    return next(entry["text"] for entry in document["entries"] if entry["name"] == name)


def test_tree_is_as_it_was_at_each_offset(history):
    travel = Travel()
    assert names(travel.tree(history, {"path": "/brokers", "at": "3"})) == ["101", "102"]
    assert names(travel.tree(history, {"path": "/topics"})) == []
    assert names(travel.tree(history, {"path": "/topics", "at": "13"})) == ["orders"]
    assert text_at(travel, history, "/topics/orders/0/isr", 10) == "[101, 102, 103]"
    assert text_at(travel, history, "/topics/orders/0/isr", 11) == "[101, 102]"


def test_steps_in_any_order_give_what_a_fresh_look_gives(history):
    travel = Travel()
    for at in (14, 3, 11, 0, 7, 13, 12, 1, 14):
        parameters = {"path": "/brokers", "at": str(at)}
        assert travel.tree(history, parameters) == Travel().tree(history, parameters)


def test_history_of_another_cluster_has_no_offsets_of_the_first(history):
    """Both logs begin at 0, as those of a cluster that was made anew at the same addresses do."""
    travel = Travel()
    assert names(travel.tree(history, {"path": "/topics", "at": "12"})) == ["orders"]
    other = history_with(*[registration(n) for n in range(20)])
    assert names(travel.tree(other, {"path": "/topics", "at": "12"})) == []


def test_offset_out_of_reach_is_refused_with_the_range(history):
    with pytest.raises(BadParameter, match="at=99 is out of reach: the metadata reaches 0 to 14"):
        Travel().tree(history, {"at": "99"})


def test_path_that_is_not_there_is_named(history):
    with pytest.raises(NotThere, match="/topics/orders, at offset 2"):
        Travel().tree(history, {"path": "/topics/orders/0", "at": "2"})


def test_difference_of_two_offsets(history):
    found = Travel().difference(history, {"from": "10", "to": "12"})
    assert {(row["change"], row["path"]) for row in found["rows"]} == {
        ("changed", "/topics/orders/0/isr"),
        ("changed", "/topics/orders/0/partition_epoch"),
        ("added", "/configs/topic"),
    }
    assert found["total"] == 3
    isr = next(row for row in found["rows"] if row["path"].endswith("/isr"))
    assert (isr["before"], isr["after"]) == ("[101, 102, 103]", "[101, 102]")


def test_records_before_an_offset_are_the_newest_first(history):
    records = Travel().tree(history, {"at": "12"})["records"]
    assert [record["offset"] for record in records[:2]] == [11, 10]
    assert records[0]["type"] == "Config"
    assert "retention.ms" in records[0]["text"]


def test_secrets_are_shown_nowhere(history):
    travel = Travel()
    everywhere = [
        travel.tree(history, {"path": path})
        for path in ("/", "/configs", "/configs/broker", "/configs/broker/<default>")
    ]
    everywhere.append(travel.difference(history, {"from": "0", "to": "14"}))
    everywhere.append(travel.difference(history, {"from": "12", "to": "13"}))
    assert "a secret of many words" not in repr(everywhere)
    assert text_at(travel, history, "/configs/broker/<default>/ssl.key.password", 14) == HIDDEN
