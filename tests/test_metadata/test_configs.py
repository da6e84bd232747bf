"""Decisions about configs: operations, both forms of request, and a refusal of its own for each."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.quotas.replication_quota import parse_throttled
from kvorum.metadata.configs.config_keys import TOPIC_CONFIGS
from kvorum.metadata.configs.model import ConfigKey, ConfigType, parse
from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX
from kvorum.metadata.controller.decide.configs import alter_configs
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import RESOURCE_BROKER, RESOURCE_TOPIC
from kvorum.metadata.image.records import Config
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

SET, DELETE, APPEND, SUBTRACT = Operation

LIST_KEY = ConfigKey(
    name="test.list",
    type=ConfigType.LIST,
    default="a,b",
    documentation="For tests: no served key of topics is a list of free items.",
)


def op(name, kind, value=None):
    return ConfigOperation(name=name, kind=kind, value=value)


def change(*operations, topic="t", kind=RESOURCE_TOPIC):
    return ConfigAlteration(resource_type=kind, resource_name=topic, operations=operations)


def broker(name, *operations):
    return change(*operations, topic=name, kind=RESOURCE_BROKER)


def world_with_topic():
    world = World()
    world.create("t")
    return world


def alter(world, *resources, **fields):
    return world.ask(AlterConfigs(resources=resources, **fields))


def test_set_and_delete_change_their_own_keys_only():
    world = world_with_topic()
    alter(world, change(op("retention.ms", SET, "5"), op("segment.ms", SET, "7")))
    (result,) = alter(world, change(op("retention.ms", DELETE)))
    assert (result.error, result.resource_type, result.resource_name) == (ErrorCode.NONE, 2, "t")
    assert dict(world.image.topic_configs("t")) == {"segment.ms": "7"}


def test_a_replacement_removes_what_it_does_not_name():
    world = world_with_topic()
    alter(world, change(op("retention.ms", SET, "5"), op("segment.ms", SET, "7")))
    alter(world, change(op("segment.ms", SET, "8")), is_replacement=True)
    assert dict(world.image.topic_configs("t")) == {"segment.ms": "8"}
    alter(world, change(), is_replacement=True)
    assert not world.image.configs


def test_a_change_that_changes_nothing_writes_nothing():
    world = world_with_topic()
    alter(world, change(op("retention.ms", SET, "5")))
    written = len(world.records)
    alter(world, change(op("retention.ms", SET, "5"), op("segment.ms", DELETE)))
    assert len(world.records) == written


def test_validate_only_answers_as_if_and_writes_nothing():
    world = world_with_topic()
    before = world.image
    good, bad = alter(
        world,
        change(op("retention.ms", SET, "5")),
        broker("", op("num.partitions", SET, "5")),
        validate_only=True,
    )
    assert (good.error, bad.error) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert world.image is before


def test_one_bad_key_refuses_its_resource_whole_and_no_other():
    world = world_with_topic()
    world.create("u")
    bad, good = alter(
        world,
        change(op("retention.ms", SET, "5"), op("segment.ms", SET, "x")),
        change(op("retention.ms", SET, "6"), topic="u"),
    )
    assert (bad.error, good.error) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
    assert "segment.ms" in bad.message
    assert not world.image.topic_configs("t")
    assert dict(world.image.topic_configs("u")) == {"retention.ms": "6"}


def test_brokers_and_their_common_default_are_resources_of_their_own():
    world = World()
    results = alter(
        world,
        broker("", op("max.connections", SET, "10")),
        broker("101", op("max.connections", SET, "20")),
    )
    assert [r.error for r in results] == [ErrorCode.NONE] * 2
    assert dict(world.image.configs[RESOURCE_BROKER, ""]) == {"max.connections": "10"}
    assert dict(world.image.configs[RESOURCE_BROKER, "101"]) == {"max.connections": "20"}


@pytest.mark.parametrize(
    ("resource", "error", "part"),
    [
        (change(topic=""), ErrorCode.INVALID_REQUEST, "Default topic"),
        (change(topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'none'"),
        (broker("x"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (broker("-1"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (broker("0101"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (broker("999"), ErrorCode.BROKER_ID_NOT_REGISTERED, "999"),
        (change(kind=8), ErrorCode.INVALID_REQUEST, "broker loggers"),
        (change(kind=16, topic=""), ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (change(kind=32, topic=""), ErrorCode.INVALID_REQUEST, "Default group resources are not"),
        (change(kind=32, topic="g" * 32_768), ErrorCode.INVALID_REQUEST, "more than 32767"),
        (change(kind=77), ErrorCode.INVALID_REQUEST, "type 77"),
        (
            change(op("retention.ms", SET, "1"), op("retention.ms", DELETE)),
            ErrorCode.INVALID_REQUEST,
            "duplicate config keys: retention.ms",
        ),
        (change(op("retention.ms", 4, "1")), ErrorCode.INVALID_REQUEST, "unknown operation 4"),
        (change(op("retention.ms", SET)), ErrorCode.INVALID_REQUEST, "Null value"),
        (change(op("cleanup.policy", APPEND)), ErrorCode.INVALID_REQUEST, "Null value"),
        (change(op("no.such", SET, "1")), ErrorCode.INVALID_CONFIG, "Unknown topic config"),
        (change(op("no.such", APPEND, "1")), ErrorCode.INVALID_CONFIG, "Unknown topic config"),
        (change(op("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG, "not LIST"),
        (change(op("retention.ms", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG, "not LIST"),
        (change(op("cleanup.policy", APPEND, "shred")), ErrorCode.INVALID_CONFIG, "a list of"),
        (broker("101", op("node.id", SET, "1")), ErrorCode.INVALID_REQUEST, "read-only"),
        (broker("", op("no.such", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG, "not LIST"),
        (broker("", op("queued.max.requests", SET, "1")), ErrorCode.INVALID_REQUEST, "read-only"),
    ],
)
def test_what_is_refused_gets_kafkas_code_a_sentence_and_leaves_no_trace(resource, error, part):
    world = world_with_topic()
    before = world.image
    (result,) = alter(world, resource)
    assert result.error is error
    assert part in result.message
    assert world.image is before


def test_a_resource_that_stands_twice_is_refused_each_time():
    world = world_with_topic()
    results = alter(world, *[change(op("retention.ms", SET, str(i))) for i in range(2)])
    assert [r.error for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert not world.image.configs


def test_a_key_that_this_build_does_not_know_can_still_be_taken_away():
    world = world_with_topic()
    delta = Config(RESOURCE_TOPIC, "t", "key.of.tomorrow", "1")
    image = _replayed(world.image, delta)
    request = AlterConfigs(resources=(change(op("key.of.tomorrow", DELETE)),))
    decision = alter_configs(image, request)
    assert decision.records == (Config(RESOURCE_TOPIC, "t", "key.of.tomorrow", None),)


def test_a_request_has_a_limit_of_changes():
    keys = {
        f"test.{i}": ConfigKey(
            name=f"test.{i}", type=ConfigType.STRING, default="", documentation="For tests."
        )
        for i in range(RECORDS_PER_REQUEST_MAX + 1)
    }
    world = world_with_topic()
    world.create("u")
    with mock.patch.dict(TOPIC_CONFIGS, keys):
        resources = (
            change(*(op(name, SET, "x") for name in keys)),
            change(op("retention.ms", SET, "5"), topic="u"),
        )
        decision = alter_configs(world.image, AlterConfigs(resources=resources))
    assert [r.error for r in decision.reply] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert len(decision.records) == 1


def test_lists_begin_with_the_value_that_holds():
    world = World()
    world.create("t")
    with mock.patch.dict(TOPIC_CONFIGS, {LIST_KEY.name: LIST_KEY}):
        alter(world, change(op("test.list", APPEND, "c,a,c")))
        assert world.image.topic_configs("t")["test.list"] == "a,b,c"
        alter(world, change(op("test.list", SUBTRACT, "b, a")))
        assert world.image.topic_configs("t")["test.list"] == "c"


def test_a_topic_without_a_cleanup_policy_keeps_its_records_for_ever():
    world = World()
    world.create("t", configs=(("cleanup.policy", ""),))
    assert world.image.topic_configs("t")["cleanup.policy"] == ""
    alter(world, change(op("cleanup.policy", APPEND, "compact")))
    assert world.image.topic_configs("t")["cleanup.policy"] == "compact"
    alter(world, change(op("cleanup.policy", SUBTRACT, "compact")))
    assert world.image.topic_configs("t")["cleanup.policy"] == ""
    alter(world, change(op("cleanup.policy", SET, "delete")))
    alter(world, change(op("cleanup.policy", SUBTRACT, "delete")))
    assert world.image.topic_configs("t")["cleanup.policy"] == ""
    alter(world, change(op("cleanup.policy", SET, " ")))
    config = resolve(BrokerConfig(log_retention_bytes=1), world.image.topic_configs("t"))
    assert (config.log.retention_ms, config.log.retention_bytes) == (-1, -1)
    assert config.log.compaction is None and config.cleanup_policies == ()


_VALUES = st.sampled_from(["1", "2", "x", "", "a", "a,b", "b, c ,a", "c"])
_OPERATIONS = st.lists(
    st.builds(
        op,
        st.sampled_from(["retention.ms", "segment.ms", "test.list", "no.such"]),
        st.integers(0, 4),
        st.none() | _VALUES,
    ),
    max_size=4,
)


@given(st.lists(st.tuples(_OPERATIONS, st.booleans()), max_size=6))
def test_operations_come_to_what_a_slow_model_says(requests):
    world = world_with_topic()
    model: dict[str, str] = {}
    with mock.patch.dict(TOPIC_CONFIGS, {LIST_KEY.name: LIST_KEY}):
        for operations, is_replacement in requests:
            (result,) = alter(world, change(*operations), is_replacement=is_replacement)
            wanted = _model(model, operations, is_replacement)
            assert (result.error is ErrorCode.NONE) == (wanted is not None)
            model = model if wanted is None else wanted
            assert dict(world.image.topic_configs("t")) == model


def _model(current, operations, is_replacement):
    """The configs after the operations, or None if one of them cannot be."""
    names = [operation.name for operation in operations]
    if len(set(names)) < len(names):
        return None
    after = {} if is_replacement else dict(current)
    for operation in operations:
        name, kind, value = operation.name, operation.kind, operation.value
        if kind == 1:
            after.pop(name, None)
            continue
        if kind == 4 or value is None or name == "no.such":
            return None
        if kind in (2, 3):
            if name != "test.list":
                return None
            items = [i.strip() for i in current.get(name, "a,b").split(",") if i.strip()]
            for item in [i.strip() for i in value.split(",") if i.strip()]:
                if kind == 2 and item not in items:
                    items.append(item)
                if kind == 3:
                    items = [i for i in items if i != item]
            value = ",".join(items)
        if name != "test.list" and not value.isdigit():
            return None
        after[name] = value
    return after


def _replayed(image, *records):
    delta = Delta(image)
    delta.replay_all(records)
    return delta.apply(end_offset=image.end_offset + len(records), epoch=image.epoch)


LONG = "9" * 5_000
"""More digits than `int()` takes, which raises above 4,300."""


def test_a_number_of_too_many_digits_is_a_refusal():
    """Bad sequence: 1. int() raises in the active controller, which ends. 2. The broker sends the
    request to the next one, which ends too. 3. The quorum has no majority."""
    world = world_with_topic()
    (result,) = alter(world, change(op("retention.ms", SET, LONG)))
    assert result.error == ErrorCode.INVALID_CONFIG
    (result,) = alter(world, broker("101", op("log.retention.ms", SET, f"-{LONG}")))
    assert result.error == ErrorCode.INVALID_REQUEST
    pair = f"{LONG}:{LONG}"
    (result,) = alter(world, change(op("leader.replication.throttled.replicas", SET, pair)))
    assert result.error == ErrorCode.INVALID_CONFIG
    ratio = op("min.cleanable.dirty.ratio", SET, f"{LONG}e{LONG}")
    assert alter(world, change(ratio))[0].error == ErrorCode.INVALID_CONFIG


def test_a_broker_is_not_named_by_too_many_digits():
    (result,) = alter(World(), broker(LONG, op("log.retention.ms", SET, "1")))
    assert result.error == ErrorCode.INVALID_REQUEST


def test_a_stored_number_of_too_many_digits_is_no_value():
    key = TOPIC_CONFIGS["retention.ms"]
    assert parse(key, LONG) is None
    assert parse(key, "0" * 90 + "7") == 7
    assert parse_throttled(f"{LONG}:1,0:{LONG},²:1,0:1").pairs == {(0, 1)}


def test_lags_of_compaction_that_contradict_each_other_are_refused():
    world = world_with_topic()
    (result,) = alter(world, change(op("max.compaction.lag.ms", SET, "5")))
    assert result.error is ErrorCode.NONE
    (result,) = alter(world, change(op("min.compaction.lag.ms", SET, "10")))
    assert result.error is ErrorCode.INVALID_CONFIG
    assert "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)" in result.message
    both = change(op("min.compaction.lag.ms", SET, "10"), op("max.compaction.lag.ms", SET, "10"))
    assert alter(world, both)[0].error is ErrorCode.NONE
    lags = (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5"))
    created = world.create("u", configs=lags)
    assert created.error is ErrorCode.INVALID_CONFIG


def test_what_another_version_let_in_contradicts_nothing():
    world = world_with_topic()
    world.commit(Config(RESOURCE_TOPIC, "t", "min.compaction.lag.ms", "soon"))
    (result,) = alter(world, change(op("max.compaction.lag.ms", SET, "5")))
    assert result.error is ErrorCode.NONE


def test_brokers_keep_names_that_nothing_here_knows_and_give_them_up():
    world = World()
    alter(world, broker("", op("my.plugin", SET, "x"), op("log.cleaner.threads", SET, "4")))
    assert dict(world.image.configs[RESOURCE_BROKER, ""]) == {
        "log.cleaner.threads": "4",
        "my.plugin": "x",
    }
    alter(world, broker("101", op("sasl.kerberos.min.time.before.relogin", SET, "60000")))
    alter(world, broker("101", op("metric.reporters", APPEND, "a.B")))
    assert dict(world.image.configs[RESOURCE_BROKER, "101"]) == {
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,a.B",
        "sasl.kerberos.min.time.before.relogin": "60000",
    }
    alter(world, broker("", op("my.plugin", DELETE), op("log.cleaner.threads", DELETE)))
    assert (RESOURCE_BROKER, "") not in world.image.configs


def test_lists_of_brokers_that_nothing_obeys_begin_with_that_of_all_brokers():
    world = World()
    alter(world, broker("", op("metric.reporters", SET, "a.B")))
    alter(world, broker("101", op("metric.reporters", APPEND, "c.D")))
    assert world.image.configs[RESOURCE_BROKER, "101"]["metric.reporters"] == "a.B,c.D"
