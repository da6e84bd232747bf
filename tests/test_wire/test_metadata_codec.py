"""The partitions of Metadata, packed by hand, are what the cold encoder writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.broker.api.metadata import API
from kvorum.wire.kio_codec import encode_response, read_response
from kvorum.wire.metadata_codec import PartitionMetadata, pack_partitions

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
# Counts of 126 and more take two bytes in the flexible versions.
ids = st.lists(int32, max_size=4) | st.integers(124, 130).map(lambda n: [7] * n)
partitions = st.lists(
    st.builds(
        PartitionMetadata,
        st.sampled_from((0, 5)),
        int32,
        int32,
        int32,
        ids.map(tuple),
        ids.map(tuple),
        ids.map(tuple),
    ),
    max_size=3,
)


def answer(value: Any) -> dict[str, Any]:
    return {
        "brokers": [],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [{"error_code": 0, "name": "t", "topic_id": bytes(16), "partitions": value}],
    }


def plain(partition: PartitionMetadata) -> dict[str, Any]:
    return {
        "error_code": partition.error,
        "partition_index": partition.partition_id,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": partition.offline_replicas,
    }


@settings(max_examples=300)
@given(st.integers(API.min_version, API.max_version), partitions)
def test_packed_partitions_are_the_cold_encoders_bytes(
    version: int, listed: list[PartitionMetadata]
) -> None:
    packed = pack_partitions(version, listed, len(listed))
    assert encode_response(API.name, version, answer(packed)) == encode_response(
        API.name, version, answer([plain(partition) for partition in listed])
    )


@pytest.mark.parametrize("version", range(API.min_version, API.max_version + 1))
def test_kio_reads_packed_partitions(version: int) -> None:
    listed = [PartitionMetadata(5, 3, -1, 9, (1, 2, 3), (2,), (1, 3))]
    body = encode_response(API.name, version, answer(pack_partitions(version, listed, 1)))
    (partition,) = read_response(API.name, version, memoryview(body)).topics[0].partitions
    assert (partition.error_code, partition.partition_index) == (5, 3)
    assert (partition.replica_nodes, partition.isr_nodes) == ((1, 2, 3), (2,))
    assert version < 5 or partition.offline_replicas == (1, 3)
    assert version < 7 or partition.leader_epoch == 9
