"""The fault `elect_leaders` gives partitions back to their preferred replicas."""

from __future__ import annotations

import random

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment.history import FAULT_BEGIN, HistoryWriter, details_of, read_history
from kvorum.chaos.faults import ElectPreferredLeaders
from kvorum.chaos.live import administration
from kvorum.chaos.live.administration import away_from_preferred
from kvorum.chaos.live.injector import Injector
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import ClusterView, PartitionView, UnresolvableTarget

FIRST, SECOND = "broker-101", "broker-102"


def partition(leader: str | None, *isr: str) -> PartitionView:
    return PartitionView(leader=leader, replicas=(FIRST, SECOND), isr=isr)


def view_of(**partitions: PartitionView) -> ClusterView:
    return ClusterView(
        controllers=("controller-1",),
        brokers=(FIRST, SECOND),
        partitions={(topic, 0): view for topic, view in partitions.items()},
    )


def test_only_partitions_move_whose_preferred_replica_is_in_sync_and_does_not_lead():
    view = view_of(
        moving=partition(SECOND, FIRST, SECOND),
        led_by_the_first=partition(FIRST, FIRST, SECOND),
        first_out_of_sync=partition(SECOND, SECOND),
        without_a_leader=partition(None, FIRST),
    )
    assert list(away_from_preferred(view)) == [("moving", 0)]


class System:
    topic_prefix = "run."

    def bootstrap(self) -> str:
        return "127.0.0.1:1"


def injector_of(view: ClusterView, path: str) -> Injector:
    history = HistoryWriter(path, run_id="1", system="kvorum")
    return Injector(
        system=System(), toxiproxy=None, history=history, view=lambda: view, rng=random.Random(1)
    )


def test_an_election_is_over_at_once_and_names_the_brokers_that_lose_the_lead(
    monkeypatch, tmp_path
):
    asked = []
    monkeypatch.setattr(
        administration, "elect_preferred", lambda *arguments: asked.append(arguments)
    )
    path = str(tmp_path / "h.jsonl")
    injector = injector_of(view_of(orders=partition(SECOND, FIRST, SECOND)), path)
    injected = injector.inject("elect", ElectPreferredLeaders())
    assert asked == [("127.0.0.1:1", [("run.orders", 0)])]
    assert injected.nodes == (SECOND,)
    assert injector.active() == []
    injector._history.close()
    begun, ended = read_history(path)
    assert begun.f == FAULT_BEGIN and details_of(begun)["led_partitions"] == [0]
    assert details_of(ended)["id"] == details_of(begun)["id"]


def test_an_election_without_anything_to_elect_is_refused(tmp_path):
    injector = injector_of(view_of(o=partition(FIRST, FIRST, SECOND)), str(tmp_path / "h"))
    with pytest.raises(UnresolvableTarget, match="led by its preferred replica"):
        injector.inject("elect", ElectPreferredLeaders())
    injector._history.close()


def test_an_election_that_no_broker_answers_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("kvorum.chaos.live.administration._TIMEOUT_S", 0.2)
    view = view_of(orders=partition(SECOND, FIRST, SECOND))
    injector = injector_of(view, str(tmp_path / "h"))
    with pytest.raises(UnresolvableTarget, match="no preferred leader was elected"):
        injector.inject("elect", ElectPreferredLeaders())
    assert injector.active() == []
    injector._history.close()


def test_an_election_needs_the_capability():
    assert needs_of(ElectPreferredLeaders()) == {Capability.ELECT_LEADERS}


@pytest.mark.live
@pytest.mark.timeout(120)
def test_partitions_that_a_restart_moved_come_back_to_their_preferred_replicas(tmp_path):
    with Cluster(
        controllers=1, brokers=2, directory=tmp_path, proxies=False, metrics=False
    ) as cluster:
        topic = cluster.create_topic("orders", partitions=4, replication_factor=2)

        def displaced() -> int:
            return sum(
                view.leader != view.replicas[0] for view in cluster.state().partitions_of(topic)
            )

        assert displaced() == 0
        with cluster.fault("kill", target=FIRST):
            cluster.wait_until("all-led")
        cluster.wait_until("isr-full")
        assert displaced() == 2
        assert cluster.inject("elect_leaders").nodes == (SECOND,)
        cluster.wait_until(lambda: displaced() == 0, what="every preferred replica leads")
