"""Configs and quotas over the wire: described and altered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.properties import static_values
from kvorum.metadata.configs.config_keys import BROKER_CONFIGS, TOPIC_CONFIGS, broker_key
from kvorum.metadata.configs.effective import ConfigSource, StaticValue
from kvorum.metadata.configs.model import ConfigType, Update
from kvorum.metadata.image.features import METADATA_VERSION, REASSIGNMENT_LEVEL
from kvorum.metadata.image.records import Config, FeatureLevel
from tests.test_broker.config_calls import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    TOPIC,
    alter,
    alter_quotas,
    describe,
    describe_quotas,
    entry,
    operate,
    replace,
    synonyms_of,
)
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

CONFIG = BrokerConfig(log_retention_ms=77)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("configs"), count=2, config=CONFIG)
    level = FeatureLevel(METADATA_VERSION, REASSIGNMENT_LEVEL)
    harness.call(lambda: harness.cluster.controller.commit(level))
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    for name in ("", "1"):
        assert replace(client, BROKER, name).error_code is KioError.none
    client.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"configs-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)]))
    return name


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_all_keys_of_a_topic(
    client: RawClient, topic: str, version: int
) -> None:
    result = describe(client, TOPIC, topic, version=version)
    assert result.error_code is KioError.none
    assert [c.name for c in result.configs] == sorted(TOPIC_CONFIGS)
    if version >= 3:
        assert {c.name: c.config_type for c in result.configs} == {
            key.name: key.type for key in TOPIC_CONFIGS.values()
        }
    for config in result.configs:
        assert config.value == (
            "77" if config.name == "retention.ms" else TOPIC_CONFIGS[config.name].default
        )
        assert config.read_only == TOPIC_CONFIGS[config.name].is_fixed


def test_synonyms_name_every_level_nearest_first(client: RawClient, topic: str) -> None:
    file = ("log.retention.ms", "77", ConfigSource.STATIC_BROKER)
    default = ("log.retention.hours", "168", ConfigSource.DEFAULT)
    found = entry(client, TOPIC, topic, "retention.ms")
    assert (found.value, found.config_source) == ("77", ConfigSource.STATIC_BROKER)
    assert synonyms_of(found) == [file, default]
    alter(client, BROKER, "", log_retention_ms="88")
    alter(client, BROKER, "1", log_retention_ms="99")
    shared = ("log.retention.ms", "88", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    own = ("log.retention.ms", "99", ConfigSource.DYNAMIC_BROKER)
    found = entry(client, TOPIC, topic, "retention.ms")
    assert (found.value, found.config_source) == ("99", ConfigSource.DYNAMIC_BROKER)
    assert synonyms_of(found) == [own, shared, file, default]
    alter(client, TOPIC, topic, retention_ms="5")
    found = entry(client, TOPIC, topic, "retention.ms")
    assert (found.value, found.config_source) == ("5", ConfigSource.DYNAMIC_TOPIC)
    nearest = ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC)
    assert synonyms_of(found) == [nearest, own, shared, file, default]
    broker = entry(client, BROKER, "1", "log.retention.ms")
    assert (broker.value, broker.read_only) == ("99", False)
    assert synonyms_of(broker) == [own, shared, file, default]
    (default_of_all,) = describe(client, BROKER, "").configs
    assert synonyms_of(default_of_all) == [shared]


def test_a_coarser_unit_shows_only_beside_the_property_itself(
    client: RawClient, topic: str
) -> None:
    # As Kafka 4.4 answers: the value holds, and no level is named for it.
    for name, behind in (
        ("segment.ms", ("log.roll.ms", "log.roll.hours", "168")),
        ("segment.jitter.ms", ("log.roll.jitter.ms", "log.roll.jitter.hours", "0")),
        ("flush.ms", ("log.flush.interval.ms", "log.flush.scheduler.interval.ms", str(2**63 - 1))),
    ):
        found = entry(client, TOPIC, topic, name)
        assert (found.value, found.config_source) == (
            TOPIC_CONFIGS[name].default,
            ConfigSource.DEFAULT,
        )
        assert synonyms_of(found) == []
        broker = entry(client, BROKER, "1", behind[0])
        assert (broker.value, broker.config_source, synonyms_of(broker)) == (
            None, ConfigSource.DEFAULT, [],
        )  # fmt: skip
        alter(client, BROKER, "", **{behind[0].replace(".", "_"): " 2000 "})
        set_here = (behind[0], " 2000 ", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        levels = [set_here, (*behind[1:], ConfigSource.DEFAULT)]
        found = entry(client, TOPIC, topic, name)
        assert (found.value, found.config_source) == ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert synonyms_of(found) == levels
        broker = entry(client, BROKER, "1", behind[0])
        assert (broker.value, synonyms_of(broker)) == ("2000", levels)
    assert synonyms_of(entry(client, TOPIC, topic, "leader.replication.throttled.replicas")) == []


def test_a_topics_values_are_shown_as_they_are_parsed(client: RawClient, topic: str) -> None:
    alter(client, TOPIC, topic, retention_ms=" 77 ", cleanup_policy="delete, delete", flush_ms="+1")
    for name, value in (("retention.ms", "77"), ("cleanup.policy", "delete"), ("flush.ms", "1")):
        found = entry(client, TOPIC, topic, name)
        assert (found.value, found.synonyms[0].value) == (value, value)


def test_a_broker_shows_what_tools_may_set_while_it_runs_and_its_unset_secrets(
    client: RawClient,
) -> None:
    shown = {c.name: c for c in describe(client, BROKER, "1").configs}
    for name, value in (
        ("num.io.threads", "8"),
        ("background.threads", "10"),
        ("log.cleaner.threads", "1"),
    ):
        assert (shown[name].value, shown[name].read_only) == (value, False)
        assert synonyms_of(shown[name]) == [(name, value, ConfigSource.DEFAULT)]
    for name in ("ssl.keystore.password", "ssl.key.password", "sasl.jaas.config"):
        found = shown[name]
        assert (found.is_sensitive, found.value, found.synonyms) == (True, None, ())
    assert (shown["broker.rack"].value, shown["broker.rack"].synonyms) == (None, ())


def test_documentation_and_synonyms_come_only_when_asked_for(client: RawClient, topic: str) -> None:
    for config in describe(client, TOPIC, topic, synonyms=False).configs:
        assert (config.documentation, config.synonyms) == (None, ())
    for config in describe(client, BROKER, "1", documentation=True).configs:
        key = broker_key(config.name)
        assert key is not None and config.documentation == key.documentation
    for config in describe(client, TOPIC, topic, documentation=True).configs:
        assert config.documentation == TOPIC_CONFIGS[config.name].documentation


def test_keys_filter_and_an_empty_filter_means_all(client: RawClient, topic: str) -> None:
    named = describe(client, TOPIC, topic, ["retention.ms", "no.such"])
    assert [c.name for c in named.configs] == ["retention.ms"]
    assert len(describe(client, TOPIC, topic, []).configs) == len(TOPIC_CONFIGS)


def test_what_a_broker_cannot_take_over_is_read_only(client: RawClient) -> None:
    for config in describe(client, BROKER, "1").configs:
        key = broker_key(config.name)
        assert key is not None, config.name
        assert config.read_only == (key.update is Update.READ_ONLY or key.is_fixed), config.name


def test_a_key_of_a_newer_version_is_sensitive_and_its_value_hidden(
    client: RawClient, harness: Harness, topic: str
) -> None:
    commit = harness.cluster.controller.commit
    harness.call(lambda: commit(Config(TOPIC, topic, "secret.of.tomorrow", "hunter2")))
    harness.call(lambda: commit(Config(BROKER, "1", "password.of.tomorrow", "hunter2")))
    for kind, name, key in (
        (TOPIC, topic, "secret.of.tomorrow"),
        (BROKER, "1", "password.of.tomorrow"),
    ):
        found = entry(client, kind, name, key)
        assert (found.value, found.is_sensitive, found.read_only) == (None, True, True)
        assert found.config_type == ConfigType.UNKNOWN
        assert [value for _, value, _ in synonyms_of(found)] == [None]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", KioError.unknown_topic_or_partition),
        (TOPIC, "", KioError.invalid_topic_exception),
        (TOPIC, "a/b", KioError.invalid_topic_exception),
        (BROKER, "2", KioError.invalid_request),
        (BROKER, "x", KioError.invalid_request),
        (8, "2", KioError.invalid_request),
        (64, "1", KioError.invalid_request),
        (16, "", KioError.invalid_request),
        (32, "", KioError.invalid_request),
    ],
)
def test_what_cannot_be_described(client: RawClient, kind: int, name: str, error: KioError) -> None:
    result = describe(client, kind, name)
    assert result.error_code is error
    assert result.error_message
    assert result.configs == ()


# --- altered -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_incremental_changes_leave_other_keys_alone(
    client: RawClient, topic: str, version: int
) -> None:
    alter(client, TOPIC, topic, segment_ms="7")
    assert alter(client, TOPIC, topic, version=version, retention_ms="5").error_message is None
    deletion = {"name": "segment.ms", "config_operation": DELETE, "value": None}
    operate(client, TOPIC, topic, deletion, version=version)
    assert entry(client, TOPIC, topic, "retention.ms").value == "5"
    assert entry(client, TOPIC, topic, "segment.ms").config_source == ConfigSource.DEFAULT


@pytest.mark.parametrize("version", range(3))
def test_a_replacement_takes_away_what_it_does_not_name(
    client: RawClient, topic: str, version: int
) -> None:
    alter(client, TOPIC, topic, segment_ms="7")
    assert replace(client, TOPIC, topic, version, retention_ms="5").error_code is KioError.none
    assert entry(client, TOPIC, topic, "retention.ms").value == "5"
    assert entry(client, TOPIC, topic, "segment.ms").config_source == ConfigSource.DEFAULT


def test_a_dry_run_checks_and_changes_nothing(client: RawClient, topic: str) -> None:
    good = {"name": "retention.ms", "config_operation": SET, "value": "5"}
    bad = {"name": "retention.ms", "config_operation": SET, "value": "x"}
    assert operate(client, TOPIC, topic, good, dry=True).error_code is KioError.none
    assert operate(client, TOPIC, topic, bad, dry=True).error_code is KioError.invalid_config
    assert entry(client, TOPIC, topic, "retention.ms").value == "77"


@pytest.mark.parametrize(
    ("kind", "name", "key", "operation", "error"),
    [
        (TOPIC, "none", "retention.ms", SET, KioError.unknown_topic_or_partition),
        (TOPIC, "", "retention.ms", SET, KioError.invalid_request),
        (BROKER, "9", "max.connections", SET, KioError.broker_id_not_registered),
        (BROKER, "x", "max.connections", SET, KioError.invalid_request),
        (BROKER, "1", "num.partitions", SET, KioError.invalid_request),
        (BROKER, "1", "max.connections", 9, KioError.invalid_request),
        (BROKER, "1", "max.connections", APPEND, KioError.invalid_config),
        (8, "2", "kvorum", SET, KioError.invalid_request),
        (8, "1", "kafka", SET, KioError.invalid_config),
        (64, "1", "kafka", SET, KioError.invalid_request),
    ],
)
def test_what_cannot_be_altered(
    client: RawClient, kind: int, name: str, key: str, operation: int, error: KioError
) -> None:
    config = {"name": key, "config_operation": operation, "value": "1"}
    result = operate(client, kind, name, config)
    assert (result.error_code, result.resource_type) == (error, kind)
    assert result.error_message


def test_without_a_controller_every_resource_is_refused_by_itself(
    harness: Harness, topic: str
) -> None:
    # Two connections, because the broker closes a connection after such an answer.
    first, second = (RawClient(harness.cluster.brokers[1].port) for _ in range(2))
    harness.cluster.controller.is_answering = False
    try:
        result = alter(first, TOPIC, topic, retention_ms="5")
        (quota,) = alter_quotas(second, ([("user", "a")], {"producer_byte_rate": 1.0}))
    finally:
        harness.cluster.controller.is_answering = True
        first.close()
        second.close()
    assert result.error_code is KioError.request_timed_out
    assert quota.error_code is KioError.request_timed_out


def test_a_brokers_file_is_described_with_what_it_gives_and_what_it_leaves() -> None:
    values = static_values({"node.id": 7, "auto.create.topics.enable": False})
    assert values["node.id"] == StaticValue("7", True)
    assert values["auto.create.topics.enable"] == StaticValue("false", True)
    assert values["unclean.leader.election.enable"] == StaticValue("false", False)
    assert values["broker.id"] == StaticValue("7", True), "another name of node.id"
    assert "listeners" not in values, "neither given nor with a default"
    assert set(values) < set(BROKER_CONFIGS)
    listeners = {"node.id": 7, "listeners": "PLAINTEXT://h:1"}
    assert not static_values(listeners)["advertised.listeners"].is_given
    listeners["advertised.listeners"] = "PLAINTEXT://x:2"
    assert static_values(listeners)["advertised.listeners"].value == "PLAINTEXT://x:2"


# --- quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_altered_and_described(client: RawClient, version: int) -> None:
    both = [("user", "alice"), ("client-id", None)]
    good, bad = alter_quotas(
        client,
        (both, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        ([("user", "bob")], {"no_such_rate": 1.0}),
        version=version,
    )
    assert (good.error_code, good.error_message) == (KioError.none, None)
    assert [(p.entity_type, p.entity_name) for p in good.entity] == both
    assert bad.error_code is KioError.invalid_request
    answer = describe_quotas(client, ("user", 0, "alice"), version=version)
    (found,) = answer.entries
    assert {(p.entity_type, p.entity_name) for p in found.entity} == set(both)
    assert {v.key: v.value for v in found.values} == {
        "producer_byte_rate": 1024.0,
        "request_percentage": 12.5,
    }
    assert describe_quotas(client, ("user", 0, "alice"), strict=True).entries == ()
    alter_quotas(client, (both, {"producer_byte_rate": None, "request_percentage": None}))
    assert describe_quotas(client).entries == ()


def test_a_filter_without_sense_is_refused(client: RawClient) -> None:
    answer = describe_quotas(client, ("user", 0, None))
    assert answer.error_code is KioError.invalid_request
    assert answer.error_message
    assert answer.entries is None


def test_a_broker_refuses_certificates_that_it_cannot_use_or_that_are_anothers(
    harness: Harness, client: RawClient
) -> None:
    services = harness.cluster.brokers[1].server.services
    asked: list[dict[str, str]] = []

    def problem(configs: dict[str, str]) -> str | None:
        asked.append(dict(configs))
        return "no certificate in /x.pem" if "/x.pem" in configs.values() else None

    services.certificates_problem = problem
    name = "listener.name.clients.ssl.keystore.location"
    bad = {"name": name, "config_operation": SET, "value": "/x.pem"}
    good = {"name": name, "config_operation": SET, "value": "/y.pem"}
    for dry in (True, False):
        answer = operate(client, BROKER, "1", bad, dry=dry)
        assert answer.error_code is KioError.invalid_request
        assert answer.error_message == "no certificate in /x.pem"
    assert replace(client, BROKER, "1", **{name: "/x.pem"}).error_code is KioError.invalid_request
    assert operate(client, BROKER, "1", good).error_code is KioError.none
    assert asked[-1] == {name: "/y.pem"}
    answer = operate(client, BROKER, "2", good)
    assert answer.error_code is KioError.invalid_request
    assert "Unexpected broker id, expected 1 but received '2'" in (answer.error_message or "")
    # A bad value can always be taken away, by any broker.
    gone = {"name": name, "config_operation": DELETE, "value": None}
    assert operate(client, BROKER, "2", gone).error_code is KioError.none
