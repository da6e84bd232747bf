import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.placement import main
from kvorum.metadata.controller.decide import placement
from kvorum.metadata.controller.decide.placement import UsableBroker, place
from kvorum.runtime.errors import ErrorCode, Rejected


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


@given(
    st.integers(0, 5),
    st.integers(1, 10),
    st.integers(1, 5),
    st.integers(1, 130),
    st.integers(0, 99),
)
def test_on_racks_of_one_size_leaders_are_even_within_one(racks, per, factor, partitions, seed):
    count = max(racks, 1) * per
    placed = place(
        brokers(count, racks),
        partition_count=partitions,
        replication_factor=min(factor, count),
        rng=random.Random(seed),
    )
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(i, 0) for i in range(count)) <= 1


@given(st.integers(0, 5), st.integers(1, 10), st.integers(1, 5), st.integers(1, 3))
def test_on_racks_of_one_size_whole_rounds_are_perfectly_even(racks, per, factor, rounds):
    count = max(racks, 1) * per
    placed = place(
        brokers(count, racks),
        partition_count=count * rounds,
        replication_factor=min(factor, count),
        rng=random.Random(1),
    )
    for counted in (
        Counter(replicas[0] for replicas in placed),
        Counter(replica for replicas in placed for replica in replicas),
    ):
        assert len({counted.get(i, 0) for i in range(count)}) == 1


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(1, 80),
    st.sets(st.integers(0, 29)),
    st.integers(0, 99),
)
def test_uneven_racks_with_fenced_brokers_still_part_the_replicas(
    sizes, factor, partitions, fenced, seed
):
    rack_of = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    cluster = [UsableBroker(i, f"r{r}", i not in fenced) for i, r in enumerate(rack_of)]
    factor = min(factor, len(cluster))
    placed = place(
        cluster, partition_count=partitions, replication_factor=factor, rng=random.Random(seed)
    )
    if not any(broker.is_active for broker in cluster):
        assert isinstance(placed, Rejected)
        return
    for replicas in placed:
        assert cluster[replicas[0]].is_active
        assert len(set(replicas)) == factor
        assert len({rack_of[r] for r in replicas}) == min(factor, len(sizes))


def test_the_printed_figures_are_of_every_cluster(capsys):
    main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.lstrip().startswith("even") for line in lines) == 22
    assert all(line.split()[-1] == "0" for line in lines[3:]), "replicas share a rack"


def test_a_fenced_broker_is_used_last():
    placed = place(
        brokers(4, fenced={3}), partition_count=40, replication_factor=3, rng=random.Random(1)
    )
    assert all(3 not in replicas for replicas in placed)


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=6),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(1, 60),
    st.sets(st.integers(0, 23)),
    st.integers(0, 99),
)
def test_no_machine_has_two_replicas_of_a_partition_while_there_are_machines(
    sizes, racks, factor, partitions, fenced, seed
):
    """sizes: brokers of each machine; machines are dealt to the racks in turn."""
    host_of = [host for host, size in enumerate(sizes) for _ in range(size)]
    cluster = [
        UsableBroker(i, f"r{host % racks}" if racks else None, i not in fenced, f"h{host}")
        for i, host in enumerate(host_of)
    ]
    factor = min(factor, len(cluster))
    placed = place(
        cluster, partition_count=partitions, replication_factor=factor, rng=random.Random(seed)
    )
    if not any(broker.is_active for broker in cluster):
        assert isinstance(placed, Rejected)
        return
    rack_count = len({broker.rack for broker in cluster})
    for replicas in placed:
        assert cluster[replicas[0]].is_active
        assert len(set(replicas)) == factor
        assert len({host_of[r] for r in replicas}) == min(factor, len(sizes))
        # The machine is below the rack: distinct racks stay the first rule.
        assert len({cluster[r].rack for r in replicas}) == min(factor, rack_count)


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_on_machines_of_one_size_leaders_are_even_within_one(machines, per, rounds, seed):
    count = machines * per
    cluster = [UsableBroker(i, None, True, f"h{i // per}") for i in range(count)]
    placed = place(
        cluster, partition_count=count * rounds, replication_factor=2, rng=random.Random(seed)
    )
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {rounds}


def test_brokers_that_all_have_one_host_are_placed_as_if_they_had_none():
    def placed(host):
        cluster = [UsableBroker(i, None, True, host) for i in range(5)]
        return place(cluster, partition_count=30, replication_factor=3, rng=random.Random(3))

    assert placed("127.0.0.1") == placed(None)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 80),
    st.integers(0, 99),
)
def test_brokers_of_a_rack_are_within_one_replica_and_one_leader_of_each_other(
    sizes, factor, partitions, seed
):
    rack_of = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    cluster = [UsableBroker(i, f"r{rack}", True) for i, rack in enumerate(rack_of)]
    placed = place(
        cluster,
        partition_count=partitions,
        replication_factor=min(factor, len(cluster)),
        rng=random.Random(seed),
    )
    for counted in (
        Counter(replicas[0] for replicas in placed),
        Counter(replica for replicas in placed for replica in replicas),
    ):
        for rack in range(len(sizes)):
            counts = [counted[i] for i, own in enumerate(rack_of) if own == rack]
            assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_rack_of_two_among_three_racks_shares_six_replicas_three_to_three(seed):
    cluster = [UsableBroker(i, f"r{min(i, 2)}", True) for i in range(4)]
    placed = place(cluster, partition_count=6, replication_factor=3, rng=random.Random(seed))
    counted = Counter(replica for replicas in placed for replica in replicas)
    assert counted == {0: 6, 1: 6, 2: 3, 3: 3}


class SlowRack(placement._Rack):
    """The rules of a rack, as they are said: the first of those with the fewest."""

    def shuffle(self, rng):
        rng.shuffle(self._active)
        rng.shuffle(self._fenced)

    def take_leader(self):
        if not self._active:
            return None
        chosen = min(self._active, key=lambda i: (self._leaders[i], self._replicas[i]))
        self._leaders[chosen] += 1
        self._replicas[chosen] += 1
        return chosen

    def take_follower(self, used, full):
        for brokers in (self._active, self._fenced):
            free = [i for i in brokers if i not in used and self.machines[i] not in full]
            if free:
                chosen = min(free, key=lambda i: (self._replicas[i], -self._leaders[i]))
                self._replicas[chosen] += 1
                return chosen
        return None


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from(["h1", "h2", "h3", None])),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
    st.integers(1, 60),
    st.integers(0, 1000),
)
def test_the_heaps_choose_as_the_rules_say(shape, factor, partitions, seed):
    brokers = [
        UsableBroker(broker_id=100 + at, rack=rack, is_active=is_active, host=host)
        for at, (rack, is_active, host) in enumerate(shape)
    ]

    def placed():
        return place(
            brokers,
            partition_count=partitions,
            replication_factor=factor,
            rng=random.Random(seed),
        )

    found = placed()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(placement, "_Rack", SlowRack)
        assert placed() == found
