"""The fault `elect_leaders` gives partitions back to their preferred replicas."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from kvorum import Cluster
from kvorum.chaos.faults import ElectPreferredLeaders
from kvorum.chaos.history import FAULT_BEGIN, HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults import administration
from kvorum.chaos.live.faults.administration import away_from_preferred, elect_preferred
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.protocol import RUNNING, Capability, Node
from kvorum.chaos.targets import PartitionView, TargetView, UnresolvableTarget
from kvorum.runtime.errors import ErrorCode

FIRST, SECOND = "broker-101", "broker-102"


def partition(leader: str | None, *isr: str) -> PartitionView:
    return PartitionView(leader=leader, replicas=(FIRST, SECOND), isr=isr)


def view_of(**partitions: PartitionView) -> TargetView:
    return TargetView(
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
    """A system with one broker that does not run. An election must not go through its proxies: an
    operator's requests go past them."""

    topic_prefix = "run."
    plan = SimpleNamespace(brokers=(FIRST,))
    paused: frozenset[str] = frozenset()

    def nodes(self) -> list[Node]:
        return [
            Node(
                name=FIRST, node_id=101, is_controller=False, pid=None, state=RUNNING,
                listener="127.0.0.1:1", log_file="",
            )
        ]  # fmt: skip


def injector_of(view: TargetView, path: str) -> Injector:
    history = HistoryWriter(path, run_id="1", system="kvorum")
    return Injector(
        system=System(), toxiproxy=None, history=history, view=lambda: view, rng=random.Random(1)
    )


def test_an_election_is_over_at_once_and_names_the_brokers_that_lose_the_lead(
    monkeypatch, tmp_path
):
    asked = []
    monkeypatch.setattr(administration, "elect_preferred", lambda _, keys: asked.append(keys))
    path = str(tmp_path / "h.jsonl")
    injector = injector_of(view_of(orders=partition(SECOND, FIRST, SECOND)), path)
    injected = injector.inject("elect", ElectPreferredLeaders())
    assert asked == [[("run.orders", 0)]]
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


def test_an_election_that_no_broker_answers_is_refused_and_leaves_nothing(tmp_path):
    view = view_of(orders=partition(SECOND, FIRST, SECOND))
    injector = injector_of(view, str(tmp_path / "h"))
    refusal = r"no preferred leader was elected: no broker answered .* broker-101: .*refused"
    with pytest.raises(UnresolvableTarget, match=refusal):
        injector.inject("elect", ElectPreferredLeaders())
    assert injector.active() == []
    injector._history.close()


@pytest.mark.parametrize(
    ("codes", "refusal"),
    [
        ([ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED], ""),
        ([ErrorCode.ELECTION_NOT_NEEDED] * 2, "run.orders/0: ELECTION_NOT_NEEDED; run.orders/1:"),
    ],
)
def test_an_election_that_elects_nobody_is_refused(monkeypatch, codes, refusal):
    rows = [SimpleNamespace(partition_id=at, error_code=code) for at, code in enumerate(codes)]
    topic = SimpleNamespace(topic="run.orders", partition_result=rows)
    answer = SimpleNamespace(error_code=0, replica_election_results=[topic])
    monkeypatch.setattr(administration, "ask_any_broker", lambda *_: answer)
    keys = [("run.orders", 0), ("run.orders", 1)]
    if not refusal:
        elect_preferred(System(), keys)
        return
    with pytest.raises(UnresolvableTarget, match=refusal):
        elect_preferred(System(), keys)


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
