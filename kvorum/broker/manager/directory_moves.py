"""The moves of replicas between the data directories of this broker (KIP-113): which are under way,
how each begins and ends. A driver; the rules are in `kvorum/broker/log_dirs/core`.

Walk: AlterReplicaLogDirs -> `alter` -> a future replica and a task (`DirectoryMove`) -> the swap ->
`_retire`. At a start, `continue_moves` finds the future replicas that an earlier process left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kvorum.broker.controller_channel.assignments_manager import AssignmentsManager
from kvorum.broker.log_dirs.core.move_rules import (
    Action,
    Asked,
    FoundFuture,
    continued,
    decide,
    promoted,
)
from kvorum.broker.log_dirs.log_directories import LogDirectories, LogDirectory, is_disk_fault
from kvorum.broker.manager.directory_move import (
    DirectoryMove,
    MoveImpossible,
    MoveParts,
    SourceFailed,
    is_full,
)
from kvorum.broker.manager.replica_registry import ReplicaRegistry, ReplicaWithoutLog
from kvorum.broker.partition.future_replica import FutureReplica
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.runtime.clock import Clock
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, ErrorCode, shortage_of
from kvorum.runtime.tasks import TaskGroup, in_thread, report_failure
from kvorum.storage.log.log import Log

_log = logging.getLogger(__name__)

OnDirectoryError = Callable[[LogDirectory, OSError, str], None]
Named = tuple[str, int]
"""A topic and a partition."""

REMOVAL_CHECK_MS = 500
RETRY_MS = 10_000
"""Pause of a move that met a lack of open files or of memory."""


class _Retired(NamedTuple):
    """An old log. Fetches that began before the swap still send from it.

    due_ms: when it is closed and its folder removed.
    target: where the replica is now.
    """

    due_ms: int
    log_dir: LogDirectory
    log: Log
    aside: str
    target: LogDirectory


class DirectoryMoves:
    """All moves of a broker. quota: of replica.alter.log.dirs.io.max.bytes.per.second."""

    def __init__(
        self,
        *,
        broker_id: int,
        registry: ReplicaRegistry,
        directories: LogDirectories,
        assignments: AssignmentsManager,
        disk: Disk,
        clock: Clock,
        on_directory_error: OnDirectoryError,
    ) -> None:
        """on_directory_error: handles a failed disk call that concerns no single replica."""
        self._broker_id = broker_id
        self._registry = registry
        self._directories = directories
        self._assignments = assignments
        self._clock = clock
        self._on_directory_error = on_directory_error
        self.quota = ReplicationQuota(clock.monotonic_ms())
        self._parts = MoveParts(
            disk=disk,
            clock=clock,
            quota=self.quota,
            turn=asyncio.Lock(),
            assign=self._assign,
            is_told=self._is_told,
            retire=self._retire,
        )
        self._is_started = False
        self._tasks = TaskGroup(report_failure)
        self._retired: list[_Retired] = []
        self._has_retired = asyncio.Event()

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the moves that were found; needs a running event loop."""
        self._is_started = True
        for replica, future in self.under_way():
            self._spawn(replica, future)
        self._tasks.spawn(self._remove_retired(), "removal of moved logs")

    async def stop(self) -> list[ReplicaWithoutLog]:
        """Stop every move and close its log, so that the next start continues it. Returns those
        that could not be closed."""
        await self.halt()
        unclosed = []
        for _, future in self.under_way():
            log = future.log
            if log is None:
                continue
            try:
                await in_thread(log.close)
            except (OSError, CorruptData) as failure:
                _log.error("%s is not closed: %s", log.directory, failure)
                log.abandon()
                unclosed.append(ReplicaWithoutLog(future.folder, future.log_dir))
        for retired in self._retired:
            retired.log.abandon()
        self._retired.clear()
        return unclosed

    async def halt(self) -> None:
        """Stop every move where it is."""
        self._is_started = False
        await self._tasks.stop()

    def under_way(self) -> Iterator[tuple[Replica, FutureReplica]]:
        """The replicas that are being moved, each with its future replica."""
        for replica in self._registry.all():
            if replica.future is not None:
                yield replica, replica.future

    # --- requests ----------------------------------------------------------------------------

    async def alter(self, wanted: Mapping[Named, str]) -> dict[Named, ErrorCode]:
        """Begin, replace or cancel moves. wanted: the path of the directory for each replica.

        A replica that this broker does not host yet will be created in that directory.
        """
        answers: dict[Named, ErrorCode] = {}
        begun: dict[Named, tuple[Replica, FutureReplica]] = {}
        for named, path in wanted.items():
            asked = self._asked(named, path)
            answers[named], action = decide(asked)
            replica = self._registry.find_by_name(*named)
            if action is Action.PREFER:
                self._directories.prefer(named, path)
            elif action is not Action.NOTHING and replica is not None:
                self.cancel(replica, "another directory was asked for")
                if action is Action.START and asked.destination is not None:
                    begun[named] = (replica, self._begin(replica, asked.destination))
        if begun:
            failures = await in_thread(partial(_create_folders, begun))
            for named, (replica, future) in begun.items():
                failure = failures.get(named)
                if failure is not None:
                    answers[named] = ErrorCode.KAFKA_STORAGE_ERROR
                    self._on_target_failed(replica, future, failure)
                elif replica.future is future:
                    if self._is_started:  # else the broker stops, and its next start continues
                        self._spawn(replica, future)
                else:
                    # Another request, or the deletion of the topic, came in between.
                    self._drop_folder(future)
        return answers

    def _asked(self, named: Named, path: str) -> Asked[LogDirectory]:
        topic, partition_id = named
        destination = next((d for d in self._directories.items if d.path == path), None)
        image = self._registry.image.topic(topic)
        replica = self._registry.find_by_name(*named)
        is_broken = (
            image is not None
            and self._registry.get_broken((image.topic_id, partition_id)) is not None
        )
        return Asked(
            name=f"{topic}-{partition_id}",
            destination=destination,
            is_destination_offline=destination is not None and destination.is_offline,
            is_cordoned=destination is not None and destination.is_cordoned,
            is_in_metadata=image is not None and partition_id in image.partitions,
            is_offline=is_broken or (replica is not None and replica.is_offline),
            current=None if replica is None else replica.log_dir,
            future=None if replica is None or replica.future is None else replica.future.log_dir,
        )

    def _begin(self, replica: Replica, target: LogDirectory) -> FutureReplica:
        name = f"{replica.core.topic}-{replica.core.partition_id}"
        future = FutureReplica(target, target.store.futures.new_folder(name), is_clean=False)
        self._enter(replica, future)
        try:
            # An earlier log of this name may have been here: its recovery point would vouch for
            # records that this one lacks.
            target.store.checkpoints.forget(replica.topic_partition)
        except OSError as failure:
            self._on_directory_error(target, failure, "checkpoint")
        return future

    def _enter(self, replica: Replica, future: FutureReplica) -> None:
        replica.future = future
        future.log_dir.replicas += 1
        future.log_dir.store.futures.begin(replica.topic_partition)
        replica.log.segments.stop_cleaning()
        _log.info(
            "move %s from %s to %s",
            f"{replica.core.topic}-{replica.core.partition_id}",
            replica.log_dir.path,
            future.log_dir.path,
        )

    # --- the start ---------------------------------------------------------------------------

    def promote(self, name: str, topic_id: bytes, told: bytes) -> None:
        """Before a replica is placed: complete a swap that a power failure half undid."""
        items = self._directories.items
        online = [at for at, item in enumerate(items) if not item.is_offline]
        found = promoted(
            self._found(name),
            topic_id=topic_id,
            told=self._index_of(told),
            currents=[at for at in online if name in items[at].store.unclaimed],
            put_aside=[at for at in online if name in items[at].store.put_aside],
        )
        if found is None:
            return
        log_dir = items[found.log_dir]
        try:
            log_dir.store.promote_future(found.folder, topic_id)
        except OSError as failure:
            self._on_directory_error(log_dir, failure, "rename")
        else:
            _log.warning("the move of %s to %s is completed", name, log_dir.path)

    def continue_moves(self, replica: Replica, told: bytes) -> None:
        """A replica was opened: continue its move, if the start has found a future replica."""
        core = replica.core
        name = f"{core.topic}-{core.partition_id}"
        found = self._found(name)
        if not found:
            return
        items = self._directories.items
        chosen = continued(
            found,
            topic_id=core.topic_id,
            current=items.index(replica.log_dir),
            told=self._index_of(told),
        )
        for other in found:
            if other is not chosen:
                self._remove(items[other.log_dir], other.folder, "no move needs it")
        if chosen is None:
            return
        log_dir = items[chosen.log_dir]
        log_dir.store.futures.found.pop(chosen.folder)
        is_clean = log_dir.store.was_closed(chosen.folder)
        future = FutureReplica(log_dir, chosen.folder, is_clean=is_clean)
        self._enter(replica, future)
        if self._is_started:
            self._spawn(replica, future)

    def drop_strays(self) -> None:
        """Remove the future replicas that no replica of this broker continues; the image is newer
        than they are."""
        broken = {entry.name for entry in self._registry.broken}
        for log_dir in self._directories.online:
            futures = log_dir.store.futures
            kept = {folder for name in broken for folder in futures.of(name)}
            for folder in [f for f in futures.found if f not in kept]:
                self._remove(log_dir, folder, "its replica is gone")

    @property
    def has_strays(self) -> bool:
        """True if `drop_strays` may have something to do."""
        return any(item.store.futures.found for item in self._directories.online)

    def _found(self, name: str) -> list[FoundFuture]:
        return [
            FoundFuture(log_dir=at, folder=folder, topic_id=item.store.futures.found[folder])
            for at, item in enumerate(self._directories.items)
            if not item.is_offline and item.store.futures.found
            for folder in item.store.futures.of(name)
        ]

    def _index_of(self, directory_id: bytes) -> int | None:
        item = self._directories.by_id(directory_id)
        return None if item is None else self._directories.items.index(item)

    # --- the task of one move ----------------------------------------------------------------

    def _spawn(self, replica: Replica, future: FutureReplica) -> None:
        core = replica.core
        future.task = self._tasks.spawn(
            self._run(replica, future), f"move of {core.topic}-{core.partition_id}"
        )
        future.task.add_done_callback(lambda _: self._on_task_ended(future))

    def _on_task_ended(self, future: FutureReplica) -> None:
        # Not in the task: one that is cancelled before its first step runs no line at all.
        if future.is_dropped:
            self._drop_folder(future)

    async def _run(self, replica: Replica, future: FutureReplica) -> None:
        is_renewed = False
        while True:
            try:
                await self._run_once(replica, future)
                return
            except OSError as failure:
                if not shortage_of(failure):
                    self._on_target_failed(replica, future, failure)
                    return
                _log.warning("%s waits: %s; %s", future.folder, failure, shortage_of(failure))
                # After a failed flush a log must be opened again.
                _close(future)
                await asyncio.sleep(RETRY_MS / 1000)
            except CorruptData as damage:
                if is_renewed:
                    self._give_up(replica, future, f"{damage}; check the disk")
                    return
                _log.warning("%s; the copy begins anew", damage)
                is_renewed = True
                if not await self._renew(replica, future):
                    return
            except MoveImpossible as reason:
                self._give_up(replica, future, str(reason))
                return

    async def _run_once(self, replica: Replica, future: FutureReplica) -> None:
        try:
            await DirectoryMove(replica, future, self._parts).run()
        except SourceFailed as wrapped:
            failure = wrapped.__cause__
            if isinstance(failure, OSError | CorruptData) and replica.future is future:
                # This ends the move too, for the replica goes offline. A shortage is no such
                # failure: the move goes on later.
                replica.fail(failure, "read")
                if shortage_of(failure):
                    raise failure from None
            return
        await self._save(replica.log_dir)

    async def _renew(self, replica: Replica, future: FutureReplica) -> bool:
        """Replace the folder of a damaged future replica by an empty one; False if the disk
        fails."""
        store = future.log_dir.store
        name = f"{replica.core.topic}-{replica.core.partition_id}"
        self._drop_folder(future)
        future.folder = store.futures.new_folder(name)
        future.has_producers = future.is_identity_durable = False
        topic_id = replica.core.topic_id
        try:
            await in_thread(lambda: store.futures.create(future.folder, topic_id))
        except OSError as failure:
            self._on_target_failed(replica, future, failure)
            return False
        return True

    async def _save(self, log_dir: LogDirectory) -> None:
        """Make a swap and the checkpoints of the destination durable."""
        checkpoints = log_dir.store.checkpoints
        here = [r for r in self._registry.with_files() if r.log_dir is log_dir]
        checkpoints.collect_high_watermarks(here)
        checkpoints.collect_log_offsets(here)

        def write() -> None:
            self._parts.disk.sync_dir(log_dir.path)
            checkpoints.write_high_watermarks()
            checkpoints.write_log_offsets()
            checkpoints.write_cleaner_offsets()

        try:
            await in_thread(write)
        except OSError as failure:
            self._on_directory_error(log_dir, failure, "checkpoint")

    def _assign(self, replica: Replica, future: FutureReplica) -> None:
        if future.log_dir.id is not None:
            self._assignments.assign(_key_of(replica), future.log_dir.id)

    def _is_told(self, replica: Replica, future: FutureReplica) -> bool:
        image = self._registry.image.partition(*_key_of(replica))
        return image is not None and image.directory_of(self._broker_id) == future.log_dir.id

    def _retire(self, replica: Replica, log_dir: LogDirectory, log: Log) -> None:
        """A replica has left `log_dir`: put its folder aside, and remove it later."""
        replica.log_dir.store.futures.end(replica.topic_partition)
        log_dir.replicas -= 1
        try:
            aside = log_dir.store.vacate(replica.topic_partition, log)
        except OSError as failure:
            # The next start finds two folders, and removes this one.
            log.abandon()
            self._on_directory_error(log_dir, failure, "rename")
            return
        if aside is None:
            log.abandon()
            return
        due_ms = self._clock.monotonic_ms() + log.config.file_delete_delay_ms
        self._retired.append(_Retired(due_ms, log_dir, log, aside, replica.log_dir))
        self._has_retired.set()

    async def _remove_retired(self) -> None:
        while True:
            if not self._retired:
                self._has_retired.clear()
                await self._has_retired.wait()
            await asyncio.sleep(REMOVAL_CHECK_MS / 1000)
            now_ms = self._clock.monotonic_ms()
            due = [item for item in self._retired if item.due_ms <= now_ms]
            self._retired = [item for item in self._retired if item.due_ms > now_ms]
            for item in due:
                item.log.abandon()
                # The new name first: power could undo it while the old folder is gone.
                target = item.target
                try:
                    await in_thread(partial(self._parts.disk.sync_dir, target.path))
                except OSError as failure:
                    self._on_directory_error(target, failure, "sync")
                else:
                    item.log_dir.store.remove_later(item.aside)

    # --- moves that end without a swap -------------------------------------------------------

    def cancel(self, replica: Replica, reason: str) -> None:
        """End the replica's move, if there is one, and remove the future replica."""
        future = replica.future
        if future is not None:
            future.is_dropped = True
            self._leave(replica, future, reason)

    def abandon(self, replica: Replica) -> None:
        """End the replica's move for now, because a directory or the replica failed. The future
        replica stays; the next start continues the move."""
        if replica.future is not None:
            self._leave(replica, replica.future, "a directory or the replica has failed")

    def _leave(self, replica: Replica, future: FutureReplica, reason: str) -> None:
        replica.future = None
        future.log_dir.replicas -= 1
        future.log_dir.store.futures.end(replica.topic_partition)
        name = f"{replica.core.topic}-{replica.core.partition_id}"
        _log.info("the move of %s to %s ends: %s", name, future.log_dir.path, reason)
        if future.is_promised and not replica.is_closed and replica.log_dir.id is not None:
            # The metadata may name the destination, or is about to.
            self._assignments.assign(_key_of(replica), replica.log_dir.id)
        if future.task is not None:
            future.task.cancel()
        elif not self._is_started:
            self._on_task_ended(future)
        if not future.is_dropped and future.task is not None:
            future.task.add_done_callback(lambda _: _close(future))

    def _give_up(self, replica: Replica, future: FutureReplica, reason: str) -> None:
        if replica.future is future:
            name = f"{replica.core.topic}-{replica.core.partition_id}"
            _log.error("%s is not moved to %s: %s", name, future.log_dir.path, reason)
            self.cancel(replica, "it failed")

    def _on_target_failed(self, replica: Replica, future: FutureReplica, failure: OSError) -> None:
        """A disk call in the destination has failed. Only the move needs room there: a full disk
        ends the move, and its directory stays online."""
        if replica.future is not future:
            return
        if is_full(failure) or not is_disk_fault(failure):
            self._give_up(replica, future, f"{failure}; make room, and ask for the move again")
        else:
            self._on_directory_error(future.log_dir, failure, "move")

    def _drop_folder(self, future: FutureReplica) -> None:
        _close(future)
        if not future.log_dir.is_offline:
            self._remove(future.log_dir, future.folder, "its move has ended")

    def _remove(self, log_dir: LogDirectory, folder: str, reason: str) -> None:
        _log.info("remove %s/%s: %s", log_dir.path, folder, reason)
        try:
            log_dir.store.drop_future(folder)
        except OSError as failure:
            self._on_directory_error(log_dir, failure, "removal")


def _create_folders(
    begun: Mapping[Named, tuple[Replica, FutureReplica]],
) -> dict[Named, OSError]:
    """Make the folders of moves that begin (blocking); returns the failures."""
    failures = {}
    for named, (replica, future) in begun.items():
        try:
            future.log_dir.store.futures.create(future.folder, replica.core.topic_id)
        except OSError as failure:
            failures[named] = failure
    return failures


def _close(future: FutureReplica) -> None:
    log, future.log = future.log, None
    if log is not None:
        log.abandon()


def _key_of(replica: Replica) -> tuple[bytes, int]:
    return replica.core.topic_id, replica.core.partition_id
