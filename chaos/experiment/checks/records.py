"""Guarantees about records: none is lost, duplicated, moved or invented; consumers move forward and
see all.

Names and meanings follow Jepsen's Kafka checks. Every check is linear in the history.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.chaos.experiment.checks.model import CheckResult, Evidence, Findings, PartitionEvidence


def lost(evidence: Evidence) -> CheckResult:
    """An acknowledged record is missing from the final read.

    If the final read stopped early, the check `unread` covers the records from there on.
    """
    found = Findings("lost", "every acknowledged record is in the log after healing")
    for number, partition in _sorted(evidence):
        present = {value for value, _ in partition.final}
        reached = partition.final_read.next_offset if partition.final_read else 0
        for value, offset, _ in partition.acknowledged:
            if offset >= reached:
                continue
            found.examined += 1
            if value not in present:
                found.add(
                    f"value {value} was acknowledged at offset {offset} and is gone",
                    partition=number,
                    value=value,
                    offset=offset,
                )
    return found.result()


def unread(evidence: Evidence) -> CheckResult:
    """The final read did not reach the high watermark, or the log ends below an acknowledged
    record."""
    found = Findings("unread", "after healing every partition can be read to its end")
    for number, partition in _sorted(evidence):
        found.examined += 1
        reached = partition.final_read
        if reached is None:
            found.add("there was no final read", partition=number)
        elif reached.end_offset < 0:
            found.add("the partition gave no answer after healing", partition=number)
        elif not reached.is_complete:
            found.add(
                f"the final read stopped at offset {reached.next_offset} of {reached.end_offset}",
                partition=number,
                offset=reached.next_offset,
            )
    return found.result()


def duplicate(evidence: Evidence) -> CheckResult:
    """One value is at two offsets."""
    found = Findings("duplicate", "no record is in the log twice")
    for number, partition in _sorted(evidence):
        first_at: dict[int, int] = {}
        for value, offset in partition.final:
            found.examined += 1
            earlier = first_at.setdefault(value, offset)
            if earlier != offset:
                found.add(
                    f"value {value} is at offsets {earlier} and {offset}",
                    partition=number,
                    value=value,
                    offset=offset,
                )
    return found.result()


def reordered(evidence: Evidence) -> CheckResult:
    """Two acknowledged records of one producer are in the log in the wrong order.

    A producer writes rising values to a partition, so offsets must rise with the values.
    """
    found = Findings("reordered", "records of one producer keep their order")
    for number, partition in _sorted(evidence):
        writers: dict[str, list[tuple[int, int]]] = {}
        for value, offset, process in partition.acknowledged:
            writers.setdefault(process, []).append((value, offset))
        for records in writers.values():
            records.sort()
            highest = -1
            for value, offset in records:
                found.examined += 1
                if offset < highest:
                    found.add(
                        f"value {value} is at offset {offset}, an earlier value is at {highest}",
                        partition=number,
                        value=value,
                        offset=offset,
                    )
                highest = max(highest, offset)
    return found.result()


def inconsistent_offset(evidence: Evidence) -> CheckResult:
    """Two values were seen at one offset: in acknowledgements, polls or the final read."""
    found = Findings("inconsistent-offset", "an offset holds one record, for ever and for all")
    for number, partition in _sorted(evidence):
        at: dict[int, tuple[int, str]] = {}
        for value, offset, seen in _sightings(partition):
            found.examined += 1
            known_value, known_from = at.setdefault(offset, (value, seen))
            if known_value != value:
                found.add(
                    f"offset {offset} holds {known_value} ({known_from}) and {value} ({seen})",
                    partition=number,
                    value=value,
                    offset=offset,
                )
    return found.result()


def nonmonotonic_poll(evidence: Evidence) -> CheckResult:
    """A consumer that did not seek went back or read an offset twice."""
    found = Findings("nonmonotonic-poll", "a consumer only goes forward")
    for number, partition in _sorted(evidence):
        for process, records in sorted(partition.polled.items()):
            previous = -1
            for value, offset in records:
                found.examined += 1
                if offset <= previous:
                    found.add(
                        f"{process} polled offset {offset} after {previous}",
                        partition=number,
                        value=value,
                        offset=offset,
                    )
                previous = offset
    return found.result()


def skipped_poll(evidence: Evidence) -> CheckResult:
    """A consumer skipped a record that is in the log."""
    found = Findings("skipped-poll", "a consumer leaves nothing out")
    for number, partition in _sorted(evidence):
        for process, records in sorted(partition.polled.items()):
            if not records:
                continue
            polled = {offset for _, offset in records}
            low, high = min(polled), max(polled)
            for value, offset in partition.final:
                if low <= offset <= high:
                    found.examined += 1
                    if offset not in polled:
                        found.add(
                            f"{process} never polled offset {offset}, between {low} and {high}",
                            partition=number,
                            value=value,
                            offset=offset,
                        )
    return found.result()


def unseen(evidence: Evidence) -> CheckResult:
    """A continuous consumer that read from the start did not get an acknowledged record."""
    found = Findings("unseen", "what is acknowledged reaches a consumer that keeps reading")
    for number, partition in _sorted(evidence):
        for process, records in sorted(partition.polled.items()):
            seen = {value for value, _ in records}
            for value, offset, _ in partition.acknowledged:
                found.examined += 1
                if value not in seen:
                    found.add(
                        f"{process} never saw value {value}, acknowledged at offset {offset}",
                        partition=number,
                        value=value,
                        offset=offset,
                    )
    return found.result()


def phantom(evidence: Evidence) -> CheckResult:
    """A consumer read a value that no producer wrote, or whose write certainly failed (aborted
    read, G1a)."""
    found = Findings("phantom", "only written records are read, no failed ones")
    for number, partition in _sorted(evidence):
        reads = [("the final read", partition.final), *sorted(partition.polled.items())]
        for process, records in reads:
            for value, offset in records:
                found.examined += 1
                if value in partition.failed:
                    reason = "its write failed"
                elif value not in partition.invoked:
                    reason = "nobody wrote it"
                else:
                    continue
                found.add(
                    f"{process} read value {value}, but {reason}",
                    partition=number,
                    value=value,
                    offset=offset,
                )
    return found.result()


def _sorted(evidence: Evidence) -> list[tuple[int, PartitionEvidence]]:
    return sorted(evidence.partitions.items())


def _sightings(partition: PartitionEvidence) -> Iterator[tuple[int, int, str]]:
    for value, offset, _ in partition.acknowledged:
        yield value, offset, "acknowledged"
    for process, records in sorted(partition.polled.items()):
        for value, offset in records:
            yield value, offset, process
    for value, offset in partition.final:
        yield value, offset, "final read"
