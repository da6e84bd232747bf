"""The lines about partitions and logs in the report of a failed test. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from kvorum.chaos.targets import PartitionView

ROWS_MAX = 30
LOG_LINES_MAX = 12
_INTERNAL = "__"
_TIME_OF_LINE = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_OF_INTERNAL_PARTITION = re.compile(r"\b(__[a-z_]+)-\d+\b")
"""Coordinators load and unload each partition of their topic: hundreds of lines at one fault."""


def ill_lines(
    partitions: Mapping[tuple[str, int], PartitionView], *, own_prefix: str = ""
) -> list[str]:
    """Lines of the partitions that are not well: how many, and each of them, those of the test's
    own topics first. Internal topics have one line together."""
    ill = {
        key: view
        for key, view in sorted(partitions.items())
        if view.leader is None or set(view.isr) != set(view.replicas)
    }
    internal = Counter(topic for topic, _ in ill if topic.startswith(_INTERNAL))
    others = [key for key in ill if not key[0].startswith(_INTERNAL)]
    others.sort(key=lambda key: not key[0].startswith(own_prefix))
    rows = [_row(key, ill[key]) for key in others[:ROWS_MAX]]
    if len(others) > ROWS_MAX:
        rows.append(f"  and {len(others) - ROWS_MAX} more")
    rows += [f"  {topic}: {count} partitions" for topic, count in internal.items()]
    return [f"partitions without a leader or with a shrunk ISR: {len(ill) or 'none'}", *rows]


def _row(key: tuple[str, int], view: PartitionView) -> str:
    isr, replicas = ", ".join(view.isr) or "empty", ", ".join(view.replicas)
    return f"  {key[0]}/{key[1]}: leader {view.leader}, ISR {isr} of {replicas}"


def log_end(lines: Sequence[str], *, since: str = "") -> list[str]:
    """The last lines of a node's log, without those about partitions of internal topics, which are
    counted. since: local time such as 2026-01-31T10:20:30; older lines are left out. A line
    without a time, as of a traceback, belongs to the line before it."""
    kept: list[str] = []
    internal: Counter[str] = Counter()
    time = ""
    for line in lines:
        found = _TIME_OF_LINE.match(line)
        time = time if found is None else f"{found[1]}T{found[2]}"
        topic = _OF_INTERNAL_PARTITION.search(line)
        if time < since:
            continue
        if topic is None:
            kept.append(line)
        else:
            internal[topic[1]] += 1
    cut = len(kept) - LOG_LINES_MAX
    shown = [f"({cut} earlier lines)", *kept[-LOG_LINES_MAX:]] if cut > 0 else kept
    shown = shown or ["(no line since the first fault)" if since else "(no line)"]
    return [*shown, *(f"({n} lines about partitions of {name})" for name, n in internal.items())]
