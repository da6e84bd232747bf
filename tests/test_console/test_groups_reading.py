"""The descriptions of groups, while coordinators come and go."""

from __future__ import annotations

from kvorum.client.connection import BrokerGone
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed
from kvorum.client.groups.group_client import NoSuchGroup
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


def read(client, names=("a", "b", "c", "d"), lost=()):
    rows, problem = described_groups(client, names, BEFORE, lost)
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


def test_group_that_no_broker_lists_is_gone_only_if_its_coordinator_says_so():
    client = Coordinators(
        a=CommandFailed("group a: COORDINATOR_NOT_AVAILABLE"),
        b=NoSuchGroup("group b: GROUP_ID_NOT_FOUND"),
        c=CommandFailed("group c: GROUP_AUTHORIZATION_FAILED", EXIT_NOT_AUTHORIZED),
    )
    ages, problem = read(client, names=["d"], lost=["a", "b", "c"])
    assert (ages, problem) == ({"d": "new", "a": "old"}, "group a: COORDINATOR_NOT_AVAILABLE")
