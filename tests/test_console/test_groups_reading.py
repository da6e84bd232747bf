"""The descriptions of groups, while coordinators come and go."""

from __future__ import annotations

from kvorum.cli.common import CommandFailed
from kvorum.cli.group_client import NoSuchGroup
from kvorum.cli.kafka_client import BrokerGone
from kvorum.console.desk import described_groups


class Coordinators:
    """failures: the error of a group, by name; asked: the groups that were asked for."""

    def __init__(self, **failures):
        self.failures = failures
        self.asked = []

    def describe(self, names):
        self.asked += names
        for name in names:
            if name in self.failures:
                raise self.failures[name]
        return [{"group": name, "age": "new"} for name in names]


BEFORE = {name: {"group": name, "age": "old"} for name in ("a", "b", "c")}


def read(client):
    rows, problem = described_groups(client, ["a", "b", "c", "d"], BEFORE)
    return {name: row["age"] for name, row in rows.items()}, problem


def test_group_that_was_deleted_meanwhile_is_left_out():
    ages, problem = read(Coordinators(b=NoSuchGroup("group b: GROUP_ID_NOT_FOUND")))
    assert (ages, problem) == ({"a": "new", "c": "new", "d": "new"}, "")


def test_group_without_a_coordinator_keeps_its_row_and_the_reason_is_told():
    ages, problem = read(Coordinators(b=CommandFailed("group b: COORDINATOR_NOT_AVAILABLE")))
    assert ages == {"a": "new", "b": "old", "c": "new", "d": "new"}
    assert problem == "group b: COORDINATOR_NOT_AVAILABLE"


def test_broker_that_hangs_is_asked_once():
    client = Coordinators(b=BrokerGone("broker 127.0.0.1:1 did not answer within 6 s"))
    ages, problem = read(client)
    assert client.asked == ["a", "b"]
    assert ages == {"a": "new", "b": "old", "c": "old"}
    assert problem == "broker 127.0.0.1:1 did not answer within 6 s"
