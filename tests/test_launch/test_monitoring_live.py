"""A real Prometheus over a live cluster under load: every expression of the dashboards has a value.

The expressions are those of our dashboard, and those of Strimzi's dashboards and alert rules that
can have a value (`strimzi_facts`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.live.clients import Load, Topics, settings
from tests.live.observed_cluster import MONITORING, ObservedCluster, Prometheus, program
from tests.polling import eventually
from tests.test_launch.strimzi_facts import KAFKA, KRAFT, RULES, Asked

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        program("prometheus") is None,
        reason="no prometheus; deploy/setup.sh fetches it on Debian as root",
    ),
]
NODES = 6
TOPIC = "seen"


class Watched:
    """The cluster, its load, and a Prometheus for each shipped configuration."""

    def __init__(self, cluster: ObservedCluster, own: Prometheus, kafka: Prometheus) -> None:
        self.cluster = cluster
        self.own = own
        self.kafka = kafka


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("monitoring")
    cluster = ObservedCluster(folder, names="kvorum,kafka")
    servers: list[Prometheus] = []
    load = consumer = None
    try:
        cluster.wait_ready()
        topics = Topics(cluster.made.bootstrap)
        topics.create(TOPIC, partitions=3)
        for config, shift in (("prometheus.yml", 0), ("kafka-relabel.yml", 1)):
            server = Prometheus(folder / config, cluster, config, shift=shift)
            servers.append(server)
            eventually(lambda server=server: server.is_up(NODES), "all nodes are scraped")
        load = Load(cluster.made.bootstrap, TOPIC, partitions=3)
        load.wait_more()
        consumer = Consumer(
            settings(
                cluster.made.bootstrap,
                **{"group.id": "readers", "auto.offset.reset": "earliest"},
            )
        )
        consumer.subscribe([TOPIC])
        eventually(lambda: consumer.poll(0.2) is not None, "records are consumed")
        commit_a_transaction(cluster.made.bootstrap)
        cause_an_error(cluster.made.bootstrap)
        # More metadata for the rates of the quorum, once Prometheus looks.
        topics.create("later")
        yield Watched(cluster, *servers)
    finally:
        if consumer is not None:
            consumer.close()
        if load is not None:
            load.abandon()
        for server in servers:
            server.close()
        cluster.close()


def commit_a_transaction(bootstrap: str) -> None:
    producer = Producer(settings(bootstrap, **{"transactional.id": "one"}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"v")
    producer.commit_transaction(30)


def cause_an_error(bootstrap: str) -> None:
    """A record without a key for a compacted topic."""
    Topics(bootstrap).create("compacted", **{"cleanup.policy": "compact"})
    refused: list[str] = []
    producer = Producer(settings(bootstrap))
    producer.produce("compacted", b"v", on_delivery=lambda e, _: refused.append(e.name()))
    producer.flush(30)
    assert refused == ["INVALID_RECORD"]


def own_expressions() -> list[str]:
    board = json.loads((MONITORING / "kvorum.json").read_text(encoding="utf-8"))
    texts = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    return [t.replace("$__rate_interval", "1m").replace("$topic", ".*") for t in texts]


@pytest.mark.parametrize("expression", own_expressions())
def test_every_expression_of_our_dashboard_has_a_value(watched: Watched, expression: str) -> None:
    def has_number() -> bool:
        return any(series["value"][1] != "NaN" for series in watched.own.query(expression))

    eventually(has_number, expression)


def query_of(asked: Asked) -> str:
    selected = ", ".join(f'{label}!=""' for label in asked.labels)
    text = f"{asked.metric}{{{selected}}}"
    return f"irate({text}[5m])" if asked.is_rate else text


@pytest.mark.parametrize("asked", sorted({*KAFKA, *KRAFT, *RULES}), ids=lambda asked: asked.metric)
def test_every_metric_of_strimzis_dashboards_and_rules_has_a_value(
    watched: Watched, asked: Asked
) -> None:
    eventually(lambda: bool(watched.kafka.query(query_of(asked))), query_of(asked))


def test_labels_are_as_strimzis_variables_take_them_apart(watched: Watched) -> None:
    found = watched.kafka.query("kafka_server_replicamanager_leadercount")
    assert {series["metric"]["kubernetes_pod_name"] for series in found} == {
        f"my-cluster-broker-{broker}" for broker in (101, 102, 103)
    }
    assert {series["metric"]["strimzi_io_cluster"] for series in found} == {"my-cluster"}


def test_the_figures_agree_with_the_cluster(watched: Watched) -> None:
    def value(expression: str) -> float:
        return float(watched.own.query(expression)[0]["value"][1])

    assert value("sum(kvorum_controller_is_active)") == 1
    assert value("count(kvorum_raft_state)") == NODES
    clocks = "kvorum_raft_follower_clock_ahead_seconds"
    assert value(f"count({clocks})") == NODES - 1  # all but the leader, on the leader
    assert value(f"max(abs({clocks}))") < 10
    cluster, led = "max(kvorum_metadata_partitions)", "sum(kvorum_broker_replicas_led)"
    eventually(lambda: value(led) == value(cluster) >= 5, "each partition is led by one broker")
    errors = 'sum(kvorum_request_errors_total{api="Produce", error="INVALID_RECORD"})'
    eventually(lambda: value(errors) >= 1, "the refused record is counted")


def test_a_healthy_cluster_under_load_has_no_alert(watched: Watched) -> None:
    firing = [a["metric"] for a in watched.own.query('ALERTS{alertstate="firing"}')]
    assert firing == []


def test_a_dead_broker_meets_the_conditions_of_strimzis_rules(watched: Watched) -> None:
    """The last test of this module: the broker stays dead."""
    under_replicated = "kafka_server_replicamanager_underreplicatedpartitions > 0"
    is_down = 'up{strimzi_io_component_type="kafka"} == 0'
    abnormal = (
        "sum(kafka_controller_kafkacontroller_activecontrollercount)"
        " by (strimzi_io_name, namespace) != 1"
    )
    for condition in (under_replicated, is_down, abnormal):
        assert watched.kafka.query(condition) == []
    watched.cluster.made.kill("broker-103")
    for condition in (under_replicated, is_down):
        eventually(lambda condition=condition: bool(watched.kafka.query(condition)), condition)
    assert watched.kafka.query(abnormal) == []
