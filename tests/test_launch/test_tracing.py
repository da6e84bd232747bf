"""Tracing without its extra, and spans of a tracer in the code that works on a request."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kvorum.launch.daemon.tracing import set_up_tracing
from kvorum.runtime import tracing
from kvorum.runtime.errors import ConfigError


def test_without_the_extra_a_node_refuses_to_trace(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'kvorum\[otel\]'"):
        set_up_tracing("broker-101", "1")
    assert tracing.tracer is None


class Named:
    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def end(self, *, failure: str = "") -> None: ...


def test_tasks_that_a_request_creates_belong_to_its_span():
    async def case() -> list[str]:
        with tracing.within(Named("one")):
            task = asyncio.get_running_loop().create_task(later())
        return [tracing.present(), await task]

    async def later() -> str:
        await asyncio.sleep(0)
        return tracing.present()

    assert asyncio.run(case()) == ["", "one"]
