"""Dataclasses to protobuf messages and back."""

from dataclasses import dataclass

import pytest

from kvorum.rpc import admin_pb2, common_pb2, raft_pb2
from kvorum.runtime.ids import UUID_ZERO, Uuid
from kvorum.runtime.message_mapper import ByHand, MessageMapper


@dataclass
class Growth:
    """Has the fields of the message NewPartitions."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None


@pytest.mark.parametrize("assignments", [None, (), ((1, 2), ())])
def test_no_list_and_an_empty_list_are_two_things(assignments):
    mapper = MessageMapper(Growth, admin_pb2.NewPartitions)
    message = mapper.encode(Growth("a", 3, assignments))
    again = admin_pb2.NewPartitions.FromString(message.SerializeToString())
    assert mapper.decode(again) == Growth("a", 3, assignments)


@dataclass
class Voter:
    node_id: int
    directory_id: Uuid
    host: str
    port: int


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_uuid_of_another_length_is_none(length):
    message = raft_pb2.Voter(node_id=1, directory_id=b"x" * length)
    assert MessageMapper(Voter, raft_pb2.Voter).decode(message).directory_id == UUID_ZERO


@dataclass
class NameOnly:
    name: str


def test_a_field_that_a_message_does_not_have_is_refused_at_once():
    with pytest.raises(TypeError, match=r"kvorum\.rpc\.Status has no field name"):
        MessageMapper(NameOnly, common_pb2.Status)


def test_a_field_that_the_value_does_not_have_is_refused_at_once():
    with pytest.raises(TypeError, match="min_level"):
        MessageMapper(NameOnly, common_pb2.FeatureRange)


def test_a_field_apart_is_given_by_the_caller():
    mapper = MessageMapper(NameOnly, common_pb2.FeatureRange, apart=("min_level", "max_level"))
    assert mapper.encode(NameOnly("f"), max_level=4).max_level == 4


@dataclass
class Maybe:
    name: str | None
    value: str


def test_a_value_that_may_be_none_needs_a_field_with_presence():
    with pytest.raises(TypeError, match=r"ConfigEntry\.name must be optional"):
        MessageMapper(Maybe, admin_pb2.ConfigEntry)


@dataclass
class Pairs:
    partitions: tuple[tuple[str, int, int], ...]


def test_a_tuple_needs_a_message_of_as_many_fields():
    with pytest.raises(TypeError, match="has not 3 fields"):
        MessageMapper(Pairs, admin_pb2.TopicPartitions)


@dataclass
class Sum:
    broker_ids: int
    count: int


def test_a_field_by_hand_and_one_that_is_derived():
    by_hand = {"broker_ids": ByHand(encode=lambda total: [total], decode=sum)}
    mapper = MessageMapper(
        Sum,
        admin_pb2.BrokerIds,
        by_hand=by_hand,
        derived={"count": lambda message: len(message.broker_ids)},
    )
    assert mapper.decode(admin_pb2.BrokerIds(broker_ids=[1, 2, 4])) == Sum(7, 3)
    assert list(mapper.encode(Sum(5, 9)).broker_ids) == [5]
