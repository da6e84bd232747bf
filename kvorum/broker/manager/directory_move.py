"""One move of a replica to another data directory of its broker: the driver of `next_step`.

The event loop reads the current log's indexes and decides; a thread reads its batches and appends
them to the future log, which nobody else uses. The swap is one turn of the loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from kvorum.broker.log_dirs.core.move_steps import (
    LAST_BYTES_MAX,
    AdvanceStart,
    Assign,
    Copy,
    Flush,
    MoveFacts,
    Restart,
    SaveStart,
    Step,
    Swap,
    TakeProducers,
    Truncate,
    Wait,
    common_end,
    next_step,
)
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.partition.future_replica import FutureReplica
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.runtime.clock import Clock
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, KvorumError, required
from kvorum.runtime.tasks import in_thread
from kvorum.storage.files.checkpoints import sync_partition_metadata
from kvorum.storage.files.model import LogSlice, OutOfOrderAppend
from kvorum.storage.format.batch import BatchError
from kvorum.storage.log.flush import FlushTicket
from kvorum.storage.log.log import Log
from kvorum.storage.recovery.batch_walk import first_damage

_log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
"""Bytes that the thread copies at once; then a truncation of the current log is looked at."""
FLUSH_BYTES = 16 << 20
"""Bytes after which the future log is fsynced, while the next are copied. With more, the kernel
would have so much to write at once that it makes producers wait."""
POLL_MS = 10
"""How often a move that waits for the metadata looks at it, and copies what was appended."""
THROTTLED_MS_MAX = 1_000


class SourceFailed(Exception):
    """The current log could not be read; the cause is an OSError or CorruptData."""


class MoveImpossible(KvorumError):
    """The move ends without a swap, and its folder is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParts:
    """What all moves of a broker share.

    turn: held by the one move that copies much.
    assign: tells the controller that the replica is to lie in the future's directory.
    is_told: true if the metadata says so.
    retire: gets the directory and the log that the replica has left.
    """

    disk: Disk
    clock: Clock
    quota: ReplicationQuota
    turn: asyncio.Lock
    assign: Callable[[Replica, FutureReplica], None]
    is_told: Callable[[Replica, FutureReplica], bool]
    retire: Callable[[Replica, LogDirectory, Log], None]


class DirectoryMove:
    """One move, from the open future replica to the swap."""

    def __init__(self, replica: Replica, future: FutureReplica, parts: MoveParts) -> None:
        self._replica = replica
        self._future = future
        self._parts = parts
        self._begun_ms = parts.clock.monotonic_ms()
        self._copied_bytes = 0
        self._unflushed_bytes = 0
        self._flushing: tuple[FlushTicket, asyncio.Task[None]] | None = None

    async def run(self) -> None:
        """Carry out the move; returns after the swap.

        Raises MoveImpossible, SourceFailed, OSError of the destination, and CorruptData if the
        future log that an earlier process left is damaged.
        """
        try:
            async with self._parts.turn:
                await self._open()
                while not await self._has_little_to_copy():
                    pass
            while not await self._take(next_step(self._facts())):
                pass
        finally:
            await self._end_flush()

    # --- steps -------------------------------------------------------------------------------

    async def _has_little_to_copy(self) -> bool:
        step = next_step(self._facts())
        if not isinstance(step, Truncate | Restart | AdvanceStart | Copy):
            return True
        await self._take(step)
        return False

    async def _take(self, step: Step) -> bool:
        """Take one step; True after the swap."""
        future, log = self._future, self._log_of_future
        if await self._is_throttled(step):
            return False
        if self._flushing is not None and not isinstance(step, Copy):
            await self._end_flush()
            return False  # the current log may have changed meanwhile
        # The step takes account of it: no other task has run since the facts were gathered.
        future.cut_offset = None
        match step:
            case Truncate(offset):
                future.has_producers = False
                await in_thread(lambda: log.truncate_to(offset))
            case Restart(offset):
                future.has_producers = False
                now_ms = self._parts.clock.wall_ms()
                await in_thread(lambda: log.truncate_fully_and_start_at(offset, now_ms=now_ms))
            case AdvanceStart(offset):
                log.advance_start_offset(offset)
            case Copy():
                await self._copy()
            case TakeProducers():
                self._take_producers()
            case Flush():
                await in_thread(self._flush)
            case SaveStart():
                checkpoints = future.log_dir.store.checkpoints
                checkpoints.collect_log_starts([self._replica])
                await in_thread(checkpoints.write_log_starts)
            case Assign():
                if not future.is_promised:
                    future.is_promised = True
                    self._parts.assign(self._replica, future)
                await asyncio.sleep(POLL_MS / 1000)
            case Wait():
                await asyncio.sleep(POLL_MS / 1000)
            case Swap():
                self._swap()
            case _:
                assert_never(step)
        return isinstance(step, Swap)

    def _facts(self) -> MoveFacts:
        replica, future, log = self._replica, self._future, self._log_of_future
        current = replica.log
        if log.config is not replica.config.log:
            log.reconfigure(replica.config.log)
        core = replica.core
        return MoveFacts(
            start_offset=current.start_offset,
            end_offset=current.end_offset,
            durable_end_offset=current.durable_end_offset,
            future_start_offset=log.start_offset,
            future_end_offset=log.end_offset,
            future_durable_end_offset=log.durable_end_offset,
            lag_bytes=self._lag_bytes(current, log.end_offset),
            has_producers=future.has_producers,
            is_identity_durable=future.is_identity_durable,
            saved_start_offset=future.log_dir.store.checkpoints.durable_start(
                core.topic, core.partition_id
            ),
            is_told=self._parts.is_told(replica, future),
            is_busy=current.segments.is_flushing or current.segments.is_cleaning,
            cut_offset=future.cut_offset,
        )

    @property
    def _log_of_future(self) -> Log:
        return required(self._future.log, "a move takes no step before `_open`")

    # --- the copy ----------------------------------------------------------------------------

    async def _open(self) -> None:
        future, replica = self._future, self._replica
        store, now_ms = future.log_dir.store, self._parts.clock.wall_ms()
        config, is_clean = replica.config.log, future.is_clean
        future.is_clean = False
        log = future.log = await in_thread(
            lambda: store.futures.open(future.folder, config, now_ms=now_ms, is_clean=is_clean)
        )
        current = replica.log
        future.note_cut(common_end(log.epochs, log.end_offset, current.epochs, current.end_offset))

    @staticmethod
    def _lag_bytes(current: Log, offset: int) -> int:
        """Size of the records from `offset` on; above LAST_BYTES_MAX it need not be exact."""
        if not current.start_offset <= offset < current.end_offset:
            return 0
        segments = current.segments
        try:
            size, has_more = segments.available(offset, end_offset=current.end_offset)
            later = segments.items[bisect_right(segments.bases, offset) :] if has_more else []
            for segment in later:
                size += segment.size_bytes
                if size > LAST_BYTES_MAX:
                    break
        except (OSError, CorruptData) as failure:
            raise SourceFailed from failure
        return size

    def _read(self, bytes_max: int) -> LogSlice:
        current = self._replica.log
        try:
            return current.read(
                self._log_of_future.end_offset, bytes_max=bytes_max, end_offset=current.end_offset
            )
        except (OSError, CorruptData) as failure:
            raise SourceFailed from failure

    async def _is_throttled(self, step: Step) -> bool:
        """True if the step copies records and none may be copied now; then after a pause."""
        if not isinstance(step, Copy | TakeProducers | Swap):
            return False
        quota, now_ms = self._parts.quota, self._parts.clock.monotonic_ms()
        is_level = self._log_of_future.end_offset == self._replica.log.end_offset
        if is_level or quota.room(now_ms) > 0:
            return False
        await asyncio.sleep(quota.wait_ms(now_ms, THROTTLED_MS_MAX) / 1000)
        return True

    async def _copy(self) -> None:
        room = self._parts.quota.room(self._parts.clock.monotonic_ms())
        found = self._read(min(SLICE_BYTES, room))
        if not found.length:
            raise MoveImpossible(f"nothing can be read at offset {self._future.end_offset}")
        segments = self._replica.log.segments
        segments.hold_files()
        try:
            await in_thread(lambda: self._append(found))
        finally:
            segments.release_files()
        self._note_copied(found)
        if self._unflushed_bytes >= FLUSH_BYTES:
            await self._end_flush()
            ticket = self._log_of_future.begin_flush()
            self._unflushed_bytes = 0
            self._flushing = ticket, asyncio.ensure_future(in_thread(ticket.run))

    async def _end_flush(self) -> None:
        """Wait for the flush that runs while records are copied."""
        if self._flushing is None:
            return
        ticket, task = self._flushing
        self._flushing = None
        try:
            await task
        finally:
            self._log_of_future.end_flush(ticket)

    def _note_copied(self, found: LogSlice) -> None:
        self._parts.quota.record(found.length, self._parts.clock.monotonic_ms())
        self._copied_bytes += found.length
        self._unflushed_bytes += found.length

    def _append(self, found: LogSlice) -> None:
        """Append the batches of a slice to the future log; runs in a thread."""
        try:
            data = found.read()
        except OSError as failure:
            raise SourceFailed from failure
        future, log = self._future, self._log_of_future
        try:
            log.append_as_follower(data, now_ms=self._parts.clock.wall_ms())
        except (BatchError, OutOfOrderAppend) as unfit:
            if future.cut_offset is not None:
                return  # truncated and written to again meanwhile: the next step drops the records
            damage = first_damage(found, data)
            if damage is not None:
                raise SourceFailed from damage
            raise MoveImpossible(f"what follows offset {log.end_offset} is {unfit}") from unfit

    def _flush(self) -> None:
        future, log = self._future, self._log_of_future
        if not future.is_identity_durable:
            sync_partition_metadata(self._parts.disk, log.directory)
            self._parts.disk.sync_dir(future.log_dir.path)
            future.is_identity_durable = True
        self._unflushed_bytes = 0
        log.flush()

    def _copy_rest(self) -> None:
        """Copy what is left on the loop, at most LAST_BYTES_MAX."""
        log, current = self._log_of_future, self._replica.log
        while log.end_offset < current.end_offset:
            found = self._read(LAST_BYTES_MAX)
            if not found.length:
                raise MoveImpossible(f"nothing can be read at offset {log.end_offset}")
            self._append(found)
            self._note_copied(found)

    def _take_producers(self) -> None:
        """Take over the producers whose batches are gone. The snapshot of the roll keeps them."""
        self._copy_rest()
        log, current = self._log_of_future, self._replica.log
        if log.producers.ends() != current.producers.ends():
            log.producers.complete(current.producers.until(current.end_offset))
            log.roll(now_ms=self._parts.clock.wall_ms())
        self._future.has_producers = True

    # --- the swap ----------------------------------------------------------------------------

    def _swap(self) -> None:
        """Put the future replica in the current one's place; nothing else runs meanwhile.

        A crash after the first rename leaves two folders of that name. The metadata names the
        destination, so the start removes the other one. A power failure can undo the first rename
        alone; then the start does it again (`move_rules.promoted`).
        """
        replica, future, log = self._replica, self._future, self._log_of_future
        self._copy_rest()
        current, source, target = replica.log, replica.log_dir, future.log_dir
        name = target.store.futures.promote(future.folder)
        log.move_to(f"{target.path}/{name}", equal=current)
        topic, partition_id = replica.topic_partition
        cleaned_offset = source.store.checkpoints.cleaner_offset(topic, partition_id)
        if cleaned_offset is not None:
            target.store.checkpoints.set_cleaner_offset(topic, partition_id, cleaned_offset)
        replica.move_to(log, target)
        took_ms = self._parts.clock.monotonic_ms() - self._begun_ms
        _log.info(
            "moved %s from %s to %s: end_offset=%d bytes=%d copied=%d took_ms=%d",
            name, source.path, target.path, log.end_offset, log.size_bytes, self._copied_bytes,
            took_ms,
        )  # fmt: skip
        self._parts.retire(replica, source, current)


def is_full(failure: OSError) -> bool:
    """True if the disk has no room: only the move needs it, so its directory stays online."""
    return failure.errno in (errno.ENOSPC, errno.EDQUOT)
