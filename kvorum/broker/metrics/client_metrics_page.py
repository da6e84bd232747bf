"""The metrics that clients push (KIP-714), for the broker's Prometheus page.

A push is OpenTelemetry's MetricsData. Sums and gauges are kept, the newest value of each series;
other kinds of data are ignored. opentelemetry-proto is imported with the first push.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvorum.broker.metrics.client_telemetry import TELEMETRY_BYTES_MAX, Instance
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import uuid_text
from kvorum.storage.format.compression import Codec, CompressionError, UnpacksToMore, decompress

SERIES_MAX = 10_000
"""Series kept over all clients; further series are dropped."""
SERIES_OF_INSTANCE_MAX = 1_000
TEXT_LENGTH_MAX = 256
"""Characters of a name or of a label's value that are kept."""
LABELS_MAX = 16

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]


class _Pushed(NamedTuple):
    """The last push of one client instance: values by name and labels. client_id: at that time."""

    client_id: str
    values: dict[tuple[str, Labels], float]


class ClientFigures:
    """The newest push of each client instance."""

    def __init__(self) -> None:
        self._by_instance: dict[bytes, _Pushed] = {}

    def take(self, instance: Instance, compression_type: int, packed: bytes) -> ErrorCode:
        """Replace the instance's earlier push. INVALID_RECORD if `packed` cannot be read."""
        try:
            data = decompress(Codec(compression_type), packed, bytes_max=TELEMETRY_BYTES_MAX)
        except UnpacksToMore:
            return ErrorCode.TELEMETRY_TOO_LARGE
        except CompressionError:
            return ErrorCode.INVALID_RECORD
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

        message = MetricsData()
        try:
            message.ParseFromString(bytes(data))
        except DecodeError:
            return ErrorCode.INVALID_RECORD
        self._by_instance.pop(instance.instance_id, None)
        kept = sum(len(pushed.values) for pushed in self._by_instance.values())
        room = min(SERIES_OF_INSTANCE_MAX, SERIES_MAX - kept)
        values: dict[tuple[str, Labels], float] = {}
        for series, value in _series_of(message):
            if series in values or len(values) < room:
                values[series] = value
        if values:
            self._by_instance[instance.instance_id] = _Pushed(instance.facts.client_id, values)
        return ErrorCode.NONE

    def forget(self, is_known: Callable[[bytes], bool]) -> None:
        """Drop the pushes of instances that are no longer known."""
        for instance_id in [i for i in self._by_instance if not is_known(i)]:
            del self._by_instance[instance_id]

    def lines(self) -> Iterator[str | None]:
        """The lines of the page: one gauge for each name, `kvorum_client_...`, with a line for each
        series. None is a step of work without a line."""
        families: dict[str, list[tuple[Labels, _Pushed, bytes]]] = {}
        for instance_id, pushed in list(self._by_instance.items()):
            # A later push replaces `values`, and does not change them.
            for name, labels in pushed.values:
                families.setdefault(name, []).append((labels, pushed, instance_id))
                yield None
        for name, series in families.items():
            yield f"# HELP {name} Pushed by clients (KIP-714).\n# TYPE {name} gauge\n"
            for labels, pushed, instance_id in series:
                own = {
                    "client_id": pushed.client_id[:TEXT_LENGTH_MAX],
                    "client_instance_id": uuid_text(instance_id),
                }
                text = ",".join(f'{k}="{_escaped(v)}"' for k, v in {**dict(labels), **own}.items())
                yield f"{name}{{{text}}} {pushed.values[name, labels]!r}\n"


def _series_of(message: Any) -> Iterator[tuple[tuple[str, Labels], float]]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind not in ("sum", "gauge"):
                    continue
                name = f"kvorum_client_{_sound(metric.name)}"
                for point in getattr(metric, kind).data_points:
                    value = point.WhichOneof("value")
                    if value is not None:
                        yield (name, _labels(point.attributes)), float(getattr(point, value))


def _labels(attributes: Any) -> Labels:
    found: dict[str, str] = {}
    for attribute in attributes[:LABELS_MAX]:
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "bool_value", "double_value"):
            name = f"attribute_{_sound(attribute.key)}"
            found[name] = str(getattr(attribute.value, kind))[:TEXT_LENGTH_MAX]
    return tuple(sorted(found.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _sound(name: str) -> str:
    """`name` with all characters but letters, digits and underscores replaced, as Prometheus
    requires."""
    return _NOT_IN_NAMES.sub("_", name[:TEXT_LENGTH_MAX])
