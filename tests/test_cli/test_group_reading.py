"""The commits of a member of `kvorum consume --group`, and its patience with coordinators."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.cli.kafka_client import BrokerGone
from kvorum.cli.records import reading
from kvorum.cli.records.brokers import Partition, Topic, Unavailable
from kvorum.cli.records.consumer import Fetched
from kvorum.cli.records.member import GroupMember
from kvorum.cli.records.offsets import END
from kvorum.cli.records.reading import GroupReading, Wanted
from kvorum.cli.records.visible import Range
from kvorum.runtime.errors import ErrorCode

ONE, TWO = ("orders", 0), ("orders", 1)
ENDS = {ONE: 5, TWO: 7}


class Member:
    """A member with both partitions. away: raised by the next calls, one each."""

    group = "billing"
    interval_s = 1.0

    def __init__(self) -> None:
        self.assigned: set[Partition] | None = {ONE, TWO}
        self.offsets: dict[Partition, int] = {}
        self.commits: list[dict[Partition, int]] = []
        self.away: list[Exception] = []
        self.has_left = False

    def _answer(self) -> None:
        if self.away:
            raise self.away.pop(0)

    def heartbeat(self) -> None:
        self._answer()

    def acknowledge(self) -> None:
        self._answer()

    def committed(self, partitions: set[Partition]) -> dict[Partition, int]:
        self._answer()
        return {p: at for p, at in self.offsets.items() if p in partitions}

    def commit(self, positions: Mapping[Partition, int]) -> set[Partition]:
        if positions:
            self._answer()
            self.offsets.update(positions)
            self.commits.append(dict(positions))
        return set(positions)

    def leave(self) -> None:
        self.has_left = True


class Reader:
    """A consumer with an empty answer for the first partition at every poll."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()

    def assign(self, ranges: Mapping[Partition, Range]) -> None:
        self.partitions |= set(ranges)

    def revoke(self, partitions: set[Partition]) -> None:
        self.partitions -= partitions

    def poll(self, wait_s: float) -> Iterator[Fetched]:
        yield Fetched(partition=ONE, records=iter(()), next_offset=6)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(member, a function that makes its reading); each look at the clock finds it two seconds
    later, so that commits and attempts are due."""
    member = Member()
    now_s = itertools.count(0.0, 2.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(reading, "GroupMember", lambda *_: member)
    monkeypatch.setattr(reading, "Consumer", lambda *_, **__: Reader())
    monkeypatch.setattr(
        reading, "ranges_of", lambda _, __, asked: {p: Range(first=ENDS[p]) for p in asked}
    )

    def made(*, follow: bool = True) -> GroupReading:
        brokers = SimpleNamespace(timeout_s=1.0, close=lambda: None)
        wanted = Wanted(
            topics=("orders",),
            partitions=frozenset(),
            first=END,
            end=None,
            is_endless=follow,
            isolation=0,
        )
        return GroupReading(brokers, wanted, "billing")  # type: ignore[arg-type]

    return member, made


def test_a_member_commits_every_position_even_where_nothing_was_read(world):
    member, made = world
    own = made()
    next(own.answers())
    own.done(ONE, 6)
    own.close()
    assert member.offsets == {ONE: 6, TWO: 7}
    assert member.has_left


def test_positions_are_committed_regularly_and_only_when_they_change(world):
    member, made = world
    own = made()
    answers = own.answers()
    for _ in range(4):
        next(answers)
    assert member.commits == [{ONE: 5, TWO: 7}]


def test_a_lost_partitions_position_is_committed_before_it_is_given_up(world):
    member, made = world
    own = made()
    answers = own.answers()
    next(answers)
    member.commits.clear()
    member.offsets.clear()
    member.assigned = {ONE}
    next(answers)
    assert member.offsets[TWO] == 7


def test_a_follower_reads_on_while_no_coordinator_answers(world, capsys):
    member, made = world
    own = made()
    answers = own.answers()
    next(answers)
    own.done(ONE, 6)
    member.away = [Unavailable("NOT_COORDINATOR"), BrokerGone("no broker reachable")]
    for _ in range(4):
        next(answers)
    assert not member.away
    assert member.offsets == {ONE: 6, TWO: 7}
    assert capsys.readouterr().err == (
        "kvorum: NOT_COORDINATOR; group billing is asked again until it answers\n"
    )


@pytest.mark.parametrize("answered", range(3))
def test_an_assignment_is_taken_over_in_spite_of_a_failure_in_the_middle(world, answered):
    # The calls: a heartbeat, the acknowledgement, the committed offsets.
    member, made = world
    own = made()
    step = member._answer
    calls = itertools.count()

    def answer() -> None:
        if next(calls) == answered:
            raise Unavailable("COORDINATOR_NOT_AVAILABLE")
        step()

    member._answer = answer
    next(own.answers())
    own.close()
    assert member.offsets == ENDS


def test_without_follow_a_coordinator_that_is_away_ends_the_command(world):
    member, made = world
    member.away = [Unavailable("COORDINATOR_NOT_AVAILABLE")]
    with pytest.raises(Unavailable):
        next(made(follow=False).answers())


class Coordinator:
    """Brokers that know one topic, and answer heartbeats as long as `is_there`."""

    timeout_s = 0.0

    def __init__(self) -> None:
        self.is_there = True
        self.told: list[Any] = []

    def existing(self, names: list[str], *, operation: str = "") -> dict[str, Topic]:
        return {"orders": Topic(name="orders", topic_id=bytes(16), leaders={0: 101})}

    def call(self, name: str, key: int, version: int, values: Any, **_: Any) -> Any:
        if name == "find_coordinator":
            row = SimpleNamespace(error_code=0, error_message=None, node_id=101)
            return SimpleNamespace(coordinators=[row])
        if not self.is_there:
            raise BrokerGone("broker 101 went away")
        if name == "offset_commit":
            rows = [
                SimpleNamespace(partition_index=0, error_code=ErrorCode.NONE),
                SimpleNamespace(partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=rows)])
        self.told.append(values["topic_partitions"])
        return SimpleNamespace(
            error_code=ErrorCode.NONE,
            member_epoch=1,
            heartbeat_interval=timedelta(seconds=5),
            assignment=None,
        )

    def to(self, broker_id: int) -> Coordinator:
        return self

    def address(self, broker_id: int) -> tuple[str, int]:
        return ("localhost", 9092)

    def forget(self, broker_id: int) -> None:
        pass


def test_a_partition_that_the_broker_does_not_know_is_not_committed():
    member = GroupMember(Coordinator(), "billing", ["orders"])  # type: ignore[arg-type]
    member.heartbeat()
    assert member.commit(ENDS) == {ONE}


def test_a_confirmation_that_no_coordinator_heard_is_sent_again(monkeypatch):
    now_s = itertools.count(0.0, 0.01)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    brokers = Coordinator()
    member = GroupMember(brokers, "billing", ["orders"])  # type: ignore[arg-type]
    member.heartbeat()
    brokers.told.clear()
    brokers.is_there = False
    with pytest.raises(BrokerGone):
        member.acknowledge()
    brokers.is_there = True
    member.heartbeat()
    member.heartbeat()
    assert brokers.told == [[]]
