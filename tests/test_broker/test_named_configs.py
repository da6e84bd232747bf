"""Configs of groups and of subscriptions to client metrics, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.configs.effective import ConfigSource
from tests.test_broker.config_calls import DELETE, alter, describe, operate
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

CLIENT_METRICS, GROUP = 16, 32
SESSION = "consumer.session.timeout.ms"


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("named"), count=1)
    yield harness
    harness.close()


def listed(client: RawClient, *types: int, version: int = 1) -> list[tuple[int, str]]:
    values = {"resource_types": list(types)} if version else {}
    answer = client.call("list_config_resources", version, values)
    return [(getattr(r, "resource_type", 16), r.resource_name) for r in answer.config_resources]


def test_a_groups_config_is_shown_above_the_brokers_default(client: RawClient) -> None:
    assert alter(client, GROUP, "g", consumer_session_timeout_ms="50000").error_message is None
    (shown,) = describe(client, GROUP, "g", [SESSION]).configs
    assert (shown.value, int(shown.config_source)) == ("50000", ConfigSource.GROUP)
    assert not shown.read_only and not shown.is_sensitive
    levels = [(s.name, s.value, int(s.source)) for s in shown.synonyms]
    assert levels == [
        (SESSION, "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert (GROUP, "g") in listed(client, GROUP)
    operate(client, GROUP, "g", {"name": SESSION, "config_operation": DELETE, "value": None})
    (shown,) = describe(client, GROUP, "g", [SESSION]).configs
    assert (shown.value, int(shown.config_source)) == ("45000", ConfigSource.DEFAULT)
    assert listed(client, GROUP) == []


def test_a_group_that_never_was_has_all_of_kafkas_keys_at_their_defaults(
    client: RawClient,
) -> None:
    shown = {c.name: c.value for c in describe(client, GROUP, "never").configs}
    assert len(shown) == 21
    assert shown["share.isolation.level"] == "read_uncommitted"
    assert shown["streams.num.standby.replicas"] == "0"


def test_a_subscription_is_listed_described_and_removed(client: RawClient) -> None:
    alter(client, CLIENT_METRICS, "s", interval_ms="1000", metrics="org.apache.kafka.")
    assert listed(client, CLIENT_METRICS) == [(16, "s")]
    assert listed(client, version=0) == [(16, "s")]
    shown = {c.name: (c.value, int(c.config_source)) for c in _subscription(client)}
    assert shown == {
        "interval.ms": ("1000", ConfigSource.CLIENT_METRICS),
        "metrics": ("org.apache.kafka.", ConfigSource.CLIENT_METRICS),
        "match": ("", ConfigSource.DEFAULT),
    }
    deletions = [
        {"name": name, "config_operation": DELETE, "value": None}
        for name in ("interval.ms", "metrics")
    ]
    operate(client, CLIENT_METRICS, "s", *deletions)
    assert listed(client, CLIENT_METRICS) == []


def _subscription(client: RawClient) -> tuple:
    return describe(client, CLIENT_METRICS, "s").configs


def test_own_values_are_shown_as_they_are_parsed_and_have_kafkas_synonyms(
    client: RawClient,
) -> None:
    assert alter(client, GROUP, "g", consumer_session_timeout_ms=" +50000 ").error_message is None
    (shown,) = describe(client, GROUP, "g", [SESSION]).configs
    assert [(s.name, s.value) for s in shown.synonyms] == [
        (SESSION, "50000"), ("group.consumer.session.timeout.ms", "45000"),
    ]  # fmt: skip
    assert shown.value == "50000"
    operate(client, GROUP, "g", {"name": SESSION, "config_operation": DELETE, "value": None})
    alter(client, CLIENT_METRICS, "s", metrics=" a , b , a ")
    shown = {
        c.name: (c.value, [(s.name, s.value) for s in c.synonyms]) for c in _subscription(client)
    }
    assert shown == {
        "interval.ms": ("300000", []), "match": ("", []), "metrics": ("a,b", [("metrics", "a,b")]),
    }  # fmt: skip
    refused = alter(client, CLIENT_METRICS, "s", metrics=" , a")
    assert (refused.error_code, refused.error_message) == (
        KioError.invalid_config, "metrics=' , a' has an empty item",
    )  # fmt: skip
    operate(
        client, CLIENT_METRICS, "s", {"name": "metrics", "config_operation": DELETE, "value": None}
    )
