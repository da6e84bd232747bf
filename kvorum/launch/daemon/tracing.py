"""Traces for OpenTelemetry (the extra `otel`): `kvorum.tracing.enable`.

Where spans go, and how many, is said by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kvorum.runtime import tracing
from kvorum.runtime.errors import ConfigError

_SCOPE = "kvorum"


class _Span:
    def __init__(self, span: Any) -> None:
        self._span = span
        found = span.get_span_context()
        self.traceparent = ""
        if span.is_recording():
            flags = int(found.trace_flags)
            self.traceparent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{flags:02x}"

    def end(self, *, failure: str = "") -> None:
        if failure:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()


class _Tracer:
    def __init__(self, tracer: Any, propagator: Any, kind: Any) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._kind = kind

    def begin(
        self,
        name: str,
        attributes: Mapping[str, tracing.Value],
        *,
        parent: str = "",
        began_ns: int = 0,
    ) -> tracing.Span:
        """See `tracing.Tracer`."""
        context = self._propagator.extract({tracing.HEADER: parent}) if parent else None
        return _Span(
            self._tracer.start_span(
                name,
                context=context,
                kind=self._kind,
                attributes=attributes,
                start_time=began_ns or None,
            )
        )


def set_up_tracing(node: str, version: str) -> None:
    """Export spans from now on, in a thread of OpenTelemetry's. node: its name in them. Raises
    ConfigError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise ConfigError(
            "kvorum.tracing.enable needs OpenTelemetry, which is not installed: pip install "
            "'kvorum[otel]'"
        ) from error
    name = os.environ.get("OTEL_SERVICE_NAME", "kvorum")
    resource = Resource.create(
        {"service.name": name, "service.version": version, "service.instance.id": node}
    )
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    made = provider.get_tracer(_SCOPE, version)
    tracing.use(_Tracer(made, TraceContextTextMapPropagator(), SpanKind.SERVER))
