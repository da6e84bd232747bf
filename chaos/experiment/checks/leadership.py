"""Guarantees about leaders and committed records, from observations.

The observations, by their field `what`:
  quorum     leader_id, leader_epoch, high_watermark: as answered by a controller
  partition  leader, leader_epoch, high_watermark of the event's partition
  watermark  high_watermark of the event's partition as a client saw it
  final-read end_offset of the event's partition after healing
"""

from __future__ import annotations

from kvorum.chaos.experiment.checks.model import CheckResult, Evidence, Findings, whole
from kvorum.chaos.experiment.history import FINAL_READ, Event, details_of

_QUORUM = "quorum"
_PARTITION = "partition"


def two_leaders(evidence: Evidence) -> CheckResult:
    """Two nodes led the quorum, or one partition, in the same epoch."""
    found = Findings("two-leaders", "an epoch has one leader")
    leaders: dict[tuple[int | None, int], int] = {}
    for event in evidence.observations:
        details = details_of(event)
        if details.get("what") == _QUORUM:
            leader = whole(details.get("leader_id"))
        elif details.get("what") == _PARTITION:
            leader = whole(details.get("leader"))
        else:
            continue
        epoch = whole(details.get("leader_epoch"))
        if leader < 0 or epoch < 0:
            continue
        found.examined += 1
        known = leaders.setdefault((event.partition, epoch), leader)
        if known != leader:
            who = "the quorum" if event.partition is None else f"partition {event.partition}"
            found.add(
                f"{who} had leaders {known} and {leader} in epoch {epoch}",
                partition=event.partition,
                value=leader,
            )
    return found.result()


def high_watermark_back(evidence: Evidence) -> CheckResult:
    """A high watermark went back: a committed record is no longer committed.

    Within one epoch a high watermark never falls. The quorum's high watermark, once a new leader
    reports one, is never below that of an older epoch: it moves only past an entry of the leader's
    own epoch, which comes after all older commits. A partition's high watermark may lag for a
    moment after a fail-over (KIP-207), but after healing it is at least the highest one that a
    client has seen.
    """
    found = Findings("high-watermark-back", "what is committed stays committed")
    in_epoch: dict[tuple[int | None, int], int] = {}
    seen: dict[int, int] = {}
    for event in evidence.observations:
        details = details_of(event)
        what = details.get("what")
        if what in (_QUORUM, _PARTITION):
            _check_epoch(found, in_epoch, event)
        if event.partition is None:
            continue
        if what in (_PARTITION, "watermark"):
            high_watermark = whole(details.get("high_watermark"))
            seen[event.partition] = max(seen.get(event.partition, -1), high_watermark)
    for event in evidence.observations:
        details = details_of(event)
        if details.get("what") != FINAL_READ or event.partition is None:
            continue
        end_offset = whole(details.get("end_offset"))
        if end_offset < 0:
            # The partition gave no answer: the check `unread` reports that.
            continue
        found.examined += 1
        highest = _highest_promised(evidence, event.partition, seen)
        if end_offset < highest:
            found.add(
                f"the log ends at {end_offset} after healing, but {highest} was committed",
                partition=event.partition,
                offset=end_offset,
            )
    return found.result()


def _check_epoch(
    found: Findings, in_epoch: dict[tuple[int | None, int], int], event: Event
) -> None:
    details = details_of(event)
    epoch = whole(details.get("leader_epoch"))
    high_watermark = whole(details.get("high_watermark"))
    if epoch < 0 or high_watermark < 0:
        return
    found.examined += 1
    scope = event.partition
    # An answer with an older epoch comes from a deposed leader: it may be behind others, but not
    # behind its own earlier answers.
    floor = in_epoch.get((scope, epoch), -1)
    if scope is None:
        older = (mark for (key, at), mark in in_epoch.items() if key is None and at < epoch)
        floor = max(floor, max(older, default=-1))
    if high_watermark < floor:
        who = "the quorum" if scope is None else f"partition {scope}"
        found.add(
            f"{who} had high watermark {floor}, then {high_watermark} in epoch {epoch}",
            partition=scope,
            offset=high_watermark,
        )
    key = (scope, epoch)
    in_epoch[key] = max(in_epoch.get(key, -1), high_watermark)


def _highest_promised(evidence: Evidence, number: int, seen: dict[int, int]) -> int:
    partition = evidence.partitions.get(number)
    highest = seen.get(number, -1)
    if partition is not None:
        promised = [offset + 1 for _, offset, _ in partition.acknowledged]
        for records in partition.polled.values():
            promised.extend(offset + 1 for _, offset in records)
        highest = max(highest, max(promised, default=-1))
    return highest
