"""Fixtures of most tests of the broker's APIs: one broker, and a raw connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """One broker with default configs; a module that needs another cluster has a fixture of its
    own."""
    harness = Harness(tmp_path_factory.mktemp("one"), count=1)
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    """A connection to broker 1 of the module's own `harness`."""
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    client.close()
