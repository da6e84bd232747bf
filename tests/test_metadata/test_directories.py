"""Data directories of brokers: leaders while one is offline, and the replicas' directories
(KIP-858)."""

import dataclasses
import random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.controller.decide.eligible_brokers import ElectionRules
from kvorum.metadata.controller.decide.partition_change import PartitionTarget, change
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import PartitionImage, is_online
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.records import (
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChange,
    FeatureLevel,
    Partition,
    PartitionChange,
)
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.requests.controller_requests import (
    ElectionType,
    ElectLeaders,
    FeatureUpdate,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.metadata.requests.directory_requests import AssignReplicas, ReplicaDirectory
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.worlds import World

A, B, C = 101, 102, 103
X, Y = b"x" * 16, b"y" * 16
OWN = {A: b"a" * 16, B: b"b" * 16, C: b"c" * 16}


def world_with(replicas=(A, B, C), *, min_isr=1, partitions=1):
    """Broker 101 has the directories X and Y, the others one each."""
    world = World(brokers=())
    for broker_id in (A, B, C):
        log_dirs = (Y, X) if broker_id == A else (OWN[broker_id],)
        world.epochs[broker_id] = world.register(broker_id, log_dirs=log_dirs).broker_epoch
        world.heartbeat(broker_id)
    world.create(
        "t",
        partitions=-1,
        factor=-1,
        assignments=(replicas,) * partitions,
        configs=(("min.insync.replicas", str(min_isr)),),
    )
    return world


def assign(world, directory, *, broker_id=A, partition_id=0, **changes):
    fields = {
        "topic_id": world.image.topic("t").topic_id,
        "partition_id": partition_id,
        "directory_id": directory,
    }
    reply = world.ask(
        AssignReplicas(
            broker_id=broker_id,
            broker_epoch=world.epochs[broker_id],
            replicas=(ReplicaDirectory(**{**fields, **changes}),),
        )
    )
    if isinstance(reply, Rejected):
        return reply
    return reply[0].error if reply else ErrorCode.NONE


def state(world, partition_id=0):
    partition = world.partition(partition_id=partition_id)
    return partition.leader, partition.isr, partition.elr


# Telling.


def test_a_registration_names_its_directories_in_order():
    world = world_with()
    assert world.image.brokers[A].log_dirs == (X, Y)
    assert world.image.brokers[B].log_dirs == (OWN[B],)


def test_what_a_broker_tells_is_kept_for_its_own_replica_only():
    world = world_with()
    assert world.partition().directories == ()
    assert assign(world, X) is ErrorCode.NONE
    assert world.partition().directories == (X, UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY)
    assert state(world) == (A, (A, B, C), ())


def test_telling_the_same_again_writes_nothing():
    world = world_with()
    assign(world, X)
    before = world.image
    assert assign(world, X) is ErrorCode.NONE
    assert world.image.end_offset == before.end_offset


def test_a_partition_of_brokers_with_one_directory_costs_not_a_byte_more():
    record = Partition(b"t" * 16, 0, (1, 2), (1, 2), 1)
    fields = msgpack.unpackb(encode_record(record))
    assert fields[1] == Partition.VERSION - 1
    assert len(fields) == 2 + len(dataclasses.fields(Partition)) - 1
    told = dataclasses.replace(record, directories=(X, Y))
    assert msgpack.unpackb(encode_record(told))[1] == Partition.VERSION


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic_id": b"q" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition_id": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"directory_id": UNASSIGNED_DIRECTORY}, ErrorCode.INVALID_REQUEST),
        ({"directory_id": b"short"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_item_is_refused_by_itself(changes, error):
    world = world_with()
    good = ReplicaDirectory(
        topic_id=world.image.topic("t").topic_id, partition_id=0, directory_id=X
    )
    reply = world.ask(
        AssignReplicas(
            broker_id=A,
            broker_epoch=world.epochs[A],
            replicas=(dataclasses.replace(good, **changes), good),
        )
    )
    assert [item.error for item in reply] == [error]
    assert world.partition().directory_of(A) == X


def test_a_broker_without_a_replica_tells_nothing_of_the_partition():
    world = world_with(replicas=(A, B))
    assert assign(world, OWN[C], broker_id=C) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_earlier_process_is_not_listened_to():
    world = world_with()
    world.epochs[A] -= 1
    assert assign(world, X).code is ErrorCode.STALE_BROKER_EPOCH


# Failure.


def test_a_failed_directory_gives_up_what_lies_in_it_and_nothing_else():
    world = world_with(partitions=2)
    assign(world, X, partition_id=0)
    assign(world, Y, partition_id=1)
    reply = world.heartbeat(A, offline_log_dirs=(X,))
    assert not reply.is_fenced
    assert state(world, 0) == (B, (B, C), ())
    assert state(world, 1) == (A, (A, B, C), ())
    assert world.image.brokers[A].log_dirs == (Y,)


def test_it_is_told_with_every_heartbeat_and_acted_on_once():
    world = world_with()
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    before = world.image.end_offset
    world.heartbeat(A, offline_log_dirs=(X,))
    assert world.image.end_offset == before


def test_the_last_member_stays_in_the_isr_and_nobody_leads():
    world = world_with(replicas=(A,))
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    assert state(world) == (NO_LEADER, (A,), ())


def test_below_the_minimum_it_stays_eligible():
    world = world_with(min_isr=3)
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    assert state(world) == (B, (B, C), (A,))
    # The replica is in the ELR, but may not be elected while its directory is offline.
    world.fence(B)
    world.fence(C)
    assert world.partition().leader == NO_LEADER


def test_a_leader_may_not_take_it_back_into_the_isr():
    world = world_with()
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    assert world.propose([B, C, A]).error is ErrorCode.INELIGIBLE_REPLICA


def test_neither_a_preferred_nor_an_unclean_election_brings_it_back():
    world = world_with(replicas=(A,))
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    for election in ElectionType:
        reply = world.ask(ElectLeaders(partitions=(("t", 0),), election=election))
        assert reply[0].error in (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )
    assert world.partition().leader == NO_LEADER


def test_a_replica_told_to_lie_in_a_directory_that_is_offline_is_given_up():
    # The directory failed before its replica had been reported.
    world = world_with()
    world.heartbeat(A, offline_log_dirs=(X,))
    assert state(world) == (A, (A, B, C), ())
    assign(world, X)
    assert state(world) == (B, (B, C), ())


def test_a_process_that_registers_without_the_directory_does_not_lead_from_it():
    world = world_with(replicas=(A,))
    assign(world, X)
    world.fence(A)
    world.epochs[A] = world.register(A, 9, log_dirs=(Y,)).broker_epoch
    world.heartbeat(A)
    assert state(world) == (NO_LEADER, (A,), ())
    # The disk is back.
    world.fence(A)
    world.epochs[A] = world.register(A, 10, log_dirs=(X, Y)).broker_epoch
    world.heartbeat(A)
    assert state(world) == (A, (A,), ())


def test_a_heartbeat_that_also_wants_to_go_moves_the_directory_first():
    world = world_with(partitions=2)
    assign(world, X)
    assert not world.heartbeat(A, offline_log_dirs=(X,), want_shutdown=True).should_shut_down
    assert world.heartbeat(A, offline_log_dirs=(X,), want_shutdown=True).should_shut_down


def test_all_directories_offline_leaves_none_that_looks_online():
    world = world_with()
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X, Y))
    assert not any(world.image.brokers[A].has_online(d) for d in (X, Y, LOST_DIRECTORY))


# Damage.


@pytest.mark.parametrize("broker_id", [A, B])
def test_a_replica_that_is_lost_gives_up_its_lead_and_its_eligibility(broker_id):
    world = world_with(replicas=(broker_id, C), min_isr=2)
    assert assign(world, LOST_DIRECTORY, broker_id=broker_id) is ErrorCode.NONE
    assert state(world) == (C, (C,), ())
    assert world.propose([C, broker_id]).error is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_that_turns_up_again_may_join_but_is_not_eligible():
    world = world_with(replicas=(B, C), min_isr=2)
    assign(world, LOST_DIRECTORY, broker_id=B)
    assert assign(world, OWN[B], broker_id=B) is ErrorCode.NONE
    assert state(world) == (C, (C,), ())
    assert world.propose([C, B]).error is ErrorCode.NONE


def test_a_replica_that_turns_up_in_another_directory_is_not_eligible_any_more():
    # An operator removed its directory from log.dirs, and the replica started empty in the other
    # one.
    world = world_with(min_isr=3)
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(X,))
    assert state(world) == (B, (B, C), (A,))
    assign(world, Y)
    assert state(world) == (B, (B, C), ())


def test_the_only_replica_leads_again_when_it_is_found():
    world = world_with(replicas=(B,))
    assign(world, LOST_DIRECTORY, broker_id=B)
    assert state(world) == (NO_LEADER, (B,), ())
    assign(world, OWN[B], broker_id=B)
    assert state(world) == (B, (B,), ())


# Registration.


@pytest.mark.parametrize(
    ("log_dirs", "said"),
    [
        ((b"q" * 16, b"q" * 16), "one is a copy of the other"),
        ((LOST_DIRECTORY,), "is no id of a data directory"),
        ((b"short",), "is no id of a data directory"),
        ((OWN[B],), "is broker 102's"),
    ],
)
def test_directories_that_cannot_be_are_refused(log_dirs, said):
    refused = world_with().register(104, log_dirs=log_dirs)
    assert refused.code is ErrorCode.INVALID_REGISTRATION
    assert said in refused.message


def at_lowest_level(world):
    update = FeatureUpdate(name="metadata.version", max_level=26, kind=UpdateKind.SAFE_DOWNGRADE)
    other = FeatureUpdate(
        name="eligible.leader.replicas.version", max_level=0, kind=UpdateKind.SAFE_DOWNGRADE
    )
    return world.ask(UpdateFeatures(updates=(update, other)))


def test_several_directories_stand_in_the_way_of_a_downgrade_and_one_does_not():
    refused = at_lowest_level(world_with())
    assert "several data directories of broker 101" in refused[0].message
    world = World(brokers=())
    world.epochs[B] = world.register(B, log_dirs=(OWN[B],)).broker_epoch
    assert {item.error for item in at_lowest_level(world)} == {ErrorCode.NONE}
    assert world.image.brokers[B].log_dirs == ()


def test_at_the_lowest_level_one_directory_is_welcome_and_several_are_not():
    world = World(brokers=())
    at_lowest_level(world)
    world.epochs[B] = world.register(B, log_dirs=(OWN[B],)).broker_epoch
    assert world.image.brokers[B].log_dirs == ()
    assert world.register(A, log_dirs=(X, Y)).code is ErrorCode.UNSUPPORTED_VERSION


def test_at_the_lowest_level_a_damaged_replica_gives_up_its_lead_all_the_same():
    world = World(brokers=())
    at_lowest_level(world)
    for broker_id in (A, B, C):
        world.join(broker_id)
    world.create("t", partitions=-1, factor=-1, assignments=((A, B, C),))
    assign(world, LOST_DIRECTORY)
    assert state(world) == (B, (B, C), ())
    assert world.partition().directories == ()


def test_a_replica_that_is_told_while_its_move_completes():
    # Seed 23 of the simulated partitions: the record named one directory more than replicas.
    world = world_with(replicas=(A, B))
    world.fence(B)
    assign(world, LOST_DIRECTORY)
    world.reassign((A,))
    assert world.partition().is_reassigning  # nobody could lead if B were taken out now
    assert assign(world, X) is ErrorCode.NONE
    assert (world.partition().replicas, world.partition().directories) == ((A,), (X,))


# Replaying.


def test_other_replicas_keep_the_directories_of_those_who_stay():
    world = world_with(replicas=(B, A))
    assign(world, X)
    world.reassign((A, C))
    partition = world.partition()
    assert partition.directory_of(A) == X
    assert len(partition.directories) == len(partition.replicas)


def test_a_snapshot_keeps_directories():
    world = world_with()
    assign(world, X)
    world.heartbeat(A, offline_log_dirs=(Y,))
    delta = Delta(type(world.image)())
    delta.replay_all(records_of(world.image))
    again = delta.apply(end_offset=world.image.end_offset, epoch=world.image.epoch)
    assert again.topics == world.image.topics
    assert again.brokers == world.image.brokers


def test_a_lower_level_forgets_the_single_directories():
    world = World(brokers=())
    world.epochs[B] = world.register(B, log_dirs=(OWN[B],)).broker_epoch
    delta = Delta(world.image)
    delta.replay(FeatureLevel("metadata.version", 26))
    assert delta.apply(end_offset=99, epoch=1).brokers[B].log_dirs == ()


def test_a_change_of_the_registration_leaves_the_rest_of_it():
    world = world_with()
    delta = Delta(world.image)
    delta.replay(BrokerRegistrationChange(A, world.epochs[A], log_dirs=(Y,)))
    after = delta.apply(end_offset=99, epoch=1).brokers[A]
    assert after == dataclasses.replace(world.image.brokers[A], log_dirs=(Y,))


# Against the plain rule.

_DIRECTORIES = st.sampled_from([UNASSIGNED_DIRECTORY, LOST_DIRECTORY, X, Y])


@given(
    directories=st.tuples(_DIRECTORIES, _DIRECTORIES, _DIRECTORIES),
    online=st.tuples(*[st.sampled_from([(), (X,), (Y,), (X, Y)])] * 3),
    active=st.frozensets(st.sampled_from([A, B, C])),
    isr=st.permutations([A, B, C]).flatmap(lambda p: st.integers(1, 3).map(lambda n: tuple(p[:n]))),
    leader=st.sampled_from([A, B, C, NO_LEADER]),
)
def test_an_offline_directory_is_a_fenced_broker_for_this_partition(
    directories, online, active, isr, leader
):
    replicas = (A, B, C)
    log_dirs = dict(zip(replicas, online, strict=True))
    able = frozenset(
        r
        for r, d in zip(replicas, directories, strict=True)
        if r in active and is_online(d, log_dirs[r])
    )
    if not any(d != UNASSIGNED_DIRECTORY for d in directories):
        directories = ()
    lying = PartitionImage(replicas, isr, leader, 1, 1, directories=directories)
    plain = dataclasses.replace(lying, directories=())
    key = (b"t" * 16, 0)
    found = change(key, lying, PartitionTarget(), ElectionRules(active=active, log_dirs=log_dirs))
    assert found == change(key, plain, PartitionTarget(), ElectionRules(active=able))


def test_thousands_of_replicas_are_one_decision():
    world = world_with(replicas=(A, B), partitions=3_000)
    topic_id = world.image.topic("t").topic_id
    rng = random.Random(1)
    told = tuple(
        ReplicaDirectory(topic_id=topic_id, partition_id=p, directory_id=rng.choice((X, Y)))
        for p in range(3_000)
    )
    reply = world.ask(AssignReplicas(broker_id=A, broker_epoch=world.epochs[A], replicas=told))
    assert reply == ()
    world.heartbeat(A, offline_log_dirs=(X,))
    for item in told:
        leader = world.partition(partition_id=item.partition_id).leader
        assert leader == (B if item.directory_id == X else A)


def test_a_broker_of_an_old_build_told_no_directories_and_has_one():
    world = World(brokers=(B,))
    assert world.image.brokers[B].has_online(X)


def test_a_record_that_names_too_few_directories_stops_the_node():
    world = world_with()
    delta = Delta(world.image)
    with pytest.raises(Exception, match="1 directories for the replicas"):
        delta.replay(PartitionChange(world.image.topic("t").topic_id, 0, directories=(X,)))
