"""A controller's listener for Kafka's tools: each of its APIs is answered, strange bytes close a
connection and no more, and what one controller has changed another one shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.broker.api.registry import SERVED_TO_TOOLS
from tests.live.by_hand import HandMade
from tests.polling import eventually
from tests.test_access.asking import fresh
from tests.test_access.requests_of_apis import REQUESTS
from tests.test_broker.raw_client import RawClient

pytestmark = pytest.mark.live

NAMES = sorted(
    SERVED_TO_TOOLS.name_of(key)
    for key, _, _ in SERVED_TO_TOOLS.advertised()
    if SERVED_TO_TOOLS.name_of(key) in REQUESTS
)


class Pair:
    """Two controllers, each with a listener ADMIN in clear text."""

    def __init__(self, folder: Path) -> None:
        self.made = HandMade(folder, controllers=2, brokers=0)
        self.ports = [self.made.ports.controller + 5 + at for at in range(2)]
        for name, port in zip(("controller-1", "controller-2"), self.ports, strict=True):
            properties = self.made.properties(name)
            self.made.change(name, **{
                "listeners": f"{properties['listeners']},ADMIN://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER,ADMIN",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,ADMIN:PLAINTEXT",
            })  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(Path(tmp_path_factory.mktemp("tools")))
    try:
        pair.made.start("controller-1", "controller-2")
        eventually(lambda: len(described(pair.ports[0])) == 2, "both controllers are registered")
        yield pair
        for name in ("controller-1", "controller-2"):
            pair.made.stop(name)
    finally:
        pair.made.close()


def described(port: int) -> dict[int, int]:
    """The controllers' ports by id, as the one at `port` describes them; empty while it is not
    there."""
    try:
        client = RawClient(port)
    except OSError:
        return {}
    asked = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
    answer = client.call("describe_cluster", 2, asked)
    client.close()
    return {row.broker_id: row.port for row in answer.brokers}


def test_each_controller_describes_both(pair: Pair) -> None:
    for port in pair.ports:
        eventually(
            lambda at=port: described(at) == dict(zip((1, 2), pair.ports, strict=True)),
            "the controller has applied both registrations",
        )


@pytest.mark.parametrize("name", NAMES)
def test_each_api_is_answered(pair: Pair, name: str) -> None:
    version, values = REQUESTS[name]
    client = RawClient(pair.ports[0])
    client.call(name, version, fresh(values, bytes(16)))
    client.close()


def test_an_api_of_brokers_closes_the_connection(pair: Pair) -> None:
    client = RawClient(pair.ports[0])
    version, values = REQUESTS["metadata"]
    client.send("metadata", version, values)
    assert client.is_closed_by_peer()
    client.close()


def test_strange_bytes_close_one_connection(pair: Pair) -> None:
    for _ in range(20):
        client = RawClient(pair.ports[0])
        client.sock.sendall(os.urandom(200))
        client.close()
    assert described(pair.ports[0])


def test_a_change_at_one_controller_is_seen_at_the_other(pair: Pair) -> None:
    first, second = (RawClient(port) for port in pair.ports)
    config = {"name": "max.connections", "config_operation": 0, "value": "88"}
    answer = first.call("incremental_alter_configs", 1, {
        "resources": [{"resource_type": 4, "resource_name": "", "configs": [config]}],
        "validate_only": False,
    })  # fmt: skip
    assert answer.responses[0].error_code == 0
    asked = {
        "resources": [{
            "resource_type": 4, "resource_name": "", "configuration_keys": ["max.connections"],
        }],
        "include_synonyms": False, "include_documentation": False,
    }  # fmt: skip

    def seen(client: RawClient) -> list[str]:
        (result,) = client.call("describe_configs", 4, asked).results
        return [row.value for row in result.configs]

    # The controller that has answered shows the change at once.
    assert seen(first) == ["88"]
    eventually(lambda: seen(second) == ["88"], "the other one has applied the record")
    first.close()
    second.close()
