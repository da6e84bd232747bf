"""The snapshot half of a node's disk: carries out the core's snapshot effects one at a time.

It holds no rule. The driver runs these coroutines on the event loop, the simulator in virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.raft.model.effects import FinishSnapshot, ReplyWithSnapshot, WriteSnapshotChunk
from kvorum.raft.model.events import SnapshotChunkWritten, SnapshotReceived, SnapshotTaken
from kvorum.raft.model.messages import FetchSnapshotResponse
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.runtime.ids import uuid_from_text, uuid_text
from kvorum.snapshots.format import SnapshotHeader, SnapshotId, read_header
from kvorum.snapshots.retention import SnapshotFile, to_remove
from kvorum.snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore
from kvorum.snapshots.transfer import SnapshotReceiver


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When a node takes snapshots and which it keeps; the names are Kafka's configs.

    metadata_log_segment_bytes: whole segments are trimmed, so this is far smaller than Kafka's 1
        GiB; 8 MiB is the minimum that Kafka accepts.
    """

    metadata_log_segment_bytes: int = 8 << 20
    metadata_log_max_record_bytes_between_snapshots: int = 20 << 20
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    metadata_max_retention_bytes: int = 100 << 20
    metadata_max_retention_ms: int = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSnapshots:
    """The snapshots found in a folder at start.

    good: undamaged snapshots, ascending.
    headers: the header of each of them.
    damaged: the fault of each other one.
    bootstrap_voters: the voter set of the bootstrap checkpoint, None if there is none.
    """

    good: tuple[OffsetAndEpoch, ...]
    headers: dict[OffsetAndEpoch, SnapshotHeader]
    damaged: tuple[CorruptData, ...]
    bootstrap_voters: VoterSet | None


def voters_of(header: SnapshotHeader) -> VoterSet | None:
    """The voter set in a snapshot's header, None for static voters. Raises ValueError."""
    if header.kraft_version == 0:
        return None
    return VoterSet.of(
        Voter(node_id, uuid_from_text(directory_id), host, port)
        for node_id, directory_id, host, port in header.voters
    )


def header_voters(voters: VoterSet) -> tuple[tuple[int, str, str, int], ...]:
    """A voter set in the form used by a snapshot's header."""
    return tuple((v.node_id, uuid_text(v.directory_id), v.host, v.port) for v in voters.voters)


class SnapshotFiles:
    """The snapshot files of one node's metadata log."""

    def __init__(self, store: SnapshotStore, policy: SnapshotPolicy | None = None) -> None:
        self.store = store
        self.policy = policy or SnapshotPolicy()
        self._receiver: SnapshotReceiver | None = None
        self._files: dict[OffsetAndEpoch, SnapshotFile] = {}

    async def open(self) -> FoundSnapshots:
        """Remove leftovers of a crash and check every snapshot as a whole. Raises OSError,
        CorruptData.

        A damaged snapshot is reported and left in place; the next older one is used instead.
        """
        store = self.store
        await store.clean_up()
        good: list[OffsetAndEpoch] = []
        headers: dict[OffsetAndEpoch, SnapshotHeader] = {}
        damaged: list[CorruptData] = []
        for id, header in await store.check_all():
            if isinstance(header, CorruptData):
                damaged.append(header)
                continue
            try:
                voters_of(header)
            except ValueError as error:
                damaged.append(CorruptData(store.path(id), 0, f"its voters: {error}"))
                continue
            snapshot = OffsetAndEpoch(id.end_offset, id.epoch)
            good.append(snapshot)
            headers[snapshot] = header
            await self._note(snapshot, header.timestamp_ms)
        bootstrap = await store.bootstrap()
        return FoundSnapshots(
            good=tuple(good),
            headers=headers,
            damaged=tuple(damaged),
            bootstrap_voters=None if bootstrap is None else voters_of(bootstrap),
        )

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return self.store.path(_id(snapshot))

    async def take(self, header: SnapshotHeader, payloads: Iterable[bytes]) -> SnapshotTaken:
        """Write a snapshot of the state machine; durable on return. Raises OSError."""
        id = await self.store.write(header, payloads)
        snapshot = OffsetAndEpoch(id.end_offset, id.epoch)
        await self._note(snapshot, header.timestamp_ms)
        return SnapshotTaken(snapshot)

    def expired(self, snapshots: Iterable[OffsetAndEpoch], *, log_bytes: int, now_ms: int) -> int:
        """The number of the oldest `snapshots` that retention releases. now_ms: wall clock.

        snapshots: those in the core's log. The folder may also hold a received snapshot that is
            waiting for its removal; it must not be counted.
        """
        policy = self.policy
        gone = to_remove(
            [self._files[snapshot] for snapshot in snapshots if snapshot in self._files],
            log_bytes=log_bytes,
            now_ms=now_ms,
            retention_bytes=policy.metadata_max_retention_bytes,
            retention_ms=policy.metadata_max_retention_ms,
        )
        return len(gone)

    async def write_chunk(self, effect: WriteSnapshotChunk) -> SnapshotChunkWritten:
        """Append a chunk from the leader to the part file. Raises OSError."""
        receiver = self._receiver
        if effect.position == 0:
            if receiver is not None:
                await receiver.abandon()
            receiver = self._receiver = SnapshotReceiver(self.store, _id(effect.snapshot))
        if receiver is None or receiver.id != _id(effect.snapshot):
            raise CorruptData(
                self.path(effect.snapshot), effect.position, "a piece without those before it"
            )
        await receiver.append(effect.position, effect.data)
        return SnapshotChunkWritten(effect.snapshot, receiver.position)

    async def finish(self, effect: FinishSnapshot) -> SnapshotReceived:
        """Check, fsync and name the received file. Raises OSError; damage is reported in the
        result."""
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return SnapshotReceived(effect.snapshot, is_good=False)
        try:
            header = await receiver.finish()
        except CorruptData:
            return SnapshotReceived(effect.snapshot, is_good=False)
        try:
            voters = voters_of(header)
        except ValueError:
            await self.remove([effect.snapshot])
            return SnapshotReceived(effect.snapshot, is_good=False)
        await self._note(effect.snapshot, header.timestamp_ms)
        return SnapshotReceived(effect.snapshot, is_good=True, voters=voters)

    async def read(self, effect: ReplyWithSnapshot) -> FetchSnapshotResponse:
        """The response to a FetchSnapshot, with its bytes. Raises OSError."""
        error = ErrorCode.NONE
        data, size = b"", 0
        try:
            data, size = await self.store.read_chunk(
                _id(effect.snapshot), effect.position, effect.bytes_max
            )
        except SnapshotNotFound:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        except PositionOutOfRange:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        return FetchSnapshotResponse(
            epoch=effect.epoch,
            leader_id=effect.leader_id,
            error=error,
            position=effect.position,
            size=size,
            data=data,
        )

    async def remove(self, snapshots: Iterable[OffsetAndEpoch]) -> None:
        """Remove snapshot files; a missing file is no error. Raises OSError."""
        for snapshot in snapshots:
            self._files.pop(snapshot, None)
            try:
                await self.store.remove(_id(snapshot))
            except SnapshotNotFound:
                continue

    async def remove_older(self, snapshot: OffsetAndEpoch) -> None:
        """Remove every snapshot older than this one; the log behind them is gone. Raises
        OSError."""
        for id in await self.store.list():
            if id < _id(snapshot):
                await self.remove([OffsetAndEpoch(id.end_offset, id.epoch)])

    def newest(self) -> SnapshotFile | None:
        """The newest snapshot on this disk; None without one."""
        return max(self._files.values(), key=lambda file: file.id.end_offset, default=None)

    async def header(self, snapshot: OffsetAndEpoch) -> SnapshotHeader:
        """The header of a snapshot file. Raises CorruptData, OSError."""
        return await read_header(self.store.disk, self.path(snapshot))

    async def _note(self, snapshot: OffsetAndEpoch, timestamp_ms: int) -> None:
        size_bytes = await self.store.size(_id(snapshot))
        self._files[snapshot] = SnapshotFile(_id(snapshot), size_bytes, timestamp_ms)


def _id(snapshot: OffsetAndEpoch) -> SnapshotId:
    return SnapshotId(snapshot.offset, snapshot.epoch)
