"""Reassignment by adding first and removing last: KIP-455."""

import pytest

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.records import NO_LEADER
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    ListReassignments,
    Reassignment,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

A, B, C, D, E = 101, 102, 103, 104, 105


@pytest.fixture
def world():
    world = World(brokers=(A, B, C, D, E))
    world.create("t", partitions=-1, factor=-1, assignments=((A, B, C), (B, C, A)))
    return world


def shape(world):
    partition = world.partition()
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def listed(world, partitions=None):
    return world.ask(ListReassignments(partitions=partitions))


def test_targets_come_first_and_who_is_to_go_stays_until_they_are_in_sync(world):
    assert world.reassign([D, E, A]).error is ErrorCode.NONE
    assert shape(world) == ((D, E, A, B, C), (D, E), (B, C))
    assert (world.partition().leader, world.partition().leader_epoch) == (A, 0)
    world.propose([A, B, C, D])
    assert shape(world) == ((D, E, A, B, C), (D, E), (B, C))
    done = world.propose([A, B, C, D, E])
    assert (done.error, set(done.isr)) == (ErrorCode.NONE, {A, D, E})
    assert shape(world) == ((D, E, A), (), ())
    assert set(world.partition().isr) == {A, D, E}


def test_a_leader_that_goes_hands_over_and_hears_of_it(world):
    world.reassign([D, E])
    answer = world.propose([A, B, C, D, E])
    assert answer.error is ErrorCode.NEW_LEADER_ELECTED
    partition = world.partition()
    assert (partition.leader, partition.leader_epoch) == (D, 1)
    assert (answer.leader, answer.leader_epoch) == (D, 1)
    assert answer.partition_epoch == partition.partition_epoch
    assert partition.replicas == (D, E)


def test_a_leader_that_stays_gets_a_new_epoch_when_others_go(world):
    world.reassign([A, D])
    world.propose([A, B, C, D])
    assert (world.partition().leader, world.partition().leader_epoch) == (A, 1)


def test_only_removing_or_reordering_is_complete_at_once(world):
    assert world.reassign([C, A]).error is ErrorCode.NONE
    assert shape(world) == ((C, A), (), ())
    assert set(world.partition().isr) == {A, C}
    world.reassign([A, C])
    assert shape(world) == ((A, C), (), ())


def test_nothing_is_written_for_what_is_already_so(world):
    before = world.image.end_offset
    assert world.reassign([A, B, C]).error is ErrorCode.NONE
    assert world.image.end_offset == before


def test_a_cancellation_goes_back_to_the_original_replicas(world):
    world.reassign([D, E])
    world.propose([A, B, C, D])
    assert world.reassign(None).error is ErrorCode.NONE
    assert shape(world) == ((A, B, C), (), ())
    assert set(world.partition().isr) == {A, B, C}


def test_a_replacement_drops_what_it_does_not_want_and_keeps_the_origin(world):
    world.reassign([D])
    world.propose([A, B, C, D])  # complete: start again from D
    assert shape(world) == ((D,), (), ())
    world.reassign([A, B])
    assert shape(world) == ((A, B, D), (A, B), (D,))
    world.propose([D, A])
    world.reassign([B, C])
    assert shape(world) == ((B, C, D), (B, C), (D,))
    assert world.partition().isr == (D,)
    world.reassign(None)
    assert shape(world) == ((D,), (), ())


def test_a_replacement_by_the_origin_is_a_cancellation(world):
    world.reassign([D, E, A])
    world.reassign([A, B, C])
    assert shape(world) == ((A, B, C), (), ())


def test_a_cancellation_that_would_empty_the_isr_is_refused(world):
    world.reassign([D, E])
    world.propose([A, B, C, D])
    for broker_id in (A, B, C):
        world.fence(broker_id)
    assert (world.partition().leader, world.partition().isr) == (D, (D,))
    refused = world.reassign(None)
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean" in refused.message
    assert world.reassign([E]).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.heartbeat(A)
    world.propose([D, A])
    assert world.reassign(None).error is ErrorCode.NONE
    assert (world.partition().leader, world.partition().isr) == (A, (A,))


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([A, A], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([A, 999], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([A, -1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (range(2_000), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_bad_targets_are_refused(world, replicas, error):
    before = world.image.end_offset
    assert world.reassign(replicas).error is error
    assert world.image.end_offset == before


@pytest.mark.parametrize(("topic", "partition_id"), [("nobody", 0), ("t", 2), ("t", -1)])
def test_an_unknown_partition_is_refused(world, topic, partition_id):
    answer = world.reassign([A], topic, partition_id)
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_replication_factor_changes_only_if_the_request_lets_it(world):
    refused = world.reassign([A, B], allow_replication_factor_change=False)
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.reassign([A, B, D], allow_replication_factor_change=False).error is ErrorCode.NONE


def test_one_bad_item_does_not_spoil_the_others(world):
    answers = world.ask(
        AlterReassignments(
            reassignments=(
                Reassignment(topic="nobody", partition_id=0, replicas=(A,)),
                Reassignment(topic="t", partition_id=0, replicas=(D,)),
                Reassignment(topic="t", partition_id=0, replicas=(E,)),
                Reassignment(topic="t", partition_id=1, replicas=(E,)),
            )
        )
    )
    assert [a.error for a in answers] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert [o.partition_id for o in listed(world)] == [0, 1]


def test_a_request_has_a_limit_and_says_what_it_left_out(world, monkeypatch):
    config = ControllerConfig(kvorum_controller_request_records_max=1)
    monkeypatch.setattr(world.controller, "_config", config)
    wanted = [Reassignment(topic="t", partition_id=i, replicas=(D,)) for i in range(2)]
    answers = world.ask(AlterReassignments(reassignments=tuple(wanted)))
    assert [a.error for a in answers] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


def test_the_list_names_what_is_under_way(world):
    assert listed(world) == ()
    world.reassign([D, E, A])
    (ongoing,) = listed(world)
    assert (ongoing.topic, ongoing.partition_id) == ("t", 0)
    assert ongoing.adding_replicas == (D, E)
    assert listed(world, (("t", 1), ("nobody", 0), ("t", 9))) == ()
    assert listed(world, (("t", 0), ("t", 0))) == (ongoing,)


def test_a_reassignment_survives_a_fail_over(world):
    world.reassign([D, E])
    world.controller.renounce()
    world.controller.claim(2, world.image.end_offset, 0)
    world.propose([A, B, C, D, E])
    assert shape(world) == ((D, E), (), ())


def test_a_fencing_in_the_middle_keeps_what_was_asked_for(world):
    world.reassign([D, E])
    world.propose([A, B, C, D])
    world.fence(A)
    assert shape(world) == ((D, E, A, B, C), (D, E), (A, B, C))
    assert world.partition().leader == D
    world.propose([B, C, D, E])
    assert shape(world) == ((D, E), (), ())
    world.heartbeat(A)
    assert A not in world.partition().isr


def test_a_controlled_shutdown_in_the_middle_moves_the_leader_and_no_replica(world):
    world.reassign([D, E])
    world.propose([A, B, C, D])
    world.heartbeat(A, want_shutdown=True)
    partition = world.partition()
    assert (partition.leader, partition.removing_replicas) == (D, (A, B, C))
    assert A not in partition.isr


def test_an_unclean_election_takes_a_replica_that_is_only_being_added_last(world):
    world.reassign([D, E, A, B])
    world.propose([A])
    world.fence(A)
    world.fence(B)
    world.fence(C)
    world.heartbeat(B)
    assert world.partition().leader == NO_LEADER
    world.ask(ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN))
    assert (world.partition().leader, world.partition().isr) == (B, (B,))


def test_an_unclean_election_of_the_only_target_completes_the_reassignment(world):
    # Bug: the move was never checked again. It made no progress until the dead source returned, and
    # could not be cancelled.
    world.propose([A])
    world.fence(A)
    world.reassign([D])
    world.ask(ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN))
    while world.partition().leader != D:
        world.fence(world.partition().leader)
        world.ask(ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN))
    assert shape(world) == ((D,), (), ())
    assert world.partition().isr == (D,)


def test_an_unclean_election_of_one_target_of_two_completes_nothing(world):
    world.propose([A])
    world.reassign([D, E])
    for broker_id in (A, B, C):
        world.fence(broker_id)
    world.ask(ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN))
    assert (world.partition().leader, world.partition().isr) == (D, (D,))
    assert shape(world) == ((D, E, A, B, C), (D, E), (A, B, C))
    world.propose([D, E])
    assert shape(world) == ((D, E), (), ())


def test_a_second_proposal_for_a_partition_in_one_request_is_stale(world):
    proposals = (world.proposal([A, B]), world.proposal([A, C]))
    first, second = world.ask(
        AlterPartition(broker_id=A, broker_epoch=world.epochs[A], proposals=proposals)
    )
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)
    assert world.partition().isr == (A, B)


def test_a_proposal_that_changes_nothing_is_accepted_and_writes_nothing(world):
    before = world.image.end_offset
    answer = world.propose(world.partition().isr)
    assert (answer.error, answer.partition_epoch) == (ErrorCode.NONE, 0)
    assert world.image.end_offset == before
