"""The tables of docs/metrics.md: `python -m kvorum.launch.metrics.document` prints them, and a test
compares."""

from __future__ import annotations

import sys

from kvorum.launch.metrics.broker_rows import BROKER_ROWS
from kvorum.launch.metrics.controller_rows import CONTROLLER_ROWS
from kvorum.launch.metrics.node_rows import NODE_ROWS
from kvorum.launch.metrics.row import KAFKA, LABELS, OWN, Row, kafka_labels

_GROUPS = (
    ("Every node", NODE_ROWS),
    ("Controllers", CONTROLLER_ROWS),
    ("Brokers", BROKER_ROWS),
)
_HEAD = """\
| name, labels | kind | source | means |
| --- | --- | --- | --- |
"""
_KAFKA_HEAD = """\
| exported name, labels | MBean of Apache Kafka | from | times |
| --- | --- | --- | --- |
"""


def markdown() -> dict[str, str]:
    """The tables by Kvorum's names and by the JMX exporter's, with a section for each group."""
    own = [f"### {title}\n\n{_HEAD}" + "".join(map(_own, rows)) for title, rows in _GROUPS]
    kafka = [
        f"### {title}, Kafka's names\n\n{_KAFKA_HEAD}" + "".join(map(_kafka, rows))
        for title, rows in _GROUPS
    ]
    return {OWN: "\n".join(own), KAFKA: "\n".join(kafka)}


def _own(row: Row) -> str:
    if not row.name:
        return ""
    labels = ",".join(LABELS[row.scope])
    name = f"{row.name}{{{labels}}}" if labels else row.name
    return f"| `{name}` | {row.kind} | {row.source} | {row.help} |\n"


def _kafka(row: Row) -> str:
    if not row.exported:
        return ""
    names = kafka_labels(row.scope)
    if row.scope == "listener":
        names.append("networkProcessor")
    name = f"{row.exported}{{{','.join(names)}}}" if names else row.exported
    source = f"`{row.name}`" if row.name else row.source
    times = "" if row.scale == 1.0 else f"{row.scale:g}"
    return f"| `{name}` | {row.mbean} | {source} | {times} |\n"


if __name__ == "__main__":
    sys.stdout.write("\n".join(markdown().values()))
