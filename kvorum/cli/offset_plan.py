"""The new offsets of `kvorum groups reset-offsets`, and the file that has them.

The rules are those of kafka-consumer-groups: an offset outside of a partition's log becomes its
nearest end, and a time after the last record is the end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvorum.cli.common import INT32_MAX, INT64_MAX
from kvorum.client.cluster.brokers import Partition
from kvorum.client.cluster.offsets import Bounds


class BadPlan(ValueError):
    """A request for offsets that cannot be; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Partitions of a topic. numbers: empty for all."""

    topic: str
    numbers: tuple[int, ...] = ()


def parse_scope(text: str) -> Scope:
    """`topic` or `topic:0,2`. Raises BadPlan."""
    topic, found, numbers = text.partition(":")
    if not topic:
        raise BadPlan(f"{text!r} has no topic")
    if not found:
        return Scope(topic=topic)
    try:
        chosen = tuple(dict.fromkeys(int(number) for number in numbers.split(",")))
    except ValueError as error:
        raise BadPlan(f"{text!r} is not TOPIC or TOPIC:0,2") from error
    if not all(0 <= number <= INT32_MAX for number in chosen):
        raise BadPlan(f"{text!r} names a partition that cannot be")
    return Scope(topic=topic, numbers=chosen)


def chosen_partitions(
    scopes: Iterable[Scope], counts: Mapping[str, Iterable[int]]
) -> list[Partition]:
    """The partitions of the scopes. counts: the partitions of each topic. Raises BadPlan for one
    that is not there."""
    chosen: dict[Partition, None] = {}
    for scope in scopes:
        known = sorted(counts[scope.topic])
        for number in scope.numbers or known:
            if number not in known:
                raise BadPlan(
                    f"{scope.topic}-{number}: there is no such partition; {scope.topic} has "
                    f"{len(known)}"
                )
            chosen[scope.topic, number] = None
    return list(chosen)


def within(offset: int, bounds: Bounds) -> int:
    """The offset, or the nearer end of the log."""
    return min(max(offset, bounds.start), bounds.end)


def shifted(
    partitions: Iterable[Partition],
    committed: Mapping[Partition, int],
    bounds: Mapping[Partition, Bounds],
    by: int,
) -> dict[Partition, int]:
    """Each committed offset plus `by`. Raises BadPlan for a partition without one."""
    found = {}
    for partition in partitions:
        if partition not in committed:
            topic, number = partition
            raise BadPlan(f"{topic}-{number} has no committed offset to shift")
        found[partition] = within(committed[partition] + by, bounds[partition])
    return found


def read_plan(text: str, group: str, name: str) -> dict[Partition, int]:
    """The offsets of a CSV file: topic,partition,offset or group,topic,partition,offset, as
    kafka-consumer-groups exports them. Rows of other groups are left out. Raises BadPlan."""
    found: dict[Partition, int] = {}
    for line, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 4:
            if cells[0] != group:
                continue
            cells = cells[1:]
        try:
            topic, number, offset = cells[0], int(cells[1]), int(cells[2])
        except (ValueError, IndexError) as error:
            raise _bad_line(name, line, row) from error
        if len(cells) != 3 or not 0 <= number <= INT32_MAX or not 0 <= offset <= INT64_MAX:
            raise _bad_line(name, line, row)
        found[topic, number] = offset
    if not found:
        raise BadPlan(f"{name} has no offset of group {group}")
    return found


def _bad_line(name: str, line: int, row: list[str]) -> BadPlan:
    return BadPlan(f"{name}, line {line}: {','.join(row)!r} is not topic,partition,offset")


def plan_text(offsets: Mapping[Partition, int]) -> str:
    """The file that `read_plan` reads."""
    return "".join(f"{t},{number},{offset}\n" for (t, number), offset in sorted(offsets.items()))
