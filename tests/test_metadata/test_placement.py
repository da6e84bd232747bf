import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from metadata.placement import UsableBroker, place
from runtime.errors import ErrorCode, Rejected


def brokers(count, racks=0, fenced=()):
    return [
        UsableBroker(i, f"rack-{i % racks}" if racks else None, i not in fenced)
        for i in range(count)
    ]


@given(
    st.integers(1, 12),
    st.integers(0, 4),
    st.integers(1, 60),
    st.integers(1, 5),
    st.sets(st.integers(0, 11)),
    st.integers(0, 1000),
)
def test_any_placement_names_distinct_brokers_and_an_active_leader(
    count, racks, partitions, factor, fenced, seed
):
    cluster = brokers(count, racks, fenced)
    placed = place(
        cluster, partition_count=partitions, replication_factor=factor, rng=random.Random(seed)
    )
    if factor > count or not any(b.is_active for b in cluster):
        assert isinstance(placed, Rejected)
        assert placed.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(range(count))
        assert cluster[replicas[0]].is_active


@given(st.integers(1, 10), st.integers(1, 4), st.integers(0, 1000))
def test_without_racks_leaders_are_even_within_one(count, rounds, seed):
    placed = place(
        brokers(count),
        partition_count=count * rounds,
        replication_factor=1,
        rng=random.Random(seed),
    )
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(i, 0) for i in range(count)) <= 1


@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 1000))
def test_replicas_of_a_partition_lie_on_distinct_racks_while_there_are_racks(racks, per, seed):
    placed = place(
        brokers(racks * per, racks),
        partition_count=30,
        replication_factor=racks,
        rng=random.Random(seed),
    )
    for replicas in placed:
        assert len({replica % racks for replica in replicas}) == racks


def test_a_fenced_broker_is_used_last():
    placed = place(
        brokers(4, fenced={3}), partition_count=40, replication_factor=3, rng=random.Random(1)
    )
    assert all(3 not in replicas for replicas in placed)
