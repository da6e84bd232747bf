"""Two brokers, a client of the first, and a member of a share group that the first coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from kvorum.metadata.image.records import Config
from tests.polling import eventually
from tests.test_broker.group_requests import group_led_by
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_share.members import CONFIG, RESOURCE_GROUP, Member, id_of, joined

_names = itertools.count()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("share-groups"), count=2, config=CONFIG)
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    client.close()


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"orders-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)]))
    return name


@pytest.fixture
def group_id(client: RawClient, harness: Harness, request: pytest.FixtureRequest) -> str:
    eventually(
        lambda: (
            client.call("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["x"]})
            .coordinators[0]
            .error_code
            == 0
        ),
        "the topic of offsets is there",
    )
    name = f"{request.node.name[:40]}-{next(_names)}"
    group_id = group_led_by(client, 1, name)
    configs = Config(RESOURCE_GROUP, group_id, "share.auto.offset.reset", "earliest")
    harness.call(lambda: harness.cluster.controller.commit(configs))
    return group_id


@pytest.fixture
def member(client: RawClient, harness: Harness, group_id: str, topic: str) -> Member:
    joined(client, group_id, "a", topic)
    return Member(client, group_id, "a", id_of(harness, topic))
