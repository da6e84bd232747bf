"""The contents of `kvorum top`: rates out of two samples of a cluster. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.metadata.image.image import is_under_replicated

Row = dict[str, Any]
Partition = tuple[str, int]

_SUFFIXES = ("", "K", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a cluster.

    at_s: monotonic time. quorum: None without a leader; no_quorum then says why. brokers, topics:
    rows of a backend. sizes: bytes in the data directories by broker; without brokers that did not
    answer. ends: high watermark of each partition with a leader that answered. groups: state by
    name. committed: offsets by group. reassigning: by partition, the replicas that are being added.
    """

    at_s: float
    quorum: Mapping[str, Any] | None
    no_quorum: str
    brokers: Sequence[Mapping[str, Any]]
    topics: Sequence[Mapping[str, Any]]
    sizes: Mapping[int, int]
    ends: Mapping[Partition, int]
    groups: Mapping[str, str]
    committed: Mapping[str, Mapping[Partition, int]]
    reassigning: Mapping[Partition, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The rows of each table; keys are those of `-o json`."""

    quorum: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Row]


def view_of(before: Sample, now: Sample) -> View:
    """The present state, with rates since the earlier sample. A partition, directory or group that
    only one of the samples has, has no rate."""
    seconds = max(now.at_s - before.at_s, 1e-3)
    return View(
        quorum=_quorum(before, now, seconds),
        brokers=_brokers(before, now, seconds),
        topics=_topics(before, now, seconds),
        groups=_groups(before, now, seconds),
    )


def _quorum(before: Sample, now: Sample, seconds: float) -> Row:
    quorum = now.quorum
    if quorum is None:
        known = ("leader_id", "leader_epoch", "voters", "lagging_voters", "high_watermark")
        return {**dict.fromkeys(known), "records_per_s": None, "problem": now.no_quorum}
    rate = None
    if before.quorum is not None:
        rate = _rate(before.quorum["high_watermark"], quorum["high_watermark"], seconds)
    ends = {voter["node_id"]: voter["log_end_offset"] for voter in quorum["voters"]}
    return {
        "leader_id": quorum["leader_id"],
        "leader_epoch": quorum["leader_epoch"],
        "voters": len(ends),
        # A voter whose log ends below the high watermark lacks committed records.
        "lagging_voters": sum(end < quorum["high_watermark"] for end in ends.values()),
        "high_watermark": quorum["high_watermark"],
        "records_per_s": rate,
        "problem": "",
    }


def _brokers(before: Sample, now: Sample, seconds: float) -> list[Row]:
    partitions = [p for topic in now.topics for p in topic["partitions"]]
    rows = []
    for broker in now.brokers:
        broker_id = broker["broker_id"]
        size = now.sizes.get(broker_id)
        earlier = before.sizes.get(broker_id)
        hosted = [p for p in partitions if broker_id in p["replicas"]]
        rows.append(
            {
                "broker_id": broker_id,
                "state": "fenced" if broker["is_fenced"] else "up",
                "leaders": sum(p["leader"] == broker_id for p in hosted),
                "replicas": len(hosted),
                "out_of_sync": sum(broker_id not in p["isr"] for p in hosted),
                "size_bytes": size,
                # Retention and compaction make it shrink, so it may be below 0.
                "bytes_per_s": (
                    None if size is None or earlier is None else (size - earlier) / seconds
                ),
            }
        )
    return rows


def _topics(before: Sample, now: Sample, seconds: float) -> list[Row]:
    """The topics, ordered by records a second, then by name."""
    rows = []
    for topic in now.topics:
        name = topic["topic"]
        keys = [(name, p["partition"]) for p in topic["partitions"]]
        both = [key for key in keys if key in now.ends and key in before.ends]
        # An end that falls (unclean election, a topic made anew) is no negative traffic.
        grown = sum(max(now.ends[key] - before.ends[key], 0) for key in both)
        rows.append(
            {
                "topic": name,
                "partitions": len(keys),
                "offline": sum(p["leader"] < 0 for p in topic["partitions"]),
                "under_replicated": sum(
                    is_under_replicated(
                        p["replicas"], p["isr"], now.reassigning.get((name, p["partition"]), ())
                    )
                    for p in topic["partitions"]
                ),
                "end_offsets": sum(now.ends.get(key, 0) for key in keys),
                "records_per_s": grown / seconds if both else None,
            }
        )
    return sorted(rows, key=lambda row: (-(row["records_per_s"] or 0), row["topic"]))


def _groups(before: Sample, now: Sample, seconds: float) -> list[Row]:
    """The groups, ordered by lag, then by name."""
    rows = []
    for group, state in now.groups.items():
        offsets = now.committed.get(group, {})
        earlier = before.committed.get(group, {})
        both = [key for key in offsets if key in earlier]
        moved = sum(max(offsets[key] - earlier[key], 0) for key in both)
        rows.append(
            {
                "group": group,
                "state": state,
                "partitions": len(offsets),
                "lag": _lag(offsets, now.ends),
                "lag_change": (
                    _lag(offsets, now.ends) - _lag(earlier, before.ends)
                    if group in before.committed
                    else None
                ),
                "records_per_s": moved / seconds if both else None,
            }
        )
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


def _lag(offsets: Mapping[Partition, int], ends: Mapping[Partition, int]) -> int:
    return sum(max(ends[key] - offset, 0) for key, offset in offsets.items() if key in ends)


def _rate(before: int, now: int, seconds: float) -> float:
    return max(now - before, 0) / seconds


def short(value: float | None) -> str:
    """A number in at most six characters: 999, 12.3K, -4.0M; "-" for none."""
    if value is None:
        return "-"
    size = float(value)
    for suffix in _SUFFIXES:
        if abs(size) < 999.5 or suffix == _SUFFIXES[-1]:
            break
        size /= 1000
    if not suffix:
        return f"{size:.0f}" if size == int(size) or abs(size) >= 10 else f"{size:.1f}"
    return f"{size:.0f}{suffix}" if abs(size) >= 99.95 else f"{size:.1f}{suffix}"
