"""Two brokers in one process, and producers by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_broker.harness import Harness
from tests.test_transactions.raw_producer import CONFIG, NEW, OLD, Client


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2), (1, 2)]))
    topic = "__transaction_state"
    # Led by the other broker, so that the two have to talk.
    harness.call(lambda: harness.cluster.controller.create(topic, [(2, 1)]))
    yield harness
    harness.close()
    assert not harness.failures, harness.failures


@pytest.fixture(params=[OLD, NEW])
def client(harness: Harness, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(harness, request.param)
    assert made.init() == 0
    yield made
    made.close()


@pytest.fixture
def old(harness: Harness) -> Iterator[Client]:
    made = Client(harness, OLD)
    assert made.init() == 0
    yield made
    made.close()


@pytest.fixture
def new(harness: Harness) -> Iterator[Client]:
    made = Client(harness, NEW)
    assert made.init() == 0
    yield made
    made.close()
