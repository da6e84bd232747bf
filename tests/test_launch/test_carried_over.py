"""Files of Apache Kafka: configs that are obeyed, named in the log, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.broker.config.dynamic_config import ignored_configs
from kvorum.launch.cluster.this_machine import plan_cluster
from kvorum.launch.config.kafka_properties import reject_unknown
from kvorum.launch.config.properties import broker_config, controller_config, static_values
from kvorum.launch.config.property_classes import BROKER_NAMES, CONTROLLER_NAMES
from kvorum.metadata.configs.broker_keys import BROKER_CONFIGS
from kvorum.metadata.configs.effective import (
    ConfigSource,
    StaticValue,
    broker_settings,
    shown_settings,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, RESOURCE_BROKER, ClusterImage
from kvorum.metadata.image.records import Config
from kvorum.runtime.errors import ConfigError

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"
NODES = {
    "kvorum.controller.principals": "User:controller-{id}",
    "kvorum.broker.principals": "User:broker-{id}",
}
BROKER: dict[str, Any] = {
    "node.id": 101,
    "cluster.id": CLUSTER_ID,
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.voters": "1@h:1,2@h:2,3@h:3",
    "log.dirs": "/nowhere",
}
CONTROLLER = {**BROKER, "node.id": 1, "listeners": "CONTROLLER://127.0.0.1:9093"}

SERVER_PROPERTIES = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": 8,
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "num.recovery.threads.per.data.dir": "1",
    "log.retention.hours": "168",
    "log.roll.hours": "24",
    "background.threads": "10",
    "queued.max.requests": "500",
    "metric.reporters": "",
    "delete.topic.enable": "false",
    "compression.type": "producer",
    "log.cleaner.threads": "2",
    "sasl.kerberos.min.time.before.relogin": "60000",
    "confluent.balancer.enable": "true",
    "kvorum.allow.unknown.properties": "true",
}
"""The lines of a real one, and a plug-in's."""


def noted(notes: tuple[str, ...]) -> set[str]:
    return {note.split("=")[0].split(" ")[0] for note in notes}


def test_a_real_file_starts_a_broker_and_the_log_names_what_changes_nothing():
    config, broker = broker_config({**BROKER, **SERVER_PROPERTIES})
    assert broker.log_retention_ms == 168 * 3_600_000
    assert broker.log_roll_ms == 24 * 3_600_000
    assert not broker.delete_topic_enable
    assert (broker.socket_send_buffer_bytes, broker.socket_receive_buffer_bytes) == (
        102_400,
        102_400,
    )
    assert noted(config.notes) == {
        "background.threads",
        "confluent.balancer.enable",
        "log.cleaner.threads",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "queued.max.requests",
        "sasl.kerberos.min.time.before.relogin",
    }


def test_the_same_file_starts_a_controller():
    config, controller = controller_config(
        {**CONTROLLER, **SERVER_PROPERTIES, "process.roles": "controller"}
    )
    assert not controller.delete_topic_enable
    assert "log.retention.hours" in noted(config.notes)
    assert not {"delete.topic.enable", "process.roles"} & noted(config.notes)


def test_a_file_without_such_names_has_no_notes():
    assert broker_config(BROKER)[0].notes == ()
    assert controller_config(CONTROLLER)[0].notes == ()


def test_the_schedulers_interval_of_flushes_holds_where_theirs_is_not_given():
    given = {"log.flush.scheduler.interval.ms": 9000}
    assert broker_config({**BROKER, **given})[1].log_flush_interval_ms == 9000
    given["log.flush.interval.ms"] = 5
    assert broker_config({**BROKER, **given})[1].log_flush_interval_ms == 5


@pytest.mark.parametrize(
    ("given", "jitter_ms"),
    [
        ({}, 0),
        ({"log.roll.jitter.hours": 2}, 7_200_000),
        ({"log.roll.jitter.hours": 2, "log.roll.jitter.ms": 5}, 5),
    ],
)
def test_the_jitter_of_segments_may_be_given_in_hours(given: dict[str, Any], jitter_ms: int):
    assert broker_config({**BROKER, **given})[1].log_roll_jitter_ms == jitter_ms


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 5, "log.retention.ms": 9}, 9),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": 2}, -1),
    ],
)
def test_the_finest_unit_of_retention_holds(given: dict[str, Any], retention_ms: int):
    assert broker_config({**BROKER, **given})[1].log_retention_ms == retention_ms


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log.retention.hours": 0}, "log.retention.hours='0' must lie between 1"),
        ({"log.retention.minutes": "soon"}, "log.retention.minutes='soon' must be a whole number"),
        ({"log.retention.hours": 0, "log.retention.ms": 5}, "log.retention.hours='0' must"),
        (
            {"group.consumer.min.session.timeout.ms": 61_000},
            "group.consumer.min.session.timeout.ms=61000 must not be above "
            "group.consumer.max.session.timeout.ms=60000",
        ),
        ({"group.share.max.delivery.count.limit": 26}, "must lie between 5 and 25"),
        (
            {"group.consumer.session.timeout.ms": 6_000},
            "group.consumer.session.timeout.ms=6000 must not be below "
            "group.consumer.min.session.timeout.ms=45000",
        ),
        (
            {
                "group.streams.max.heartbeat.interval.ms": 6_000,
                "group.streams.heartbeat.interval.ms": 7_000,
            },
            "group.streams.heartbeat.interval.ms=7000 must not be above "
            "group.streams.max.heartbeat.interval.ms=6000",
        ),
        (
            {"group.share.min.session.timeout.ms": 5_000, "group.share.session.timeout.ms": 5_000},
            "group.share.heartbeat.interval.ms=5000 must be below "
            "group.share.session.timeout.ms=5000",
        ),
        (
            {"group.streams.num.standby.replicas": 3},
            "must not be above group.streams.max.standby.replicas=2",
        ),
        (
            {
                "group.share.min.record.lock.duration.ms": 30_000,
                "group.share.record.lock.duration.ms": 20_000,
            },
            "must not be below group.share.min.record.lock.duration.ms=30000",
        ),
        (
            {"group.share.max.share.sessions": 100},
            "group.share.max.size=200 must not be above group.share.max.share.sessions=100",
        ),
        ({"log.roll.hours": "-1"}, "log.roll.hours='-1' must lie between 1"),
        ({"num.io.threads": "many"}, "num.io.threads='many' must be a whole number"),
        ({"process.roles": "broker,controller"}, "a node has one role"),
        ({"process.roles": "controller"}, "process.roles='controller' in the file of a broker"),
        ({"authorizer.class.name": "org.apache.X"}, "leave it out, or give org.apache.kafka.meta"),
        ({"super.users": "User:a"}, "have no effect without an authorizer"),
        ({"super.users": "a"}, "'a' is no principal; write User:NAME"),
        ({**NODES}, "have no effect without an authorizer"),
        ({**NODES, "kvorum.broker.principals": ""}, "such as User:broker-{id}; give both"),
        ({**NODES, "kvorum.controller.principals": ""}, "such as User:controller-{id}; give both"),
        ({**NODES, "kvorum.broker.principals": "User:broker"}, "must be one principal with {id}"),
        ({**NODES, "kvorum.broker.principals": "broker-{id}"}, "must be one principal with {id}"),
        ({**NODES, "kvorum.broker.principals": "User:controller-{id}"}, "could have the name of a"),
        # Broker 1 would be User:controller-91, as is controller 91.
        ({**NODES, "kvorum.broker.principals": "User:controller-9{id}"}, "could have the name of"),
        ({"super.users": "User:a,User:b"}, "write semicolons between several: User:a;User:b"),
        ({"super.users": "User:a;User:*"}, "a user named '*', and nobody else; name the users"),
        (
            {"security.inter.broker.protocol": "SSL"},
            "listener.name=SSL: listeners has",
        ),
        (
            {"inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"},
            "name one thing; give only one of them",
        ),
        ({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"}, "a node is a broker or a controller"),
        ({"broker.id": 7}, "broker.id=7 and node.id=101 are names of one thing"),
        ({"remote.log.storage.system.enable": "true"}, "as logs have no remote tier"),
    ],
)
def test_properties_that_would_be_a_lie_are_refused(change: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as error:
        broker_config({**BROKER, **change})
    assert words in str(error.value)


def test_broker_id_is_another_name_of_node_id():
    properties = {name: value for name, value in BROKER.items() if name != "node.id"}
    assert broker_config({**properties, "broker.id": "7"})[0].node_id == 7
    assert broker_config({**BROKER, "broker.id": "101"})[0].node_id == 101
    values = static_values({**properties, "broker.id": "7"})
    assert values["node.id"] == values["broker.id"] == StaticValue("7", True)


CONFIG_OF = pytest.mark.parametrize(
    "config_of",
    [
        lambda given: broker_config({**BROKER, **given})[0],
        lambda given: controller_config({**CONTROLLER, **given})[0],
    ],
    ids=["broker", "controller"],
)
ALLOW = {"kvorum.allow.unknown.properties": "true"}


@CONFIG_OF
def test_names_that_neither_kafka_nor_kvorum_has_are_refused_together_without_their_values(
    config_of,
):
    with pytest.raises(ConfigError) as error:
        config_of({"log.segment.byte": "hunter2", "ranger.plugin.url": "hunter3"})
    assert str(error.value) == (
        "unknown properties 'log.segment.byte' (did you mean 'log.segment.bytes'?), "
        "'ranger.plugin.url'; correct or remove them, or set kvorum.allow.unknown.properties=true "
        "to ignore what belongs to plug-ins of Kafka"
    )


@pytest.mark.parametrize(
    "name",
    [
        "confluent.support.metrics.enable",
        "strimzi.authorization.global.authorizer.prefix",
        "client.quota.callback.static.produce",
        "cruise.control.metrics.reporter.bootstrap.servers",
    ],
)
@CONFIG_OF
def test_the_name_of_a_plug_in_is_a_note_if_unknown_names_are_allowed(config_of, name: str):
    with pytest.raises(ConfigError, match="unknown property"):
        config_of({name: "hunter2", "kvorum.allow.unknown.properties": "false"})
    (note,) = config_of({**ALLOW, name: "hunter2"}).notes
    assert f"{name} is kept and changes nothing: neither Kafka's nor Kvorum's" in note
    assert "hunter2" not in note


@pytest.mark.parametrize(
    "name",
    [
        "zookeeper.connect",
        "zookeeper.ssl.keystore.password",
        "inter.broker.protocol.version",
        "log.message.format.version",
        "port",
    ],
)
@CONFIG_OF
def test_a_property_of_an_older_kafka_is_a_note_without_its_value(config_of, name: str):
    (note,) = config_of({name: "hunter2"}).notes
    assert note == f"{name} is kept and changes nothing: Kafka 4.4 has it no more"


def test_a_note_has_the_nearest_property():
    (note,) = broker_config({**BROKER, **ALLOW, "log.segment.size.mb": "5"})[0].notes
    assert "did you mean 'log.segment.bytes'?" in note


def test_typed_by_hand_an_unknown_name_is_a_mistake():
    names = CONTROLLER_NAMES | BROKER_NAMES
    reject_unknown({"num.io.threads": "8", "log.retention.hours": "1"}, names)
    with pytest.raises(ConfigError) as error:
        reject_unknown({"node.ids": 1, "zebra": 2}, names)
    assert str(error.value) == (
        "unknown property 'node.ids' (did you mean 'node.id'?), unknown property 'zebra'; "
        "a plug-in's property belongs in the node's file, beside "
        "kvorum.allow.unknown.properties=true"
    )


def test_the_launcher_gives_each_role_its_own_settings(tmp_path):
    settings = {
        "log.retention.hours": "2",
        "leader.imbalance.check.interval.seconds": "300",
        "delete.topic.enable": "false",
        "num.io.threads": "4",
    }
    plan = plan_cluster(
        controllers=1, brokers=1, data_dir=str(tmp_path), port=31_000, settings=settings
    )
    controller, broker = (set(settings) & set(node.properties) for node in plan.nodes)
    assert controller == {
        "leader.imbalance.check.interval.seconds",
        "delete.topic.enable",
        "num.io.threads",
    }
    assert broker == {"log.retention.hours", "delete.topic.enable", "num.io.threads"}


def test_every_property_of_the_file_is_a_static_value():
    values = static_values({**BROKER, **SERVER_PROPERTIES})
    for name in (*BROKER, *SERVER_PROPERTIES):
        assert values[name].is_given, name
    assert values["num.io.threads"] == StaticValue("8", True)
    assert not values["log.retention.ms"].is_given


def test_times_of_the_file_are_synonyms_nearest_first():
    key = BROKER_CONFIGS["log.retention.ms"]
    static = static_values({**BROKER, "log.retention.hours": 24, "log.retention.minutes": 77})
    hours = ("log.retention.hours", "24", ConfigSource.STATIC_BROKER)
    minutes = ("log.retention.minutes", "77", ConfigSource.STATIC_BROKER)
    default = ("log.retention.hours", "168", ConfigSource.DEFAULT)

    def found(**own: str) -> list[tuple[str, str | None, ConfigSource]]:
        settings = broker_settings(key, own=own, shared={}, static=static)
        return [(s.name, s.value, s.source) for s in settings]

    assert found() == [minutes, hours, default]
    own_minutes = broker_settings(
        BROKER_CONFIGS["log.retention.minutes"], own={}, shared={}, static=static
    )
    assert [(s.name, s.value, s.source) for s in own_minutes] == [minutes, hours, default]
    only_hours = static_values({**BROKER, "log.retention.hours": 24})
    key_of_minutes = BROKER_CONFIGS["log.retention.minutes"]
    hours_alone = broker_settings(key_of_minutes, own={}, shared={}, static=only_hours)
    assert [s.name for s in hours_alone] == ["log.retention.hours", "log.retention.hours"]
    assert shown_settings("log.retention.minutes", hours_alone) == ()
    own = ("log.retention.ms", "5", ConfigSource.DYNAMIC_BROKER)
    assert found(**{"log.retention.ms": "5"}) == [own, minutes, hours, default]
    held = broker_settings(key, own={}, shared={}, static=static)[0].value_held
    assert held == str(77 * 60_000)
    assert broker_settings(key, own={}, shared={}, static={})[0].value_held == "604800000"


def image_with(*records: Config) -> ClusterImage:
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(end_offset=len(records), epoch=1)


def test_dynamic_configs_that_change_nothing_have_a_line_for_the_log():
    image = image_with(
        Config(RESOURCE_BROKER, "", "num.io.threads", "4"),
        Config(RESOURCE_BROKER, "101", "num.io.threads", "5"),
        Config(RESOURCE_BROKER, "101", "my.plugin", "hunter2"),
        Config(RESOURCE_BROKER, "101", "log.retention.ms", "5"),
        Config(RESOURCE_BROKER, "102", "background.threads", "5"),
    )
    lines = ignored_configs(image, 101)
    assert list(lines) == ["my.plugin", "num.io.threads"]
    assert "num.io.threads=5 is kept and changes nothing" in lines["num.io.threads"]
    assert "hunter2" not in lines["my.plugin"]


@pytest.mark.parametrize("most", [1, 50_000])
def test_a_request_may_make_as_many_records_as_a_batch_holds(most: int):
    name = "kvorum.controller.request.records.max"
    _, controller = controller_config({**CONTROLLER, name: most})
    assert controller.kvorum_controller_request_records_max == most
    for wrong in (0, 50_001):
        with pytest.raises(ConfigError, match=f"{name}={wrong} must lie between 1 and 50000"):
            controller_config({**CONTROLLER, name: wrong})
