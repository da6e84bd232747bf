"""Configs and quotas as the world's clients see them: Kafka's kafka-configs and librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("configs"), controllers=1, brokers=2) as cluster:
        topics = Topics(cluster.bootstrap)
        for name in ("orders", "events"):
            topics.create(name, replicas=2)
        yield cluster


@pytest.fixture
def kafka_configs(cluster):
    def run(*arguments: str) -> str:
        return tool(CONFIG_COMMAND, "--bootstrap-server", cluster.bootstrap, *arguments)

    return run


def refused(cluster: Cluster, *arguments: str) -> str:
    """The output of a kafka-configs that fails."""
    done = run_tool(CONFIG_COMMAND, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert done.returncode != 0
    return done.stdout + done.stderr


# --- Apache Kafka's kafka-configs ----------------------------------------------------------------


@needs_java
def test_kafka_configs_alters_and_describes_a_topic(cluster, kafka_configs):
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    said = kafka_configs(
        "--alter", *topic, "--add-config", "retention.ms=60000,cleanup.policy=[delete]"
    )
    assert "Completed updating config for topic orders." in said
    described = kafka_configs("--describe", *topic)
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG" in described
    assert "max.message.bytes" not in described
    every = kafka_configs("--describe", *topic, "--all")
    assert "max.message.bytes=1048588 sensitive=false" in every
    assert "{DEFAULT_CONFIG:message.max.bytes=1048588}" in every
    kafka_configs("--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms=" not in kafka_configs("--describe", *topic)
    kafka_configs("--alter", *topic, "--add-config", "segment.jitter.ms=5,preallocate=true")
    assert "segment.jitter.ms=5" in kafka_configs("--describe", *topic)
    kafka_configs("--alter", *topic, "--delete-config", "segment.jitter.ms,preallocate")
    assert "as logs have no remote tier" in refused(
        cluster, "--alter", *topic, "--add-config", "remote.storage.enable=true"
    )


@needs_java
def test_kafka_configs_alters_and_describes_brokers_and_their_default(cluster, kafka_configs):
    one = ("--entity-type", "brokers", "--entity-name", "102")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    kafka_configs("--alter", *one, "--add-config", "max.connections=400")
    kafka_configs("--alter", *all_of_them, "--add-config", "max.connections=500")
    levels = (
        "{DYNAMIC_BROKER_CONFIG:max.connections=400, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=500, DEFAULT_CONFIG:max.connections=10000}"
    )
    assert f"max.connections=400 sensitive=false synonyms={levels}" in kafka_configs(
        "--describe", *one
    )
    assert "max.connections=500" in kafka_configs("--describe", *all_of_them)
    every = kafka_configs("--describe", *one, "--all")
    assert "node.id=102 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=102}" in every
    kafka_configs("--alter", *one, "--delete-config", "max.connections")
    kafka_configs("--alter", *all_of_them, "--delete-config", "max.connections")
    assert "max.connections" not in kafka_configs("--describe", *one)
    assert "num.partitions is read-only" in refused(
        cluster, "--alter", *one, "--add-config", "num.partitions=4"
    )


@needs_java
def test_kafka_configs_alters_and_describes_the_loggers_of_a_broker(cluster, kafka_configs):
    one = ("--entity-type", "broker-loggers", "--entity-name", "102")
    kafka_configs("--alter", *one, "--add-config", "kvorum.raft=DEBUG")
    assert "kvorum.raft=DEBUG" in kafka_configs("--describe", *one)
    other = ("--entity-type", "broker-loggers", "--entity-name", "101")
    assert "kvorum.raft=DEBUG" not in kafka_configs("--describe", *other)
    kafka_configs("--alter", *one, "--delete-config", "kvorum.raft")
    assert "kvorum.raft=INFO" in kafka_configs("--describe", *one)
    assert "Invalid broker logger(s): kvorum.nobody" in refused(
        cluster, "--alter", *one, "--add-config", "kvorum.nobody=DEBUG"
    )


@needs_java
def test_kafka_configs_alters_and_describes_quotas(cluster, kafka_configs):
    alice_of_any_app = (
        *("--entity-type", "users", "--entity-name", "alice"),
        *("--entity-type", "clients", "--entity-default"),
    )
    kafka_configs(
        *("--alter", *alice_of_any_app, "--add-config"),
        "producer_byte_rate=1024,request_percentage=12.5",
    )
    described = kafka_configs("--describe", *alice_of_any_app)
    assert "Quota configs for user-principal 'alice', the default client-id are" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    # For users alone the tool also asks for SCRAM credentials; alice has none, which is no error.
    alice = ("--entity-type", "users", "--entity-name", "alice")
    kafka_configs("--alter", *alice, "--add-config", "producer_byte_rate=512")
    for users in (alice, ("--entity-type", "users")):
        described = kafka_configs("--describe", *users)
        assert "Quota configs for user-principal 'alice' are producer_byte_rate=512.0" in described
        assert "SCRAM" not in described
    client = ("--entity-type", "clients", "--entity-name", "app")
    kafka_configs("--alter", *client, "--add-config", "consumer_byte_rate=2048")
    assert "consumer_byte_rate=2048.0" in kafka_configs("--describe", *client)
    kafka_configs("--alter", *client, "--delete-config", "consumer_byte_rate")
    assert "consumer_byte_rate" not in kafka_configs("--describe", *client)
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    kafka_configs("--alter", *address, "--add-config", "connection_creation_rate=5")
    assert "connection_creation_rate=5.0" in kafka_configs("--describe", *address)
    everywhere = ("--entity-type", "users", "--entity-default")
    kafka_configs("--alter", *everywhere, "--add-config", "controller_mutation_rate=3")
    assert cluster.cli_json("configs", "describe", "--entity", "user", "--default") == [
        {"entity": "user=<default>", "name": "controller_mutation_rate", "value": 3.0}
    ]


# --- librdkafka ----------------------------------------------------------------------------------


@pytest.fixture
def admin(cluster):
    return AdminClient(settings(cluster.bootstrap))


def resource(kind, name, operation=AlterConfigOpType.SET, **configs):
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
        for key, value in configs.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def change(admin, asked):
    (future,) = admin.incremental_alter_configs([asked]).values()
    return future.result(DEADLINE_S)


def described(admin, kind, name):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return future.result(DEADLINE_S)


def shows(admin, kind, name, key, value, source):
    """Wait for a value: librdkafka may ask another broker than the one that made the change."""

    def is_shown() -> bool:
        entry = described(admin, kind, name)[key]
        return (entry.value, entry.source) == (value, source.value)

    eventually(is_shown, f"{name} shows {key}={value} of {source}")


def test_librdkafka_changes_a_topic_and_its_producer_feels_it(cluster, admin):
    def sent() -> str | None:
        """Name of the error with which a record of 2,000 bytes came back, None for none."""
        outcome = []
        producer = Producer(settings(cluster.bootstrap))
        producer.produce("events", b"x" * 2_000, on_delivery=lambda e, _: outcome.append(e))
        assert producer.flush(DEADLINE_S) == 0
        return None if outcome[0] is None else outcome[0].name()

    def comes_to(outcome: str | None) -> None:
        # The broker that was asked shows the change at once, the leader a fetch later.
        eventually(lambda: sent() == outcome, f"sending comes to {outcome}")

    comes_to(None)
    change(admin, resource(ResourceType.TOPIC, "events", max_message_bytes="1000"))
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    shows(admin, ResourceType.TOPIC, "events", "max.message.bytes", "1000", source)
    comes_to("MSG_SIZE_TOO_LARGE")
    change(admin, resource(ResourceType.TOPIC, "events", AlterConfigOpType.DELETE,
                           max_message_bytes=None))  # fmt: skip
    comes_to(None)
    # All topics of all brokers, without a restart; librdkafka cannot name them.
    of_all = ("configs", "alter", "--entity", "broker", "--default")
    cluster.cli(*of_all, "--set", "message.max.bytes=1000")
    comes_to("MSG_SIZE_TOO_LARGE")
    cluster.cli(*of_all, "--delete", "message.max.bytes")
    comes_to(None)


def test_librdkafka_replaces_all_configs_of_a_topic_at_once(admin):
    change(admin, resource(ResourceType.TOPIC, "events", retention_ms="5000"))
    whole = ConfigResource(ResourceType.TOPIC, "events", set_config={"segment.ms": "6000"})
    with pytest.warns(DeprecationWarning):
        (future,) = admin.alter_configs([whole]).values()
    future.result(DEADLINE_S)
    topic = (ResourceType.TOPIC, "events")
    shows(admin, *topic, "segment.ms", "6000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    shows(admin, *topic, "retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG)


def test_librdkafka_asks_a_broker_for_its_own_configs(admin):
    change(admin, resource(ResourceType.BROKER, "101", log_retention_ms="7000"))
    source = ConfigSource.DYNAMIC_BROKER_CONFIG
    shows(admin, ResourceType.BROKER, "101", "log.retention.ms", "7000", source)
    configs = described(admin, ResourceType.BROKER, "101")
    assert configs["num.partitions"].is_read_only
    assert described(admin, ResourceType.TOPIC, "orders")["segment.bytes"].is_default
    change(admin, resource(ResourceType.BROKER, "101", AlterConfigOpType.DELETE,
                           log_retention_ms=None))  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (resource(ResourceType.TOPIC, "none", retention_ms="1"), "UNKNOWN_TOPIC_OR_PART"),
        (resource(ResourceType.TOPIC, "orders", retention_ms="x"), "INVALID_CONFIG"),
        (resource(ResourceType.TOPIC, "orders", no_such="1"), "INVALID_CONFIG"),
        (resource(ResourceType.BROKER, "101", num_partitions="2"), "INVALID_REQUEST"),
        (
            resource(ResourceType.TOPIC, "orders", AlterConfigOpType.APPEND, retention_ms="1"),
            "INVALID_CONFIG",
        ),
    ],
)
def test_librdkafka_hears_the_codes_of_what_is_refused(admin, asked, name):
    with pytest.raises(KafkaException) as error:
        change(admin, asked)
    assert error.value.args[0].name() == name


def test_what_was_set_is_there_after_every_process_has_started_again(cluster, admin):
    change(admin, resource(ResourceType.TOPIC, "orders", unclean_leader_election_enable="true"))
    cluster.cli("configs", "alter", "--entity", "ip", "--default",
                "--set", "connection_creation_rate=9")  # fmt: skip
    names = sorted(cluster.nodes())
    cluster.kill(*names)
    cluster.restart(*names)
    rows = cluster.cli_json("configs", "describe", "--entity", "topic", "--name", "orders")
    assert {row["name"]: row["value"] for row in rows}["unclean.leader.election.enable"] == "true"
    rows = cluster.cli_json("configs", "describe", "--entity", "ip", "--default")
    assert [row["value"] for row in rows] == [9.0]
