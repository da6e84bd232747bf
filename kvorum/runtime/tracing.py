"""Spans of requests, across the nodes that work on them (W3C Trace Context).

A node without tracing only reads `tracer`, which is None; launch sets it to one that
exports to OpenTelemetry. The present span's identity is in a context variable, so that it reaches
the calls that a request makes: gRPC carries it to controllers in the header `traceparent`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

HEADER = "traceparent"

Value = str | int | bool


class Span(Protocol):
    """One piece of work. traceparent: its identity, "" if it is not recorded."""

    traceparent: str

    def end(self, *, failure: str = "") -> None:
        """The work is done. failure: why it failed."""
        ...


class Tracer(Protocol):
    """Begins spans."""

    def begin(
        self, name: str, attributes: Mapping[str, Value], *, parent: str = "", began_ns: int = 0
    ) -> Span:
        """A span of a request that this node serves.

        parent: the caller's traceparent.
        began_ns: since 1970; 0 for now.
        """
        ...


tracer: Tracer | None = None
"""The tracer of this process; None without tracing."""

_present: ContextVar[str] = ContextVar("traceparent", default="")


def use(made: Tracer | None) -> None:
    """Trace with this tracer from now on; None switches tracing off."""
    global tracer
    tracer = made


def present() -> str:
    """The traceparent of the span that the running code belongs to; "" if there is none."""
    return _present.get()


class within:
    """The code of the block, and the tasks that it creates, belong to a span."""

    __slots__ = ("_token", "_traceparent")

    def __init__(self, span: Span) -> None:
        self._traceparent = span.traceparent

    def __enter__(self) -> None:
        self._token = _present.set(self._traceparent)

    def __exit__(self, *_: object) -> None:
        _present.reset(self._token)


def wall_ns(ago_s: float) -> int:
    """The time that long ago, in ns since 1970."""
    return time.time_ns() - int(ago_s * 1e9)
