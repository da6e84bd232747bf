"""A refused UpdateFeatures, by version."""

from __future__ import annotations

import asyncio
import datetime
from types import SimpleNamespace

import pytest

from kvorum.broker.api import update_features
from kvorum.metadata.requests.controller_requests import UpdatedFeature
from kvorum.runtime.errors import ErrorCode
from tests.test_broker.contexts import request_context

GOOD = UpdatedFeature(name="group.version")
BAD = UpdatedFeature(
    name="no.such", error=ErrorCode.INVALID_UPDATE_VERSION, message="no.such is no feature"
)


def answer(version: int, *outcome: UpdatedFeature) -> dict:
    async def decide(call: object, asked: object, timeout_ms: int) -> tuple[UpdatedFeature, ...]:
        return outcome

    context = request_context(version, controller=SimpleNamespace(request=decide))
    request = SimpleNamespace(
        timeout=datetime.timedelta(seconds=5),
        feature_updates=[
            SimpleNamespace(feature=row.name, max_version_level=1, upgrade_type=1)
            for row in outcome
        ],
    )
    return asyncio.run(update_features.handle(context, request))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_refused_update_is_the_error_of_the_whole_answer(version: int) -> None:
    told = answer(version, GOOD, BAD)
    assert told["error_code"] is ErrorCode.INVALID_UPDATE_VERSION
    assert told["error_message"] == "no.such is no feature"
    rows = [(row["feature"], row["error_code"]) for row in told.get("results", ())]
    expected = [("group.version", ErrorCode.NONE), ("no.such", ErrorCode.INVALID_UPDATE_VERSION)]
    assert rows == (expected if version < 2 else [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_answer_without_a_refusal_has_no_error(version: int) -> None:
    told = answer(version, GOOD)
    assert (told["error_code"], told["error_message"]) == (ErrorCode.NONE, None)
