"""The faults `add_voter` and `remove_voter` change the voters of a quorum that can change."""

from __future__ import annotations

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.experiment_file.operator_faults import impossible_requests
from kvorum.chaos.experiment_file.possible_targets import (
    NodeNames,
    PossibleTargets,
    impossible_targets,
    node_names,
)
from kvorum.chaos.faults import AddVoter, RemoveVoter
from kvorum.chaos.live.faults.voter_changes import members_of
from kvorum.chaos.live.systems.limits import SystemLimits
from kvorum.chaos.live.systems.opening import SystemChoice
from kvorum.chaos.live.systems.protocol import Capability, active_controller
from kvorum.chaos.targets import UnresolvableTarget, parse_target
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually


def problems_of(
    fault: AddVoter | RemoveVoter,
    *,
    controllers: int = 4,
    voters: int = 3,
    nodes: NodeNames | None = None,
) -> str:
    possible = PossibleTargets(
        nodes=nodes or node_names(controllers, 1),
        topic="orders",
        partitions=6,
        replication_factor=1,
        voters=voters,
    )
    return "; ".join(
        problem.message
        for problem in (impossible_targets(fault, possible) or impossible_requests(fault, possible))
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("controller-4", ""),
        ("active-controller", ""),
        ("one:controllers", ""),
        ("controllers", "changes one voter at a time"),
        ("majority", "changes one voter at a time"),
        ("broker-101", "only a controller can vote"),
        ("one:brokers", "only a controller can vote"),
        ("leader:orders/0", "only a controller can vote"),
        ("controller-5", "no node is named"),
    ],
)
def test_a_voter_that_cannot_change_is_refused_when_the_file_is_read(target, reason):
    said = problems_of(RemoveVoter(target=parse_target(target)))
    assert reason in said if reason else not said


@pytest.mark.parametrize("target", ["broker-1", "one:brokers", "leader:orders/0"])
def test_a_broker_that_is_a_controller_too_can_be_a_voter(target):
    both = ("broker-1", "broker-2")
    nodes = NodeNames(controllers=both, brokers=both)
    assert problems_of(RemoveVoter(target=parse_target(target)), nodes=nodes) == ""


def test_a_static_voter_set_refuses_every_change_and_says_what_to_configure():
    fault = AddVoter(target=parse_target("controller-3"))
    assert "give the configuration `voters`" in problems_of(fault, controllers=3, voters=0)


def test_more_voters_than_controllers_are_refused():
    with pytest.raises(ConfigError, match="voters: 4 needs as many controllers; the cluster has 3"):
        parse_experiment("x", "title: t\nconfiguration: {voters: 4}\nmethod:\n- heal:\n")


def test_a_system_without_a_hand_on_the_voters_refuses_their_change():
    text = (
        "title: t\nconfiguration: {controllers: 4, voters: 3}\n"
        "method:\n- add_voter: {target: controller-4}\n"
    )
    choice = SystemChoice(
        name="attached", version="1", capabilities=frozenset({Capability.KILL}), option=""
    )
    with pytest.raises(ConfigError, match=r"added and removed voters.*use kvorum or kafka"):
        parse_experiment("x", text, limits=SystemLimits(choice=choice))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("voters")
    with Cluster(
        controllers=4, voters=3, brokers=1, directory=folder, proxies=False, metrics=False
    ) as cluster:
        yield cluster


def voters(cluster: Cluster) -> dict[int, bytes]:
    return members_of(cluster._running()).voters


def follows(cluster: Cluster, name: str, *, former: bytes | None = None) -> bool:
    """True if the controller fetches as an observer, from another disk than its former one."""
    node_id = int(name.rpartition("-")[2])
    return members_of(cluster._running()).observers.get(node_id) not in (None, former)


@pytest.mark.live
@pytest.mark.timeout(120)
def test_an_observer_becomes_a_voter_and_a_removed_leader_hands_over(cluster):
    assert set(voters(cluster)) == {1, 2, 3}
    with pytest.raises(UnresolvableTarget, match=r"controller-4 is not among the voters \(1, 2, 3"):
        cluster.inject("remove_voter", target="controller-4")
    assert cluster.inject("add_voter", target="controller-4").nodes == ("controller-4",)
    assert set(voters(cluster)) == {1, 2, 3, 4}
    with pytest.raises(UnresolvableTarget, match="controller-4 is a voter already; remove it"):
        cluster.inject("add_voter", target="controller-4")
    (removed,) = cluster.inject("remove_voter", target="active-controller").nodes
    number = int(removed.rpartition("-")[2])
    assert set(voters(cluster)) == {1, 2, 3, 4} - {number}
    eventually(lambda: active_controller(cluster._running()) != removed, "another voter leads")
    eventually(lambda: follows(cluster, removed), "the removed voter follows")
    cluster.inject("add_voter", target=removed)
    cluster.inject("remove_voter", target="controller-4")
    assert set(voters(cluster)) == {1, 2, 3}


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_voter_that_lost_its_disk_is_replaced_by_itself_with_a_new_directory_id(cluster):
    lost = voters(cluster)[2]
    cluster.end(cluster.inject("wipe", target="controller-2", duration_ms=1))
    eventually(lambda: follows(cluster, "controller-2", former=lost), "the new disk follows")
    with pytest.raises(UnresolvableTarget, match="a voter already, with its former disk; remove"):
        cluster.inject("add_voter", target="controller-2")
    cluster.inject("remove_voter", target="controller-2")
    cluster.inject("add_voter", target="controller-2")
    assert set(voters(cluster)) == {1, 2, 3}
    assert voters(cluster)[2] != lost
