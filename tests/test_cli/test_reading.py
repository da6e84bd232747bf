"""The counts and commits of a reading of `kvorum consume`, beside librdkafka's own work."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kvorum.cli.records import group_reading, reading
from kvorum.cli.records.outages import OUTAGE_S, Outages
from kvorum.cli.records.reading import Wanted
from kvorum.client.cluster.brokers import Topic
from kvorum.client.cluster.offsets import END, Bounds
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import CommandFailed
from kvorum.client.groups.group_offsets import GroupOffsets
from kvorum.runtime.errors import ErrorCode

PARTITION = ("t", 0)


class NoLeader:
    """Brokers that know the topic but no leader of its partition."""

    timeout_s = 1.0

    def topics(self, names: list[str] | None) -> dict[str, Topic]:
        return {"t": Topic(name="t", topic_id=bytes(16), leaders={0: -1})}

    def existing(self, names: list[str], *, operation: str = "") -> dict[str, Topic]:
        return self.topics(names)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves the clock, which nothing else moves."""
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def move(seconds: float) -> None:
        now_s[0] += seconds

    return move


def test_a_partition_without_a_leader_for_too_long_ends_the_command(later):
    outages = Outages(NoLeader())  # type: ignore[arg-type]
    later(OUTAGE_S / 2)
    outages.check([PARTITION])
    later(OUTAGE_S + 1)
    with pytest.raises(CommandFailed, match="t-0: no answer for 60 s: the partition has no leader"):
        outages.check([PARTITION])


def test_an_outage_ends_with_the_assignment(later):
    # Meanwhile another member owns the partition and reads it without errors.
    outages = Outages(NoLeader())  # type: ignore[arg-type]
    later(OUTAGE_S / 2)
    for partitions in ([PARTITION], [], [PARTITION]):
        outages.check(partitions)
        later(OUTAGE_S + 1)


# --- a member of a group ----------------------------------------------------------------------


class Library:
    """librdkafka's consumer, without a cluster."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.commits: list[list[TopicPartition]] = []

    def subscribe(self, topics: list[str], **_: Any) -> None: ...

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return partitions

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.begun = [row.offset for row in partitions]

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None: ...

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.commits.append(offsets)
        return offsets

    def close(self) -> None: ...


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A member of a group, which follows a topic from its end (offset 5)."""
    monkeypatch.setattr(reading, "LibraryConsumer", Library)
    bounds = {PARTITION: Bounds(start=0, end=5)}
    monkeypatch.setattr(reading, "bounds_of", lambda *_, **__: bounds)
    wanted = Wanted(
        topics=("t",), partitions=frozenset(), first=END, end=None, is_endless=True, isolation=0
    )
    made = group_reading.GroupReading(NoLeader(), wanted, {}, "billing")  # type: ignore[arg-type]
    made._begin(None, [TopicPartition(*PARTITION)])
    return made


def committed(member: Any) -> list[list[int]]:
    return [[row.offset for row in rows] for rows in member._consumer.commits]


def test_a_position_is_committed_even_where_nothing_was_read(member):
    member.close()
    assert committed(member) == [[5]]


def test_a_lost_partitions_position_is_committed_before_it_is_given_up(member):
    record = SimpleNamespace(topic=lambda: "t", partition=lambda: 0, offset=lambda: 7)
    member.printed([record])
    member._give_up(None, [TopicPartition(*PARTITION)])
    assert committed(member) == [[8]]
    member.close()
    assert committed(member) == [[8]], "it is another member's now"


def test_a_position_that_no_coordinator_took_is_told_at_the_end(member, monkeypatch):
    def away(**_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(member._consumer, "commit", away)
    with pytest.raises(BrokerGone, match="offsets of group billing were not committed"):
        member.close()


def test_a_position_in_front_of_the_log_moves_to_its_start_and_one_behind_it_is_refused(
    member, monkeypatch, capsys
):
    monkeypatch.setattr(reading, "list_offsets", lambda *_: {PARTITION: 3})
    member._restart(PARTITION, 2)
    assert member._consumer.begun == [3]
    assert "the records up to offset 3 were deleted" in capsys.readouterr().err
    with pytest.raises(CommandFailed, match="offset 9 is beyond the end of the partition"):
        member._restart(PARTITION, 9)


def test_a_signal_waits_for_librdkafka_and_no_longer(member, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        member.on_signal()
    seen: list[str] = []

    def poll(wait_s: float) -> None:
        member.on_signal()
        seen.append("it goes on")

    monkeypatch.setattr(member._consumer, "poll", poll, raising=False)
    with pytest.raises(KeyboardInterrupt):
        member._poll()
    assert seen == ["it goes on"]


def test_a_position_is_committed_once(member):
    member._note_commits(member._changed())
    member.close()
    assert committed(member) == []


def test_a_follower_reads_on_while_no_coordinator_answers(member, later, monkeypatch, capsys):
    def away(_: GroupOffsets) -> None:
        raise BrokerGone("no broker reachable")

    monkeypatch.setattr(GroupOffsets, "state", away)
    member._note_silence(KafkaError(KafkaError._TRANSPORT))
    for _ in range(3):
        later(2.0)
        member._ask_coordinator()
    assert capsys.readouterr().err == (
        "kvorum: no broker reachable; group billing is asked again until it answers\n"
    )


def test_a_commit_of_another_ones_partition_is_told_and_a_refused_one_ends_the_command(
    member, later, capsys
):
    member._on_commit(KafkaError(int(ErrorCode.FENCED_MEMBER_EPOCH)), [])
    assert "gave the partitions to another member" in capsys.readouterr().err
    member._on_commit(KafkaError(int(ErrorCode.GROUP_AUTHORIZATION_FAILED)), [])
    with pytest.raises(CommandFailed, match="offsets of group billing were not committed"):
        member._on_turn()
