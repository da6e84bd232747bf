"""A warm cluster: runs one after the other on one running cluster."""

from __future__ import annotations

import dataclasses
import json

import pytest
from confluent_kafka.admin import NewTopic

from kvorum.chaos.experiment_file.experiment import load_experiment, parse_experiment
from kvorum.chaos.experiment_file.shipped import shipped
from kvorum.chaos.experiment_file.steps import Action
from kvorum.chaos.faults import CutLink, KillNode
from kvorum.chaos.live.faults.throttles import Throttle
from kvorum.chaos.live.host.links import ProxyStream
from kvorum.chaos.live.host.packet_filter import why_no_packet_loss
from kvorum.chaos.live.runner import WARM_NOTE, run
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.chaos.outages.milestones import FENCED, METADATA_LOG, Milestone, MilestoneSource
from kvorum.chaos.outages.timeline import build_timeline
from kvorum.chaos.targets import parse_target
from kvorum.chaos.workloads.clients import open_admin
from kvorum.runtime.errors import ConfigError, KvorumError
from kvorum.runtime.fault_board import HEALTHY, Conditions

from .short_experiments import shares
from .warm_cluster import WarmCluster, shape_of

EXPERIMENT = """\
title: on a warm cluster
configuration:
  controllers: 1
  brokers: 2
  topic: {partitions: 2}
  workload: {records_per_second: 200}
  warm_up_ms: 0
  cool_down_ms: 0
method:
- kill: {target: "leader:orders/0", duration_ms: 500}
"""
BROKER = parse_target("broker-101")


def test_every_short_experiment_is_in_one_share():
    names = [one.name for share in shares() for one in share]
    assert sorted(names) == [one.name for one in shipped() if "short" in one.tags]
    seconds = [sum(one.seconds for one in share) for share in shares()]
    assert abs(seconds[0] - seconds[1]) < 30


def test_only_what_a_running_cluster_cannot_change_makes_another_shape():
    configuration = parse_experiment("x", EXPERIMENT).configuration
    assert shape_of(configuration) == (1, 0, 2, ())
    for other in ({"brokers": 3}, {"voters": 1}, {"settings": (("a", "b"),)}):
        assert shape_of(dataclasses.replace(configuration, **other)) != shape_of(configuration)
    assert shape_of(dataclasses.replace(configuration, seed=9)) == shape_of(configuration)


def test_the_decisions_of_earlier_runs_are_none_of_this_one():
    fenced = [Milestone(wall_ms=wall_ms, what=FENCED, broker=101) for wall_ms in (900, 1_100)]
    source = MilestoneSource(milestones=2, source=METADATA_LOG)
    timeline = build_timeline([], milestones=(source, fenced), wall_start_ms=1_000)
    assert [time_ms for time_ms, _ in timeline.milestones] == [100]


def test_a_warm_cluster_is_one_of_kvorum(tmp_path):
    choice = dataclasses.replace(choose_system("kvorum"), name="kafka")
    cluster = WarmCluster(choice, parse_experiment("x", EXPERIMENT).configuration, tmp_path)
    with pytest.raises(ConfigError, match="one of Kvorum, not of 'kafka'"):
        cluster.__enter__()


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_cluster_with_any_fault_left_is_not_whole(tmp_path):
    configuration = parse_experiment("x", EXPERIMENT).configuration
    with WarmCluster(choose_system("kvorum"), configuration, tmp_path / "warm") as cluster:
        cluster.await_whole()
        opened = cluster._opened
        board = opened.system.fault_boards["broker-102"]
        board.set(Conditions(clock_offset_ms=5))
        assert "broker-102 has Conditions" in cluster.why_not_whole()
        board.set(HEALTHY)
        link, *_ = (link for link in opened.system.plan.links if link.destination == "broker-102")
        opened.toxiproxy.set_enabled(link, enabled=False)
        assert cluster.why_not_whole() == f"the proxy {link.name} is disabled"
        opened.toxiproxy.reset()
        admin = open_admin(opened.system.bootstrap())
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(10)
        throttle = Throttle(opened.system, 1_000)
        throttle.set({("orders", 0): ([101], [])})
        assert cluster.why_not_whole() == "broker-101 has the throttle 1000"
        throttle.clear()
        if why_no_packet_loss() is None:
            opened.packets.lose("fault_7", [(link, ProxyStream.UPSTREAM)], loss_percent=1)
            assert cluster.why_not_whole() == "packets are dropped by the rules fault_7"
            opened.packets.stop("fault_7")
        cluster.await_whole()


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_run_that_breaks_off_leaves_a_whole_cluster_to_the_next(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    configuration = load_experiment(str(file)).configuration

    def break_off(nemesis, _):
        cut = CutLink(source=parse_target("clients"), destination=BROKER)
        nemesis.begin(Action(name="cut", fault=cut))
        nemesis.begin(Action(name="kill", fault=KillNode(target=BROKER)))
        assert cluster.why_not_whole()
        raise KvorumError("broken off by the test")

    with WarmCluster(choose_system("kvorum"), configuration, tmp_path / "warm") as cluster:
        broken = run(str(file), output_dir=str(tmp_path / "1"), warm=cluster, carry_out=break_off)
        assert broken.verdict == "inconclusive"
        assert "the run ended early: KvorumError: broken off by the test" in broken.reasons
        cluster.await_whole()
        with pytest.raises(KvorumError, match=r"has x-1\.orders already; choose another prefix"):
            run(str(file), output_dir=str(tmp_path / "2"), warm=cluster)
        result = run(str(file), output_dir=str(tmp_path / "3"), warm=cluster, seed=2)
        assert result.verdict == "passed", result.reasons
        report = json.loads((tmp_path / "3" / "report.json").read_text())
        assert report["cluster"] == "warm" and WARM_NOTE in report["notes"]
        assert "divergent-replicas" not in {check["check"] for check in report["checks"]}
        file.write_text(EXPERIMENT.replace("brokers: 2", "brokers: 3"))
        with pytest.raises(ConfigError, match="run it on a cluster of its own"):
            run(str(file), output_dir=str(tmp_path / "4"), warm=cluster)
        with pytest.raises(KvorumError, match="its replicas are compared when it stops"):
            cluster.compare_replicas()
    compared = cluster.compare_replicas()
    assert compared.examined > 0 and compared.count == 0
