"""Guarantees about leaders and committed records, from observations.

The observations, by their field `what`:
  quorum     leader_id, leader_epoch, high_watermark: as answered by a controller
  partition  leader, leader_epoch of the event's partition, as answered by a broker; high_watermark
             if the history has one (the observer of live runs writes none)
  watermark  high_watermark of the event's partition as a client saw it
  group      group, members: each member's [topic, partition] pairs, as its coordinator says
  final-read start_offset, end_offset, next_offset of the event's partition after healing
"""

from __future__ import annotations

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.evidence import PartitionEvidence
from kvorum.chaos.checks.gather import Fold, Key
from kvorum.chaos.checks.results import Board, whole
from kvorum.chaos.history import OBSERVE, Event, details_of

_QUORUM = "quorum"
_PARTITION = "partition"
_WATERMARK = "watermark"


class Leadership:
    """A fold over observations; its state has the size of the epochs. None stands for the quorum
    in the place of a partition."""

    def __init__(self, board: Board) -> None:
        self._two_leaders = board[catalogue.TWO_LEADERS]
        self._back = board[catalogue.HIGH_WATERMARK_BACK]
        self._leaders: dict[tuple[Key | None, int], int] = {}
        self._in_epoch: dict[tuple[Key | None, int], int] = {}
        self._seen: dict[Key, int] = {}
        #: The quorum's newest epoch, and the highest watermark of all epochs before it.
        self._newest_epoch = self._before_newest = -1
        #: The first high watermark that the quorum's leader reported in an epoch.
        self._first_in_epoch: dict[int, int] = {}

    def folds(self) -> dict[str, Fold]:
        """By the function of the events that each takes."""
        return {OBSERVE: self._observe}

    def _observe(self, event: Event) -> None:
        details = details_of(event)
        what = details.get("what")
        key = None if event.partition is None else (event.topic or "", event.partition)
        if what == _QUORUM:
            self._look_at_leader(None, whole(details.get("leader_id")), event)
            self._look_at_watermark(None, event)
        elif what == _PARTITION and key is not None:
            self._look_at_leader(key, whole(details.get("leader")), event)
            self._look_at_watermark(key, event)
        if what in (_PARTITION, _WATERMARK) and key is not None:
            high_watermark = whole(details.get("high_watermark"))
            self._seen[key] = max(self._seen.get(key, -1), high_watermark)

    def _look_at_leader(self, key: Key | None, leader: int, event: Event) -> None:
        """Note the leader of this epoch; an anomaly if the quorum, or the partition, had another
        one in the same epoch."""
        epoch = whole(details_of(event).get("leader_epoch"))
        if leader < 0 or epoch < 0:
            return
        self._two_leaders.examined += 1
        known = self._leaders.setdefault((key, epoch), leader)
        if known != leader:
            self._two_leaders.add(
                f"{_named(key)} had leaders {known} and {leader} in epoch {epoch}",
                topic=event.topic,
                partition=event.partition,
                value=leader,
            )

    def _look_at_watermark(self, key: Key | None, event: Event) -> None:
        """Note a high watermark; an anomaly if it has fallen.

        Within one epoch it never does. A new leader of the quorum begins with the one that it knew
        as a follower, which may be behind. Once it moves, it is never below that of an older epoch:
        it moves only past an entry of the leader's own epoch, which comes after all older commits.
        A partition's high watermark may lag for a moment after a fail-over (KIP-207); `finish`
        looks at it after healing.
        """
        details = details_of(event)
        epoch = whole(details.get("leader_epoch"))
        high_watermark = whole(details.get("high_watermark"))
        if epoch < 0 or high_watermark < 0:
            return
        self._back.examined += 1
        # An answer with an older epoch comes from a deposed leader: it may be behind others, but
        # not behind its own earlier answers.
        floor = self._in_epoch.get((key, epoch), -1)
        if key is None:
            has_moved = high_watermark > self._first_in_epoch.setdefault(epoch, high_watermark)
            older = self._of_older_epochs(epoch)
            floor = max(floor, older) if has_moved else floor
        if high_watermark < floor:
            self._back.add(
                f"{_named(key)} had high watermark {floor}, then {high_watermark} in epoch {epoch}",
                topic=event.topic,
                partition=event.partition,
                offset=high_watermark,
            )
        own = (key, epoch)
        self._in_epoch[own] = max(self._in_epoch.get(own, -1), high_watermark)
        if key is None and epoch < self._newest_epoch:
            self._before_newest = max(self._before_newest, high_watermark)

    def _of_older_epochs(self, epoch: int) -> int:
        """The quorum's highest watermark in the epochs before this one."""
        if epoch == self._newest_epoch:
            return self._before_newest
        highest = max(
            (mark for (key, at), mark in self._in_epoch.items() if key is None and at < epoch),
            default=-1,
        )
        if epoch > self._newest_epoch:
            self._newest_epoch, self._before_newest = epoch, highest
        return highest

    def finish(self, partition: PartitionEvidence) -> None:
        """Compare the log's end after healing with the highest offset that a client was told."""
        reached = partition.final_read
        if reached is None or reached.end_offset < 0:
            # The partition gave no answer: the check `unread` reports that.
            return
        self._back.examined += 1
        highest = max(
            self._seen.get((partition.topic, partition.number), -1),
            int(partition.acked_offsets.max(initial=-2)) + 1,
            int(partition.read_offsets.max(initial=-2)) + 1,
        )
        if reached.end_offset < highest:
            self._back.add(
                f"the log ends at {reached.end_offset} after healing, but {highest} was committed",
                topic=partition.topic,
                partition=partition.number,
                offset=reached.end_offset,
            )


def _named(key: Key | None) -> str:
    return "the quorum" if key is None else f"partition {key[0]}-{key[1]}"
