"""The table of config keys agrees with Kafka's bounds and with the brokers' classes."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.property_classes import BROKER_CLASSES, NodeProperties
from kvorum.metadata.configs.broker_keys import OTHER_NAMES
from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    VALUE_LENGTH_MAX,
    broker_config_problem,
    topic_config_problem,
)
from kvorum.metadata.configs.model import ConfigKey, ConfigType, Update, parse
from kvorum.metadata.configs.topic_keys import DEAD_LETTERS_ENABLE
from kvorum.runtime.config import property_names
from kvorum.runtime.errors import ErrorCode


def test_the_table_names_exactly_the_properties_that_a_broker_knows():
    names = {*property_names(*BROKER_CLASSES), *(key.name for key in OTHER_NAMES)}
    assert set(BROKER_CONFIGS) == names


def test_defaults_and_types_of_the_table_are_those_that_brokers_start_with():
    for cls in BROKER_CLASSES:
        for field in dataclasses.fields(cls):
            key = BROKER_CONFIGS[field.name.replace("_", ".")]
            if field.default is dataclasses.MISSING:
                assert key.default is None, key.name
                continue
            if key.name == "listener.security.protocol.map":
                continue  # Kafka's default stands for none here
            text = str(field.default)
            if isinstance(field.default, float):
                text = key.canonical(text)
            if isinstance(field.default, bool):
                text = text.lower()
                assert key.type is ConfigType.BOOLEAN
            elif isinstance(field.default, int):
                assert key.type in (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG), key.name
            # Kafka shows null where our classes have an empty text, and no default for a key that
            # has another one behind it.
            assert (key.default or "") == ("" if key.coarser else text), key.name


@pytest.mark.parametrize("key", [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()])
def test_every_default_is_sound_served_and_parses(key: ConfigKey):
    assert key.documentation.endswith(".")
    if key.default is not None:
        assert key.problem(key.default) is None
        assert parse(key, key.default) is not None
    if key.served is not None:
        assert key.default in key.served
        assert key.unserved


def test_what_a_broker_takes_over_while_it_runs_is_a_field_of_its_config():
    fields = {field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig)}
    dynamic = {k.name for k in BROKER_CONFIGS.values() if k.update is not Update.READ_ONLY}
    assert dynamic <= fields
    names = {field.name.replace("_", ".") for field in dataclasses.fields(NodeProperties)}
    assert not dynamic & names


def test_every_served_topic_config_falls_back_to_a_property_of_the_broker():
    for key in TOPIC_CONFIGS.values():
        if key.name.endswith(".throttled.replicas") or key.name == DEAD_LETTERS_ENABLE:
            # They name a topic's own partitions, or what only this topic is for.
            assert key.broker_name not in BROKER_CONFIGS
        elif key.served is None or key.name == "compression.type":
            assert key.broker_name in BROKER_CONFIGS, key.name
            assert BROKER_CONFIGS[key.broker_name].type is key.type


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 5 "),
        ("retention.bytes", "-2"),
        ("segment.bytes", "1048576"),
        ("min.insync.replicas", "2"),
        ("max.message.bytes", "0"),
        ("unclean.leader.election.enable", "TRUE"),
        ("message.timestamp.type", "LogAppendTime"),
        ("cleanup.policy", " delete , delete"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", ""),
        ("cleanup.policy", " "),
        ("min.cleanable.dirty.ratio", ".5f"),
        ("compression.type", "lz4"),
        ("cleanup.policy", "delete,compact"),
        ("delete.retention.ms", "0"),
        ("flush.ms", "1000"),
        ("max.compaction.lag.ms", "1"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("leader.replication.throttled.replicas", ""),
        ("leader.replication.throttled.replicas", "0:101,12:3"),
        ("follower.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "*,"),
        ("leader.replication.throttled.replicas", "0:1,,1:2,"),
    ],
)
def test_sound_values_of_topics(name, value):
    assert topic_config_problem(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("no.such.key", "1", "Unknown topic config name: no.such.key"),
        ("retention.ms", "-2", "must lie between -1 and"),
        ("retention.ms", "many", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "٣", "whole number"),
        ("retention.ms", "", "whole number"),
        ("retention.ms", str(1 << 63), "must lie between"),
        ("segment.bytes", "1048575", "must lie between 1048576 and 2147483647"),
        ("segment.bytes", str(1 << 31), "must lie between"),
        ("min.insync.replicas", "0", "must lie between 1"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("message.timestamp.type", "createtime", "must be one of CreateTime"),
        ("cleanup.policy", "shred", "must be empty or a list of compact, delete"),
        ("cleanup.policy", ",delete", "must be empty or a list of compact, delete"),
        ("cleanup.policy", ",", "must be empty or a list of compact, delete"),
        ("compression.type", "LZ4", "must be one of"),
        ("compression.type", "brotli", "must be one of"),
        ("min.cleanable.dirty.ratio", "1.5", "must lie between 0 and 1"),
        ("min.cleanable.dirty.ratio", "nan", "must be a number"),
        ("preallocate", "perhaps", "must be true or false"),
        ("leader.replication.throttled.replicas", "x", "partition:broker"),
        ("follower.replication.throttled.replicas", "0:1,*", "partition:broker"),
        ("message.timestamp.type", "x" * (VALUE_LENGTH_MAX + 1), "32768 characters"),
    ],
)
def test_values_that_topics_refuse(name, value, part):
    problem = topic_config_problem(name, value)
    assert problem is not None
    assert problem.code is ErrorCode.INVALID_CONFIG
    assert part in problem.message
    assert name in problem.message


@pytest.mark.parametrize(
    ("name", "value", "resource", "part"),
    [
        ("num.io.threads", "0", "", "must lie between 1"),
        ("queued.max.requests", "1", "", "read-only"),
        ("sasl.jaas.config", "x", "", "name a broker"),
        ("no.such.key", "x" * (VALUE_LENGTH_MAX + 1), "", "32768 characters"),
        ("num.partitions", "3", "", "read-only"),
        ("listeners", "PLAINTEXT://x:1", "101", "read-only"),
        ("max.connections", "-1", "101", "must lie between 0"),
        ("producer.id.expiration.ms", "0", "", "must lie between 1"),
        ("log.segment.bytes", "1", "", "must lie between 1048576"),
        ("log.cleanup.policy", "shred", "", "must be empty or a list of compact"),
        ("log.cleanup.policy", "delete, compact,delete", "101", "must not name a value twice"),
        ("log.cleaner.enable", "false", "", "read-only"),
        ("log.cleaner.dedupe.buffer.size", "1", "", "must lie between 1048576"),
        ("unclean.leader.election.enable", "true", "101", "controllers obey it"),
    ],
)
def test_values_that_brokers_refuse_with_kafkas_other_code(name, value, resource, part):
    problem = broker_config_problem(name, value, resource)
    assert problem is not None
    assert problem.code is ErrorCode.INVALID_REQUEST
    assert part in problem.message
    assert name in problem.message


def test_unclean_election_is_for_all_brokers_or_for_a_topic():
    assert broker_config_problem("unclean.leader.election.enable", "true", "") is None
    assert topic_config_problem("unclean.leader.election.enable", "true") is None


def test_a_passwords_value_stands_in_no_message():
    key = ConfigKey(
        name="ssl.key.password",
        type=ConfigType.PASSWORD,
        default=None,
        documentation="A secret.",
        served=(),
        unserved="as there is no TLS",
    )
    assert key.is_sensitive
    assert "hunter2" not in str(key.problem("hunter2"))


@pytest.mark.parametrize(
    ("name", "typed", "shown"),
    [
        ("retention.ms", " 77 ", "77"),
        ("retention.ms", "+1", "1"),
        ("retention.ms", "007", "7"),
        ("retention.ms", "-0", "0"),
        ("retention.ms", "many", "many"),
        ("unclean.leader.election.enable", " TRUE", "true"),
        ("compression.type", " gzip ", "gzip"),
        ("cleanup.policy", " compact , delete , compact", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", " ", ""),
        ("leader.replication.throttled.replicas", " 0:1 , 0:1 ", "0:1,0:1"),
        ("leader.replication.throttled.replicas", ",", ","),
        ("min.cleanable.dirty.ratio", ".5f", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "-0", "-0.0"),
        ("min.cleanable.dirty.ratio", "0.001", "0.001"),
        ("min.cleanable.dirty.ratio", "0.00001", "1.0E-5"),
        ("min.cleanable.dirty.ratio", "0.000123D", "1.23E-4"),
        ("min.cleanable.dirty.ratio", "0.123456789012345678", "0.12345678901234568"),
    ],
)
def test_values_are_shown_as_kafka_parses_them(name, typed, shown):
    assert TOPIC_CONFIGS[name].canonical(typed) == shown


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("1e6", "1000000.0"), ("12345678.9", "1.23456789E7"), ("1e7", "1.0E7")],
)
def test_large_numbers_are_shown_as_java_prints_them(typed, shown):
    key = BROKER_CONFIGS["log.cleaner.io.max.bytes.per.second"]
    assert key.canonical(typed) == shown
    assert key.canonical(key.default) == key.default == "1.7976931348623157E308"
