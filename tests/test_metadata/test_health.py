"""Health of a cluster, and what a node's restart would break."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.metadata.inspect.health import (
    NAMES_SHOWN_MAX,
    VOTER_LAG_MS_MAX,
    ClusterView,
    health_of,
    restart_hazards,
    stopped_by_any_restart,
)

NOW_MS = 1_000_000


def voter(node_id, behind_ms=0):
    return {"node_id": node_id, "last_caught_up_timestamp": NOW_MS - behind_ms}


def partition(number=0, *, leader=101, replicas=(101, 102, 103), isr=(101, 102, 103)):
    return {"partition": number, "leader": leader, "replicas": replicas, "isr": isr}


def view(*partitions, behind=(0, 0), fenced=(), min_isr=2, quorum=True):
    described = {
        "leader_id": 1,
        "leader_epoch": 7,
        "voters": [voter(1), voter(2, behind[0]), voter(3, behind[1])],
        "observers": [voter(node_id) for node_id in (4, 101, 102, 103)],
    }
    return ClusterView(
        quorum=described if quorum else None,
        no_quorum="" if quorum else "no quorum: 1 of 3 voters reachable",
        brokers=[{"broker_id": i, "is_fenced": i in fenced} for i in (101, 102, 103)],
        topics=[{"topic": "t", "partitions": list(partitions) or [partition()]}],
        min_isr={"t": min_isr},
    )


def bad(found):
    return {finding.check: finding.detail for finding in health_of(found) if not finding.is_healthy}


def test_a_whole_cluster_is_healthy():
    assert bad(view()) == {}
    assert [finding.detail for finding in health_of(view())] == [
        "controller 1 leads in epoch 7", "3 of 3 level with the leader", "3 of 3 active",
        "0 of 1 partition", "0 of 1 partition", "0 of 1 partition",
    ]  # fmt: skip


def test_each_illness_is_named_with_its_nodes_and_partitions():
    assert bad(view(fenced=(102,))) == {"brokers": "2 of 3 active; fenced: broker 102"}
    late = VOTER_LAG_MS_MAX + 1
    assert bad(view(behind=(late, late))) == {
        "voters": "1 of 3 level with the leader; behind or down: controllers 2, 3"
    }
    assert bad(view(behind=(VOTER_LAG_MS_MAX, 0))) == {}
    # -1: the voter was never level.
    assert "voters" in bad(view(behind=(NOW_MS + 1, 0)))
    assert bad(view(partition(isr=(101, 102)))) == {"under-replicated": "1 of 1 partition: t-0"}
    assert bad(view(partition(isr=(101,)), partition(1))) == {
        "under min ISR": "1 of 2 partitions: t-0", "under-replicated": "1 of 2 partitions: t-0",
    }  # fmt: skip
    assert bad(view(partition(leader=-1))) == {"offline partitions": "1 of 1 partition: t-0"}


def test_a_topic_with_fewer_replicas_than_its_minimum_needs_all_of_them():
    alone = partition(replicas=(101,), isr=(101,))
    assert bad(view(alone, min_isr=2)) == {}


def test_without_a_leader_the_reason_is_given_and_voters_are_unknown():
    assert bad(view(quorum=False)) == {
        "leader": "no quorum: 1 of 3 voters reachable", "voters": "unknown without a leader",
    }  # fmt: skip
    assert restart_hazards(view(quorum=False), 2) == [
        "the quorum has no leader: no quorum: 1 of 3 voters reachable"
    ]


def test_many_partitions_are_counted_and_the_first_are_named():
    found = bad(view(*(partition(n, isr=(101, 102)) for n in range(NAMES_SHOWN_MAX + 3))))
    assert found["under-replicated"].endswith("t-4 and 3 more")


@pytest.mark.parametrize("node_id", [1, 2, 3, 4, 101, 102, 103])
def test_any_node_of_a_whole_cluster_may_be_restarted(node_id):
    assert restart_hazards(view(), node_id) == []


def test_a_controller_may_not_stop_if_the_rest_is_no_majority():
    late = VOTER_LAG_MS_MAX + 1
    assert restart_hazards(view(behind=(late, 0)), 3) == [
        "without controller 3 1 voter of 3 would be level with the leader, and 2 are needed"
    ]
    # The voter that lags may be restarted, because the majority does not need it now.
    assert restart_hazards(view(behind=(late, 0)), 2) == []


def test_a_broker_may_not_stop_while_another_is_down_or_a_partition_needs_it():
    assert restart_hazards(view(fenced=(102,)), 103) == ["broker 102 is down already"]
    assert restart_hazards(view(fenced=(102,)), 102) == []
    assert restart_hazards(view(partition(isr=(101, 102))), 101) == [
        "1 partition would have too few replicas in sync without broker 101: t-0"
    ]
    assert restart_hazards(view(partition(isr=(101, 102))), 103) == []


def test_a_partition_that_no_wait_could_help_is_no_hazard():
    assert restart_hazards(view(partition(replicas=(101,), isr=(101,))), 101) == []
    pair = partition(replicas=(101, 102), isr=(101, 102))
    assert restart_hazards(view(pair, min_isr=2), 101) == []
    assert restart_hazards(view(pair, min_isr=1), 101) == []
    said = "stops 1 partition without a replica to spare: t-0"
    assert stopped_by_any_restart(view(pair, min_isr=2), 101) == said
    assert stopped_by_any_restart(view(pair, min_isr=1), 101) == ""
    assert stopped_by_any_restart(view(pair, min_isr=2), 103) == ""
    alone = partition(replicas=(101, 102), isr=(101,))
    assert restart_hazards(view(alone, min_isr=1), 101) != []


def test_an_unknown_node_is_named_with_the_known_ones():
    assert restart_hazards(view(), 9) == [
        "the cluster has no node 9; it has 1, 2, 3, 4, 101, 102, 103"
    ]


def test_a_replica_that_a_reassignment_adds_is_no_lack_of_replicas():
    moving = partition(replicas=(101, 102, 103, 104), isr=(101, 102, 103))
    calm = dataclasses.replace(view(moving), reassigning={("t", 0): [104]})
    assert bad(calm) == {}
    assert bad(view(moving)) == {"under-replicated": "1 of 1 partition: t-0"}
    short = partition(replicas=(101, 102, 103, 104), isr=(101, 102))
    ill = dataclasses.replace(view(short), reassigning={("t", 0): [104]})
    assert bad(ill) == {"under-replicated": "1 of 1 partition: t-0"}
