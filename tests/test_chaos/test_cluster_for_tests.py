"""`from kvorum import Cluster` and the plugin of pytest, against real processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer

import kvorum
from kvorum import Cluster
from kvorum.chaos.history import (
    FAULT_BEGIN,
    HISTORY_FILE,
    details_of,
    read_history,
)
from kvorum.chaos.live.host.processes import NotReached, is_alive
from kvorum.chaos.live.host.toxiproxy_server import find_server
from kvorum.chaos.live.systems.protocol import NotObservable
from kvorum.chaos.targets import PartitionView, UnresolvableTarget
from kvorum.chaos.testing.view import ClusterState
from kvorum.runtime.errors import ConfigError, KvorumError
from tests.polling import eventually
from tests.test_chaos.pytest_runs import run_pytest

ROOT = Path(__file__).resolve().parents[2]
live = pytest.mark.live


def has_toxiproxy() -> bool:
    try:
        find_server()
    except ConfigError:
        return False
    return True


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def state(**changes) -> ClusterState:
    brokers = ("broker-101", "broker-102")
    whole = PartitionView(leader="broker-101", replicas=brokers, isr=brokers)
    fields = {
        "nodes": dict.fromkeys(brokers, "running"), "controllers": (), "brokers": brokers,
        "killed": frozenset(), "paused": frozenset(), "active_controller": None,
        "live_brokers": frozenset(brokers), "partitions": {("t.orders", 0): whole}, **changes,
    }  # fmt: skip
    return ClusterState(**fields)


def test_the_package_gives_the_cluster_by_name_and_nothing_else():
    assert kvorum.Cluster is Cluster
    with pytest.raises(AttributeError, match="no attribute 'Clusters'"):
        _ = kvorum.Clusters  # type: ignore[attr-defined]


def test_a_state_says_what_is_not_well():
    assert state().is_whole and state().is_isr_full
    assert not state(live_brokers=frozenset({"broker-101"})).is_whole
    assert not state(nodes={"broker-101": "paused", "broker-102": "running"}).is_whole
    killed = state(nodes={"broker-101": "killed", "broker-102": "running"})
    assert not killed.is_led() and not killed.is_isr_full
    shrunk = PartitionView(leader=None, replicas=("broker-101", "broker-102"), isr=())
    ill = state(partitions={("orders", 3): shrunk})
    assert not ill.is_led() and ill.is_led("other") and not ill.is_isr_full


def test_a_target_may_leave_the_topic_prefix_out_unless_another_topic_has_the_name():
    own = state().partitions[("t.orders", 0)]
    assert state().view(alias_prefix="t.").partitions[("orders", 0)] == own
    other = PartitionView(leader=None, replicas=(), isr=())
    both = state(partitions={("t.orders", 0): own, ("orders", 0): other})
    assert both.view(alias_prefix="t.").partitions[("orders", 0)] == other


def test_a_cluster_that_is_not_started_says_so():
    for use in (Cluster().nodes, Cluster().heal, lambda: Cluster().bootstrap_servers):
        with pytest.raises(KvorumError, match="not started; use it in a `with` block"):
            use()
    Cluster().stop()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("slow_disk", {"target": "brokers", "sync_delay_ms": 50}),
        ("fill_disk", {"target": "one:brokers"}),
        ("fail_disk", {"target": "one:brokers"}),
        ("stop", {"target": "one:brokers"}),
        ("wipe", {"target": "one:brokers"}),
        ("packet_loss", {"source": "clients", "destination": "brokers", "loss_percent": 5}),
        ("kill", {"target": "one"}),
    ],
)
def test_a_fault_of_a_test_needs_no_duration(name, arguments):
    # The cluster is not started. A fault with valid arguments gets as far as this refusal.
    with pytest.raises(KvorumError, match="not started"), Cluster().fault(name, **arguments):
        pass


@live
def test_the_history_tells_no_duration_of_a_fault_that_has_none(cluster):
    with cluster.fault("pause", target="broker-101"):
        cluster._injecting()._history.flush()
    events = read_history(str(cluster._folder() / HISTORY_FILE))
    begun = [details_of(event) for event in events if event.f == FAULT_BEGIN][-1]
    assert (begun["description"], begun["duration_ms"]) == ("pause broker-101", None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"controllers": 0}, "controllers=0 must lie between 1 and "),
        ({"brokers": 0}, "brokers=0 must lie between 1 and "),
        ({"voters": 4}, "voters=4 must lie between 0 and the number of controllers, 3"),
        ({"voters": -1}, "voters=-1 must lie between 0 and the number of controllers, 3"),
        ({"settings": {"num.partition": "3"}}, "num.partition"),
        ({"settings": {"num.partitions": "three"}}, "num.partitions"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(tmp_path, changes, reason):
    cluster = Cluster(directory=tmp_path / "data", proxies=False, **changes)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        cluster.start()
    assert not (tmp_path / "data").exists()


@live
def test_share_groups_need_no_setting(cluster):
    topic = cluster.create_topic("queue", partitions=1)
    writer = Producer(cluster.client_config())
    consumer = ShareConsumer({**cluster.client_config(), "group.id": "workers"})
    consumer.subscribe([topic])

    def is_read() -> bool:
        writer.produce(topic, b"work")
        writer.flush()
        return any(record.value() == b"work" for record in consumer.poll(0.5))

    eventually(is_read, "a member of a share group gets a record")
    consumer.close()


@live
def test_a_slow_disk_lasts_as_long_as_its_block(cluster):
    with cluster.fault("slow_disk", target="brokers", sync_delay_ms=1) as injected:
        assert set(injected.nodes) == {"broker-101", "broker-102", "broker-103"}
    assert set(injected.hits) == set(injected.nodes)


@live
def test_a_fault_lasts_as_long_as_its_block(cluster):
    topic = cluster.create_topic("one", partitions=2)
    with cluster.fault("kill", target=f"leader:{topic}/0") as injected:
        (struck,) = injected.nodes
        assert {node.name: node.state for node in cluster.nodes()}[struck] == "killed"
        cluster.wait_until("all-led")
        assert cluster.state().partitions_of(topic)[0].leader != struck
        assert f"\n  {topic}/0: leader broker-" in cluster.report()
    cluster.wait_until("all-alive")
    cluster.wait_until("isr-full")


@live
def test_a_report_tells_the_ends_of_faults_and_forgets_those_that_are_over(cluster):
    cluster.heal()
    cluster.forget_faults()
    cluster.pause("broker-101")
    cluster.kill("controller-1")
    cluster.resume()
    faults = [line for line in cluster.report().splitlines() if re.match(r"  \d\d:", line)]
    assert [re.sub(r"\d\d:\d\d:\d\d", "T", line.strip()) for line in faults] == [
        "T pause broker-101 [broker-101], ended T",
        "T kill controller-1 [controller-1], in force",
        "T resume paused",
    ]
    cluster.forget_faults()
    assert "pause broker-101" not in cluster.report()
    assert "kill controller-1 [controller-1], in force" in cluster.report()
    cluster.heal()
    cluster.wait_until("all-alive")


@live
def test_killed_and_paused_nodes_come_back(cluster):
    (killed,) = cluster.kill("one:controllers")
    (paused,) = cluster.pause("one:brokers")
    states = cluster.state().nodes
    assert (states[paused], states[killed]) == ("paused", "killed")
    cluster.resume()
    cluster.restart()
    cluster.wait_until("all-alive")


def leaders_of(cluster: Cluster, topic: str) -> list[str | None]:
    try:
        return [view.leader for view in cluster.state().partitions_of(topic)]
    except NotObservable:
        return ["broker-102"]


@live
@pytest.mark.skipif(not has_toxiproxy(), reason="needs toxiproxy-server")
def test_links_are_cut_slowed_and_healed(cluster):
    topic = cluster.create_topic("cut", partitions=3)
    cluster.isolate("broker-102")
    cluster.wait_until(lambda: "broker-102" not in leaders_of(cluster, topic))
    cluster.cut("broker-101", "broker-103", both_ways=True)
    cluster.slow("clients", "brokers", latency_ms=5)
    assert cluster.heal() is None
    cluster.wait_until("all-alive")


@live
def test_metrics_and_logs_are_those_of_the_node(cluster):
    # An earlier test cut nodes off: the last of them may come back into service only now.
    cluster.wait_until(lambda: cluster.metrics("broker-101")["kvorum_metadata_brokers_active"] == 3)
    assert "broker" in cluster.logs("broker-101")
    with pytest.raises(KvorumError, match=r"broker-9 has no metrics \(nodes with metrics: contr"):
        cluster.metrics("broker-9")


@live
def test_a_wait_in_vain_shows_the_cluster(cluster):
    with pytest.raises(NotReached, match=r"(?s)a miracle: not so within 100 ms.*--- broker-101"):
        cluster.wait_until(lambda: False, timeout_s=0.1, what="a miracle")


@live
@pytest.mark.parametrize(
    ("act", "error", "sentence"),
    [
        (lambda c: c.inject("kil", target="one"), ConfigError, "did you mean 'kill'?"),
        (lambda c: c.kill("leadr:x/0"), ConfigError, "did you mean leader?"),
        (lambda c: c.inject("kill", node="x"), ConfigError, "unknown argument 'node'"),
        (lambda c: c.kill("leader:none/0"), UnresolvableTarget, "no partition none/0"),
        (lambda c: c.wait_until("isr-ful"), ConfigError, "did you mean 'isr-full'?"),
        (lambda c: c.create_topic("a b"), KvorumError, "topic a b cannot be created"),
        (lambda c: c.start(), KvorumError, "the cluster is started already"),
    ],
)
def test_what_cannot_be_is_one_sentence(cluster, act, error, sentence):
    with pytest.raises(error) as refused:
        act(cluster)
    assert sentence in str(refused.value)


@live
def test_without_proxies_a_fault_of_links_is_refused_and_nothing_is_left_behind():
    async def use() -> tuple[list[int], str]:
        async with Cluster(controllers=1, brokers=1, proxies=False, metrics=False) as cluster:
            with pytest.raises(KvorumError, match="which this cluster does not have; faults of l"):
                cluster.slow("clients", "brokers", latency_ms=1)
            cluster.kill("broker-101")
            cluster.restart()
            nodes = cluster.nodes()
            return [node.pid for node in nodes if node.pid], nodes[0].log_file

    pids, log_file = asyncio.run(use())
    assert len(pids) == 2 and not any(is_alive(pid) for pid in pids)
    assert not Path(log_file).exists()


@live
def test_the_example_project_passes_its_own_tests():
    done = run_pytest(ROOT / "examples" / "orders")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


@live
def test_a_failed_test_has_the_report_and_leaves_a_whole_cluster_to_the_next(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nkvorum_controllers = 1\nkvorum_brokers = 1\n")
    (tmp_path / "test_it.py").write_text(
        "def test_zero(kvorum):\n"
        "    kvorum.pause('broker-101')\n"
        "def test_first(kvorum):\n"
        "    assert kvorum.create_topic('orders') == 'test_first.orders'\n"
        "    kvorum.kill('leader:orders/0')\n"
        "    assert False\n"
        "def test_second(kvorum):\n"
        "    assert kvorum.state().is_whole\n"
        "    assert not kvorum.state().partitions\n"
    )
    done = run_pytest(tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "- kvorum -" in done.stdout and "kill leader:orders/0 [broker-101], in" in done.stdout
    # The fault of the test before is over, and does not belong to this test.
    assert "pause broker-101" not in done.stdout


@live
def test_without_the_extra_the_fixture_says_how_to_get_it(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(kvorum):\n    pass\n")
    code = "import sys, pytest; sys.modules['msgspec'] = None; sys.exit(pytest.main(['-q']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, done.stdout
    assert "needs msgspec: pip install 'kvorum[chaos]'" in done.stdout


@live
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kvorum_settings = a", "kvorum_settings: 'a' is not KEY=VALUE"),
        ("kvorum_secure = yess", "kvorum_secure must be true or false: "),
    ],
)
def test_a_bad_option_is_refused_by_name(tmp_path, line, words):
    (tmp_path / "test_it.py").write_text("def test_it(kvorum):\n    pass\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{line}\n")
    done = run_pytest(tmp_path)
    assert done.returncode != 0, done.stdout
    assert words in done.stdout + done.stderr
