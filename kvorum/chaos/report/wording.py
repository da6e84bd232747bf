"""Figures as words, the same in the page, on the command line and in the difference of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvorum.chaos.report.document import FaultRow, Spread

_NODES_NAMED_MAX = 3


def broken(count: int, promise: str) -> str:
    """The count of violations of a promise, such as `1 broken: no record is in the log twice`."""
    return f"{count:,} broken: {promise}"


def milliseconds(value: float | None) -> str:
    """A duration for readers; a dash if there is none."""
    if value is None:
        return "–"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def seconds(value: float) -> str:
    """A moment of the run."""
    return f"{value / 1000:.1f} s"


def struck(nodes: Sequence[str], configuration: dict[str, Any]) -> str:
    """The nodes of a fault, in few words if it struck all of the cluster's, or all brokers."""
    controllers, brokers = (configuration.get(key) or 0 for key in ("controllers", "brokers"))
    hit = sum(node.startswith("broker-") for node in nodes)
    if len(nodes) > _NODES_NAMED_MAX and hit == brokers:
        if len(nodes) == brokers + controllers:
            return f"all {len(nodes)} nodes"
        if len(nodes) == brokers:
            return f"all {brokers} brokers"
    return ", ".join(nodes)


def hits(fault: FaultRow) -> str:
    """The disk calls and packets that a fault hit; empty if it counts none."""
    counts = {
        key: sum(of_node.get(key, 0) for of_node in fault.hits.values())
        for key in ("delayed_syncs", "failed_calls")
    }
    told = [
        f"{count:,} {thing}{'' if count == 1 else 's'} {what}"
        for count, thing, what in (
            (counts["delayed_syncs"], "fsync", "delayed"),
            (counts["failed_calls"], "disk call", "failed"),
            (fault.lost_packets, "packet", "lost"),
        )
        if count
    ]
    return ", ".join(told) or ("hit nothing" if fault.is_without_hit else "")


def unavailable(spread: Spread) -> str:
    """A fault's unavailable times over some partitions: median / longest."""
    if not spread.partitions:
        return "–"
    earlier = spread.continued_from
    if not spread.unavailable_max_ms:
        return f"continued from {', '.join(earlier)}" if earlier else "no outage"
    text = milliseconds(spread.unavailable_max_ms)
    if len(spread.partitions) > 1:
        text = f"{milliseconds(spread.unavailable_p50_ms)} / {text}"
    if spread.not_back:
        text += f", {spread.not_back} not back"
    return f"{text}; another outage continued from {', '.join(earlier)}" if earlier else text
