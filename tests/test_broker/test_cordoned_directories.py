"""Cordoned data directories of a broker (KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.image.image import RESOURCE_BROKER
from tests.test_broker.harness import Harness
from tests.test_broker.moving import HELD, made, paths, replica
from tests.test_broker.raw_client import RawClient


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Broker 1 has three directories."""
    harness = Harness(tmp_path, config=HELD, directory_count=3)
    yield harness
    harness.close()


def cordon(harness: Harness, value: str | None, operation: int = 0, broker: str = "1"):
    client = RawClient(harness.cluster.ports[1])
    try:
        asked = {
            "resource_type": RESOURCE_BROKER,
            "resource_name": broker,
            "configs": [
                {"name": "cordoned.log.dirs", "config_operation": operation, "value": value}
            ],
        }
        values = {"resources": [asked], "validate_only": False}
        (answer,) = client.call("incremental_alter_configs", 1, values).responses
        return answer.error_code, answer.error_message or ""
    finally:
        client.close()


def stored(harness: Harness) -> str | None:
    configs = harness.cluster.controller.image.configs.get((RESOURCE_BROKER, "1"), {})
    return configs.get("cordoned.log.dirs")


def cordoned(harness: Harness) -> list[bool]:
    client = RawClient(harness.cluster.ports[1])
    try:
        found = client.call("describe_log_dirs", 5, {"topics": None}).results
        return [row.is_cordoned for row in found]
    finally:
        client.close()


def test_cordoned_directories_get_no_new_replicas_and_are_shown(harness: Harness) -> None:
    first, second, third = paths(harness)
    assert cordon(harness, f"{first},{third}")[0] is KioError.none
    assert cordoned(harness) == [True, False, True]
    made(harness, partitions=4)
    assert {replica(harness, p).log_dir.path for p in range(4)} == {second}
    assert cordon(harness, None, operation=1)[0] is KioError.none
    assert cordoned(harness) == [False] * 3


def test_lists_of_cordons_are_altered_and_all_directories_become_an_asterisk(
    harness: Harness,
) -> None:
    first, second, third = paths(harness)
    assert cordon(harness, first, operation=2)[0] is KioError.none
    assert cordon(harness, f"{first},{second}", operation=2)[0] is KioError.none
    assert stored(harness) == f"{first},{second}"
    assert cordon(harness, first, operation=3)[0] is KioError.none
    assert stored(harness) == second
    assert cordon(harness, f"{third},{first}", operation=2)[0] is KioError.none
    assert stored(harness) == "*"
    assert cordoned(harness) == [True] * 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("/nowhere", "not in log.dirs"),
        ("{0}/", "not in log.dirs"),
        ("*,{0}", "stands for all"),
        ("{0},{0}", "twice"),
    ],
)
def test_cordons_of_other_paths_are_refused_with_the_reason(
    harness: Harness, value: str, reason: str
) -> None:
    error, message = cordon(harness, value.format(*paths(harness)))
    assert error is KioError.invalid_request and reason in message
    assert stored(harness) is None


def test_cordons_are_set_at_the_broker_that_has_the_directories(harness: Harness) -> None:
    error, message = cordon(harness, "*", broker="2")
    assert error is KioError.invalid_request and "ask that broker itself" in message
    error, message = cordon(harness, "*", broker="")
    assert error is KioError.invalid_request and "name a broker" in message
