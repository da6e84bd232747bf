"""The figures of share-partitions that only their leaders' metrics have: records in flight, and how
often they were delivered. Pure.

A share-partition has figures while a member of its group fetches from its leader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvorum.runtime.errors import KvorumError

SharePartitionName = tuple[str, str, int]
"""(group, topic, partition)."""
Row = dict[str, int]

_PREFIX = "kvorum_share_partition_"
_OF_BROKERS = "kvorum_share_partitions "
"""The beginning of a line that each broker's page has, by Kvorum's own names."""
_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\d{1,18})\n?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)",?')
_PARTITION = re.compile(r"[0-9]{1,10}")
_ESCAPE = re.compile(r"\\(.)")
_KEYS = {
    ("in_flight_records", ""): "in_flight",
    ("acquired_records", ""): "held",
    ("unsettled_records", "1"): "delivered_once",
    ("unsettled_records", "2"): "delivered_twice",
    ("unsettled_records", "3+"): "delivered_more",
}
"""The key of a row by the rest of the metric's name and the label `deliveries`."""

NO_PAGES = (
    "Records in flight and deliveries are counted by the brokers' metrics alone, and this console "
    "reads none: start it with --metrics HOST:PORT for each broker's metrics.listener."
)


class BadPage(KvorumError):
    """A page of metrics that is not one of a broker of Kvorum; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFigures:
    """One reading of the brokers' pages.

    rows: by share-partition, with the keys in_flight, held, delivered_once, delivered_twice and
        delivered_more, as far as the page has them.
    pages: number of pages that were read.
    problems: a sentence for each page that was not.
    """

    rows: Mapping[SharePartitionName, Row] = field(default_factory=dict)
    pages: int = 0
    problems: tuple[str, ...] = ()

    def note(self, brokers: int) -> str | None:
        """What is missing, or None. brokers: of the cluster."""
        if self.problems:
            return f"Figures are missing: {'; '.join(self.problems)}."
        if self.pages < brokers:
            return (
                f"Only {self.pages} of {brokers} brokers' metrics are read: give --metrics for the "
                "others, too."
            )
        return None


def figures_of(page: Iterable[str]) -> dict[SharePartitionName, Row]:
    """The rows of one page, from its lines. Raises BadPage."""
    rows: dict[SharePartitionName, Row] = {}
    is_broker = False
    for line in page:
        is_broker = is_broker or line.startswith(_OF_BROKERS)
        if not line.startswith(_PREFIX):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise BadPage(f"the line {line.strip()[:80]!r} is no metric of a share-partition")
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(sample[2])}
        key = _KEYS.get((sample[1].removeprefix(_PREFIX), labels.get("deliveries", "")))
        if key is None:
            continue
        where = _name_of(labels)
        if where is None:
            raise BadPage(f"the line {line.strip()[:80]!r} names no group, topic and partition")
        rows.setdefault(where, {})[key] = int(sample[3])
    if not is_broker:
        raise BadPage(
            "it has no metrics of a broker by Kvorum's names (metrics.names must have kvorum)"
        )
    return rows


def _name_of(labels: Mapping[str, str]) -> SharePartitionName | None:
    group, topic, partition = (labels.get(name) for name in ("group", "topic", "partition"))
    if group is None or topic is None or partition is None:
        return None
    return (group, topic, int(partition)) if _PARTITION.fullmatch(partition) else None


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
