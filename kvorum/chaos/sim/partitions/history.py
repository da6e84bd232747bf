"""The checks of one partition's replicas and of the answers to its clients.

The checks keep the committed log: all batches below the high watermark of a leader. Every replica
and every answer is compared with it. Facts arrive as `ReplicaView`s and plain numbers, so that a
test can supply a bad history.

Committed records may be lost in two ways only: every replica that vouches for them (the committed
ISR and ELR) has lost its unsynced bytes, or an unclean election is held. `may_lose_from` is the
first offset that may be lost. The next leader's log then decides which records are lost, and
becomes the committed log from there on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvorum.chaos.sim.kernel.checks import check

NOTHING_LOST = 1 << 62


class HeldBatch(NamedTuple):
    """A batch in a log.

    producer: id, epoch and first sequence, None without idempotence.
    """

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer: tuple[int, int, int] | None = None


class Told(NamedTuple):
    """The event at which a leader told a client something, and the leader's epoch as the client
    knew it."""

    event: int
    leader_epoch: int


ReadBatches = Callable[[int, int], Sequence[HeldBatch]]
"""The batches of a log that have any offset from the first up to, but not including, the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica at the end of a turn. process: a count of its broker's processes.

    epoch_of: the epoch of an offset in the replica's own leader-epoch cache.
    """

    broker_id: int
    process: int
    is_leader: bool
    leader_epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int
    durable_end_offset: int
    read: ReadBatches
    epoch_of: Callable[[int], int]


@dataclass(slots=True, kw_only=True)
class ReplicaFacts:
    """Facts about one broker's replica.

    - checked: end of the part that was compared with the committed log.
    - lost_from: its machine lost power or its disk, and only its records below this offset are
      certain; None otherwise.
    - old_watermark: its high watermark when it last needed not match the committed log.
    - deleted_records_offset: a log start that it has reported and that is on its disk.
    """

    process: int = -1
    leader_epoch: int = -1
    end_offset: int = 0
    high_watermark: int = 0
    durable_end_offset: int = 0
    checked: int = 0
    lost_from: int | None = None
    old_watermark: int = 0
    deleted_records_offset: int = 0


@dataclass(slots=True, kw_only=True)
class PartitionHistory:
    """The facts about one partition, and its checks.

    - name: for messages.
    - replicas, isr, vouchers: from the committed metadata, see `on_image`.
    - isr_epoch: the leader epoch in that metadata.
    - batches: the committed log.
    - bases: the batches' base offsets.
    - end_offset: of the committed log.
    - newest_epoch: the newest epoch in which a leader was seen.
    - leaders: epoch to broker.
    - trusted_epoch: the leader epoch of the last loss that did or might happen; -1 for none.
    - may_lose_from: the first offset that may be lost now.
    - known: what was seen of each broker's replica.
    - sequences: (producer id, epoch, first sequence) to the base offset of that batch.
    - cuts: (event, offset, new leader epoch) of each loss that did or might happen.
    - epochs: of each broker, (event, leader epoch) of each epoch that it began to use.
    - losses: the number of losses.
    - deletions: the highest offset that DeleteRecords asked for, by partition name; None if
      retention deletes too.
    - deleted_records_offset: the highest offset whose deletion a client was told.
    """

    name: str
    replicas: frozenset[int] = frozenset()
    isr: frozenset[int] = frozenset()
    isr_epoch: int = -1
    vouchers: frozenset[int] = frozenset()
    batches: list[HeldBatch] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    end_offset: int = 0
    newest_epoch: int = -1
    trusted_epoch: int = -1
    may_lose_from: int = NOTHING_LOST
    leaders: dict[int, int] = field(default_factory=dict)
    known: dict[int, ReplicaFacts] = field(default_factory=dict)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    epochs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    losses: int = 0
    deletions: dict[str, int] | None = None
    deleted_records_offset: int = 0

    # --- the committed state -----------------------------------------------------------------

    def on_image(
        self,
        *,
        replicas: Collection[int],
        isr: Collection[int],
        eligible: Collection[int],
        leader_epoch: int,
        is_unclean: bool,
    ) -> None:
        """Take over the partition's new committed state. is_unclean: the new leader was neither in
        sync nor eligible."""
        if leader_epoch == self.isr_epoch and self.isr.intersection(isr):
            # The leader admits no replica that could bring deleted records back. If an eligible
            # replica is elected while there is no leader, nothing checks it (seed 301036).
            for broker_id in frozenset(isr) - self.isr:
                self.on_deleted(broker_id, self.deleted_records_offset, leader_epoch)
        self.isr, self.isr_epoch = frozenset(isr), leader_epoch
        self.vouchers = self.isr | frozenset(eligible)
        for broker_id in [b for b in self.known if b not in replicas]:
            del self.known[broker_id]
        self.replicas = frozenset(replicas)
        if is_unclean:
            self.may_lose_from = 0
        self._look_at_vouchers()

    def on_memory_lost(self, broker_id: int, *, is_disk_lost: bool = False) -> None:
        """Note that a broker's machine lost power, or that its disk was replaced."""
        known = self.known.get(broker_id)
        if known is None:
            return
        # The broker may lose records even if all seemed to be fsynced: in its last turn it may have
        # appended more, and acknowledged it.
        kept = 0 if is_disk_lost else known.durable_end_offset
        before = NOTHING_LOST if known.lost_from is None else known.lost_from
        known.lost_from = min(kept, before)
        if is_disk_lost:
            known.end_offset = known.durable_end_offset = known.checked = (
                known.deleted_records_offset
            ) = 0
        self._look_at_vouchers()

    def on_deleted(self, broker_id: int, offset: int, leader_epoch: int) -> None:
        """Note that a deletion up to `offset` binds this broker: it had reported its log start to
        the leader of that epoch, which then answered DeleteRecords."""
        if leader_epoch >= self.newest_epoch:
            # Not after an answer of an older epoch: an eligible replica leads by now, and may still
            # have the records (seed 382132).
            self.deleted_records_offset = max(self.deleted_records_offset, offset)
        known = self.known.get(broker_id)
        if known is not None:
            known.deleted_records_offset = max(known.deleted_records_offset, offset)

    def _look_at_vouchers(self) -> None:
        lost = []
        for broker_id in self.vouchers:
            known = self.known.get(broker_id)
            if known is None or known.lost_from is None:
                return
            lost.append(known.lost_from)
        if lost:
            self.may_lose_from = min(self.may_lose_from, *lost)

    # --- replicas ----------------------------------------------------------------------------

    def observe(self, view: ReplicaView, event: int) -> None:
        """Check a replica that has changed. Raises CheckFailed."""
        known = self.known.setdefault(view.broker_id, ReplicaFacts())
        is_new_process = known.process != view.process
        if is_new_process:
            self._check_durable(view, known)
        if is_new_process or view.leader_epoch != known.leader_epoch:
            known.checked = 0
            self.epochs.setdefault(view.broker_id, []).append((event, view.leader_epoch))
        check(
            is_new_process
            or view.high_watermark >= known.high_watermark
            or view.end_offset < known.end_offset,
            "HighWatermarkNeverFalls",
            f"{self.name} on {view.broker_id}: from {known.high_watermark} to "
            f"{view.high_watermark}, and nothing was cut",
        )
        known.high_watermark = view.high_watermark
        known.process, known.leader_epoch = view.process, view.leader_epoch
        known.end_offset = view.end_offset
        # An empty log counts as fsynced at any offset, and has no records to lose.
        has_durable = view.durable_end_offset > view.start_offset
        known.durable_end_offset = view.durable_end_offset if has_durable else 0
        known.checked = min(known.checked, view.end_offset)
        self._check_bounds(view)
        self._check_start(view, known)
        if view.is_leader:
            first = self.leaders.setdefault(view.leader_epoch, view.broker_id)
            check(
                first == view.broker_id,
                "OneLeaderAnEpoch",
                f"{self.name}: {first} and {view.broker_id} lead in epoch {view.leader_epoch}",
            )
            if view.leader_epoch > self.newest_epoch:
                self._judge_election(view, known, event)
            if view.leader_epoch >= self.trusted_epoch:
                self._extend(view)
        if self._is_trusted(view, known):
            self._compare(view, known)
        else:
            known.old_watermark = view.high_watermark
        if known.lost_from is not None and self._holds_all(view):
            known.lost_from = None
        if view.broker_id not in self.replicas:
            # The broker learns of its removal later, deletes the log, and may be a replica again by
            # then (seed 52319).
            del self.known[view.broker_id]

    def _check_bounds(self, view: ReplicaView) -> None:
        check(
            view.start_offset <= view.high_watermark <= view.end_offset,
            "HighWatermarkWithinLog",
            f"{self.name} on {view.broker_id}: start {view.start_offset}, high watermark "
            f"{view.high_watermark}, end {view.end_offset}",
        )

    def _check_start(self, view: ReplicaView, known: ReplicaFacts) -> None:
        if view.start_offset == view.end_offset:
            # The replica starts empty if none of the log was fsynced when the power failed (seed
            # 200071).
            known.deleted_records_offset = min(known.deleted_records_offset, view.start_offset)
        check(
            view.start_offset >= known.deleted_records_offset,
            "DeletedStaysDeleted",
            f"{self.name} on {view.broker_id}: begins at {view.start_offset}, and had told that "
            f"all below {known.deleted_records_offset} is deleted",
        )
        if self.deletions is not None:
            # Without this check a log that begins too high would have no record to compare.
            asked = self.deletions.get(self.name, 0)
            check(
                view.start_offset <= asked,
                "OnlyWhatWasToGoIsDeleted",
                f"{self.name} on {view.broker_id}: begins at {view.start_offset}, asked for was "
                f"what lies below {asked}",
            )

    def _check_durable(self, view: ReplicaView, known: ReplicaFacts) -> None:
        if view.broker_id not in self.isr:
            return  # the process may have ended during a truncation
        expected = min(known.durable_end_offset, self.end_offset)
        check(
            view.end_offset >= expected,
            "DurableSurvives",
            f"{self.name} on {view.broker_id}: fsynced up to {known.durable_end_offset}, ends at "
            f"{view.end_offset} after a start",
        )

    def _judge_election(self, view: ReplicaView, known: ReplicaFacts, event: int) -> None:
        """Check a new leader: it has all committed records, or their loss is allowed."""
        self.newest_epoch = view.leader_epoch
        # A replica that becomes leader without having been in sync may bring deleted records back.
        self.deleted_records_offset = min(self.deleted_records_offset, view.start_offset)
        if self.may_lose_from < view.start_offset:
            # Records below the new leader's log start cannot be compared with its log. If they may
            # be lost and are sent again, they may be new to this leader (seed 340205).
            known_to = bisect_left(self.bases, self.may_lose_from)
            self._forget_sequences(known_to, bisect_left(self.bases, view.start_offset))
        parts_at = self._first_difference(view, view.start_offset)
        if parts_at is not None:
            check(
                parts_at >= self.may_lose_from,
                "CommittedNeverLost",
                f"{self.name}: {view.broker_id} leads epoch {view.leader_epoch} with "
                f"[{view.start_offset}, {view.end_offset}), its log parts at {parts_at} from what "
                f"is committed below {self.end_offset}; lost may be from {self.may_lose_from}",
            )
            # The first difference of an empty log is at the first record of the committed log,
            # which may be compacted, and not at the empty log's end (seed 9570).
            shared_to = self._shared_to(view, min(parts_at, view.end_offset))
            self._cut(shared_to, view.leader_epoch, event)
            self.losses += 1
        elif self.may_lose_from < NOTHING_LOST:
            # No record was lost; but the former leader may continue for a while until it learns of
            # the new one.
            self._cut(self.end_offset, view.leader_epoch, event)
        if view.leader_epoch >= self.isr_epoch:
            # A leader that learns late that its epoch is over proves nothing about the records of
            # the next leader, which was elected uncleanly (seed 51604).
            self.may_lose_from = NOTHING_LOST
            known.lost_from = None
            self._look_at_vouchers()

    def _cut(self, offset: int, epoch: int, event: int) -> None:
        keep = bisect_left(self.bases, offset)
        if keep and self.batches[keep - 1].last_offset >= offset:
            # A compacted log may lack the first record of a batch, so the difference is at a later
            # record; the batch is lost as a whole (seed 4025).
            keep -= 1
            offset = self.bases[keep]
        self.cuts.append((event, offset, epoch))
        self.trusted_epoch = epoch
        self._forget_sequences(keep, len(self.batches))
        del self.batches[keep:], self.bases[keep:]
        self.end_offset = min(self.end_offset, offset)
        self.deleted_records_offset = min(self.deleted_records_offset, offset)
        for known in self.known.values():
            known.checked = min(known.checked, offset)
            known.deleted_records_offset = min(known.deleted_records_offset, offset)

    def _forget_sequences(self, first: int, end: int) -> None:
        """Forget the sequences of these batches."""
        for batch in self.batches[first:end]:
            if batch.producer is not None:
                self.sequences.pop(batch.producer, None)

    def _shared_to(self, view: ReplicaView, parts_at: int) -> int:
        """The end of the committed records that stay, if a leader's log differs from there on."""
        return parts_at

    def _may_have_gaps(self) -> bool:
        """True if the log that becomes the committed one may have gaps."""
        return False

    def _extend(self, view: ReplicaView) -> None:
        """Add the leader's committed records to the committed log; every member of the ISR must
        hold them."""
        if view.high_watermark <= self.end_offset:
            return
        if view.leader_epoch == self.isr_epoch:
            self._check_members(view)
        begin = max(self.end_offset, view.start_offset)
        for batch in view.read(begin, view.high_watermark):
            # The log of an uncleanly elected leader may begin within a batch (seed 201247). The
            # previous leader may have had another batch at exactly that offset (seed 350826).
            is_around_start = batch.base_offset < begin == view.start_offset
            if batch.base_offset < begin and not is_around_start:
                continue
            self._check_batch(view, batch)
            check(
                batch.base_offset == begin or is_around_start or self._may_have_gaps(),
                "OffsetsDense",
                f"{self.name} on {view.broker_id}: {batch.base_offset} follows {begin - 1}",
            )
            if batch.producer is not None:
                first = self.sequences.setdefault(batch.producer, batch.base_offset)
                check(
                    first == batch.base_offset,
                    "DuplicatesDropped",
                    f"{self.name}: producer, epoch and sequence {batch.producer} at {first} and "
                    f"at {batch.base_offset}",
                )
            self.batches.append(batch)
            self.bases.append(batch.base_offset)
            begin = batch.last_offset + 1
        check(
            # the high watermark may be in a gap (seed 60)
            begin == view.high_watermark or self._may_have_gaps(),
            "OffsetsDense",
            f"{self.name} on {view.broker_id}: the log has nothing from {begin} to its high "
            f"watermark {view.high_watermark}",
        )
        self.end_offset = view.high_watermark

    def _check_members(self, view: ReplicaView) -> None:
        for member in self.isr:
            known = self.known.get(member)
            if member == view.broker_id or known is None or known.lost_from is not None:
                continue
            check(
                known.end_offset >= view.high_watermark,
                "IsrMembersHoldTheHighWatermark",
                f"{self.name}: {view.broker_id} says {view.high_watermark} in epoch "
                f"{view.leader_epoch}, {member} of ISR {sorted(self.isr)} ends at "
                f"{known.end_offset}",
            )

    def _check_batch(self, view: ReplicaView, batch: HeldBatch) -> None:
        # The first batch may begin below the log's start.
        epoch = view.epoch_of(max(batch.base_offset, view.start_offset))
        check(
            epoch == batch.epoch,
            "LeaderEpochsAgree",
            f"{self.name} on {view.broker_id}: the batch at {batch.base_offset} is of epoch "
            f"{batch.epoch}, the cache says {epoch}",
        )

    def _is_trusted(self, view: ReplicaView, known: ReplicaFacts) -> bool:
        """True if the replica must match the committed log: after an allowed loss, only once it is
        in sync with the new one.

        The replica must also use the new epoch. A follower that an unclean election put into the
        ISR of epoch 9 may still have its log of epoch 7, before the truncation (seed 1355).
        """
        if self.trusted_epoch < 0:
            return True
        return (
            view.leader_epoch >= self.isr_epoch >= self.trusted_epoch
            and view.broker_id in self.isr
            and known.lost_from is None
        )

    def _compare(self, view: ReplicaView, known: ReplicaFacts) -> None:
        # An unclean election may lower the committed end below a replica's high watermark. The
        # watermark only rises, and a log that equals the new leader's is not truncated (seed
        # 91092). The same holds for a replica that learns of its own unclean election when its
        # epoch is over (seed 350016). Records that may be lost are not checked.
        limit = max(self.end_offset, known.old_watermark)
        is_old = view.leader_epoch < self.trusted_epoch
        check(
            is_old or view.high_watermark <= limit or self.may_lose_from < view.high_watermark,
            "NothingCommittedByFollowers",
            f"{self.name} on {view.broker_id}: high watermark {view.high_watermark}, no leader "
            f"had more than {self.end_offset}",
        )
        # The process of a replica that an unclean election put into the ISR may end before it leads
        # (seed 103107). Records that this election may lose are not required until the loss is
        # decided.
        limit = min(view.high_watermark, self.end_offset, self.may_lose_from)
        begin = max(known.checked, view.start_offset)
        if begin >= limit:
            return
        parts_at = self._first_difference(view, begin, limit)
        check(
            parts_at is None,
            "ReplicasIdenticalBelowHighWatermark",
            f"{self.name} on {view.broker_id}: log [{view.start_offset}, {view.end_offset}) with "
            f"high watermark {view.high_watermark} parts at {parts_at} from what is committed",
        )
        for batch in view.read(begin, limit):
            self._check_batch(view, batch)
        known.checked = limit

    def _holds_all(self, view: ReplicaView) -> bool:
        return (
            view.end_offset >= self.end_offset
            and self._first_difference(view, view.start_offset) is None
        )

    def _first_difference(
        self, view: ReplicaView, begin: int, end: int | None = None
    ) -> int | None:
        """The first offset in [begin, end) at which the replica lacks a committed record or has
        another."""
        end = self.end_offset if end is None else end
        if begin >= end:
            return None
        at = max(bisect_right(self.bases, begin) - 1, 0)
        truth = self.batches
        for batch in view.read(begin, end):
            if at >= len(truth) or truth[at].base_offset >= end:
                break
            if batch != truth[at]:
                return max(min(batch.base_offset, truth[at].base_offset), begin)
            begin = batch.last_offset + 1
            at += 1
        return begin if begin < end else None

    # --- clients -----------------------------------------------------------------------------

    def answer_of(self, broker_id: int, event: int, leader_epoch: int) -> Told:
        """The event of an acknowledged append, and the older of two leader epochs: the epoch that
        the client knew, and the epoch that the broker used at that event (seed 250927)."""
        known = [epoch for since, epoch in self.epochs.get(broker_id, ()) if since <= event]
        return Told(event, min(leader_epoch, known[-1]) if known else leader_epoch)

    def was_cut(self, offset: int, told: Told) -> bool:
        """True if an answer about `offset` may be void: its records may have been lost since, or
        the answering leader had been replaced before the loss without knowing it."""
        return any(
            cut <= offset and (event >= told.event or epoch > told.leader_epoch)
            for event, cut, epoch in self.cuts
        )

    def find(self, offset: int) -> HeldBatch | None:
        """The committed batch that holds `offset`."""
        at = bisect_right(self.bases, offset) - 1
        if at < 0 or self.batches[at].last_offset < offset:
            return None
        return self.batches[at]

    def check_acknowledged(
        self, who: str, base_offset: int, crc: int, told: Told, name: str
    ) -> None:
        """Check a batch that was acknowledged to a client, with acks=all, as at base_offset."""
        if self.was_cut(base_offset, told):
            return
        batch = self.find(base_offset)
        check(
            batch is not None and batch.base_offset == base_offset and batch.crc == crc,
            name,
            f"{self.name}: {who} was told of a batch at {base_offset} with crc {crc:#x}; "
            f"committed there is {batch}, in all below {self.end_offset}",
        )

    def check_read(self, who: str, batch: HeldBatch, told: Told) -> None:
        """Check a batch that a consumer got."""
        if self.was_cut(batch.base_offset, told):
            return
        check(
            self.find(batch.base_offset) == batch,
            "NothingReadAboveHighWatermark",
            f"{self.name}: {who} read {batch}; committed there is "
            f"{self.find(batch.base_offset)}, in all below {self.end_offset}",
        )
