"""A row of the table of metrics, and its lines on the page. Pure.

A row has one name of Kvorum's and, where Apache Kafka measures the same, the MBean and the name
that Strimzi's rules for the JMX exporter give it. `source` is an attribute path in each item of
the row's scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from kvorum.runtime.metrics import Histogram

OWN, KAFKA = "kvorum", "kafka"
NAME_SETS = (OWN, KAFKA)
"""Values of `metrics.names`."""
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

LABELS: dict[str, tuple[str, ...]] = {
    "node": (),
    "topics": (),
    "api": ("api",),
    "error": ("api", "error"),
    "topic": ("topic",),
    "replica": ("topic", "partition"),
    "led": ("topic", "partition"),
    "directory": ("directory",),
    "listener": ("listener",),
    "operation": ("operation",),
    "role": ("state",),
    "follower": ("node_id",),
    "groups": ("type",),
    "transactions": ("state",),
    "certificate": ("listener", "side"),
    "share_groups": ("state",),
    "share_partition": ("group", "topic", "partition"),
    "share_deliveries": ("group", "topic", "partition", "deliveries"),
    "share_shards": ("state",),
    "acknowledgements": ("type",),
}
"""The labels of each scope: the set of items that a row has a value of."""
KAFKA_LABELS = {
    "api": "request",
    "directory": "logDirectory",
    "operation": "delayedOperation",
    "role.state": "current_state",
    "node_id": "replica-id",
    "groups.type": "protocol",
    "acknowledgements.type": "ackType",
}
"""The JMX exporter's labels where they differ, in every scope or (scope.label) in one; a listener
also gets a network processor, of which a broker has one."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

Item = tuple[tuple[str, ...], Any]
"""(values of the scope's labels, escaped; the item)."""
Scope = Callable[[], Iterator[Item | None]]
"""Goes over the items of a scope; None is a step of work without an item."""


class Row(NamedTuple):
    """One metric.

    exported: the JMX exporter's name, "" if Kafka does not have it.
    scale: what the value is multiplied by there (Kafka has milliseconds).
    name: "" if Kvorum's own names have the value in another row.
    """

    name: str
    kind: str
    scope: str
    source: str
    help: str
    mbean: str = ""
    exported: str = ""
    scale: float = 1.0


def own_lines(row: Row, scope: Scope) -> Iterator[str | None]:
    """The lines of a row by its own name, None for a step of work without a line."""
    names = LABELS[row.scope]
    form = ",".join(f'{name}="%s"' for name in names)
    yield f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n"
    get = attrgetter(row.source)
    head, braces = row.name, f"{{{form}}}" if names else ""
    for found in scope():
        if found is None:
            yield None
            continue
        values, item = found
        value = get(item)
        if row.kind == HISTOGRAM:
            yield from _buckets(head, form % values, value)
        elif value is not None:
            yield f"{head}{braces % values} {number(value)}\n"


def kafka_lines(
    rows: Sequence[Row], scopes: Mapping[str, Scope], now_s: float
) -> Iterator[str | None]:
    """The lines of the rows that share an exported name."""
    first = rows[0]
    kind = COUNTER if first.exported.endswith("_total") else GAUGE
    yield f"# HELP {first.exported} {first.mbean}\n# TYPE {first.exported} {kind}\n"
    for row in rows:
        yield from _kafka_row(row, scopes[row.scope], now_s)
    if first.kind == HISTOGRAM:
        # A family of its own, which must not stand between the lines of another.
        name = f"{first.exported}_count"
        yield f"# HELP {name} {first.mbean}\n# TYPE {name} untyped\n"
        for row in rows:
            yield from _kafka_counts(row, scopes[row.scope], name)


def _kafka_row(row: Row, scope: Scope, now_s: float) -> Iterator[str | None]:
    form, get = kafka_form(row), attrgetter(row.source)
    for found in scope():
        if found is None:
            yield None
            continue
        values, item = found
        value = get(item)
        if row.kind == HISTOGRAM:
            counts = value.recent(now_s)
            comma = "," if form else ""
            for q in QUANTILES:
                at = f'{form % values}{comma}quantile="{q}"'
                scaled = value.quantile(float(q), counts) * row.scale
                yield f"{row.exported}{{{at}}} {number(scaled)}\n"
        elif value is not None:
            scaled = value * row.scale if row.scale != 1.0 else value
            braces = f"{{{form % values}}}" if form else ""
            yield f"{row.exported}{braces} {number(scaled)}\n"


def _kafka_counts(row: Row, scope: Scope, name: str) -> Iterator[str | None]:
    form, get = kafka_form(row), attrgetter(row.source)
    for found in scope():
        if found is None:
            yield None
        else:
            braces = f"{{{form % found[0]}}}" if form else ""
            yield f"{name}{braces} {get(found[1]).count}\n"


def kafka_labels(scope: str) -> list[str]:
    """The JMX exporter's names for the labels of a scope."""
    return [
        KAFKA_LABELS.get(f"{scope}.{name}") or KAFKA_LABELS.get(name, name)
        for name in LABELS[scope]
    ]


def kafka_form(row: Row) -> str:
    """The labels of a row as the JMX exporter has them, with a place for each value."""
    form = ",".join(f'{name}="%s"' for name in kafka_labels(row.scope))
    return f'{form},networkProcessor="0"' if row.scope == "listener" else form


def _buckets(name: str, labels: str, value: Histogram) -> Iterator[str]:
    comma, total = "," if labels else "", 0
    braces = f"{{{labels}}}" if labels else ""
    for bound, count in zip((*value.bounds, math.inf), list(value.counts), strict=True):
        total += count
        yield f'{name}_bucket{{{labels}{comma}le="{number(bound)}"}} {total}\n'
    yield f"{name}_sum{braces} {number(value.sum)}\n{name}_count{braces} {total}\n"


def number(value: float) -> str:
    """A value as Prometheus reads it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
