"""`kvorum.controller.request.records.max`: records that one request may add to the metadata log."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.image import RESOURCE_GROUP
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.metadata.requests.scram_requests import AlterScramCredentials, ScramUpsertion
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World


def configs(count: int) -> AlterConfigs:
    operation = ConfigOperation(
        name="share.isolation.level", kind=Operation.SET, value="read_committed"
    )
    return AlterConfigs(
        resources=tuple(
            ConfigAlteration(
                resource_type=RESOURCE_GROUP, resource_name=f"g{number}", operations=(operation,)
            )
            for number in range(count)
        )
    )


def quotas(count: int) -> AlterClientQuotas:
    operation = QuotaOperation(key="producer_byte_rate", value=1.0)
    return AlterClientQuotas(
        entries=tuple(
            QuotaAlteration(entity=(("user", f"u{number}"),), operations=(operation,))
            for number in range(count)
        )
    )


def credentials(count: int) -> AlterScramCredentials:
    return AlterScramCredentials(
        upsertions=tuple(
            ScramUpsertion(
                user=f"u{number}", mechanism=1, iterations=4096, salt=b"s", stored_key=b"k",
                server_key=b"v",
            )
            for number in range(count)
        )
    )  # fmt: skip


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("request_of", [configs, quotas, credentials])
def test_a_request_changes_as_much_as_the_controller_allows(request_of: Any, most: int) -> None:
    world = World(brokers=(), config=ControllerConfig(kvorum_controller_request_records_max=most))
    before = len(world.records)
    results = world.ask(request_of(most + 1))
    refused = [each for each in results if each.error is not ErrorCode.NONE]
    assert [each.error for each in refused] == [ErrorCode.POLICY_VIOLATION]
    assert refused[0].message == f"more than {most} changes in one request; send several"
    assert len(world.records) - before == most
