"""Records that feature levels allow to be written, and the fields that lower levels drop."""

from __future__ import annotations

import pytest

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION, limited
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import decode_record, encode_record, encode_records
from kvorum.metadata.image.records import RECOVERED, Partition, PartitionChange
from kvorum.metadata.image.snapshot_job import payloads_of, records_in
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    FeatureUpdate,
    Reassignment,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.runtime.errors import ErrorCode, InvariantViolated, Rejected
from tests.test_metadata.worlds import World

A, B, C = 101, 102, 103


def small(*, supported=None, unclean="false"):
    world = World() if supported is None else World(supported=supported)
    world.create(
        "t",
        partitions=-1,
        factor=-1,
        assignments=((A, B, C),),
        configs=(("min.insync.replicas", "2"), ("unclean.leader.election.enable", unclean)),
    )
    return world


def eventful(world):
    """Take a partition below its minimum and leave it without a leader; hold an unclean election;
    bring all brokers back."""
    world.propose([A])
    for broker_id in (B, C, A):
        world.fence(broker_id)
    world.heartbeat(B)
    world.ask(ElectLeaders(partitions=(("t", 0),), election=ElectionType.UNCLEAN))
    for broker_id in (A, C):
        world.heartbeat(broker_id)
    world.propose([world.partition().leader, A, C])
    return world


def update(world, **levels):
    names = {"metadata": METADATA_VERSION, "elr": ELIGIBLE_LEADER_REPLICAS}
    updates = tuple(
        FeatureUpdate(name=names[name], max_level=level, kind=UpdateKind.SAFE_DOWNGRADE)
        for name, level in levels.items()
    )
    return world.ask(UpdateFeatures(updates=updates))


def test_at_the_older_level_every_record_is_one_that_the_older_build_reads():
    world = eventful(small(supported=limited(26), unclean="true"))
    values = encode_records(world.records, 26)
    kinds = {type(record) for record in map(decode_record, values)}
    assert {Partition, PartitionChange} <= kinds
    for value, record in zip(values, world.records, strict=True):
        assert decode_record(value) == record
        if isinstance(record, Partition | PartitionChange):
            # type, version 0, and no more fields than that version has
            assert value == encode_record(record, 26) != encode_record(record)
    partition = world.partition()
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.leader_recovery_state == RECOVERED


def test_a_snapshot_at_the_older_level_is_one_that_the_older_build_reads():
    world = eventful(small(supported=limited(26)))
    payloads = list(payloads_of(world.image))
    delta = Delta(EMPTY_IMAGE)
    for payload in payloads:
        delta.replay_all(records_in(payload))
    again = delta.apply(end_offset=world.image.end_offset, epoch=world.image.epoch)
    assert again == world.image
    assert payloads != list(payloads_of(eventful(small()).image))


@pytest.mark.parametrize(
    "record",
    [
        PartitionChange(b"t" * 16, 0, elr=()),
        PartitionChange(b"t" * 16, 0, adding_replicas=(1,)),
        PartitionChange(b"t" * 16, 0, leader_recovery_state=0),
        Partition(b"t" * 16, 0, (1,), (1,), 1, elr=(2,)),
    ],
)
def test_what_the_older_version_cannot_say_is_never_written_without_it(record):
    with pytest.raises(InvariantViolated, match="version 0 of Partition"):
        encode_record(record, 26)


def test_at_the_older_level_nothing_is_reassigned():
    world = small(supported=limited(26))
    wanted = Reassignment(topic="t", partition_id=0, replicas=(A, B))
    refused = world.ask(AlterReassignments(reassignments=(wanted,)))
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.UNSUPPORTED_VERSION
    assert "reassignments need metadata.version 27, it is 26" in refused.message


def test_switching_eligible_replicas_off_forgets_them_first():
    world = small()
    world.propose([A])
    assert world.partition().elr == (B, C)
    both = update(world, elr=0, metadata=26)
    assert "the eligible leader replicas of t-0" in both[1].message
    (done,) = update(world, elr=0)
    assert done.error is ErrorCode.NONE
    assert world.partition().elr == ()
    world.propose([A, B])
    world.propose([A])
    assert world.partition().elr == ()
    (down,) = update(world, metadata=26)
    assert down.error is ErrorCode.NONE
    assert world.image.features[METADATA_VERSION] == 26


def test_a_move_under_way_holds_the_level():
    world = World(brokers=(A, B, C, 104))
    world.create("t", partitions=-1, factor=-1, assignments=((A, B, C),))
    wanted = Reassignment(topic="t", partition_id=0, replicas=(A, B, 104))
    world.ask(AlterReassignments(reassignments=(wanted,)))
    update(world, elr=0)
    (refused,) = update(world, metadata=26)
    assert "cannot record the reassignment of t-0" in refused.message
