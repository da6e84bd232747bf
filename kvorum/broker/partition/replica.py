"""One replica: the pure core, its log, and the requests that wait for them. The driver of a
partition.

Every method is synchronous and runs on the event loop, but for `sync_identity`, which the flush
thread may call; appends are writes to the page cache. Rules are in `partition` and `storage`; this
file carries facts between them and wakes waiting requests.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvorum.broker.config.topic_config import TopicConfig
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.metrics.counters import TopicMetrics
from kvorum.broker.partition.core.batch_validation import ProduceTerms, checked_header, refusal
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.refused_sequences import RefusedSequences, check_sequence
from kvorum.broker.partition.core.truncation import is_of_another_history, truncation_offset
from kvorum.broker.partition.core.verification import Verifications, admit
from kvorum.broker.partition.future_replica import FutureReplica
from kvorum.broker.partition.watchers import Watcher
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.purgatory.pending_produce import PendingAck, PendingProduce
from kvorum.metadata.image.image import PartitionImage
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, ErrorCode, shortage_of
from kvorum.storage.files.checkpoints import put_partition_metadata, sync_partition_metadata
from kvorum.storage.format.batch import (
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    stamp_log_append_time,
)
from kvorum.storage.log.log import Log
from kvorum.storage.log.retention import apply_retention
from kvorum.wire.produce_codec import ProducedPartition

_log = logging.getLogger(__name__)


class ReplicaObserver(NamedTuple):
    """The functions of the coordinator that lives in a replica's log; called at every change.

    on_replica: the role, the leader epoch or the disk's state changed, or the replica is closed.
    """

    on_replica: Callable[[Replica], None]
    on_high_watermark: Callable[[Replica], None]


class Replica:
    """One replica of a partition on this broker. See the docstring of this module.

    is_offline: true after a disk error; requests get KAFKA_STORAGE_ERROR until the replica is
        opened again.
    log_dir: the data directory of its log.
    on_failed: called once after a disk call failed or damage was found, with the operation.
    """

    __slots__ = (
        "config",
        "core",
        "disk",
        "future",
        "has_identity",
        "has_lacked",
        "identity_unsynced",
        "is_closed",
        "is_offline",
        "log",
        "log_dir",
        "loop_turn",
        "lower_checkpoints",
        "metrics",
        "observer",
        "on_failed",
        "on_first_file",
        "pending_acks",
        "pending_deletions",
        "recompressing",
        "refused",
        "uncleanable",
        "verifications",
        "watchers",
    )

    def __init__(
        self, *, core: Partition, log: Log, config: TopicConfig, disk: Disk, loop_turn: LoopTurn,
        has_identity: bool,
        lower_checkpoints: Callable[[str, int, int, int], None],
        on_first_file: Callable[[Replica], None],
        log_dir: LogDirectory,
        on_failed: Callable[[Replica, OSError | CorruptData, str], None],
        metrics: TopicMetrics | None = None,
    ) -> None:  # fmt: skip
        """metrics: the broker's counters of the topic; by default counters that nothing reads."""
        self.metrics = metrics or TopicMetrics(core.topic)
        self.core = core
        self.log_dir = log_dir
        self.on_failed = on_failed
        self.log = log
        self.config = config
        self.disk = disk
        self.loop_turn = loop_turn
        self.lower_checkpoints = lower_checkpoints
        self.on_first_file = on_first_file
        self.has_identity = has_identity
        self.has_lacked = False
        self.identity_unsynced = False
        self.is_closed = False
        self.is_offline = False
        #: The reason why the log cleaner skips this log; "" if it does not.
        self.uncleanable = ""
        #: The copy that moves to another directory; None if no move is under way.
        self.future: FutureReplica | None = None
        self.observer: ReplicaObserver | None = None
        #: Transactional batches that the coordinator has not verified yet; each item is called with
        #: the result.
        self.verifications: Verifications[Callable[[ErrorCode], None]] = Verifications()
        self.watchers: dict[Watcher, None] = {}
        self.pending_acks: deque[PendingAck] = deque()
        #: DeleteRecords requests that wait, each called when it is to check this replica again.
        self.pending_deletions: list[Callable[[Replica], None]] = []
        self.refused = RefusedSequences()
        #: Produced batches that wait for their recompression.
        self.recompressing = 0

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.core.topic, self.core.partition_id

    @property
    def high_watermark(self) -> int:
        return self.core.high_watermark

    # --- roles -------------------------------------------------------------------------------

    def reconfigure(self, config: TopicConfig, now_ms: int) -> None:
        """Adopt the topic's new configs."""
        self.config = config
        self.log.reconfigure(config.log)
        self.core.min_insync_replicas = config.min_insync_replicas
        if self.core.raise_high_watermark(now_ms):
            self.on_high_watermark()

    def become_leader(self, image: PartitionImage, now_ms: int) -> bool:
        """Lead as `image` says. Returns False, and does nothing, if the image is older than the
        log.

        A broker that restarts replays old metadata. An epoch below the log's latest one ended long
        ago; leading in it would write a second history.
        """
        if image.leader_epoch < self.log.epochs.latest_epoch:
            return False
        self.core.end_offset = self.log.end_offset
        has_led = self.core.is_leader
        if has_led and image.leader_epoch == self.core.leader_epoch:
            self.metrics.note_isr(self.core.isr_state.isr, frozenset(image.isr))
        if self.core.become_leader(image, now_ms):
            self.log.epochs.assign(image.leader_epoch, self.log.end_offset)
            if not has_led:
                # Not if this broker led before: then the refused and waiting batches are known
                # here, and forgetting them could append one twice.
                self.refused.clear()
                self.verifications.on_leadership()
                # Earlier leaders answered DeleteRecords only after this replica had reported its
                # start, or admitted it to the ISR with that start.
                self.core.deleted_records_offset = self.log.start_offset
                self.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.core.raise_high_watermark(now_ms):
            self.on_high_watermark()
        self.on_low_watermark()
        self.notify_state_change()
        return True

    def become_follower(self, image: PartitionImage) -> bool:
        """Follow the leader that `image` names. True if its leader epoch is new."""
        is_new = self.core.become_follower(image)
        if is_new:
            self.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.notify_state_change()
        return is_new

    def close(self, error: ErrorCode) -> None:
        """Close the replica: waiting requests get `error` or are checked again."""
        self.is_closed = True
        self.fail_pending(error)
        self.notify_state_change()
        for watched in self.watchers:
            watched.replica = None
        self.watchers.clear()

    # --- leader ------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, terms: ProduceTerms, *, is_verified: bool = False,
        checked: BatchHeader | None = None,
    ) -> tuple[ProducedPartition, int]:  # fmt: skip
        """Append a client's batch (a writable buffer; offsets are written into it).

        is_verified: see `verification.admit`.
        checked: the batch's header, if it has been checked.
        Returns the partition's answer and, for acks=-1, the offset that the high watermark must
        reach before the answer may be sent (0: send it at once).
        """
        core = self.core
        partition_id = core.partition_id
        error = self._unserved() or core.check_produce(terms.acks)
        has_too_few_replicas = error == ErrorCode.NOT_ENOUGH_REPLICAS
        if error != ErrorCode.NONE and not has_too_few_replicas:
            leader = None
            is_known = core.leader >= 0 and not core.is_abandoned
            if error == ErrorCode.NOT_LEADER_OR_FOLLOWER and is_known:
                leader = (core.leader, core.leader_epoch)
            return ProducedPartition(partition_id, error.value, current_leader=leader), 0
        log = self.log
        try:
            header = checked or checked_header(
                batch,
                self.config,
                name=f"{core.topic}-{partition_id}",
                version=terms.version,
                wall_ms=terms.wall_ms,
                unpacking=terms.unpacking,
            )
            duplicate = check_sequence(
                log.producers, self.refused, header, has_too_few_replicas=has_too_few_replicas
            )
            if duplicate is not None:
                append_time_ms = duplicate.timestamp_ms if self.config.is_log_append_time else -1
                answer = self._produced(duplicate.base_offset, append_time_ms)
                return answer, self._wait_until(duplicate.last_offset + 1, terms)
            if header.attributes & TRANSACTIONAL_BIT:
                admit(log.producers, self.verifications, header, terms.version, is_verified)
            append_time_ms = -1
            if self.config.is_log_append_time:
                append_time_ms = terms.wall_ms
                stamp_log_append_time(batch, 0, header, timestamp_ms=append_time_ms)
            appended = log.append_as_leader(
                batch,
                leader_epoch=core.leader_epoch,
                now_ms=terms.wall_ms,
                # The new timestamp has changed the header.
                header=None if self.config.is_log_append_time else header,
            )
            if not self.has_identity:
                self.write_identity()
        except BatchError as refused:
            self.metrics.failed_produce_requests += 1
            return refusal(partition_id, refused), 0
        except (OSError, CorruptData) as failure:
            self.fail(failure, "append")
            self.metrics.failed_produce_requests += 1
            error = ErrorCode.KAFKA_STORAGE_ERROR
            return ProducedPartition(partition_id, error.value, error_message=str(failure)), 0
        metrics = self.metrics
        metrics.produce_requests += 1
        metrics.messages_in += appended.last_offset - appended.base_offset + 1
        metrics.bytes_in += appended.size_bytes
        self._on_appended(appended.last_offset + 1, terms.now_ms)
        answer = self._produced(appended.base_offset, append_time_ms)
        return answer, self._wait_until(appended.last_offset + 1, terms)

    def append_late(
        self, batch: memoryview, terms: ProduceTerms, pending: PendingProduce, number: int, *,
        is_verified: bool = False, checked: BatchHeader | None = None,
    ) -> None:  # fmt: skip
        """Append a batch whose request waits for it already, as number `number`.

        Append even if the client was told of a time-out meanwhile: it sends the batch again as a
        duplicate, and the batches behind this one continue its sequence.
        """
        answer, required = self.append(batch, terms, is_verified=is_verified, checked=checked)
        pending.put(number, answer)
        if required and not pending.is_done:
            self.wait_for_replication(PendingAck(required, pending, number))
        else:
            pending.complete(number, ErrorCode.NONE)

    def holds_for_recompression(self, batch: memoryview) -> bool:
        """True for a batch that must wait its turn: it needs recompression, or others wait."""
        target_compression = self.config.target_compression
        # A follower need not recompress: it refuses the batch.
        return self.recompressing > 0 or (
            target_compression is not None
            and self.core.is_leader
            and not target_compression.fits(batch)
        )

    def _unserved(self) -> ErrorCode:
        """The error if this replica accepts no appends at all, else NONE.

        Bad sequence: 1. A transactional batch waits for its coordinator. 2. The topic is deleted.
        3. The batch is verified and appended: the log would create its folder again, for a topic
        that does not exist.
        """
        if self.is_closed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR if self.is_offline else ErrorCode.NONE

    def append_own(self, batch: bytearray, terms: ProduceTerms) -> ErrorCode:
        """Append a batch that this broker wrote itself: a coordinator's records, a marker.

        Only the leadership is checked here. The caller checks for enough in-sync replicas and waits
        for the high watermark. NONE: all of the batch is in the log, up to the log's `end_offset`.
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR or RECORD_LIST_TOO_LARGE (larger than a
        segment): none of it counts.
        """
        if self.is_offline or self.is_closed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        core = self.core
        if not core.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            appended = self.log.append_as_leader(
                batch, leader_epoch=core.leader_epoch, now_ms=terms.wall_ms
            )
            if not self.has_identity:
                self.write_identity()
        except BatchError as refused:
            _log.error("cannot append to %s-%d: %s", core.topic, core.partition_id, refused.reason)
            return refused.code
        except (OSError, CorruptData) as failure:
            self.fail(failure, "append")
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._on_appended(appended.last_offset + 1, terms.now_ms)
        return ErrorCode.NONE

    def _produced(self, base_offset: int, append_time_ms: int = -1) -> ProducedPartition:
        return ProducedPartition(
            self.core.partition_id, 0, base_offset, append_time_ms, self.log.start_offset
        )

    def _wait_until(self, required_offset: int, terms: ProduceTerms) -> int:
        if terms.acks != -1 or self.core.high_watermark >= required_offset:
            return 0
        return required_offset

    def _on_appended(self, end_offset: int, now_ms: int) -> None:
        has_risen = self.core.on_append(end_offset, now_ms)
        turn = self.loop_turn
        for watched in self.watchers:
            if watched.state.replica_id >= 0:
                watched.note_news(turn)
        if has_risen:
            self.on_high_watermark()

    def wait_for_replication(self, ack: PendingAck) -> None:
        """Complete `ack` when the high watermark reaches its offset, or when this broker stops
        leading."""
        error = self._unserved()
        if error != ErrorCode.NONE:
            # The disk failed after this append, at another partition of the same request.
            ack.pending.complete(ack.number, error)
            return
        acks = self.pending_acks
        if not acks or acks[-1].required_offset <= ack.required_offset:
            acks.append(ack)
            return
        # `ack` repeats an earlier batch: keep the order by offset.
        at = len(acks)
        while at and acks[at - 1].required_offset > ack.required_offset:
            at -= 1
        acks.insert(at, ack)

    def on_high_watermark(self) -> None:
        """The high watermark rose: complete the acks that it passed, wake the fetches that read up
        to it."""
        high_watermark = self.core.high_watermark
        if self.observer is not None:
            self.observer.on_high_watermark(self)
        acks = self.pending_acks
        if acks:
            error = self.core.check_acknowledged()
            while acks and (acks[0].required_offset <= high_watermark or acks[0].pending.is_done):
                ack = acks.popleft()
                ack.pending.complete(ack.number, error)
        turn = self.loop_turn
        for watched in self.watchers:
            state = watched.state
            state.dirty[watched] = None
            # A follower learns the high watermark with its next data or at the end of its wait:
            # answering it at each rise would double replication traffic. If consumers read from
            # followers, it is told at once.
            is_due = state.replica_id < 0 or self.core.peer_brokers.has_rack_readers
            if is_due and state.parked is not None:
                turn.wake(state.parked)

    def drop_expired_acks(self) -> None:
        """Forget acks whose request was already answered at its deadline."""
        acks = self.pending_acks
        while acks and acks[0].pending.is_done:
            acks.popleft()

    def fail_pending(self, error: ErrorCode) -> None:
        acks, self.pending_acks = self.pending_acks, deque()
        for ack in acks:
            ack.pending.complete(ack.number, error)
        self.on_low_watermark()

    def low_watermark(self) -> int:
        """The least log start offset among the live replicas, -1 while one of them is unknown."""
        return self.core.low_watermark(self.log.start_offset)

    def on_low_watermark(self) -> None:
        """Check waiting DeleteRecords again: the low watermark may have risen, or this broker has
        stopped leading."""
        for check_again in list(self.pending_deletions):
            check_again(self)

    def move_start(self, offset: int) -> None:
        """Start this leader's log at `offset`; followers are told at once.

        Raises OffsetOutOfRange if `offset` is above the log's end.
        """
        if self.log.advance_start_offset(offset):
            self.core.on_start_moved(offset)
            self.notify_state_change()

    def apply_retention(self, wall_ms: int) -> None:
        """Delete segments by size and age; followers and consumers that wait are told of a new log
        start."""
        log = self.log
        before = log.start_offset
        try:
            apply_retention(log, now_ms=wall_ms, high_watermark=self.core.high_watermark)
        finally:
            # Do so even if the disk failed half-way: the log start has moved by then.
            if log.start_offset > before:
                self.core.on_start_moved(log.start_offset)
                self.notify_state_change()
                self.on_low_watermark()

    def notify_state_change(self) -> None:
        """The role, the epoch or the existence of this replica changed: check every watching fetch
        again."""
        for watch in self.watchers:
            watch.note_news(self.loop_turn)

    # --- follower ----------------------------------------------------------------------------

    def append_as_follower(
        self, batches: memoryview, *, leader_high_watermark: int, wall_ms: int
    ) -> None:
        """Append the leader's batches unchanged. Raises what Log.append_as_follower raises."""
        log = self.log
        base_offset = log.base_below_start(batches)
        if base_offset is not None:
            core = self.core
            self.lower_checkpoints(core.topic, core.partition_id, base_offset, log.start_offset)
        log.append_as_follower(batches, now_ms=wall_ms)
        self.metrics.replication_bytes_in += len(batches)
        if not self.has_identity:
            self.write_identity()
        if self.core.on_follower_append(log.end_offset, leader_high_watermark):
            self.on_high_watermark()

    def on_leader_offsets(self, *, high_watermark: int, log_start_offset: int) -> bool:
        """Adopt the high watermark and log start that the leader sent, with or without new data.

        True if this replica's log start moved; the leader should be told.
        """
        core = self.core
        if core.on_follower_append(self.log.end_offset, high_watermark):
            self.on_high_watermark()
        if self.log.start_offset < log_start_offset <= self.log.end_offset:
            self.log.advance_start_offset(log_start_offset)
            core.on_start_moved(log_start_offset)
            return True
        return False

    def truncate_for(self, epoch: int, end_offset: int, wall_ms: int) -> int:
        """Truncate to where the leader's history and this log diverge, (epoch, end_offset); returns
        the new end offset. The rule is in `core/truncation`."""
        log = self.log
        if is_of_another_history(log.epochs, log.last_epoch):
            self.restart_at(log.start_offset, wall_ms)
            return log.end_offset
        # In a compacted log the truncation may end lower, at a gap (seed 106525). A recovery point
        # left above the real end would vouch for records appended there later, which a power
        # failure can lose.
        target = log.end_if_cut(
            truncation_offset(
                (epoch, end_offset),
                log.epochs,
                start_offset=log.start_offset,
                end_offset=log.end_offset,
            )
        )
        if target <= log.start_offset and log.has_unknown_epochs_below(target):
            # The epochs of the records that would be left are unknown, so a fetch could not name
            # one for the leader to check.
            self.restart_at(target, wall_ms)
            return target
        with self._lowered_to(target):
            log.truncate_to(target)
        self.core.on_truncated(log.end_offset)
        self._note_cut(log.end_offset)
        return log.end_offset

    def restart_at(self, offset: int, wall_ms: int) -> None:
        """Drop all records and start the log at `offset`: the leader no longer has the records
        before it."""
        if self.log.is_empty_at(offset):
            # The log has no records, but it may have epochs in which this broker led and wrote
            # nothing. Clear them; the producer state stays.
            self.log.epochs.clear()
            return
        with self._lowered_to(0, offset):
            self.log.truncate_fully_and_start_at(offset, now_ms=wall_ms)
        self.core.on_truncated(offset)
        self._note_cut(0)
        self.core.on_start_moved(offset)
        if offset > 0:
            if not self.has_identity:
                self.write_identity()
            # The recovery point is at `offset` now, before any records are flushed. A folder with a
            # recovery point and without partition.metadata counts as damaged.
            self.sync_identity()
            self.identity_unsynced = False

    def _note_cut(self, offset: int) -> None:
        if self.future is not None:
            self.future.note_cut(offset)

    @contextlib.contextmanager
    def _lowered_to(self, offset: int, start_offset: int = 0) -> Iterator[None]:
        """Lower every checkpoint to `offset` while the log is truncated, but the log-start
        checkpoint last, once everything below it is gone (seed 200908).

        start_offset: the log start after the truncation, if above `offset`.
        """
        core, log = self.core, self.log
        start_offset = max(start_offset, log.start_offset)
        self.lower_checkpoints(core.topic, core.partition_id, offset, start_offset)
        yield
        if log.start_offset < start_offset:
            self.lower_checkpoints(core.topic, core.partition_id, offset, log.start_offset)

    # --- disk --------------------------------------------------------------------------------

    @property
    def told_dir(self) -> LogDirectory:
        """The directory that the metadata is to name: near the end of a move its destination."""
        future = self.future
        return future.log_dir if future is not None and future.is_promised else self.log_dir

    def move_to(self, log: Log, log_dir: LogDirectory) -> None:
        """Go on with an equal log in another directory, whose partition.metadata is fsynced."""
        self.log, self.log_dir, self.future = log, log_dir, None
        self.lower_checkpoints = log_dir.store.checkpoints.lower
        self.identity_unsynced = False
        if not self.has_identity:
            self.has_identity = True
            self.on_first_file(self)

    def write_identity(self) -> None:
        """Write partition.metadata beside the first batch, so that a restart knows the topic id.

        The file is not fsynced here: it must last exactly as long as the data, so the first flush
        syncs it.
        """
        put_partition_metadata(self.disk, self.log.directory, self.core.topic_id)
        self.has_identity = True
        self.identity_unsynced = True
        self.on_first_file(self)

    def sync_identity(self) -> None:
        """Fsync partition.metadata (runs in the flush thread)."""
        sync_partition_metadata(self.disk, self.log.directory)

    def fail(self, failure: OSError | CorruptData, operation: str) -> None:
        """Take the replica offline after a disk call failed or damage was found. The controller is
        told: otherwise this broker would keep a leadership that it cannot use. A read that met a
        shortage leaves the log as it was, so the replica stays."""
        if operation == "read" and (limit := shortage_of(failure)):
            if not self.has_lacked:
                self.has_lacked = True
                _log.error("cannot read %s: %s; %s", self.log.directory, failure, limit)
            return
        if not self.is_offline and not self.is_closed:
            self.go_offline()
            self.on_failed(self, failure, operation)

    def go_offline(self) -> None:
        """Serve nothing more from this replica, since the state of its log is in doubt."""
        self.is_offline = True
        self.fail_pending(ErrorCode.KAFKA_STORAGE_ERROR)
        self.notify_state_change()
        if self.observer is not None:
            self.observer.on_replica(self)

    def summary(self) -> str:
        more = " uncleanable" if self.uncleanable else ""
        return f"{self.core.summary()} {self.log.summary()}{more}"
