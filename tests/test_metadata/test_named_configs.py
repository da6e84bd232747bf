"""Configs of groups and of subscriptions to client metrics: which values may be set."""

from __future__ import annotations

import pytest

from kvorum.metadata.configs.client_metrics_keys import CLIENT_METRICS_CONFIGS
from kvorum.metadata.configs.group_keys import GROUP_CONFIGS, number_of
from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.image import RESOURCE_CLIENT_METRICS, RESOURCE_GROUP
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World


def alter(world, kind, name, key, value, operation=Operation.SET):
    change = ConfigAlteration(
        resource_type=kind,
        resource_name=name,
        operations=(ConfigOperation(name=key, kind=operation, value=value),),
    )
    (result,) = world.ask(AlterConfigs(resources=(change,)))
    return result


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("consumer.session.timeout.ms", 45_000, 60_000),
        ("consumer.heartbeat.interval.ms", 5_000, 15_000),
        ("consumer.assignment.interval.ms", 0, 15_000),
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.partition.max.record.locks", 100, 4_000),
        ("streams.num.standby.replicas", 0, 2),
    ],
)
def test_a_groups_number_lies_within_kafkas_bounds(name, low, high):
    world = World(brokers=())
    for value in (low, high):
        assert alter(world, RESOURCE_GROUP, "g", name, str(value)).error is ErrorCode.NONE
        assert number_of(world.image.configs[RESOURCE_GROUP, "g"], name) == value
    for value in (low - 1, high + 1, "x"):
        refused = alter(world, RESOURCE_GROUP, "g", name, str(value))
        assert refused.error is ErrorCode.INVALID_CONFIG
    assert number_of(world.image.configs[RESOURCE_GROUP, "g"], name) == high


def test_a_controllers_properties_bound_the_configs_of_groups():
    config = ControllerConfig(
        group_consumer_min_session_timeout_ms=10_000, group_streams_max_standby_replicas=3
    )
    world = World(brokers=(), config=config)
    for name, sound, unsound in (
        ("consumer.session.timeout.ms", "10000", "9999"),
        ("streams.num.standby.replicas", "3", "4"),
    ):
        assert alter(world, RESOURCE_GROUP, "g", name, sound).error is ErrorCode.NONE
        assert alter(world, RESOURCE_GROUP, "g", name, unsound).error is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("key", GROUP_CONFIGS.values(), ids=lambda key: key.name)
def test_every_default_of_a_group_may_be_set(key):
    assert alter(World(brokers=()), RESOURCE_GROUP, "g", key.name, key.default).error == 0


@pytest.mark.parametrize(
    ("name", "sound", "unsound"),
    [
        ("share.auto.offset.reset", "by_duration:PT1H30M", "by_duration:PT"),
        ("share.auto.offset.reset", "by_duration:P1DT0.5S", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "earliest", "none"),
        ("errors.deadletterqueue.topic.name", "dlq.orders", "__dlq"),
        ("errors.deadletterqueue.copy.record.enable", "true", "yes"),
        ("share.isolation.level", "read_committed", "serializable"),
        ("share.renew.acknowledge.enable", "false", "no"),
        ("streams.rack.aware.assignment.tags", "zone, rack", "zone,rack,zone"),
        ("streams.task.offset.interval.ms", "15000", "14999"),
        ("streams.num.warmup.replicas", "20", "21"),
        ("streams.acceptable.recovery.lag", "3000000000", "-1"),
        ("consumer.assignor.offload.enable", "false", "no"),
    ],
)
def test_a_groups_word_is_one_of_kafkas(name, sound, unsound):
    world = World(brokers=())
    assert alter(world, RESOURCE_GROUP, "g", name, sound).error is ErrorCode.NONE
    assert alter(world, RESOURCE_GROUP, "g", name, unsound).error is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (RESOURCE_GROUP, ErrorCode.INVALID_CONFIG, "Unknown group config name: no.such"),
        (
            RESOURCE_CLIENT_METRICS,
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: no.such",
        ),
    ],
)
def test_an_unknown_key_is_refused_in_kafkas_words(kind, error, message):
    refused = alter(World(brokers=()), kind, "x", "no.such", "1")
    assert (refused.error, refused.message) == (error, message)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("interval.ms", "100", ErrorCode.NONE),
        ("interval.ms", "3600000", ErrorCode.NONE),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("metrics", "org.apache.kafka.consumer.,org.apache.kafka.producer.", ErrorCode.NONE),
        ("match", "client_id=app-.*, client_software_name=librdkafka", ErrorCode.NONE),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_name=x", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=((\\w{99}){99}){9}", ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_subscriptions_values_are_checked_before_they_are_kept(name, value, error):
    world = World(brokers=())
    assert alter(world, RESOURCE_CLIENT_METRICS, "s", name, value).error is error
    kept = world.image.configs.get((RESOURCE_CLIENT_METRICS, "s"), {})
    assert dict(kept) == ({name: value} if error is ErrorCode.NONE else {})


def test_the_metrics_of_a_subscription_are_a_list_to_append_to():
    world = World(brokers=())
    alter(world, RESOURCE_CLIENT_METRICS, "s", "metrics", "a")
    alter(world, RESOURCE_CLIENT_METRICS, "s", "metrics", "b", Operation.APPEND)
    assert world.image.configs[RESOURCE_CLIENT_METRICS, "s"]["metrics"] == "a,b"
    assert set(CLIENT_METRICS_CONFIGS) == {"interval.ms", "match", "metrics"}
