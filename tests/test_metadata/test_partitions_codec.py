"""Requests about partitions and their replies come out of protobuf as they went in."""

import pytest

from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.rpc import codec
from kvorum.metadata.rpc import partitions_codec as partitions
from kvorum.runtime.errors import ErrorCode


@pytest.mark.parametrize(
    ("encode", "decode", "request_"),
    [
        (
            partitions.encode_create_partitions,
            partitions.decode_create_partitions,
            r.CreatePartitions(
                topics=(
                    r.MorePartitions(name="a", count=3),
                    r.MorePartitions(name="b", count=2, assignments=((1, 2), ())),
                    r.MorePartitions(name="c", count=-1, assignments=()),
                ),
                validate_only=True,
            ),
        ),
        (
            partitions.encode_alter_reassignments,
            partitions.decode_alter_reassignments,
            r.AlterReassignments(
                reassignments=(
                    r.Reassignment(topic="a", partition_id=0, replicas=(1, 2)),
                    r.Reassignment(topic="a", partition_id=1, replicas=()),
                    r.Reassignment(topic="b", partition_id=0, replicas=None),
                ),
                allow_replication_factor_change=False,
            ),
        ),
        (
            partitions.encode_list_reassignments,
            partitions.decode_list_reassignments,
            r.ListReassignments(),
        ),
        (
            partitions.encode_list_reassignments,
            partitions.decode_list_reassignments,
            r.ListReassignments(partitions=()),
        ),
        (
            partitions.encode_list_reassignments,
            partitions.decode_list_reassignments,
            r.ListReassignments(partitions=(("a", 1), ("b", 0))),
        ),
        (
            codec.encode_elect_leaders,
            codec.decode_elect_leaders,
            r.ElectLeaders(partitions=(("a", 1),), election=r.ElectionType.UNCLEAN),
        ),
        (
            partitions.encode_grown,
            partitions.decode_grown,
            (r.GrownTopic(name="a", error=ErrorCode.INVALID_PARTITIONS, message="why"),),
        ),
        (
            partitions.encode_reassigned,
            partitions.decode_reassigned,
            (r.ReassignedPartition(topic="a", partition_id=1),),
        ),
        (
            partitions.encode_ongoing,
            partitions.decode_ongoing,
            (
                r.OngoingReassignment(
                    topic="a",
                    partition_id=1,
                    replicas=(1, 2),
                    adding_replicas=(1,),
                    removing_replicas=(2,),
                ),
            ),
        ),
    ],
)
def test_it_survives(encode, decode, request_):
    assert decode(encode(request_)) == request_
