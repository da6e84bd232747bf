"""cordoned.log.dirs in a broker's file (KIP-1066)."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config
from tests.test_launch.node_properties import COMMON, refusal

BROKER: dict[str, Any] = {
    "cluster.id": COMMON["cluster.id"],
    "controller.quorum.voters": "1@h:1",
    "node.id": 101,
    "listeners": "PLAINTEXT://h:9092",
    "log.dirs": "/a,/b",
}


@pytest.mark.parametrize("value", ["", "/a", "/a,/b", "*"])
def test_a_broker_starts_with_cordons_of_its_own_directories(value: str) -> None:
    _, broker = broker_config({**BROKER, "cordoned.log.dirs": value})
    assert broker.cordoned_log_dirs == value


@pytest.mark.parametrize("value", ["/c", "/a,/a", "*,/a"])
def test_a_broker_refuses_other_cordons_at_its_start(value: str) -> None:
    said = refusal(broker_config, {**BROKER, "cordoned.log.dirs": value})
    assert said.startswith("cordoned.log.dirs")
